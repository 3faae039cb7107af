"""Compare what every command prints and leaves on disk, between this tree and another commit.

python .ci/reference.py compare REVISION    run both trees on the same stores; exit 1 if they differ
python .ci/reference.py record FILE         run this tree alone and write what it did as JSON

A change that only renames or moves code must show no difference. Digests, temporary paths and
moments of today are replaced by fixed words, since they differ from run to run.
"""

import difflib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
COLUMNS = """
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
"""
START = datetime(2026, 3, 1, 9, tzinfo=UTC)

LOOKING = (
    "show STORE",
    "show STORE --json",
    "size STORE --json",
    "rows STORE --json",
    "doctor STORE",
    "doctor STORE --json",
    "compact STORE --keep-recent 5",
    "restore STORE 0123456789ab",
)
READING = (
    *LOOKING,
    "size STORE --explain",
    "size STORE --unit tokens --json",
    "compare STORE --json",
    "lost STORE --json",
    "floor STORE",
    "archive STORE",
    "vacuum STORE",
    "harvest STORE -o reads.jsonl",
    "compact STORE --keep-recent 5 --json",
    "compact STORE --keep-recent -1",
    "maintain STORE",
    "find .",
)
DELETING = (
    "compact STORE --keep-recent 5 --apply",
    "doctor STORE --json",
    "rows STORE --where deleted --json",
    "size STORE --json",
    "archive STORE --json",
    "restore STORE DIGEST",
    "restore STORE DIGEST",
    "show STORE --json",
)
RETIRING = (
    "compact STORE --keep-recent 5 --retire --apply",
    "show STORE --json",
    "rows STORE --where retired --json",
    "restore STORE DIGEST",
    "show STORE --json",
)
MAINTAINING = (
    "compact STORE --keep-recent 8 --save",
    "maintain STORE",
    "maintain STORE --apply --json",
    "archive STORE --copy",
    "archive STORE --drop DIGEST",
    "archive STORE --drop DIGEST --apply",
    "size STORE --save",
)
ALL = {
    "reading": READING,
    "deleting": DELETING,
    "retiring": RETIRING,
    "maintaining": MAINTAINING,
}
SEQUENCES = {
    "empty": {"looking": LOOKING},
    "one_row": {"looking": LOOKING},
    "eleven": {"looking": LOOKING, "deleting": DELETING},
    "sixty": ALL,
    "without_references": {"looking": LOOKING},
    "three_hundred_issues": {"reading": READING, "deleting": DELETING},
    "damaged": {"looking": LOOKING, "deleting": DELETING},
    "text": {"looking": LOOKING},
    "missing": {"looking": LOOKING},
    "claude_code": ALL,
    "openclaw": ALL,
    "serena": ALL,
    "odek": {"reading": READING, "deleting": DELETING},
}
"""The commands that are run on each store, each sequence on a fresh copy of it."""


def write_store(path: Path, count: int, *, with_references: bool = True) -> None:
    """Write a `memory_items` store of so many rows, a decision and a skill among every twenty."""
    kinds = {0: "semantic", 10: "procedural"}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE memory_items ({COLUMNS})")
        for number in range(count):
            earlier = f"issue:#{number - 1 - number % 7}"
            row = {
                "memory_id": f"m{number}",
                "kind": kinds.get(number % 20, "episodic"),
                "title": f"title {number}",
                "body": f"What was found out about number {number}. " * (1 + number % 5),
                "tags_json": json.dumps(["rejected-path"] if number % 17 == 3 else ["merged"]),
                "source_task_ref": f"issue:#{number}",
                "authored_by": "agent",
                "confidence": 0.5,
                "created_at": (START + timedelta(hours=5 * number)).isoformat(),
                "supersedes_json": "[]",
                "evidence_refs_json": json.dumps(
                    [earlier] if with_references and number % 3 == 0 and number > 8 else []
                ),
            }
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            values = list(row.values())
            connection.execute(f"INSERT INTO memory_items ({names}) VALUES ({marks})", values)


def write_file(path: Path, text: str, day: int) -> None:
    """Write a text file that was last changed on a day after the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = (START + timedelta(days=day)).timestamp()
    os.utime(path, (moment, moment))


PATHS = {
    "claude_code": ".claude/projects/-srv-work/memory",
    "openclaw": "workspace",
    "serena": "project/.serena/memories",
    "odek": ".odek/memory",
}
"""Where a store lies in its folder; elsewhere it is the file ``memory.db``."""


def write_claude_code(home: Path) -> None:
    """Write a folder of Claude Code's memory with an index."""
    folder = home / PATHS["claude_code"]
    types = ("project", "feedback", "reference", "project")
    lines = ["# Memory index", ""]
    for number in range(24):
        head = f"name: note {number}\ndescription: about {number}\ntype: {types[number % 4]}"
        body = f"See [[note_{max(number - 3, 0)}]]." if number % 5 == 0 else "Short."
        write_file(folder / f"note_{number}.md", f"---\n{head}\n---\n\n{body}\n", number)
        lines.append(f"- [Note {number}](note_{number}.md) — a hook of some words")
    write_file(folder / "MEMORY.md", "\n".join(lines) + "\n", 30)


