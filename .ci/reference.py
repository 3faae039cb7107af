"""Compare the output and the files of every command between this tree and another commit.

    python .ci/reference.py compare REVISION   run both trees on the same stores; exit 1 if they
                                               differ
    python .ci/reference.py record FILE        run this tree alone; write its outputs as JSON

A change that only renames or moves code must show no difference. Digests, temporary paths, times of
today and durations differ from run to run, and are replaced by fixed words.
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
from typing import Any, Final, NamedTuple

CHECKOUT: Final = Path(__file__).resolve().parent.parent
COLUMNS: Final = """
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
"""
START: Final = datetime(2026, 3, 1, 9, tzinfo=UTC)
Commands = tuple[str, ...]
"""Commands of memlab; STORE is replaced by the store's path, DIGEST by the last digest printed."""

LOOKING: Final = (
    "show STORE",
    "show STORE --json",
    "size STORE --json",
    "rows STORE --json",
    "doctor STORE",
    "doctor STORE --json",
    "compact STORE --keep-recent 5",
    "restore STORE 0123456789ab",
)
READING: Final = (
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
DELETING: Final = (
    "compact STORE --keep-recent 5 --apply",
    "doctor STORE --json",
    "rows STORE --where deleted --json",
    "size STORE --json",
    "archive STORE --json",
    "restore STORE DIGEST",
    "restore STORE DIGEST",
    "show STORE --json",
)
RETIRING: Final = (
    "compact STORE --keep-recent 5 --retire --apply",
    "show STORE --json",
    "rows STORE --where retired --json",
    "restore STORE DIGEST",
    "show STORE --json",
)
MAINTAINING: Final = (
    "compact STORE --keep-recent 8 --save",
    "maintain STORE",
    "maintain STORE --apply --json",
    "archive STORE --copy",
    "archive STORE --drop DIGEST",
    "archive STORE --drop DIGEST --apply",
    "size STORE --save",
)
ALL_SEQUENCES: Final = {
    "reading": READING,
    "deleting": DELETING,
    "retiring": RETIRING,
    "maintaining": MAINTAINING,
}
SEQUENCES: Final[dict[str, dict[str, Commands]]] = {
    "empty": {"looking": LOOKING},
    "one_row": {"looking": LOOKING},
    "eleven": {"looking": LOOKING, "deleting": DELETING},
    "sixty": ALL_SEQUENCES,
    "without_references": {"looking": LOOKING},
    "three_hundred_issues": {"reading": READING, "deleting": DELETING},
    "damaged": {"looking": LOOKING, "deleting": DELETING},
    "text": {"looking": LOOKING},
    "missing": {"looking": LOOKING},
    "claude_code": ALL_SEQUENCES,
    "openclaw": ALL_SEQUENCES,
    "serena": ALL_SEQUENCES,
    "odek": {"reading": READING, "deleting": DELETING},
}
"""The commands to run on each store; each sequence runs on a fresh copy of the store."""


def write_store(path: Path, count: int, *, with_references: bool = True) -> None:
    """Write a `memory_items` store of `count` rows, with a decision and a skill in every twenty."""
    kinds = {0: "semantic", 10: "procedural"}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE memory_items ({COLUMNS})")
        for number in range(count):
            references = []
            if with_references and number % 3 == 0 and number > 8:
                references = [f"issue:#{number - 1 - number % 7}"]
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
                "evidence_refs_json": json.dumps(references),
            }
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            values = list(row.values())
            connection.execute(f"INSERT INTO memory_items ({names}) VALUES ({marks})", values)


