"""Planning on store files: what a plan names, and that making one leaves no trace."""

import os
import subprocess
import sys
from pathlib import Path

from archives import NOON, planned
from stores import row, run_sql, write_rows

from memlab.compaction.planner import plan
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore

HERE = Path(__file__).parents[2]


def test_a_plan_names_what_compaction_would_delete_and_leaves_no_trace(store: Path) -> None:
    before, names = store.read_bytes(), sorted(store.parent.iterdir())
    made = planned(store)
    assert store.read_bytes() == before
    assert sorted(store.parent.iterdir()) == names
    with SqliteMemoryStore(store) as opened:
        assert plan(opened, KeepRecent(4), now=NOON) == made
    assert [goes.memory_id for goes in made.memories] == [f"e{n}" for n in range(1, 7)]
    assert [kept.memory_id for kept in made.kept] == ["e7", "e8", "e9", "e10"]
    assert made.boot_before.memories == 12
    assert made.boot_after.memories == 6
    assert made.floor.memories == 2
    assert made.total.memories == 13


_ASK = """
import sys
from datetime import UTC, datetime
import memlab
from memlab.policies import KeepRecent, Learned, ValueCap

noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
for store in sys.argv[1:]:
    for policy in (KeepRecent(4), Learned(4), ValueCap(5)):
        print(memlab.plan(store, policy, now=noon).digest)
"""


def test_the_same_plan_on_the_same_store_and_moment_has_the_same_digest(
    store: Path, tmp_path: Path
) -> None:
    write_rows(store, [row(f"r{n}", evidence_refs_json=f'["e{n}"]') for n in range(1, 9)])
    (tmp_path / "link.db").symlink_to(store)

    def digests(*names: str, **environment: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, *names],
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(HERE), **environment},
        )
        return done.stdout.split()

    found = digests(str(store), PYTHONHASHSEED="1")
    assert len(set(found)) == 3
    run_sql(store, "PRAGMA journal_mode = DELETE")
    named = digests("memory.db", "link.db", store.as_uri(), PYTHONHASHSEED="2", TZ="Asia/Tokyo")
    assert named == 3 * found