def write_openclaw(home: Path) -> None:
    """Write an OpenClaw workspace with a log of recalls."""
    workspace = home / PATHS["openclaw"]
    write_file(workspace / "MEMORY.md", "# Long-term memory\n\nLikes short answers.\n", 0)
    write_file(workspace / "AGENTS.md", "# Agents\n", 0)
    write_file(workspace / "SOUL.md", "# Soul\n", 0)
    events = []
    for number in range(20):
        day = (START + timedelta(days=number)).date()
        write_file(workspace / "memory" / f"{day}.md", f"# {day}\n\n- worked on {number}\n", number)
        if number > 3:
            path = f"memory/{day - timedelta(days=2)}.md"
            hit = {"path": path, "startLine": 1, "endLine": 3, "score": 0.8}
            event = {
                "type": "memory.recall.recorded",
                "timestamp": f"{day}T18:00:00.000Z",
                "query": f"task {number}",
                "resultCount": 1,
                "results": [hit],
            }
            events.append(json.dumps(event))
    write_file(workspace / "memory" / ".dreams" / "events.jsonl", "\n".join(events) + "\n", 21)


def write_serena(home: Path) -> None:
    """Write a project with Serena's memories."""
    folder = home / PATHS["serena"]
    write_file(home / "project" / ".serena" / "project.yml", "project_name: x\n", 0)
    write_file(home / "project" / "README.md", "# Read me\n", 0)
    for number in range(12):
        write_file(folder / f"topic_{number}.md", f"# Topic {number}\n\nFacts.\n", number)


def write_odek(home: Path) -> None:
    """Write a folder of odek's memory."""
    shutil.copytree(CHECKOUT / "data" / "odek", home / PATHS["odek"] / "episodes")


def write_stores(home: Path) -> None:
    """Write all stores below a folder, each in a folder of its own."""
    for name in SEQUENCES:
        (home / name).mkdir(parents=True)
    for name, count in {"empty": 0, "one_row": 1, "eleven": 11, "sixty": 60}.items():
        write_store(home / name / "memory.db", count)
    write_store(home / "without_references" / "memory.db", 300, with_references=False)
    bundled = (CHECKOUT / "data" / "three_hundred_issues.db").read_bytes()
    (home / "three_hundred_issues" / "memory.db").write_bytes(bundled)
    damaged = bytearray(bundled)
    damaged[20 * 4096 : 22 * 4096] = b"\xff" * (2 * 4096)
    (home / "damaged" / "memory.db").write_bytes(damaged)
    write_file(home / "text" / "memory.db", "This is no database.\n", 0)
    write_claude_code(home / "claude_code")
    write_openclaw(home / "openclaw")
    write_serena(home / "serena")
    write_odek(home / "odek")


def record(home: Path) -> dict[str, Any]:
    """Run every sequence of commands on a copy of every store, and return what they did."""
    sys.path.insert(0, os.environ["REFERENCE_TREE"])
    import memlab.clock

    started = datetime.fromisoformat(os.environ["REFERENCE_NOW"])
    memlab.clock.now_utc = lambda: started  # ages are the same in both trees
    import numba  # noqa: F401 - imported once: each command runs in a fork of this process
    import pandas as pd  # noqa: F401 - the same

    import memlab.cli

    assert Path(memlab.cli.__file__).is_relative_to(os.environ["REFERENCE_TREE"])
    found = {}
    for name, sequences in SEQUENCES.items():
        for sequence, commands in sequences.items():
            workplace = home.parent / "workplace"
            shutil.rmtree(workplace, ignore_errors=True)
            shutil.copytree(home / name, workplace, symlinks=True)
            store = workplace / PATHS.get(name, "memory.db")
            found[f"{name}: {sequence}"] = run_all(workplace, store, commands)
    return found


def run_all(workplace: Path, store: Path, commands: tuple[str, ...]) -> list[dict[str, Any]]:
    """Run commands in order, and return what each printed, and the files after the last."""
    steps = []
    digest = "no-digest"
    for command in commands:
        words = [str(store) if word == "STORE" else word for word in command.split()]
        words = [digest if word == "DIGEST" else word for word in words]
        code, output, errors = run(words, workplace)
        if match := re.search(r"memlab restore \S+ ([0-9a-f]{12})", output):
            digest = match[1]
        step = {
            "command": command,
            "exit code": code,
            "output": plain(output, workplace).splitlines(),
            "errors": plain(errors, workplace).splitlines(),
        }
        steps.append(step)
    steps.append({"command": "(files)", "files": dict(files_in(workplace))})
    return steps


