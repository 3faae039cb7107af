"""Write the golden files of a tree of memlab into a new folder.

    git worktree add /tmp/tree 34b9bf59
    PYTHONPATH=/tmp/tree python tests/golden/make_golden.py /tmp/golden/format_2

Each folder beside this script holds what the memlab of one format wrote, and is never written
again: later versions must read it, undo what it did and add to it. The stores are small and hold
one of everything that memlab persists.
"""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import memlab
from memlab import fleet
from memlab.compaction import (
    drop_archived,
    export_archived,
    keep_copies,
    plan_supersession,
    recover,
)
from memlab.evidence.access_log import AccessLog
from memlab.settings import Sized
from memlab.sources.opening import open_source, save_store_settings
from memlab.store import SqliteMemoryStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS memory_items (
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
)
"""
SIGNALS = """
CREATE TABLE memory_signals (
    memory_id TEXT PRIMARY KEY, position INTEGER NOT NULL, importance REAL, namespace TEXT
)
"""
CUT_SHORT = """
import os, sys
from datetime import datetime, timezone
import memlab
at = datetime(2026, 3, 9, 12, tzinfo=timezone.utc)
made = memlab.plan(sys.argv[1], memlab.KeepRecent(int(sys.argv[3])), now=at)
stop = lambda step: os._exit(9) if step == sys.argv[2] else None
memlab.apply(made, now=at, on_step=stop)
"""


def day(number: int) -> datetime:
    """Return noon of a day, counted from the first."""
    return NOON + timedelta(days=number)


def write_items(path: Path, kind: str, names: list[str]) -> None:
    """Add memories of a kind, each written an hour after the other, with odd values in some."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(CREATE_TABLE)
        for number, name in enumerate(names):
            connection.execute(
                f"INSERT INTO memory_items VALUES ({', '.join('?' * 14)})",
                (
                    name,
                    kind,
                    f"title of {name}",
                    f'body of {name}: né 北京 🦀, "quoted", a\\b, line\nbreak',
                    '["merged"]',
                    b"\x00\xff" if name.endswith("2") else None,
                    number if name.endswith("3") else None,
                    f"issue:{name}",
                    "agent",
                    float("inf") if name.endswith("4") else 0.5,
                    (NOON - timedelta(days=9) + timedelta(hours=number)).isoformat(),
                    "[]",
                    '["issue:e1"]' if name.endswith("9") else "[]",
                    None,
                ),
            )


def carry_out(new_plan: memlab.Plan, at: datetime, folder: Path, name: str) -> memlab.Receipt:
    """Apply a plan; keep the plan and its receipt as files."""
    (folder / f"{name}.plan.json").write_text(new_plan.to_json())
    receipt = memlab.apply(new_plan, now=at)
    (folder / f"{name}.receipt.json").write_text(receipt.to_json())
    return receipt


def write_store(folder: Path) -> None:
    """Write a store with an archive of every kind of entry, settings and a log of reads."""
    store = folder / "memory.db"
    write_items(store, "semantic", ["d1", "d2"])
    write_items(store, "procedural", ["s1"])
    write_items(store, "episodic", [f"e{number}" for number in range(1, 31)])
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(SIGNALS)
        connection.execute(
            "INSERT INTO memory_signals SELECT memory_id, rowid, 0.25, 'billing' "
            "FROM memory_items WHERE memory_id IN ('e5', 'e6')"
        )
    keep_copies(store, now=day(0))
    dropped = carry_out(
        memlab.plan(store, memlab.KeepRecent(28), now=day(1)), day(1), folder, "dropped"
    )
    drop_archived(store, digest=dropped.digest, now=day(2))
    deleted = carry_out(
        memlab.plan(store, memlab.KeepRecent(24), now=day(3)), day(3), folder, "deletion"
    )
    memlab.restore(deleted, ids=["e4"], now=day(4))
    carry_out(plan_supersession(store, {"d1": "d2"}, now=day(5)), day(5), folder, "supersession")
    with SqliteMemoryStore(store, archive=True) as opened:
        opened.compact_episodic(20)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM memory_items WHERE memory_id IN ('e12', 'e13')")
    recover(store, ["e12"], now=day(6))
    carry_out(
        memlab.plan(store, memlab.KeepRecent(16), retire=True, now=day(7)),
        day(7),
        folder,
        "retirement",
    )
    with AccessLog(folder / "reads.jsonl") as log:
        log.add("e14", day(8), "session-1")
        log.add("e30", day(8))
    source = open_source(store)
    policy = {"name": "recent", "keep": 16, "sized": Sized(day(8), 30, 60)._asdict()}
    save_store_settings(
        source,
        {
            "policy": policy, "target": 0.9, "confidence": 0.8, "until": 2.0, "token_budget": 2000,
            "log": folder.absolute() / "reads.jsonl", "protected_tags": ["keep"],
            "archive_for": "365d", "keep_copies": True, "retire": True,
            "delete_retired_after": "90d", "vacuum_free": 0.25, "max_per_run": 100,
        },
    )  # fmt: skip
    carry_out(
        memlab.plan(store, memlab.KeepRecent(16), retire=True, now=day(9)),
        day(9), folder, "return",
    )  # fmt: skip
    (folder / "open.plan.json").write_text(
        memlab.plan(store, memlab.KeepRecent(10), now=day(10)).to_json()
    )
    export_archived(store, folder / "exported.jsonl")
    export_archived(store, folder / "exported.parquet")
    # a plan killed between its deletion and its completion note
    cut_short(store, "committed", 12)
    checkpoint(store)


