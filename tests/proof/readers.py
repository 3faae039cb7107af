"""Every reader of untrusted files, with the operations to try on each."""

import json
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import memlab
from memlab.errors import MemlabError
from memlab.evidence import AccessLog, harvest
from memlab.evidence.reads import describe_log, read_access_log, reads_by_settings
from memlab.policies.named import policy_in
from memlab.settings import FILE, read_settings
from memlab.sources.opening import open_source, save_store_settings
from memlab.testing.forging import (
    HOSTILE_BYTES,
    HOSTILE_COLUMN_VALUES,
    json_text,
    mutated,
    mutated_bytes,
)
from memlab.upkeep.health import doctor
from memlab.upkeep.maintenance import maintain
from tests.proof.mutations import mutate
from tests.proof.scenes import copy_aside, make_store
from tests.proof.tasks import compact
from tests.support.claude_store import at, call, realistic_folder, write_memories, write_transcript
from tests.support.crashing import Crashed, crashing
from tests.support.invariants import (
    Row,
    assert_load_bearing_rows_stay,
    copies_of,
    result_of,
    salvaged_rows_of,
)
from tests.support.odek_store import DERIVED, write_odek
from tests.support.openclaw_store import days_before, write_workspace
from tests.support.settings_files import WHOLE
from tests.support.shell import run
from tests.support.stores import episodes, write_rows
from tests.support.transcripts import World

Operations = Sequence[Callable[[], Any]]
NOW = at(9_000)
LOG: Final = "reads.log"
STRANGER: Final = 4103
"""A user and group id that no account has."""
CLAUDE_FOLDER: Final = "projects/-p/memory"
"""A place in which every folder is Claude Code memory."""
CLAUDE_INDEX: Final = f"{CLAUDE_FOLDER}/MEMORY.md"
ODEK_INDEX: Final = "memory/index.json"
JOURNALS: Final = f"{CLAUDE_FOLDER}/.memlab/**/journal.json"
SESSIONS: Final = "sdk_sessions (content_session_id, memory_session_id)"


class PathState(NamedTuple):
    """A path and its content, to see whether anything about it changed."""

    inode: int
    mode: int
    user: int
    group: int
    content: bytes
    """Target of a link; empty for what is no file of normal size."""


def link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside.parent)


