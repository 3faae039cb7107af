"""A store that enforces caps, expiry and near-duplicate rules as it is written."""

from memlab.lifecycle.guarded import LifecycleStore
from memlab.lifecycle.signals import LifecycleStats, Trust

__all__ = ["LifecycleStats", "LifecycleStore", "Trust"]
