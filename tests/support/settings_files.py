"""The text of a settings file with every setting, and a writer that saves settings repeatedly."""

from pathlib import Path

from memlab.sources.opening import open_source, save_store_settings

WHOLE = """
# every setting
protected_tags = ["pinned"]
target = 0.8

[store."memory.db"]
policy = { name = "recent", keep = 546 }
target = 0.95
confidence = 0.8
token_budget = 20000
log = ["reads.log", "other.csv"]
archive_for = "365d"
vacuum_free = 0.25

[store."other.db"]
policy = { name = "ttl", ttl = "30d" }

[store.memory.claude]
lines = 100
kinds = { project = "semantic" }
"""


def save_often(store: Path) -> None:
    """Save ten policies of a store, one after the other."""
    for keep in range(10):
        save_store_settings(open_source(store), {"policy": {"name": "recent", "keep": keep}})