def run(words: list[str], workplace: Path) -> tuple[int, str, str]:
    """Run a command of memlab in a fork; return its exit code and what it printed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.chdir(workplace)
            os.environ["HOME"] = str(workplace)
            os.environ["COLUMNS"] = "100"
            code = 70
            try:
                code = run_in_this_process(words)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        errors.seek(0)
        printed = output.read().decode(errors="replace")
        return os.waitstatus_to_exitcode(status), printed, errors.read().decode(errors="replace")


def run_in_this_process(words: list[str]) -> int:
    """Run a command of memlab, and return its exit code."""
    from memlab.cli import main

    sys.argv = ["memlab", *words]
    try:
        main()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return 0


def plain(text: str, workplace: Path) -> str:
    """Return a text without what differs from run to run."""
    today = datetime.now(UTC).date()
    text = text.replace(str(workplace.resolve()), "WORKPLACE").replace(str(workplace), "WORKPLACE")
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", text)
    text = re.sub(rf"{today}[T ][0-9:.]+(\+00:00|Z)?", "NOW", text)
    return re.sub(r"\b[0-9.]+ (ms|s)\b", "TIME", text)


def files_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and contents of every file, of a database the digest of its rows."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not path.is_file() or name.startswith((".cache", ".local")):
            continue
        mode = f"{path.stat().st_mode & 0o777:o}"
        if name.endswith((".db-wal", ".db-shm")):
            yield name, mode
        elif path.read_bytes()[:16] == b"SQLite format 3\0":
            yield name, f"{mode} {rows_in(path)}"
        else:
            text = plain(path.read_bytes().decode(errors="replace"), folder)
            yield name, f"{mode} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def rows_in(path: Path) -> str:
    """Return the number of rows and a digest of the texts and numbers in every table."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
                )
            ]
            counts = {}
            whole = hashlib.sha256()
            for table in tables:
                rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
                counts[table] = len(rows)
                for row in rows:
                    values = [value for value in row if not isinstance(value, bytes)]
                    whole.update(plain(repr(values), path.parent).encode())
    except sqlite3.Error as error:
        return f"cannot be read: {error}"
    return f"{counts} {whole.hexdigest()[:16]}"


def export(revision: str, folder: Path) -> Path:
    """Write the package of another commit below a folder, and return where."""
    command = ["git", "archive", revision, "memlab", "notebooks", "data"]
    packed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def record_tree(tree: Path, temporary: Path) -> dict[str, Any]:
    """Record what a tree does, in a process of its own."""
    out = temporary / "record.json"
    out.unlink(missing_ok=True)
    environment = os.environ | {"REFERENCE_TREE": str(tree), "REFERENCE_STORES": str(temporary)}
    command = [sys.executable, str(Path(__file__).resolve()), "record", str(out)]
    subprocess.run(command, env=environment, check=True)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def lines_of(step: dict[str, Any]) -> list[str]:
    """Return what a step did as lines of JSON."""
    return json.dumps(step, indent=1, ensure_ascii=False).splitlines()


def compare(revision: str) -> int:
    """Print what differs between this tree and another commit; return how many steps do."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder)
        write_stores(temporary / "stores")
        before = record_tree(export(revision, temporary / "tree"), temporary)
        after = record_tree(CHECKOUT, temporary)
    differing = 0
    for name, steps in after.items():
        for old, new in zip(before.get(name, []), steps, strict=False):
            if old == new:
                continue
            differing += 1
            print(f"\n== {name}: {new['command']}")
            texts = [
                json.dumps(step, indent=1, ensure_ascii=False).splitlines() for step in (old, new)
            ]
            print("\n".join(difflib.unified_diff(*texts, lineterm="", n=1)))
    steps_run = sum(map(len, after.values()))
    print(f"\n{differing} of {steps_run} steps differ from {revision}")
    return differing


def main() -> None:
    """Record, or compare."""
    action, target = sys.argv[1:]
    os.environ.setdefault("REFERENCE_NOW", datetime.now(UTC).isoformat())
    if action == "compare":
        sys.exit(compare(target) > 0)
    given = os.environ.get("REFERENCE_STORES")
    os.environ.setdefault("REFERENCE_TREE", str(CHECKOUT))
    with tempfile.TemporaryDirectory() as own:
        temporary = Path(given or own)
        if given is None:
            write_stores(temporary / "stores")
        found = record(temporary / "stores")
    Path(target).write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