def write_file(path: Path, text: str, day: int) -> None:
    """Write a text file that was last changed so many days after `START`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = (START + timedelta(days=day)).timestamp()
    os.utime(path, (moment, moment))


PATHS: Final = {
    "claude_code": ".claude/projects/-srv-work/memory",
    "openclaw": "workspace",
    "serena": "project/.serena/memories",
    "odek": ".odek/memory",
}
"""Path of a store in its folder; that of the other stores is ``memory.db``."""


def write_claude_code(home: Path) -> None:
    """Write a folder of Claude Code's memory with an index."""
    folder = home / PATHS["claude_code"]
    types = ("project", "feedback", "reference", "project")
    lines = ["# Memory index", ""]
    for number in range(24):
        head = f"name: note {number}\ndescription: about {number}\ntype: {types[number % 4]}"
        body = "Short."
        if number % 5 == 0:
            body = f"See [[note_{max(number - 3, 0)}]]."
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


class Printed(NamedTuple):
    """The exit code of a command, and what it printed."""

    exit_code: int
    output: str
    errors: str


def record(home: Path) -> dict[str, Any]:
    """Run every sequence of commands on a copy of every store; return the steps by sequence."""
    sys.path.insert(0, os.environ["REFERENCE_TREE"])
    import memlab.clock

    started = datetime.fromisoformat(os.environ["REFERENCE_NOW"])
    memlab.clock.now_utc = lambda: started  # ages are the same in both trees
    import numba  # noqa: F401 - imported once: each command runs in a fork of this process
    import pandas as pd  # noqa: F401 - the same

    import memlab.cli

    assert Path(memlab.cli.__file__).is_relative_to(os.environ["REFERENCE_TREE"])
    steps = {}
    for name, sequences in SEQUENCES.items():
        for sequence, commands in sequences.items():
            workplace = home.parent / "workplace"
            shutil.rmtree(workplace, ignore_errors=True)
            shutil.copytree(home / name, workplace, symlinks=True)
            store = workplace / PATHS.get(name, "memory.db")
            steps[f"{name}: {sequence}"] = run_all(workplace, store, commands)
    return steps


def run_all(workplace: Path, store: Path, commands: Commands) -> list[dict[str, Any]]:
    """Run commands in order; return what each printed, and the files after the last one."""
    steps: list[dict[str, Any]] = []
    values = {"STORE": str(store), "DIGEST": "no-digest"}
    for command in commands:
        arguments = [values.get(word, word) for word in command.split()]
        printed = run(arguments, workplace)
        if match := re.search(r"memlab restore \S+ ([0-9a-f]{12})", printed.output):
            values["DIGEST"] = match[1]
        step = {
            "command": command,
            "exit code": printed.exit_code,
            "output": normalize(printed.output, workplace).splitlines(),
            "errors": normalize(printed.errors, workplace).splitlines(),
        }
        steps.append(step)
    steps.append({"command": "(files)", "files": dict(describe_files(workplace))})
    return steps


