"""Formats: newer files, conversion of archives, stored records."""

import json
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import fleet
from memlab.compaction import (
    Plan,
    Receipt,
    archived_plans,
    archived_rows,
    dropped_plans,
    export_archived,
    plan_upgrade,
    upgrade_archive,
)
from memlab.compaction.undo import Restored
from memlab.errors import ArchiveError, MemlabError, PlanError, SettingsError, StoreError
from memlab.sources.opening import open_source, settings_of
from memlab.store.archive import formats
from memlab.store.records import encoded, with_place
from memlab.upkeep.health import Status
from tests.support.archives import check, compacted, planned
from tests.support.golden_files import CLAUDE, FORMATS, copy_golden
from tests.support.invariants import archive_of, copies_of, rows_of
from tests.support.programs import run_program
from tests.support.shell import output_of, run
from tests.support.stores import episodes, files_in, row, run_sql, write_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store of two load-bearing rows and ten episodes."""
    floor = [row("d1", "semantic"), row("s1", "procedural")]
    return write_rows(tmp_path / "memory.db", [*floor, *episodes(10)])


def raise_version(archive: Path, readable_from: int, *changes: str) -> None:
    """Mark an archive as written by a newer memlab, with some changes to its tables."""
    says = f"INSERT OR REPLACE INTO about VALUES ('readable_from', '{readable_from}')"
    run_sql(archive, *changes, says, "PRAGMA user_version = 9")


def archive_digest(store: Path) -> str:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        ((digest,),) = connection.execute("SELECT digest FROM applies").fetchall()
    return str(digest)


def undo_the_apply(store: Path) -> Restored:
    return memlab.restore(archive_digest(store), store=store)


def apply_a_plan(store: Path) -> Receipt:
    return memlab.apply(planned(store, 2))


def drop_by_command(store: Path) -> Any:
    return run("archive", store, "--drop", "ab", "--apply")


def compact_at_runtime(store: Path) -> Any:
    return memlab.SqliteMemoryStore(store, archive=True).compact_episodic(1)


NEWER_USES: dict[str, Callable[[Path], Any]] = {
    "list": archived_plans,
    "rows": archived_rows,
    "restore": undo_the_apply,
    "apply": apply_a_plan,
    "size": memlab.size,
    "drop": drop_by_command,
    "runtime": compact_at_runtime,
}


@pytest.mark.parametrize("use", NEWER_USES)
def test_newer_archive_is_rejected_with_both_versions(store: Path, use: str) -> None:
    compacted(store, 4)
    raise_version(archive_of(store), 9)
    before = rows_of(store)
    content = archive_of(store).read_bytes()
    try:
        result = NEWER_USES[use](store)
        output = result.output
    except MemlabError as error:
        output = str(error)
    assert "newer memlab, in format 9" in output
    assert "reads formats 2 to 3" in output
    assert "move it away" not in output
    assert rows_of(store) == before
    assert archive_of(store).read_bytes() == content


def test_doctor_names_both_versions_of_newer_archive(store: Path) -> None:
    compacted(store, 4)
    raise_version(archive_of(store), 9)
    archive_check = check(store)
    assert archive_check.status is not Status.OK
    assert "format 9" in f"{archive_check.summary} {archive_check.advice}"
    assert "move it away" not in f"{archive_check.summary} {archive_check.advice}"


def test_compatible_newer_archive_is_read_and_extended(store: Path) -> None:
    before = rows_of(store)
    first = compacted(store, 4)
    raise_version(
        archive_of(store),
        3,
        "ALTER TABLE archived ADD COLUMN mood TEXT",
        "ALTER TABLE applies ADD COLUMN host TEXT DEFAULT 'here'",
        "CREATE TABLE weather (day TEXT, sky TEXT)",
    )
    assert [entry.memories for entry in archived_plans(store)] == [6]
    second = memlab.apply(planned(store, 2))
    assert second.deleted == 2
    assert memlab.restore(second).memories == 2
    assert memlab.restore(first).memories == 6
    assert rows_of(store) == before
    assert check(store).status is Status.OK


def test_newer_plan_is_read_only_if_declared_readable(store: Path) -> None:
    plan = planned(store)
    content = json.loads(plan.to_json())
    with pytest.raises(PlanError, match=r"newer memlab, in format 9.*reads format 2;") as caught:
        Plan.from_json(json.dumps({**content, "memlab_plan": 9, "readable_from": 9}))
    assert "make a new" not in str(caught.value)
    with pytest.raises(PlanError, match="newer memlab, in format 9"):
        Plan.from_json('{"memlab_plan": 9}')
    newer = Plan.from_json(json.dumps({**content, "memlab_plan": 9}))
    assert newer == plan


def test_newer_plan_with_added_fields_is_applied_and_undone(store: Path) -> None:
    before = rows_of(store)
    plan = planned(store)
    content = json.loads(plan.to_json())
    del content["digest"], content["memlab_plan"], content["readable_from"]
    content["mood"] = {"sky": [1, 2]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = sha256(text.encode()).hexdigest()
    file = json.dumps({**content, "memlab_plan": 9, "readable_from": 2, "digest": digest})
    newer = Plan.from_json(file)
    assert newer.digest == digest
    receipt = memlab.apply(newer)
    assert receipt.digest == digest
    assert memlab.restore(receipt).memories == 6
    assert rows_of(store) == before


def test_newer_receipt_and_fleet_plan_are_rejected(store: Path, tmp_path: Path) -> None:
    text = compacted(store).to_json()
    newer = text.replace('"memlab_receipt": 2', '"memlab_receipt": 9').replace(
        '"readable_from": 2', '"readable_from": 8'
    )
    with pytest.raises(PlanError, match=r"in format 9, which is readable from format 8 on"):
        Receipt.from_json(newer)
    plan = fleet.plan([store], memlab.KeepRecent(1)).to_json()
    with pytest.raises(PlanError, match="newer memlab, in format 9"):
        fleet.FleetPlan.from_json(plan.replace('_plan": 2', '_plan": 9').replace(": 2,", ": 9,"))


SETTINGS = """# memlab settings: format {}, readable from format {}
mood = "good"
[store."memory.db"]
policy = {{ name = "recent", keep = 7 }}
"""


def test_newer_settings_are_read_only_if_declared_readable(store: Path) -> None:
    file = store.with_name("memlab.toml")
    file.write_text(SETTINGS.format(9, 9))
    with pytest.raises(SettingsError, match=r"newer memlab, in format 9.*reads format 1"):
        settings_of(open_source(store))
    file.write_text(SETTINGS.format(9, 1))
    assert settings_of(open_source(store)).keep_recent == 7
    file.write_text(SETTINGS.format(1, 1))
    with pytest.raises(SettingsError, match="there is no setting 'mood'"):
        settings_of(open_source(store))


@pytest.mark.parametrize("name", FORMATS)
def test_newer_journal_is_used_only_if_declared_readable(name: str, tmp_path: Path) -> None:
    folder = copy_golden(name, "pending", tmp_path) / CLAUDE
    journal = folder / ".memlab" / "1" / "journal.json"
    content = json.loads(journal.read_text())
    content |= {"memlab_folder_change": 9, "mood": "good"}
    journal.write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"newer memlab, in format 9.*reads format 1") as caught:
        memlab.apply(memlab.plan(folder, memlab.KeepRecent(5)))
    assert "move" not in str(caught.value)
    journal.write_text(json.dumps({**content, "readable_from": 1}))
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(5)))
    assert (folder / "topic_9.md").exists()


# Converting an archive


def readable_content(store: Path) -> dict[str, Any]:
    """Return everything that can be read from an archive."""
    exported = store.with_name("seen.jsonl")
    export_archived(store, exported)
    return {
        "entries": archived_plans(store),
        "dropped": dropped_plans(store),
        "exported": exported.read_text(),
        "lost": output_of("lost", store, "--json") if store.is_file() else "",
        "rows": archived_rows(store).to_json(),
    }


OLDER = [name for name in FORMATS if name != f"format_{formats.FORMAT.number}"]


@pytest.mark.parametrize("part", ["items/memory.db", f"claude/{CLAUDE}", "odek/episodes"])
@pytest.mark.parametrize("name", OLDER)
def test_converted_archive_lists_and_restores_the_same(
    name: str, part: str, tmp_path: Path
) -> None:
    store = copy_golden(name, part.partition("/")[0], tmp_path) / part.partition("/")[2]
    before = readable_content(store)
    files = files_in(tmp_path)
    assert plan_upgrade(store).format == int(name.removeprefix("format_"))
    assert "nothing was converted" in output_of("archive", store, "--upgrade")
    assert files_in(tmp_path) == files
    upgrade = upgrade_archive(store)
    assert upgrade.newest_format == 3
    assert upgrade.is_empty is False
    after = readable_content(store)
    times = ("seen_at", "deleted_at")
    if before["lost"]:
        for outcome in (before, after):
            outcome["lost"] = [
                {key: value for key, value in memory.items() if key not in times}
                for memory in json.loads(outcome["lost"])["lost"]
            ]
    assert after == before
    assert upgrade_archive(store).is_empty
    twin = copy_golden(name, part.partition("/")[0], tmp_path / "twin") / part.partition("/")[2]
    for entry in reversed(archived_plans(store)):
        if not entry.is_recovery:
            restored = memlab.restore(entry.digest, store=store)
            assert restored == memlab.restore(entry.digest, store=twin)
    if store.is_file():
        assert rows_of(store) == rows_of(twin)
    else:
        inside = files_in(store)
        assert inside == files_in(twin)


KILLED = """
import os, sys
from memlab.compaction import upgrade_archive
from memlab.store.archive import formats
real, calls = formats.Format3.count_sound, []
def count_sound(self, apply):
    calls.append(apply)
    if len(calls) == int(sys.argv[2]):
        os._exit(9)
    return real(self, apply)
