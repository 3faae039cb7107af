"""The write-time half: a store that caps, expires, reinforces and replaces as it is written."""

from memlab.lifecycle.guarded import LifecycleStore
from memlab.lifecycle.signals import LifecycleStats, Trust

__all__ = ["LifecycleStats", "LifecycleStore", "Trust"]
