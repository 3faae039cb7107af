"""Copies of a store, losses caused by others, and exact recovery."""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.compaction import drop_archived, keep_copies, plan_erasure, plan_recovery, recover
from memlab.errors import ArchiveError
from memlab.evidence.losses import losses_of
from tests.support.archives import NOON
from tests.support.claude_store import memory, project_folder, write_index, write_memory
from tests.support.crashing import crash_everywhere
from tests.support.invariants import archive_of, rows_of
from tests.support.properties import examples
from tests.support.shell import run
from tests.support.stores import FileState, episodes, row, run_sql, write_rows

DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    for name in "abc":
        write_memory(path, f"{name}.md", memory(name, body=f"{name} alone. " * 60))
    write_index(path, ["# Memory", *(f"- [{n}]({n}.md) — hook" for n in "ab"), "", "By hand."])
    return path


@pytest.fixture
def folder_with_losses(folder: Path) -> Path:
    keep_copies(folder, now=NOON)
    for name in ("a.md", "b.md"):
        (folder / name).unlink()
    return folder


def files_in(folder: Path) -> dict[str, FileState]:
    """Return the state of every file, without the time of an index."""
    return {
        str(path): FileState.of(path, with_time=path.name != "MEMORY.md")
        for path in folder.rglob("*")
        if path.is_file()
    }


def lost(store: Path) -> list[str]:
    return sorted(memlab.lost(store)[c.MEMORY_ID])


def count_copies(store: Path) -> int:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        (count,) = connection.execute("SELECT count(*) FROM copies").fetchone()
    return int(count)


def test_lost_file_is_recovered_with_its_index_line(folder: Path) -> None:
    keep_copies(folder, now=NOON)
    before = files_in(folder)
    (folder / "a.md").unlink()
    (folder / "b.md").write_text("\n")
    write_index(folder, ["# Memory", "- [b](b.md) — hook", "", "By hand."])
    taken = files_in(folder)
    losses = memlab.lost(folder).set_index(c.MEMORY_ID)
    assert losses["emptied"].to_dict() == {"a.md": False, "b.md": True}
    assert set(losses["seen_at"]) == {NOON}
    keep_copies(folder, now=NOON + DAY)
    losses = memlab.lost(folder)
    assert set(losses["seen_at"]) == {NOON}
    assert set(losses["deleted_at"]) == {NOON + DAY}
    assert [*plan_recovery(folder, ["a.md"]).losses] == ["a.md"]
    assert files_in(folder) == taken
    assert "lists them; --restore all brings them back" in str(memlab.doctor(folder))
    result = recover(folder)
    assert files_in(folder) == before
    assert lost(folder) == []
    assert "2 restored" not in str(memlab.doctor(folder))
    assert memlab.restore(result.digest, store=folder).memories == 2
    assert files_in(folder) == taken
    assert lost(folder) == ["a.md", "b.md"]