formats.Format3.count_sound = count_sound
upgrade_archive(sys.argv[1])
"""


@pytest.mark.parametrize("call", [1, 4, 7])
def test_killed_conversion_leaves_the_archive_unchanged(call: int, tmp_path: Path) -> None:
    store = copy_golden("format_2", "items", tmp_path) / "memory.db"
    before = readable_content(store)["exported"]
    assert run_program(KILLED, store, str(call)).returncode == 9
    assert plan_upgrade(store).format == 2
    assert readable_content(store)["exported"] == before
    assert upgrade_archive(store).size_after > 0


def test_damaged_archive_is_not_converted(tmp_path: Path) -> None:
    store = copy_golden("format_2", "items", tmp_path) / "memory.db"
    run_sql(archive_of(store), "UPDATE archived SET record = replace(record, 'body', 'bold')")
    content = archive_of(store).read_bytes()
    with pytest.raises(ArchiveError, match=r"is damaged.*nothing was changed"):
        upgrade_archive(store)
    assert archive_of(store).read_bytes() == content


@pytest.mark.parametrize("arguments", ["--rows", "--copy", "--drop ab", "--facts-too"])
def test_upgrade_option_excludes_others(store: Path, arguments: str) -> None:
    compacted(store)
    assert run("archive", store, "--upgrade", *arguments.split()).exit_code == 2


# Archives are recognised by the columns of their tables


def test_archive_with_reformatted_schema_is_used(store: Path, tmp_path: Path) -> None:
    before = rows_of(store)
    receipt = compacted(store, 4)
    archive = archive_of(store)
    with closing(sqlite3.connect(archive)) as connection:
        dumped = list(connection.iterdump())
    copied = tmp_path / "copied.db"
    with closing(sqlite3.connect(copied, isolation_level=None)) as connection:
        for statement in dumped:
            reformatted = statement
            if statement.startswith("CREATE TABLE archived"):
                reformatted = statement.replace("CREATE TABLE archived", 'create table "archived" ')
                reformatted = reformatted.replace("fields TEXT", '"fields" text').replace("\n", " ")
            connection.execute(reformatted)
        connection.execute("PRAGMA user_version = 3")
    copied.replace(archive)
    assert check(store).status is Status.OK
    assert memlab.restore(receipt).memories == 6
    assert rows_of(store) == before


KEY = "PRIMARY KEY (apply, key)"
KEY_WITH_CODE = {
    "a check": f"{KEY}, CHECK (hex(fields) <> '')",
    "a default": f"more TEXT DEFAULT (hex(randomblob(9))), {KEY}",
    "a generated column": f"more TEXT GENERATED ALWAYS AS (hex(fields)), {KEY}",
    "a collation": f"more TEXT COLLATE theirs, {KEY}",
}


@pytest.mark.parametrize("kind", KEY_WITH_CODE)
def test_archive_with_code_in_columns_is_rejected(store: Path, kind: str) -> None:
    compacted(store, 4)
    with_code = KEY_WITH_CODE[kind].replace("'", "''")
    run_sql(
        archive_of(store),
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_schema SET sql = replace(sql, '{KEY}', '{with_code}') "
        "WHERE name = 'archived'",
    )
    with pytest.raises(ArchiveError, match=r"nothing in it is lost|is damaged"):
        archived_plans(store)


# Records in every form


NAMES = st.text(max_size=6) | st.sampled_from(
    ["memory_id", "kind", "place", "%s", "a\nb", 'q"', "é"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["\n,", '","', "%b", "\\", "[]", "{}", ', "place":', "\u2028", "é🦀"]),
)


def lists_or_dicts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)


VALUES = st.recursive(SCALARS, lists_or_dicts)
LONE = st.dictionaries(
    NAMES | st.just("\udc8e"), VALUES | st.just("a\udc8e"), min_size=1, max_size=3
)
"""Text with lone surrogates, as in file names that are not UTF-8."""


def without_place(fields: dict[str, Any]) -> bool:
    return "place" not in fields


def placed_record(fields: dict[str, Any], place: dict[str, Any]) -> bytes:
    return with_place(encoded(fields), place)


def plain_json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


FIELDS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=6).filter(without_place)
RECORDS = st.one_of(
    st.builds(encoded, FIELDS), st.builds(placed_record, FIELDS, LONE), st.builds(plain_json, LONE)
)


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_record_round_trips_through_the_field_list(records: list[bytes]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.text_factory = bytearray
        archive_format = formats.Format3(connection)
        archive_format.create("file")
        for record in records:
            plain = archive_format._plain_record(record)
            number, fields = archive_format._as_stored(record)
            if plain is not None:
                assert plain.layout_number == number
                assert f"[{formats._SEPARATOR.join(plain.values).decode()}]" == fields
            raw = bytearray(fields.encode())
            assert bytes(archive_format.record_in(number, raw)) == record
            assert bytes(formats.Format3(connection).record_in(number, raw)) == record
            json.loads(fields)


def test_archive_view_is_readable_by_plain_sqlite(store: Path) -> None:
    write_rows(store, [row("odd", confidence=float("inf"), source_event_id=b"\x00")])
    write_rows(store, episodes(1, 99))
    before = rows_of(store)
    compacted(store, 0)
    with closing(sqlite3.connect(archive_of(store))) as connection:
        view_rows = connection.execute(
            "SELECT memory_id, kind, title, body, created_at, reason, json_valid(record), "
            "json_extract(record, '$.memory_id') FROM archived_memories"
        ).fetchall()
    assert [row[0] for row in view_rows] == [row[7] for row in view_rows]
    assert {row[0].encode() for row in view_rows} == {
        row[1] for row in before.values() if row[2] == b"episodic"
    }
    assert all(row[6] == 1 for row in view_rows)
    assert {position: copies[0] for position, copies in copies_of(store).items()} == {
        position: row for position, row in before.items() if row[2] == b"episodic"
    }


@pytest.mark.parametrize(("length", "most"), [(437, 1.2), (250, 1.35)])
def test_archive_is_hardly_larger_than_the_deleted_rows(
    tmp_path: Path, length: int, most: float
) -> None:
    rows = [
        row(f"m{number:05}", body="x" * (length - 130), tags_json="[]", confidence=1.0)
        for number in range(12_000)
    ]
    store = write_rows(tmp_path / "memory.db", rows, journal_mode="DELETE")
    size = store.stat().st_size
    compacted(store, 0)
    assert size / len(rows) == pytest.approx(length, rel=0.1)
    assert archive_of(store).stat().st_size <= most * size


def test_stored_plan_omits_what_the_copies_hold(store: Path) -> None:
    receipt = compacted(store, 4)
    with closing(sqlite3.connect(archive_of(store))) as connection:
        ((blob,),) = connection.execute("SELECT plan_json_zlib FROM applies").fetchall()
    text = json.loads(zlib.decompress(blob))
    assert text["archived_memories"] == {"differing": []}
    assert "memories" not in text
    assert text["digest"] == receipt.digest
    assert memlab.restore(receipt).memories == 6
