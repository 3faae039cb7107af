"""Bad input to ``memlab.load``: nothing is lost and the message helps."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import memlab
from memlab.cli import main
from memlab.errors import BadRowError, StoreError
from memlab.store.database import CREATE_TABLE
from memlab.upkeep.health import Status
from tests.support.paths import link_to_a_device
from tests.support.permissions import as_nobody
from tests.support.stores import (
    RawText,
    episodes,
    files_in,
    row,
    run_sql,
    write_rows,
    write_signals,
)

PAGE = 4096
CHECK = "check the path"
NAME = "name the memory.db that an agent writes"
COPY = "made by memlab.SqliteMemoryStore"
MOVE = "nothing was changed: move it away"


def file_for_a_folder(path: Path) -> Path:
    path.write_bytes(b"x")
    return path / "memory.db"


def beside(end: str, put: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a maker of a store with a file beside it that SQLite takes for a part of it."""

    def make(path: Path) -> None:
        put(write_rows(path, episodes(3), journal_mode="DELETE").with_name(f"{path.name}{end}"))

    return make


def damage(path: Path) -> None:
    data = bytearray(write_rows(path, episodes(300), journal_mode="DELETE").read_bytes())
    data[8 * PAGE : 16 * PAGE] = b"\xa5" * 8 * PAGE
    path.write_bytes(data)


NOT_A_STORE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no such file": (lambda path: None, "there is no file {}", CHECK),
    "a file for a folder": (file_for_a_folder, "there is no file {}", CHECK),
    "a long path": (lambda path: path.with_name("x" * 300), "{} cannot be looked at (File", CHECK),
    "a link to itself": (lambda path: path.symlink_to(path), "{} cannot be looked at (Too", CHECK),
    "a name too long for a journal": (
        lambda path: write_rows(path, []).rename(path.with_name("x" * 250)),
        "{}-journal cannot be looked at (File name too long), where SQLite keeps a part of {}",
        "give the store a shorter name",
    ),
    "a folder for a log": (beside("-wal", Path.mkdir), "{}-wal is not an ordinary file", MOVE),
    "a device for a journal": (
        beside("-journal", link_to_a_device),
        "{}-journal is not an ordinary file",
        MOVE,
    ),
    "a folder": (Path.mkdir, "{} is a folder", "lists those inside"),
    "a pipe": (os.mkfifo, "{} is not a file", NAME),
    "an empty file": (Path.touch, "{} is empty", NAME),
    "a short text": (lambda path: path.write_text("# Notes"), "{} is not a SQLite database", NAME),
    "another database": (lambda path: run_sql(path, "CREATE TABLE n (x)"), "{} has no table", NAME),
    "text in UTF-16": (
        lambda path: run_sql(path, "PRAGMA encoding = 'UTF-16le'", CREATE_TABLE),
        "{} keeps its text as UTF-16le and memlab reads UTF-8",
        "copy it with sqlite3 FILE",
    ),
    "a view": (
        lambda path: run_sql(path, "CREATE VIEW memory_items AS SELECT 1"),
        "memory_items in {} is a view, not a table",
        "name the store itself",
    ),
    "nonsense in the middle": (damage, "{} is damaged (database disk", "restore a backup, or copy"),
}
"""Maker of each path, its error message, and the advice."""
DECLARED = {
    (")\n", ") WITHOUT ROWID\n"): "was made WITHOUT ROWID, so its rows have no order of insertion",
    ("source_event_id TEXT, ", ""): "lacks the column source_event_id",
    ("superseded_by TEXT", "superseded_by TEXT, RowId TEXT"): "has a column RowId, which hides",
    ("superseded_by TEXT", "superseded_by TEXT AS (title)"): "declares superseded_by as generated",
    ("title TEXT NOT NULL", "title"): "declares title as nothing, not TEXT",
    ("memory_id TEXT PRIMARY KEY", "memory_id TEXT"): "has another primary key than memory_id",
}
"""Usual declaration and changed declaration, and the error message."""


def assert_load_rejected(path: Path, wrong: str, instead: str) -> None:
    with pytest.raises(StoreError) as caught:
        memlab.load(path)
    message = str(caught.value)
    assert message.startswith(wrong.format(path, path))
    assert instead in message
    first_check = memlab.doctor(path).checks[0]
    assert first_check.status is (Status.WARN if "there is no file" in message else Status.FAIL)
    assert first_check.summary == message or "there is no" in first_check.summary


@pytest.mark.parametrize("name", NOT_A_STORE)
def test_non_store_is_rejected_and_unchanged(tmp_path: Path, name: str) -> None:
    make, wrong, instead = NOT_A_STORE[name]
    not_a_store = make(tmp_path / "memory.db")
    path = tmp_path / "memory.db"
    path = not_a_store if isinstance(not_a_store, Path) else path
    before = files_in(tmp_path)
    assert_load_rejected(path, wrong, instead)
    if name.endswith(("for a log", "journal", "to itself", "text")):  # a runtime also rejects it
        with pytest.raises(StoreError) as caught:
            memlab.SqliteMemoryStore(path)
        assert str(caught.value).startswith(wrong.format(path, path))
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(("usual", "declared"), DECLARED)
def test_unsupported_table_declaration_is_rejected(
    tmp_path: Path, usual: str, declared: str
) -> None:
    assert usual in CREATE_TABLE
    run_sql(path := tmp_path / "memory.db", CREATE_TABLE.replace(usual, declared))
    before = files_in(tmp_path)
    assert_load_rejected(path, f"memory_items in {{}} {DECLARED[usual, declared]}", COPY)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("scheme", ["mcp-memory", "claude-mem"])