def test_undone_recovery_leaves_no_empty_folder(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memory(folder, "deploy/eu/d.md", memory("d"))
    write_memory(folder, "deploy/e.md", memory("e"))
    lines = [f"- [{name}]({name}.md)" for name in ("deploy/eu/d", "deploy/e")]
    write_index(folder, ["# Memory", *lines])
    keep_copies(folder, now=NOON)
    (folder / "deploy/eu/d.md").unlink()
    (folder / "deploy/eu").rmdir()
    result = recover(folder)
    assert (folder / "deploy/eu/d.md").exists()
    memlab.restore(result.digest, store=folder)
    assert not (folder / "deploy/eu").exists()
    assert (folder / "deploy/e.md").exists()


@pytest.mark.long
def test_crash_in_recovery_leaves_it_done_or_undone(folder: Path) -> None:
    keep_copies(folder, now=NOON)
    before = {path: path.read_bytes() for path in folder.glob("*.md")}
    (folder / "a.md").unlink()  # its line stays
    (folder / "b.md").write_text("")
    assert len(list(crash_everywhere(lambda: recover(folder)))) > 30
    assert before == {path: path.read_bytes() for path in folder.glob("*.md")}
    assert lost(folder) == []


contents = st.binary(min_size=1, max_size=200).filter(lambda data: bool(data.strip()))


@given(st.dictionaries(st.sampled_from("abcdefgh"), contents, min_size=1), st.data())
@settings(max_examples=examples(30))
def test_copied_files_are_recovered_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("workspace") / ".serena" / "memories"
    (folder / "deep").mkdir(parents=True)
    for name, content in files.items():
        (folder / ("deep" if name < "d" else "") / f"{name}.md").write_bytes(content)
    keep_copies(folder)
    before = files_in(folder)
    for path in data.draw(st.lists(st.sampled_from(sorted(before)), unique=True)):
        if data.draw(st.booleans()):
            Path(path).unlink()
        else:
            Path(path).write_bytes(data.draw(st.sampled_from([b"", b"\n"])))
    present = {name for name, (content, *_) in files_in(folder).items() if content.strip()}
    deleted = before.keys() - present
    assert len(recover(folder).losses) == len(deleted)
    after = files_in(folder)
    assert {name: after[name] for name in deleted} == {name: before[name] for name in deleted}


def test_content_is_copied_once_across_renames(folder: Path) -> None:
    assert keep_copies(folder, now=NOON).counts == (3, 3, 0)
    assert run("archive", folder).output.startswith(f"copies of memories in {folder}, last made")
    os.utime(folder / "a.md")
    assert keep_copies(folder, now=NOON + DAY).counts == (3, 0, 0)
    (folder / "a.md").rename(folder / "A.md")
    (folder / "b.md").rename(folder / "other.md")
    assert lost(folder) == []
    assert keep_copies(folder, now=NOON + 2 * DAY).counts == (3, 0, 0)
    assert count_copies(folder) == 3
    assert lost(folder) == []
    (folder / "other.md").unlink()
    assert lost(folder) == ["other.md"]


def test_copies_are_hardly_larger_than_the_store(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("two_years"), tmp_path / "memory.db")
    run_sql(store, "VACUUM")
    keep_copies(store)
    before = archive_of(store).stat().st_size
    assert before < 1.3 * store.stat().st_size
    keep_copies(store)
    assert archive_of(store).stat().st_size == before


def test_deletions_by_memlab_are_no_losses(tmp_path: Path) -> None:
    rows = [row("d", "semantic"), *(row(f"e{n}", body=f"word{n} of it") for n in range(9))]
    store = write_rows(tmp_path / "memory.db", rows)
    keep_copies(store, now=NOON)
    plan = memlab.plan(store, memlab.KeepRecent(4), now=NOON + DAY)
    receipt = memlab.apply(plan, now=NOON + DAY)
    keep_copies(store, now=NOON + 2 * DAY)
    losses = losses_of(store, now=NOON + 3 * DAY)
    assert len(losses.frame) == 0
    assert losses.deleted_by_memlab == 5
    assert losses.deleted_by_memlab_asked == 0
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'd'")
    keep_copies(store, now=NOON + 4 * DAY)
    assert lost(store) == ["d"]
    assert plan_erasure(store, digest=receipt.digest).copies == 5
    drop_archived(store, digest=receipt.digest, now=NOON + 5 * DAY)
    raw = archive_of(store).read_bytes()
    assert not [n for n in range(5) if f"word{n} ".encode() in raw]
    assert count_copies(store) == 5
    assert lost(store) == ["d"]
    assert drop_archived(store, before=NOON + 6 * DAY, now=NOON + 6 * DAY).copies == 1
    assert count_copies(store) == 4
    assert lost(store) == []


def test_later_reads_and_references_rank_losses(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(6))
    keep_copies(store, now=NOON)
    run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e1', 'e2', 'e3')")
    later = (NOON + DAY).isoformat()
    write_rows(store, [row("late", created_at=later, evidence_refs_json='["e2"]')])
    log = tmp_path / "reads.jsonl"
    with log.open("w") as file:
        for name, days in (("e3", 1), ("e3", 2), ("e1", -1)):
            read = {"memory_id": name, "at": (NOON + days * DAY).isoformat()}
            file.write(f"{json.dumps(read)}\n")
    losses = memlab.lost(store, log=memlab.read_access_log(log))
    counts = losses[[c.MEMORY_ID, "reads", "references", "asked"]].to_numpy().tolist()
    assert counts == [["e3", 2, 0, 2], ["e2", 0, 1, 1], ["e1", 0, 0, 0]]
    assert losses["last_asked"][0] == NOON + 2 * DAY


@pytest.mark.parametrize("put", [lambda path: path.symlink_to("c.md"), Path.mkdir])
def test_recovery_over_an_existing_path_is_rejected(
    folder_with_losses: Path, put: Callable[[Path], None]
) -> None:
    put(folder_with_losses / "a.md")
    before = files_in(folder_with_losses)
    with pytest.raises(ArchiveError, match=r"a\.md is there again; nothing was restored"):
        recover(folder_with_losses)
    assert files_in(folder_with_losses) == before
    assert memlab.doctor(folder_with_losses).status != "FAIL"
    assert [*recover(folder_with_losses, ["b.md"]).losses] == ["b.md"]


def test_recovery_into_a_taken_position_is_rejected(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    keep_copies(store, now=NOON)
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'e3'")
    write_rows(store, [row("other")])
    before = rows_of(store)
    for call in (plan_recovery, recover):
        with pytest.raises(ArchiveError, match=r"1 place in .* taken since \(3\)"):
            call(store)
        with pytest.raises(ArchiveError, match="e1 is not lost"):
            call(store, ["e1"])
    assert rows_of(store) == before
    memlab.apply(memlab.plan(store, memlab.KeepRecent(0), now=NOON + DAY), now=NOON + DAY)
    assert lost(store) == ["e3"]  # another deletion by memlab has its position


def test_undo_of_recovery_keeps_files_written_since(folder_with_losses: Path) -> None:
    digest = recover(folder_with_losses).digest
    with (folder_with_losses / "a.md").open("a") as file:
        file.write("more")
    before = files_in(folder_with_losses)
    with pytest.raises(ArchiveError, match="1 memory written since"):
        memlab.restore(digest, store=folder_with_losses)
    assert files_in(folder_with_losses) == before
    assert memlab.restore(digest, store=folder_with_losses, ids=["b.md"]).memories == 1


FORGED = (
    "record_zlib = x'00'",
    "record_zlib = 'text'",
    "fingerprint = x'00'",
    "fingerprint = 1",
    "digest = 1",
    "key = 1",
    "key = x'00'",
    "key = 'c.md'",
    "is_empty = 7",
    "missed_at = 'x'",
    "memory_id = 'z.md'",
    "missed_at = 5, seen_at = NULL",
)


@pytest.mark.parametrize("forged", FORGED)
def test_damaged_copy_is_left_out_and_named(folder_with_losses: Path, forged: str) -> None:
    run_sql(archive_of(folder_with_losses), f"UPDATE copies SET {forged} WHERE memory_id = 'a.md'")
    with pytest.warns(memlab.errors.DamagedArchiveWarning, match=r"a copy of .*[az]\.md"):
        assert lost(folder_with_losses) == ["b.md"]
    run_sql(
        archive_of(folder_with_losses), "UPDATE about SET value = 'never' WHERE name = 'copied_at'"
    )
    with pytest.warns(memlab.errors.DamagedArchiveWarning, match="when it copied the store last"):
        assert lost(folder_with_losses) == []


@pytest.mark.parametrize("record", ["[]", "{}", "[[1]]", '[["b.md","{}"]]', '[[7,"x"]]', "null"])
def test_forged_recovery_record_is_rejected(folder: Path, record: str) -> None:
    keep_copies(folder, now=NOON)
    (folder / "b.md").write_text("")
    digest = recover(folder).digest
    blob = zlib.compress(record.encode()).hex()
    run_sql(archive_of(folder), f"UPDATE applies SET plan_json_zlib = x'{blob}'")
    before = files_in(folder)
    if record in ("[]", "{}"):  # it replaced nothing
        assert memlab.restore(digest, store=folder).memories == 1
        return
    with pytest.raises(ArchiveError, match=r"the content that .* replaced cannot be read"):
        memlab.restore(digest, store=folder)
    assert files_in(folder) == before


def test_recovered_load_bearing_memories_stay_after_undo(tmp_path: Path) -> None:
    rows = [row("d", "semantic"), row("s", "procedural"), *episodes(3)]
    store = write_rows(tmp_path / "memory.db", rows)
    keep_copies(store, now=NOON)
    before = rows_of(store)
    run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('d', 'e1')")
    run_sql(store, "UPDATE memory_items SET body = '' WHERE memory_id IN ('s', 'e2')")
    result = recover(store)
    assert rows_of(store) == before
    assert memlab.compaction.archived_rows(store).empty  # nothing was taken out
    receipt = memlab.restore(result.digest, store=store)
    assert receipt.memories == 2
    assert receipt.load_bearing == 2
    assert lost(store) == ["e1", "e2"]
