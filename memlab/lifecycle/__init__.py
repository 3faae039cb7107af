"""A store that enforces caps, expiry and near-duplicate rules at each write.

It is for an agent's runtime, beside :class:`memlab.SqliteMemoryStore`. Changes by a reviewed plan
are in ``compaction``.
"""

from memlab.lifecycle.guarded import LifecycleStore
from memlab.lifecycle.signals import LifecycleStats, Trust

__all__ = ["LifecycleStats", "LifecycleStore", "Trust"]
