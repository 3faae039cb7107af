"""The text of a settings file with every setting."""

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
