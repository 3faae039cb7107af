"""The agent's own SQLite store, and the archive beside every store. Standard library only.

An agent's runtime imports this package without any dependency. Stores of other systems are in
``systems``, and plans in ``compaction``.
"""

from memlab.store.snapshot import copy_store
from memlab.store.sqlite_store import ReadLog, SqliteMemoryStore

__all__ = ["ReadLog", "SqliteMemoryStore", "copy_store"]