def run(arguments: list[str], workplace: Path) -> Printed:
    """Run a command of memlab in a fork of this process."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.chdir(workplace)
            os.environ["HOME"] = str(workplace)
            os.environ["COLUMNS"] = "100"
            exit_code = os.EX_SOFTWARE
            try:
                exit_code = run_in_this_process(arguments)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(exit_code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        errors.seek(0)
        return Printed(
            os.waitstatus_to_exitcode(status),
            output=output.read().decode(errors="replace"),
            errors=errors.read().decode(errors="replace"),
        )


def run_in_this_process(arguments: list[str]) -> int:
    """Run a command of memlab, and return its exit code."""
    from memlab.cli import main

    sys.argv = ["memlab", *arguments]
    try:
        main()
    except SystemExit as exit_request:
        if isinstance(exit_request.code, str):
            return 1
        return exit_request.code or 0
    return 0


def normalize(text: str, workplace: Path) -> str:
    """Replace the parts of a text that differ from run to run."""
    today = datetime.now(UTC).date()
    text = text.replace(str(workplace.resolve()), "WORKPLACE")
    text = text.replace(str(workplace), "WORKPLACE")
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", text)
    text = re.sub(rf"{today}[T ][0-9:.]+(\+00:00|Z)?", "NOW", text)
    return re.sub(r"\b[0-9.]+ (ms|s)\b", "TIME", text)


def describe_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of every file, and its mode with a digest of its contents."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not path.is_file() or name.startswith((".cache", ".local")):
            continue
        mode = f"{path.stat().st_mode & 0o777:o}"
        if name.endswith((".db-wal", ".db-shm")):
            yield name, mode
        elif path.read_bytes()[:16] == b"SQLite format 3\0":
            yield name, f"{mode} {describe_rows(path)}"
        else:
            text = normalize(path.read_bytes().decode(errors="replace"), folder)
            yield name, f"{mode} {short_digest(text)}"


def describe_rows(path: Path) -> str:
    """Count the rows of every table of a database, and digest their values without blobs."""
    counts = {}
    texts = []
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            tables = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
            ).fetchall()
            for (table,) in tables:
                rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
                counts[table] = len(rows)
                for row in rows:
                    values = [value for value in row if not isinstance(value, bytes)]
                    texts.append(normalize(repr(values), path.parent))
    except sqlite3.Error as error:
        return f"cannot be read: {error}"
    return f"{counts} {short_digest(''.join(texts))}"


def short_digest(text: str) -> str:
    """Digest a text, in 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def export(revision: str, folder: Path) -> None:
    """Write the package and the bundled files of another commit into a folder."""
    command = ["git", "archive", revision, "memlab", "notebooks", "data"]
    archive_bytes = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive_bytes)) as archive:
        archive.extractall(folder, filter="data")


def record_tree(tree: Path, temporary: Path) -> dict[str, Any]:
    """Record the commands of a tree in a process of its own."""
    out = temporary / "record.json"
    out.unlink(missing_ok=True)
    environment = os.environ | {"REFERENCE_TREE": str(tree), "REFERENCE_STORES": str(temporary)}
    command = [sys.executable, str(Path(__file__).resolve()), "record", str(out)]
    subprocess.run(command, env=environment, check=True)
    steps: dict[str, Any] = json.loads(out.read_text())
    return steps


def lines_of(step: dict[str, Any]) -> list[str]:
    """Write a step as lines of JSON."""
    return json.dumps(step, indent=1, ensure_ascii=False).splitlines()


def compare(revision: str) -> int:
    """Print the differences between this tree and another commit; return how many steps differ."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder)
        write_stores(temporary / "stores")
        tree = temporary / "tree"
        export(revision, tree)
        before = record_tree(tree, temporary)
        after = record_tree(CHECKOUT, temporary)
    differing = 0
    for name, steps in after.items():
        for old, new in zip(before.get(name, []), steps, strict=False):
            if old == new:
                continue
            differing += 1
            print(f"\n== {name}: {new['command']}")
            difference = difflib.unified_diff(lines_of(old), lines_of(new), lineterm="", n=1)
            print("\n".join(difference))
    steps_run = sum(len(steps) for steps in after.values())
    print(f"\n{differing} of {steps_run} steps differ from {revision}")
    return differing


def write_record(path: Path) -> None:
    """Write the steps of a tree as JSON; `compare` names the tree and the stores."""
    os.environ.setdefault("REFERENCE_TREE", str(CHECKOUT))
    stores_of_compare = os.environ.get("REFERENCE_STORES")
    if stores_of_compare:
        steps = record(Path(stores_of_compare) / "stores")
    else:
        with tempfile.TemporaryDirectory() as folder:
            stores = Path(folder) / "stores"
            write_stores(stores)
            steps = record(stores)
    path.write_text(json.dumps(steps, indent=1, ensure_ascii=False))


def main() -> None:
    """Record this tree, or compare it with another commit."""
    action, target = sys.argv[1:]
    os.environ.setdefault("REFERENCE_NOW", datetime.now(UTC).isoformat())
    if action == "compare":
        sys.exit(compare(target) > 0)
    write_record(Path(target))


if __name__ == "__main__":
    main()
