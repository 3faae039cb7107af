"""The agent's own SQLite store: reading, writing and compacting it. Standard library only."""

from memlab.store.snapshot import copy_store
from memlab.store.sqlite_store import ReadLog, SqliteMemoryStore

__all__ = ["ReadLog", "SqliteMemoryStore", "copy_store"]
