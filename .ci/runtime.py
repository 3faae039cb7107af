"""What an agent's runtime does with the wheel installed without its dependencies.

python .ci/runtime.py FOLDER PLAN: writes a store and a log into FOLDER, compacts, applies a
reviewed PLAN, and takes it back. Nothing but the standard library is there to do it with.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from memlab import LifecycleStore, MemoryItem, MemoryKind, MemoryProvenance, Plan, apply, restore
from memlab.evidence import AccessLog
from memlab.store import SqliteMemoryStore

folder = Path(sys.argv[1])
plan = Plan.from_json(Path(sys.argv[2]).read_bytes())
now = datetime.now(UTC)
with LifecycleStore(folder / "boot.db") as store:
    for number in range(4):
        provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
        store.put(MemoryItem(f"m{number}", MemoryKind.EPISODIC, "", "x" * 40, provenance))
    assert store.touch(["m0"]) == 1
    assert [item.memory_id for item in store.boot_items(max_tokens=20)] == ["m0", "m3"]

log = AccessLog(folder / "reads.log")
with SqliteMemoryStore(folder / "memory.db", access_log=log) as store:
    for number in range(60):
        provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
        kind = MemoryKind.PROCEDURAL if number % 20 == 0 else MemoryKind.EPISODIC
        store.put(MemoryItem(f"m{number}", kind, "a title", "a body", provenance))
    assert store.get("m7") is not None
    assert store.compact_episodic(50) == 7
    assert len(store.list_active()) == 53
assert "m7" in (folder / "reads.log").read_text()

receipt = apply(plan, now=now)
assert receipt.deleted == len(plan.memories) > 0
assert restore(receipt, now=now).memories == receipt.deleted

with SqliteMemoryStore(folder / "memory.db", archive=True) as store:
    assert store.compact_episodic(40) == 10
assert (folder / "memory.db.archive.db").stat().st_size > 0

loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
# What an environment puts into every process: setuptools, and a distribution's own Python.
loaded -= {"_distutils_hack", "sitecustomize"}
assert loaded <= {"memlab", "__main__"}, loaded
print(f"put, got, logged and compacted; {receipt.deleted} memories archived, deleted and restored")