def test_utf_16_database_is_rejected(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "memory.db"
    run_sql(path, "PRAGMA encoding = 'UTF-16be'", "CREATE TABLE memories (id)")
    with pytest.raises(StoreError, match="keeps its text as UTF-16be and memlab reads UTF-8"):
        memlab.load(f"{scheme}:{path}")


@pytest.mark.parametrize("arguments", ["size", "report -o page.html", "floor", "compare"])
def test_lone_surrogate_in_references_is_ignored(tmp_path: Path, arguments: str) -> None:
    half = json.dumps(["e3", "\ud800"])
    rows = [
        {**columns, "supersedes_json": half, "evidence_refs_json": half, "tags_json": half}
        for columns in episodes(30)
    ]
    store = write_rows(tmp_path / "memory.db", rows)
    command, *options = arguments.replace("-o ", f"-o {tmp_path}/").split()
    result = CliRunner().invoke(main, [command, str(store), *options])
    assert result.exit_code == 0, result.output


DEEP = "[" * 100_000
RAW = RawText(b"caf\xe9")
WRONG: list[tuple[str, object, str]] = [
    ("tags_json", DEEP, f"'{DEEP[:77]}...' is not JSON"),
    (
        "tags_json",
        '["a"],["b"]',
        '\'["a"],["b"]\' is not JSON',
    ),  # it would combine with the next row's
    ("created_at", "2026-02-30T00:00:00Z", "'2026-02-30T00:00:00Z' is not a timestamp"),
    # Milliseconds since 1970, not a time in the year 1712.
    ("created_at", "1712013112345", "'1712013112345' is not a timestamp"),
    ("title", RAW, "is not UTF-8"),
    ("body", RawText(b"\xed\xa0\xbd"), "is not UTF-8"),
]


def bad_row_message(path: Path, row: str, wrong: str, more: str = "") -> str:
    return (
        f"row {row} in {path} cannot be read: {wrong}; mend it{more}, or load with "
        "on_bad_row='keep' in Python; memlab doctor names all such rows"
    )


def refused(path: Path, **how: Any) -> BadRowError:
    with pytest.raises(BadRowError) as caught:
        memlab.load(path, **how)
    return caught.value


@pytest.mark.parametrize(("column", "value", "wrong"), WRONG, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("with_body", [False, True])
def test_bad_row_is_named_and_the_store_unchanged(
    tmp_path: Path, column: str, value: object, wrong: str, with_body: bool
) -> None:
    rows = [row("m1"), row("bad", **{"rowid": 40, column: value}), row("m3")]
    path = write_rows(tmp_path / "memory.db", rows)
    before = files_in(tmp_path)
    error = refused(path, with_body=with_body)
    wrong = f"{column} {wrong}"
    assert str(error) == bad_row_message(path, "40 (memory_id 'bad')", wrong)
    assert error.position == 40
    assert error.memory_id == "bad"
    assert error.column == column
    loaded = memlab.load(path, on_bad_row="keep")
    assert list(loaded["position"]) == [1, 40, 41]
    assert loaded["problem"][1] == wrong
    assert loaded["problem"].notna().sum() == 1
    assert not loaded["prunable"][1]
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
def test_first_bad_row_is_named_and_others_are_counted(
    tmp_path: Path, rows: list[dict[str, Any]], name: str | None, wrong: str, more: str
) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), *rows])
    assert str(refused(path)) == bad_row_message(path, f"2 (memory_id {name})", wrong, more)


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
def test_bad_signal_is_named(tmp_path: Path, name: str, value: str, wrong: str) -> None:
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


def test_odd_but_readable_rows_are_loaded_unchanged(tmp_path: Path) -> None:
    frame = memlab.load(write_rows(tmp_path / "memory.db", ODD_ROWS), with_body=True)
    for name in ("memory_id", "title", "body", "superseded_by", "authored_by", "confidence"):
        expected = [columns.get(name) for columns in ODD_ROWS]
        assert [None if pd.isna(value) else value for value in frame[name]] == expected


@pytest.fixture
def shut_store() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        store = write_rows(Path(name) / "memory.db", episodes(1), journal_mode="WAL")
        store.chmod(0o444)
        store.parent.chmod(0o555)
        yield store
        store.parent.chmod(0o755)


def test_store_in_a_read_only_folder_is_read(shut_store: Path) -> None:
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
def test_unreadable_file_or_folder_is_rejected(shut_store: Path, shut: str, message: str) -> None:
    (shut_store.parent / shut).chmod(0o000)
    with as_nobody(), pytest.raises(StoreError) as caught:
        memlab.load(shut_store)
    assert str(caught.value) == message.format(path=shut_store)
