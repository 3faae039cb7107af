"""Whatever is handed to ``load``: nothing is lost, and the message says what, where, what next."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from permissions import as_nobody
from stores import RawText, episodes, files_in, row, run_sql, write_rows, write_signals

import memlab
from memlab.cli import main
from memlab.errors import BadRowError, StoreError
from memlab.store.database import CREATE_TABLE
from memlab.upkeep.health import Status

Maker = Callable[[Path], Path]
PAGE = 4096
GONE = "there is no file {path}; check the path"
NO_DATABASE = "{path} is not a SQLite database; name the memory.db that an agent writes"
COPY = "copy its rows into a store made by memlab.SqliteMemoryStore"
WITHOUT_ROWID = (
    "memory_items in {path} was made WITHOUT ROWID, so its rows have no order of insertion; copy "
    "them into a table made by memlab.SqliteMemoryStore"
)
DAMAGED = (
    "{path} is damaged (database disk image is malformed); restore a backup, or copy what can be "
    "read with the sqlite3 shell's .recover"
)


def containing(data: bytes) -> Maker:
    def make(folder: Path) -> Path:
        path = folder / "memory.db"
        path.write_bytes(data)
        return path

    return make


def made_by(*statements: str) -> Maker:
    def make(folder: Path) -> Path:
        run_sql(folder / "memory.db", *statements)
        return folder / "memory.db"

    return make


def with_table(old: str, new: str) -> Maker:
    statement = CREATE_TABLE.replace(old, new)
    assert statement != CREATE_TABLE
    return made_by(statement)


def damaged(pages: slice, by: bytes) -> Maker:
    def make(folder: Path) -> Path:
        path = write_rows(folder / "memory.db", episodes(300), journal_mode="DELETE")
        data = bytearray(path.read_bytes())
        data[pages] = by
        path.write_bytes(data)
        return path

    return make


def beside(end: str, put: Callable[[Path], None]) -> Maker:
    """A store with something beside it that SQLite would take for a part of it."""

    def make(folder: Path) -> Path:
        path = write_rows(folder / "memory.db", episodes(3), journal_mode="DELETE")
        put(folder / f"memory.db{end}")
        return path

    return make


def beside_it(end: str) -> str:
    return (
        f"{{path}}{end} is no ordinary file, and SQLite would take it for a part of {{path}}; "
        "nothing was changed: move it away"
    )


def linked_to_itself(folder: Path) -> Path:
    (folder / "memory.db").symlink_to(folder / "memory.db")
    return folder / "memory.db"


NOT_A_STORE: dict[str, tuple[Maker, str]] = {
    "no such file": (lambda folder: folder / "memory.db", GONE),
    "a file for a folder": (lambda folder: containing(b"x")(folder) / "memory.db", GONE),
    "a path no system takes": (
        lambda folder: folder / ("x" * 300),
        "{path} cannot be looked at (File name too long); check the path",
    ),
    "a link to itself": (
        linked_to_itself,
        "{path} cannot be looked at (Too many levels of symbolic links); check the path",
    ),
    "a name too long for a journal": (
        lambda folder: write_rows(folder / "memory.db", []).rename(folder / ("x" * 250)),
        (
            "{path}-journal cannot be looked at (File name too long), where SQLite keeps a part "
            "of {path}; check the path, or give the store a shorter name"
        ),
    ),
    "a folder for a log": (beside("-wal", Path.mkdir), beside_it("-wal")),
    "a device for a journal": (
        beside("-journal", lambda path: path.symlink_to("/dev/zero")),
        beside_it("-journal"),
    ),
    "a folder": (lambda folder: folder, "{path} is a folder; name the memory.db inside it"),
    "a pipe": (
        lambda folder: os.mkfifo(folder / "memory.db") or folder / "memory.db",
        "{path} is not a file; name the memory.db that an agent writes",
    ),
    "an empty file": (containing(b""), "{path} is empty; name the memory.db that an agent writes"),
    "a short text": (containing(b"# Notes\n"), NO_DATABASE),
    "another database": (
        made_by("CREATE TABLE notes (text TEXT)"),
        "{path} has no table memory_items; name the memory.db that an agent writes",
    ),
    "text in UTF-16": (
        made_by("PRAGMA encoding = 'UTF-16le'", CREATE_TABLE),
        (
            "{path} keeps its text as UTF-16le and memlab reads UTF-8; nothing was changed: "
            "copy it with sqlite3 FILE '.dump --preserve-rowids' | sqlite3 NEW_FILE"
        ),
    ),
    "a view": (
        made_by("CREATE TABLE m (x)", "CREATE VIEW memory_items AS SELECT * FROM m"),
        "memory_items in {path} is a view, not a table; name the store itself",
    ),
    "no rowids": (with_table(")\n", ") WITHOUT ROWID\n"), WITHOUT_ROWID),
    "a column less": (
        with_table("source_event_id TEXT, source_sequence INTEGER, ", ""),
        f"memory_items in {{path}} lacks the column source_event_id, source_sequence; {COPY}",
    ),
    "a column that hides the order": (
        with_table("superseded_by TEXT", "superseded_by TEXT, RowId TEXT"),
        "memory_items in {path} has a column RowId, which hides the order of insertion; " + COPY,
    ),
    "a column that is computed": (
        with_table("superseded_by TEXT", "superseded_by TEXT AS (source_task_ref)"),
        f"memory_items in {{path}} declares superseded_by as generated, not TEXT; {COPY}",
    ),
    "another type": (
        with_table("title TEXT NOT NULL", "title"),
        f"memory_items in {{path}} declares title as nothing, not TEXT; {COPY}",
    ),
    "another key": (
        with_table("memory_id TEXT PRIMARY KEY", "memory_id TEXT"),
        f"memory_items in {{path}} has another primary key than memory_id; {COPY}",
    ),
    "nonsense in the middle": (damaged(slice(8 * PAGE, 16 * PAGE), b"\xa5" * 8 * PAGE), DAMAGED),
}


@pytest.mark.parametrize("name", NOT_A_STORE)
def test_what_is_no_store_is_refused_in_words_and_left_alone(tmp_path: Path, name: str) -> None:
    make, message = NOT_A_STORE[name]
    path = make(tmp_path)
    before = files_in(tmp_path)
    with pytest.raises(StoreError) as caught:
        memlab.load(path)
    assert str(caught.value) == message.format(path=path)
    found = memlab.doctor(path).checks[0]
    assert found.status is (Status.WARN if "there is no file" in message else Status.FAIL)
    assert found.summary == str(caught.value) or "there is no" in found.summary
    if name.endswith(("for a log", "journal", "to itself", "text")):  # a runtime, too
        with pytest.raises(StoreError) as caught:
            memlab.SqliteMemoryStore(path)
        assert str(caught.value) == message.format(path=path)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("scheme", ["mcp-memory", "claude-mem"])
def test_text_in_utf_16_is_refused_of_other_systems_too(tmp_path: Path, scheme: str) -> None:
    path = made_by("PRAGMA encoding = 'UTF-16be'", "CREATE TABLE memories (id)")(tmp_path)
    with pytest.raises(StoreError, match="keeps its text as UTF-16be and memlab reads UTF-8"):
        memlab.load(f"{scheme}:{path}")


@pytest.mark.parametrize("words", ["size", "report -o page.html", "floor", "compare"])
def test_half_a_character_in_references_names_nobody(tmp_path: Path, words: str) -> None:
    half = json.dumps(["e3", "\ud800"])
    rows = [
        {**each, "supersedes_json": half, "evidence_refs_json": half, "tags_json": half}
        for each in episodes(30)
    ]
    store = write_rows(tmp_path / "memory.db", rows)
    command, *options = words.replace("-o ", f"-o {tmp_path}/").split()
    ended = CliRunner().invoke(main, [command, str(store), *options])
    assert ended.exit_code == 0, ended.output


DEEP = "[" * 100_000
RAW = RawText(b"caf\xe9")
WRONG: list[tuple[str, object, str]] = [
    ("tags_json", DEEP, f"'{DEEP[:77]}...' is not JSON"),
    ("tags_json", '["a"],["b"]', '\'["a"],["b"]\' is not JSON'),  # would join with the next row's
    ("created_at", "2026-02-30T00:00:00Z", "'2026-02-30T00:00:00Z' is not a timestamp"),
    # Milliseconds since 1970, not a quarter to midnight in the year 1712.
    ("created_at", "1712013112345", "'1712013112345' is not a timestamp"),
    (
        "created_at",
        "0001-01-01T00:00:00+01:00",
        "'0001-01-01T00:00:00+01:00' is not in the years 1 to 9999",
    ),
    ("title", RAW, "is not UTF-8"),
    ("body", RawText(b"\xed\xa0\xbd"), "is not UTF-8"),
]


def cannot_be_read(path: Path, row: str, wrong: str, more: str = "") -> str:
    return (
        f"row {row} in {path} cannot be read: {wrong}; mend it{more}, or load with "
        "on_bad_row='keep' in Python; memlab doctor names all such rows"
    )


def refused(path: Path, **how: Any) -> BadRowError:
    with pytest.raises(BadRowError) as caught:
        memlab.load(path, **how)
    return caught.value


@pytest.mark.parametrize(("column", "value", "wrong"), WRONG, ids=lambda each: str(each)[:40])
@pytest.mark.parametrize("with_body", [False, True])
def test_a_bad_row_is_named_and_the_store_left_alone(
    tmp_path: Path, column: str, value: object, wrong: str, with_body: bool
) -> None:
    rows = [row("m1"), row("bad", **{"rowid": 40, column: value}), row("m3")]
    path = write_rows(tmp_path / "memory.db", rows)
    before = files_in(tmp_path)
    error = refused(path, with_body=with_body)
    wrong = f"{column} {wrong}"
    assert str(error) == cannot_be_read(path, "40 (memory_id 'bad')", wrong)
    kept = memlab.load(path, on_bad_row="keep")
    assert list(kept["position"]) == [1, 40, 41]
    assert kept["problem"][1] == wrong
    assert kept["problem"].notna().sum() == 1
    assert not kept["prunable"][1]
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("rows", "name", "wrong", "more"),
    [
        (
            [row("m2", created_at="?"), row("m3", "dream"), row("m4", "dream")],
            "'m2'",
            "created_at '?' is not a timestamp",
            " and 2 more rows",
        ),
        *(
            ([row("m2") | {"memory_id": value}], None, f"memory_id {wrong}", "")
            for value, wrong in (
                (None, "is NULL, not text"),
                (b"m2", "is a blob, not text"),
                (RawText(b"\xff"), "is not UTF-8"),
            )
        ),
    ],
)
def test_the_first_bad_row_is_named_by_its_place_and_the_others_counted(
    tmp_path: Path, rows: list[dict[str, Any]], name: str | None, wrong: str, more: str
) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), *rows])
    assert str(refused(path)) == cannot_be_read(path, f"2 (memory_id {name})", wrong, more)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("importance", "'high'", "importance 'high' is not a number"),
        ("last_accessed_at", "1767225600", "last_accessed_at '1767225600' is not a timestamp"),
        ("expires_at", "'2026-03-01T12:00'", "expires_at '2026-03-01T12:00' has no time zone"),
        ("access_count", "1.5", "access_count 1.5 is not a whole number"),
        ("agent_id", "x'61'", "agent_id b'a' is not text"),
        ("agent_id", "CAST(x'ff' AS TEXT)", "holds text that is not UTF-8"),
        ("graduated", "2", "graduated 2 is neither 0 nor 1"),
    ],
)
def test_a_bad_signal_is_named(tmp_path: Path, name: str, value: str, wrong: str) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), row("m2")])
    write_signals(path, "m2")
    run_sql(path, f"UPDATE memory_signals SET {name} = {value}")
    assert wrong in str(refused(path))


ODD_ROWS = [
    row("references", evidence_refs_json='["issue:9","issue:9","references","nobody"]'),
    row("missed", superseded_by="nobody"),
    row("round", superseded_by="again"),
    row("again", superseded_by="round"),
    row("its own", superseded_by="its own"),
    row("ahead", created_at="9999-12-31T23:59:59Z"),
    row("NUL", title="a\0b", body="\0"),
    row("", title="", body="", authored_by=" "),
    row("sure", confidence=-7),
]


def test_odd_rows_that_can_be_read_are_loaded_as_they_are(tmp_path: Path) -> None:
    frame = memlab.load(write_rows(tmp_path / "memory.db", ODD_ROWS), with_body=True)
    for name in ("memory_id", "title", "body", "superseded_by", "authored_by", "confidence"):
        expected = [each.get(name) for each in ODD_ROWS]
        assert [None if pd.isna(value) else value for value in frame[name]] == expected


@pytest.fixture
def shut_store() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        store = write_rows(Path(name) / "memory.db", episodes(1), journal_mode="WAL")
        store.chmod(0o444)
        store.parent.chmod(0o555)
        yield store
        store.parent.chmod(0o755)


def test_a_read_only_store_in_a_read_only_folder_is_read(shut_store: Path) -> None:
    before = files_in(shut_store.parent)
    with as_nobody():
        assert len(memlab.load(shut_store)) == 1
    assert files_in(shut_store.parent) == before


@pytest.mark.parametrize(
    ("shut", "message"),
    [
        ("memory.db", "{path} cannot be opened; check that the path exists and its permissions"),
        ("", "{path} cannot be looked at (Permission denied); check the path"),
    ],
    ids=["store", "folder"],
)
def test_what_may_not_be_read_or_entered_is_refused_in_words(
    shut_store: Path, shut: str, message: str
) -> None:
    (shut_store.parent / shut).chmod(0o000)
    with as_nobody(), pytest.raises(StoreError) as caught:
        memlab.load(shut_store)
    assert str(caught.value) == message.format(path=shut_store)
