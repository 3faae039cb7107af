"""An agent's store: reading, writing and compacting it. Standard library only."""

from memlab.store.sqlite_store import SqliteMemoryStore

__all__ = ["SqliteMemoryStore"]