def write_fleet(folder: Path) -> None:
    """Write two stores, a fleet plan of them that is not applied yet, and a survey."""
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        write_items(folder / name / "memory.db", "semantic", ["d1"])
        write_items(folder / name / "memory.db", "episodic", [f"e{n}" for n in range(1, 9)])
        checkpoint(folder / name / "memory.db")
    os.chdir(folder)  # so that the stores' names are the same wherever the folder lies
    names = ["a/memory.db", "b/memory.db", "gone.db"]
    fleet.plan(names, memlab.KeepRecent(5), now=day(1), save="fleet.json")
    fleet.survey(names[:2], now=day(1), out="survey")


def write_claude(project: Path) -> None:
    """Write a folder of Claude Code's memory with a deletion and a retirement in its archive."""
    folder = project / "memory"
    folder.mkdir(parents=True)
    lines = ["# Memory index", ""]
    for number in range(1, 13):
        name = f"topic_{number}.md"
        write_file(
            folder / name,
            f"---\nname: topic {number}\ndescription: about {number}\ntype: project\n---\n\n"
            f"What was found out, né 🦀 {number}.\n",
            day(number),
        )
        lines.append(f"- [About {number}]({name}) — a hook, {number}")
    write_file(folder / "MEMORY.md", "\n".join(lines) + "\n", day(13))
    keep_copies(folder, now=day(13))
    carry_out(memlab.plan(folder, memlab.KeepRecent(9), now=day(14)), day(14), project, "deletion")
    carry_out(
        memlab.plan(folder, memlab.KeepRecent(6), retire=True, now=day(15)),
        day(15), project, "retirement",
    )  # fmt: skip


def write_odek(folder: Path) -> None:
    """Write a folder of odek's episodes with a deletion in its archive."""
    folder.mkdir(parents=True)
    entries = []
    for number in range(8):
        write_file(folder / f"s{number}.md", f"summary {number}\nof a session, né\n", day(number))
        moment = day(number).strftime(f"%Y-%m-%dT%H:%M:%S.{number:09d}Z")
        entries.append(
            {
                "session_id": f"s{number}", "turns": 4, "created_at": moment,
                "summary": f"summary {number}", "provenance": {},
            }
        )  # fmt: skip
    index = json.dumps(entries, indent=2, ensure_ascii=False)
    write_file(folder / "index.json", index, day(9))
    plan = memlab.plan(f"odek:{folder}", memlab.KeepRecent(5), now=day(10))
    carry_out(plan, day(10), folder.parent, "deletion")


def write_pending(project: Path) -> None:
    """Write a folder whose deletion was killed half way: its journal is left."""
    write_claude(project)
    cut_short(project / "memory", "deleted", 3)


def cut_short(store: Path, step: str, keep: int) -> None:
    """Apply a plan in a process that ends without a word after a step."""
    command = [sys.executable, "-c", CUT_SHORT, str(store), step, str(keep)]
    result = subprocess.run(command, check=False)
    if result.returncode != 9:
        raise SystemExit(f"it ended with {result.returncode} and was to be killed")


def write_file(path: Path, text: str, written: datetime) -> None:
    """Write a file with a time."""
    path.write_text(text, newline="")
    os.utime(path, (written.timestamp(), written.timestamp()))


def checkpoint(store: Path) -> None:
    """Leave one file of a store, without its log."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def main() -> None:
    """Write all of it into the folder named on the command line."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir()
    (folder / "items").mkdir()
    write_store(folder / "items")
    write_claude(folder / "claude" / ".claude" / "projects" / "-home-u-work")
    write_pending(folder / "pending" / ".claude" / "projects" / "-home-u-work")
    write_odek(folder / "odek" / "episodes")
    write_fleet(folder / "fleet")


if __name__ == "__main__":
    main()