def link_to_itself(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def link_to_endless_device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def dangling_link(path: Path, _: Path) -> None:
    path.symlink_to("nowhere")


def named_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def empty_folder(path: Path, _: Path) -> None:
    path.mkdir()


def huge_sparse_file(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


REPLACEMENTS: Final[tuple[Callable[[Path, Path], None], ...]] = (
    link_to_file,
    link_to_folder,
    link_to_itself,
    link_to_endless_device,
    dangling_link,
    named_pipe,
    empty_folder,
    huge_sparse_file,
)
"""Makers of special or huge files, from a path and a file outside of the folder."""


class Reader:
    """A kind of untrusted file, and the calls that read it."""

    files: ClassVar[tuple[str, ...]] = ("**/*.jsonl",)
    """Patterns of the untrusted files; files matched repeatedly are damaged more often."""
    where: ClassVar[str] = "memory"
    """Path of its memory folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = folder / self.where

    def make(self) -> None:
        """Write valid files."""
        raise NotImplementedError

    def read_operations(self) -> Operations:
        """List the read operations; each case runs one."""
        return [lambda: memlab.load(self.memory)]

    def write_operations(self) -> Operations:
        """List the write operations; each case runs one after a read."""
        return [lambda: harvest(self.memory)]

    def spoil(self, outside: Path, rng: random.Random) -> str:
        """Damage some files; return a description."""
        paths: list[Path] = []
        for pattern in self.files:
            paths += sorted(self.folder.glob(pattern))
        damages = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            path = rng.choice(paths)
            damages.append(spoil_file(path, outside, rng))
        return ", ".join(damages)

    def check(self) -> None:
        """Assert invariants at the end."""


class Store(Reader):
    """``memory_items``, and anything in the database or beside it."""

    def make(self) -> None:
        self.store = make_store(self.folder / "memory.db", rows=25, page_size=512)
        self.plan_before_damage = self._plan()

    def spoil(self, outside: Path, rng: random.Random) -> str:
        mutation = mutate(self.store, rng)
        for path in self.folder.iterdir():  # SQLite narrows the permissions of an empty log
            path.chmod(path.stat().st_mode & 0o750)
        return mutation

    def read_operations(self) -> Operations:
        return [
            self._show,
            lambda: memlab.load(self.store, with_body=True, on_bad_row="keep"),
            lambda: str(doctor(self.store)),
            self._plan,
        ]

    def _show(self) -> None:
        assert run("show", self.store).exit_code in (0, 2)

    def _plan(self) -> memlab.Plan:
        return memlab.plan(self.store, memlab.KeepRecent(5), now=NOW)

    def write_operations(self) -> Operations:
        return [self._compact_and_apply]

    def _compact_and_apply(self) -> None:
        """Compact a copy, and apply plans that were made before and after the damage."""
        self._compact(copy_aside(self.store, self.folder.with_name("compacted")))
        plan_after_damage = result_of(self._plan)
        if plan_after_damage is not None:
            self._delete_and_restore(plan_after_damage)
        self._delete_and_restore(self.plan_before_damage)

    def _compact(self, store: Path) -> None:
        before = self._salvaged(store)
        result_of(lambda: compact(store, 5))
        assert_load_bearing_rows_stay(before, self._salvaged(store))

    def _delete_and_restore(self, plan: memlab.Plan) -> None:
        before = self._salvaged(self.store)
        receipt = result_of(lambda: memlab.apply(plan, store=self.store))
        self._check_nothing_lost(before)
        if receipt is not None:
            result_of(lambda: memlab.restore(receipt))
            self._check_nothing_lost(before)

    def _salvaged(self, store: Path) -> dict[int, Row]:
        """Return the readable rows of a copy, because reading may recover the file."""
        return salvaged_rows_of(copy_aside(store, self.folder.with_name("aside")))

    def _check_nothing_lost(self, before: dict[int, Row]) -> None:
        """Check that each readable row is still readable or archived."""
        after = self._salvaged(self.store)
        assert_load_bearing_rows_stay(before, after)
        missing = {position: row for position, row in before.items() if after.get(position) != row}
        if missing:
            copies = copies_of(self.folder.with_name("aside") / self.store.name)
            for position, row in missing.items():
                assert row in copies.get(position, [])


class Settings(Reader):
    files = (FILE,)

    def make(self) -> None:
        self.store = write_rows(self.folder / "memory.db", episodes(12), journal_mode="DELETE")
        (self.folder / FILE).write_text(WHOLE)
        (self.folder / LOG).write_text('{"memory_id": "e1", "at": "2026-01-01T00:00:00Z"}\n')
        (self.folder / "other.csv").write_text("memory_id,at\ne2,2026-01-01T00:00:00Z\n")

    def read_operations(self) -> Operations:
        return [
            lambda: read_settings(self.folder, "memory", self.store),
            self._read_and_check_rights,
            lambda: memlab.load(self.store),
            lambda: maintain(self.store, now=NOW),
        ]

    def _read_and_check_rights(self) -> None:
        """Assert that only a file that nobody else can write has an effect."""
        settings = read_settings(self.folder, "memory.db", self.store)
        with suppress(MemlabError):
            policy_in(settings)
        reads_by_settings(settings)
        if settings.lines:
            status = (self.folder / FILE).lstat()
            assert stat.S_ISREG(status.st_mode)
            assert not status.st_mode & 0o022
            assert status.st_uid in (0, os.geteuid())

    def write_operations(self) -> Operations:
        return [lambda: save_store_settings(open_source(self.store), {"target": 0.7})]


class Log(Reader):
    """An access log, its parts, and what a harvest keeps apart."""

    files = ("reads.*",)

    def make(self) -> None:
        lines = [self._line(number) for number in range(40)]
        parts = {f"{LOG}.1": lines[:15], LOG: lines[15:30], f"{LOG}.apart": lines[30:]}
        for name, part in parts.items():
            text = "".join(f"{json.dumps(line)}\n" for line in part)
            (self.folder / name).write_text(text)
        rows = "".join(f"{line['memory_id']},{line['at']},x\n" for line in lines)
        (self.folder / "reads.csv").write_text(f"memory_id,at,session\n{rows}")

    @staticmethod
    def _line(number: int) -> dict[str, str]:
        """Make one read of the log; every third has no optional fields."""
        line = {"memory_id": f"m{number % 9}", "at": f"2026-03-01T{number % 24:02}:00:00Z"}
        if number % 3:
            line["session"] = f"s{number % 4}"
            line["id"] = f"r{number}"
            line["how"] = "Read"
            line["kind"] = ("read", "maintenance")[number % 2]
        return line

    def read_operations(self) -> Operations:
        return [
            partial(self._describe, name, maintenance=maintenance)
            for name, maintenance in product((LOG, "reads.csv"), (True, False))
        ]

    def _describe(self, name: str, *, maintenance: bool) -> None:
        describe_log(read_access_log(self.folder / name, maintenance=maintenance))

    def write_operations(self) -> Operations:
        return [self._add]

    def _add(self) -> None:
        with AccessLog(self.folder / LOG) as log:
            log.add("m1", NOW)
        assert "m1" in set(read_access_log(self.folder / LOG)["memory_id"])


class ClaudeIndex(Reader):
    """Claude Code's files and ``MEMORY.md``."""

    where = CLAUDE_FOLDER
    files = (f"{CLAUDE_FOLDER}/*", CLAUDE_INDEX, CLAUDE_INDEX, CLAUDE_INDEX)

    def make(self) -> None:
        realistic_folder(self.memory, files=5)

    def read_operations(self) -> Operations:
        return [
            lambda: memlab.load(self.memory, with_body=True, on_bad_row="keep"),
            lambda: str(doctor(self.memory)),
            lambda: memlab.plan(self.memory, memlab.KeepRecent(1), now=NOW),
            lambda: str(open_source(self.memory).extra_report()),  # type: ignore[attr-defined]
        ]

    def write_operations(self) -> Operations:
        return [self._delete_and_restore]

    def _delete_and_restore(self) -> None:
        plan = memlab.plan(self.memory, memlab.KeepRecent(1), now=NOW)
        before = self.contents()
        receipt = memlab.apply(plan, now=NOW)
        memlab.restore(receipt, now=NOW)
        assert self.contents() == before

    def contents(self) -> dict[str, bytes]:
        files = {path.name: content_of(path) for path in self.memory.iterdir()}
        return {name: data for name, data in files.items() if data and name not in DERIVED}


class OdekIndex(ClaudeIndex):
    """odek's episodes and ``index.json``."""

    where = "memory"
    files = ("memory/*", ODEK_INDEX, ODEK_INDEX, ODEK_INDEX)

    def make(self) -> None:
        write_odek(self.memory, [f"what happened in run {run}\nand more" for run in range(5)])

    def read_operations(self) -> Operations:
        return super().read_operations()[:3]  # odek has no extra report

    def contents(self) -> dict[str, bytes]:
        """Return the contents without whitespace of the index, whose indentation may change."""
        files = super().contents()
        index_words = files.get("index.json", b"").split()
        return files | {"index.json": b"".join(index_words)}


class Transcripts(Reader):
    """Transcripts of Claude Code, which date writes and reads of memories."""

    def make(self) -> None:
        world = World(self.folder, 3, memories=4)
        world.run(2)
        self.memory = world.folder


class Recalls(Reader):
    """Files that other agents write: Codex's sessions and OpenClaw's events."""

    def make(self) -> None:
        threads = [f"0199{number}000-0000-7000-8000-00000000000{number}" for number in range(4)]
        sessions = self.folder / ".codex" / "sessions" / "2026" / "08" / "01"
        sessions.mkdir(parents=True)
        ids = "<rollout_ids>\n{}\n</rollout_ids>".format("\n".join(threads))
        content = [{"type": "output_text", "text": f"<oai-mem-citation>{ids}</oai-mem-citation>"}]
        message = {"type": "message", "role": "assistant", "content": content}
        stamp = {"timestamp": "2026-08-01T09:00:00.000Z"}
        for thread in threads:
            session = {"type": "session_meta", "payload": {"id": thread, "cwd": "/w"}}
            response = {"type": "response_item", "payload": message}
            lines = [json.dumps(stamp | session), json.dumps(stamp | response)]
            path = sessions / f"rollout-2026-08-01T09-00-00-{thread}.jsonl"
            path.write_text("".join(f"{line}\n" for line in lines))
        write_workspace(self.folder / "w", days_before(NOW.date(), 4))

    def read_operations(self) -> Operations:
        return [lambda: str(open_source(self.folder / "w").extra_report())]

    def write_operations(self) -> Operations:
        return [
            partial(harvest, self.folder / name, self.folder / f"{name}.log")
            for name in (".codex", "w")
        ]


class Table(NamedTuple):
    """A table of another system's database, with six rows."""

    name: str
    columns: str
    values: str
    """Values of a row in SQL; two of them are parameters."""
    rows: list[tuple[str, str]]
    """The two parameters of each row."""


class Databases(Reader):
    """Other systems' SQLite files, whose recalls are harvested and whose memories are shown."""

    files = ("settings.json", "*.db")
    TABLES: ClassVar[dict[str, Table]] = {
        "sqlite_vec.db": Table(
            name="memories",
            columns="""(id INTEGER PRIMARY KEY, content_hash, content, tags, memory_type, metadata,
            created_at, updated_at, created_at_iso, updated_at_iso, deleted_at)""",
            values="(NULL, ?, 'text', 'a,b', 'note', ?, 1772366400.0, NULL, NULL, NULL, NULL)",
            rows=[
                (f"{number:064x}", '{"access_queries": [{"timestamp": 1.77e9}]}')
                for number in range(6)
            ],
        ),
        "store.db": Table(
            name="store",
            columns="(prefix, key, value, created_at, updated_at, expires_at, ttl_minutes)",
            values="('users.1', ?, ?, NULL, '2026-08-01 12:00:00', '2026-08-01 15:00:00', 60.0)",
            rows=[(f"k{number}", "{}") for number in range(6)],
        ),
        "claude-mem.db": Table(
            name="observations",
            columns="""(id INTEGER PRIMARY KEY, memory_session_id, project, type, title,
            narrative, concepts, created_at, created_at_epoch)""",
            values="(NULL, ?, 'w', 'feature', ?, NULL, '[\"pattern\"]', NULL, 1772366400000)",
            rows=[(f"s{number}", f"title {number}") for number in range(6)],
        ),
    }

    def make(self) -> None:
        for file_name, table in self.TABLES.items():
            with closing(sqlite3.connect(self.folder / file_name)) as connection, connection:
                connection.execute(f"CREATE TABLE {table.name} {table.columns}")
                connection.execute(f"CREATE TABLE {SESSIONS}")
                connection.executemany(
                    f"INSERT INTO {table.name} VALUES {table.values}", table.rows
                )
        (self.folder / "settings.json").write_text('{"CLAUDE_MEM_CONTEXT_OBSERVATIONS": "3"}')
        projects = self.folder / "projects" / "w"
        write_transcript(projects, "s1", call("Read", "/w/a.md", at(1), "s1", 1))

    def spoil(self, outside: Path, rng: random.Random) -> str:
        if rng.random() < 0.4:
            return super().spoil(outside, rng)
        path = self.folder / rng.choice([*self.TABLES])
        table = self.TABLES[path.name].name
        with closing(sqlite3.connect(path)) as connection, connection:
            columns = [
                name
                for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            ]
            for _ in range(rng.choice((1, 2, 5))):
                column = rng.choice(columns)
                target = rng.choice(("1", "rowid = 2", "rowid % 2"))
                update = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {target}"
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    connection.execute(update, (rng.choice(HOSTILE_COLUMN_VALUES),))
        return f"values of {path.name}"

    def read_operations(self) -> Operations:
        stores = (
            f"mcp-memory:{self.folder}/sqlite_vec.db",
            f"claude-mem:{self.folder}/claude-mem.db",
        )
        loads = [partial(memlab.load, store, with_body=True, on_bad_row="keep") for store in stores]
        plans = [partial(memlab.plan, store, memlab.KeepRecent(1), now=NOW) for store in stores]
        return [*loads, *plans]

    def write_operations(self) -> Operations:
        projects = self.folder / "projects"
        return [partial(harvest, self.folder / name, transcripts=projects) for name in self.TABLES]


class Journal(Reader):
    """The journal of an interrupted change of a folder."""

    where = CLAUDE_FOLDER
    files = (JOURNALS, JOURNALS, JOURNALS, JOURNALS, f"{CLAUDE_FOLDER}/.memlab/**/*")

    def make(self) -> None:
        """Interrupt a change ever later, until two files have been moved aside."""
        calls = count(1)
        while len(list(self.memory.glob(".memlab/1/out/*"))) < 2:
            shutil.rmtree(self.memory, ignore_errors=True)
            self._interrupt_change(next(calls))

    def _interrupt_change(self, at_call: int) -> None:
        write_memories(self.memory, "a", "b", "c", "d", "e", line="- [T]({}.md) hook")
        plan = memlab.plan(self.memory, memlab.KeepRecent(1), now=NOW)
        with suppress(Crashed), crashing(at_call):
            memlab.apply(plan, now=NOW)

    def spoil(self, outside: Path, rng: random.Random) -> str:
        if rng.random() < 0.15:
            (operation,) = (self.memory / ".memlab").iterdir()
            target = rng.choice((operation, operation / "out"))
            match rng.randrange(4):
                case 0:
                    shutil.rmtree(operation / "out", ignore_errors=True)
                case 1:
                    target.rename(target.with_name(rng.choice(("7", "x", "²", "9" * 30, "-1"))))
                case 2:
                    (target / rng.choice(("99", "x", "²", "-1", "007"))).write_text("more")
                case _:
                    (self.memory / ".memlab").chmod(0o777)
            return "another folder"
        return super().spoil(outside, rng)

    def read_operations(self) -> Operations:
        return [lambda: memlab.load(self.memory, with_body=True), lambda: str(doctor(self.memory))]

    def write_operations(self) -> Operations:
        self.before = set(self._texts())
        return [self._recover]

    def _recover(self) -> None:
        """Begin a change, which first undoes the interrupted one."""
        with open_source(self.memory).changing():
            pass

    def check(self) -> None:
        assert self.before <= set(self._texts())

    def _texts(self) -> Iterator[bytes]:
        """Return the contents of files, in place or moved aside."""
        for path in (*self.memory.glob("*"), *self.memory.glob(".memlab*/*/out/*")):
            data = content_of(path)
            if data is not None and path.name != "MEMORY.md":
                yield data


_READERS = (Store, Settings, Log, ClaudeIndex, OdekIndex, Journal, Transcripts, Recalls, Databases)
READERS: Final[dict[str, type[Reader]]] = {reader.__name__: reader for reader in _READERS}


def content_of(path: Path) -> bytes | None:
    """Return the bytes of a regular file of normal size, except shared-memory files."""
    status = path.lstat()
    if path.name.endswith("-shm"):
        return None
    is_regular = stat.S_ISREG(status.st_mode)
    if not is_regular or status.st_size >= 2**26:
        return None
    return path.read_bytes()


def states_in(folder: Path) -> dict[str, PathState]:
    """Return the state of every path in a folder, without following links."""
    states = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        content = os.fsencode(path.readlink()) if path.is_symlink() else content_of(path)
        states[str(path.relative_to(folder))] = PathState(
            inode=status.st_ino,
            mode=status.st_mode,
            user=status.st_uid,
            group=status.st_gid,
            content=content or b"",
        )
    return states


def spoil_file(path: Path, outside: Path, rng: random.Random) -> str:
    """Damage or replace a file; return a description."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**20:
        return "nothing"
    choice = rng.random()
    if choice < 0.06:
        path.unlink()
        replace = rng.choice(REPLACEMENTS)
        replace(path, outside)
        return f"{replace.__name__} for {path.name}"
    if choice < 0.1:
        path.chmod(rng.choice((0o000, 0o4777, 0o6755, 0o666, 0o604, 0o2640)))
        if os.geteuid() == 0 and rng.random() < 0.5:
            os.chown(path, STRANGER, STRANGER)
        return f"other rights for {path.name}"
    change = rng.choice((mutated_bytes, in_lines, in_json, in_json, in_json))
    data = change(path.read_bytes(), rng)
    path.write_bytes(data)
    return f"{change.__name__} of {path.name}"


def in_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    match rng.randrange(5):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines *= rng.choice((0, 2, 30))
        case 2:
            lines = [line[: rng.randrange(len(line) + 1)] for line in lines]
        case 3:
            return b"".join(lines)
        case _:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(HOSTILE_BYTES))
    return b"\n".join(lines)


def in_json(data: bytes, rng: random.Random) -> bytes:
    """Change values of a JSON file or of some of its lines; otherwise change bytes."""
    for end in (b"\n\0\n", b"\n"):
        parts = data.split(end)
        part_count = min(len(parts), rng.choice((1, 2, 8)))
        for number in rng.sample(range(len(parts)), part_count):
            with suppress(ValueError, RecursionError):
                value = json.loads(parts[number])
                for _ in range(rng.choice((1, 1, 1, 2, 5))):
                    value = mutated(value, rng)
                parts[number] = json_text(value).encode(errors="surrogatepass")
        text = end.join(parts)
        if text != data:
            return text
    return mutated_bytes(data, rng)
