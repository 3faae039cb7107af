"""Use the wheel without its dependencies, as the runtime of an agent does.

    python .ci/runtime.py FOLDER PLAN

Writes a store and an access log into FOLDER, compacts the store, applies the reviewed PLAN, and
restores its memories. Only the standard library may be imported.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from memlab import LifecycleStore, MemoryItem, MemoryKind, MemoryProvenance, Plan, apply, restore
from memlab.evidence import AccessLog
from memlab.store import SqliteMemoryStore

ALLOWED_MODULES = {"memlab", "__main__", "_distutils_hack", "sitecustomize"}
"""The last two are loaded into every process by setuptools and by some distributions' Python."""


def check_lifecycle_store(folder: Path) -> None:
    """Write a store with usage counters, and read the memories to load at a start."""
    with LifecycleStore(folder / "boot.db") as store:
        for number in range(4):
            provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
            item = MemoryItem(f"m{number}", MemoryKind.EPISODIC, "", "x" * 40, provenance)
            store.put(item)
        assert store.touch(["m0"]) == 1
        assert [item.memory_id for item in store.boot_items(max_tokens=20)] == ["m0", "m3"]


def check_memory_store(folder: Path) -> None:
    """Write a store with an access log, and compact it with and without an archive."""
    log = AccessLog(folder / "reads.log")
    path = folder / "memory.db"
    with SqliteMemoryStore(path, access_log=log) as store:
        for number in range(60):
            provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
            kind = MemoryKind.PROCEDURAL if number % 20 == 0 else MemoryKind.EPISODIC
            store.put(MemoryItem(f"m{number}", kind, "a title", "a body", provenance))
        assert store.get("m7") is not None
        assert store.compact_episodic(50) == 7
        assert len(store.list_active()) == 53
    assert "m7" in (folder / "reads.log").read_text()
    with SqliteMemoryStore(path, archive=True) as store:
        assert store.compact_episodic(40) == 10
    assert (folder / "memory.db.archive.db").stat().st_size > 0


def apply_and_restore(plan: Plan) -> int:
    """Apply a plan and restore its memories; return their number."""
    now = datetime.now(UTC)
    receipt = apply(plan, now=now)
    assert receipt.deleted == len(plan.memories) > 0
    assert restore(receipt, now=now).memories == receipt.deleted
    return receipt.deleted


def main() -> None:
    """Check each use, and that no dependency was imported."""
    folder = Path(sys.argv[1])
    plan = Plan.from_json(Path(sys.argv[2]).read_bytes())
    check_lifecycle_store(folder)
    check_memory_store(folder)
    deleted = apply_and_restore(plan)
    packages = {name.partition(".")[0] for name in sys.modules}
    imported = packages - sys.stdlib_module_names - ALLOWED_MODULES
    assert not imported, imported
    print(f"put, got, logged and compacted; {deleted} memories archived, deleted and restored")


if __name__ == "__main__":
    main()
