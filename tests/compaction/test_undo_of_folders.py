"""Undo in folders keeps every edit made since the plan was applied."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.compaction import drop_archived, keep_copies, recover
from memlab.compaction.archive_views import archive_listing
from memlab.errors import ChangedWhileReadError, MemlabError, StalePlanError, StoreError
from memlab.sources.folder.files import Folder
from memlab.sources.folder.journal import Operation
from memlab.sources.readers import no_progress
from memlab.systems.claude_code.index import MemoryIndex
from memlab.systems.claude_code.markdown import FileNames
from memlab.testing.steps import APPLY_STEPS
from memlab.upkeep.health import doctor
from tests.support.claude_store import at, memory, project_folder, write_memories, write_memory
from tests.support.index_edits import EDITS, FILES, INDEXES, Edit, by_hand, edited
from tests.support.odek_store import write_odek
from tests.support.properties import examples
from tests.support.repositories import NO_CONFIG, Repository
from tests.support.shell import output_of
from tests.support.shell import run as run_command
from tests.support.stores import FileState

MODES = (0o755, 0o664, 0o600, 0o640, 0o444)
HOOKS = {name: f"- [{name[0]}](<{name}>) — hook" for name in FILES}
INDEX = "\n".join(["# Memory", "", *HOOKS.values(), ""]).encode()

State = dict[str, FileState]


def filled(tmp_path: Path, index: bytes = INDEX) -> Path:
    """Make a folder of five memories with different permissions."""
    folder = project_folder(tmp_path)
    for number, (name, mode) in enumerate(zip(FILES, MODES, strict=True)):
        path = write_memory(folder, name, memory(name, style="type"), at(number))
        path.chmod(mode)
    (folder / "MEMORY.md").write_bytes(index)
    (folder / "MEMORY.md").chmod(0o640)
    return folder


def state(folder: Path, *, with_index_times: bool = False) -> State:
    """Return the state of every file, without the time of an index by default."""
    states = {}
    for path in folder.rglob("*"):
        if path.is_file():
            is_index = path.name in ("MEMORY.md", "RETIRED.md")
            name = str(path.relative_to(folder))
            states[name] = FileState.of(path, with_time=with_index_times or not is_index)
    return states


def named(folder: Path) -> set[str]:
    """Return the files that the index names."""
    index = folder / "MEMORY.md"
    raw = index.read_bytes() if index.exists() else b""
    return set(MemoryIndex(raw).blocks_by_file(FileNames(folder, FILES)))


def planned(folder: Path, keep: int, *, retire: bool = False) -> memlab.Plan:
    return memlab.plan(folder, memlab.KeepRecent(keep), retire=retire)


def applied(folder: Path, keep: int, *, retire: bool = False) -> memlab.Receipt:
    return memlab.apply(planned(folder, keep, retire=retire), all_prunable=True)


def written(folder: Path) -> list[bytes]:
    """Return the handwritten lines of both indexes."""
    names = ("MEMORY.md", "RETIRED.md")
    lines = (by_hand((folder / name).read_bytes()) for name in names if (folder / name).exists())
    return sorted(line for index in lines for line in index)


# Bytes, times and permissions


@pytest.mark.parametrize("retire", [False, True])
def test_undo_without_edits_restores_the_folder_exactly(tmp_path: Path, retire: bool) -> None:
    folder = filled(tmp_path)
    before = state(folder, with_index_times=True)
    receipt = applied(folder, 1, retire=retire)
    assert state(folder) != before
    assert memlab.restore(receipt).memories == 4
    assert state(folder, with_index_times=True) == before


KINDS = ("openclaw", "serena", "odek", "claude")


def of_kind(tmp_path: Path, kind: str) -> Path:
    """Make a folder of five memories of one kind of store."""
    if kind == "claude":
        return filled(tmp_path)
    if kind == "odek":
        return write_odek(tmp_path / "memory", ["one", "two", "three", "four", "five"])
    folder = tmp_path / (".serena/memories" if kind == "serena" else "w")
    below = "sub/{}" if kind == "serena" else "memory/2026-01-0{}"
    for number in range(1, 6):
        write_memory(folder, f"{below.format(number)}.md", f"day {number}", at(number))
    write_memory(folder, "AGENTS.txt", "what the agent is told", at(0))
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [None, 1])
def test_undo_recreates_a_deleted_folder(tmp_path: Path, kind: str, ids: int | None) -> None:
    """Git and file synchronisation remove empty folders."""
    folder = of_kind(tmp_path, kind)
    name = f"{kind}:{folder}"
    plan = memlab.plan(name, memlab.KeepRecent(0))
    wanted = [memory.memory_id for memory in plan.memories][:ids]
    before = {path.name: path.read_bytes() for path in folder.rglob("*.md")}
    receipt = memlab.apply(plan, all_prunable=True)
    shutil.rmtree(folder)
    restored = memlab.restore(receipt, ids=None if ids is None else wanted)
    assert restored.memories == len(wanted)
    files = {path.name: path.read_bytes() for path in folder.rglob("*.md")}
    files.pop("MEMORY.md", None)
    assert len(files) == len(wanted)
    assert files.items() <= before.items()


def test_undo_fails_if_the_folder_cannot_be_recreated(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 0)
    archive = folder.with_name("memory.archive.db").read_bytes()
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")
    with pytest.raises(MemlabError):
        memlab.restore(receipt)
    assert folder.is_symlink()
    assert folder.with_name("memory.archive.db").read_bytes() == archive


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_undo_restores_file_permissions(tmp_path: Path, kind: str, umask: int) -> None:
    folder = of_kind(tmp_path, kind)
    paths = sorted(folder.rglob("[!M]*.md"))
    for path, mode in zip(paths, MODES, strict=True):
        path.chmod(mode | 0o4000)  # set-id bits are not restored
    folder.chmod(0o755)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    previous = os.umask(umask)
    try:
        name = f"{kind}:{folder}"
        receipt = memlab.apply(memlab.plan(name, memlab.KeepRecent(0)), all_prunable=True)
        assert not any(path.exists() for path in paths)
        memlab.restore(receipt)
    finally:
        os.umask(previous)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths} == before
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == list(MODES)


def test_recovery_restores_the_permissions_of_the_copy(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    keep_copies(folder)
    before = state(folder)
    (folder / "a.md").unlink()
    (folder / "c.md").unlink()
    assert list(recover(folder).entries_left) == ["a.md", "c.md"]
    assert state(folder) == before


@pytest.mark.parametrize(("around", "wanted"), [(0o755, 0o755), (0o700, 0o700)])
def test_recovery_from_git_restores_the_executable_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: int, wanted: int
) -> None:
    for name, value in NO_CONFIG.items():
        monkeypatch.setenv(name, value)
    folder = filled(tmp_path)
    Repository(folder).commit(0)
    (folder / "a.md").unlink()
    (folder / "c.md").unlink()
    folder.chmod(around)
    recover(folder)
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in ("a.md", "c.md")]
    assert modes == [wanted, wanted & 0o644]


# Edits of the index between apply and undo


AGAIN = b"- [again](a.md) - in other words\n"
EDITED: dict[str, Callable[[bytes], bytes]] = {
    "whole old index": lambda _: INDEX,
    "other words": lambda raw: raw + AGAIN,
    "another's line": lambda raw: raw.replace(b"hook", b"replaces [a](a.md)"),
    "wiki link": lambda raw: raw.replace(b"hook", b"replaces [[a]]"),
    "emptied": lambda _: b"",
    "line ends": lambda raw: raw.replace(b"\n", b"\r\n"),
    "only prose": lambda _: b"I keep my notes elsewhere, see [a](a.md).\n",
}


@pytest.mark.parametrize("edit_name", EDITED)
@pytest.mark.parametrize("ids", [None, ["a.md"]])
@pytest.mark.parametrize("retire", [False, True])
def test_undo_works_after_any_index_edit(
    tmp_path: Path, edit_name: str, ids: list[str] | None, retire: bool
) -> None:
    folder = filled(tmp_path)
    files = {name: file for name, file in state(folder).items() if name != "MEMORY.md"}
    receipt = applied(folder, 1, retire=retire)
    index = folder / "MEMORY.md"
    index.write_bytes(EDITED[edit_name](index.read_bytes()))
    assert memlab.restore(receipt, ids=ids).memories == (1 if ids else 4)
    assert memlab.restore(receipt, ids=ids).memories == 0
    now = state(folder)
    wanted = ids or [*FILES[:4]]
    assert not (retire and ids is None and (folder / "RETIRED.md").exists())
    assert {name: now[name] for name in wanted} == {name: files[name] for name in wanted}
    assert set(wanted) <= named(folder)
    if edit_name == "other words":
        assert index.read_bytes().count(b"](a.md)") == 1
        assert HOOKS["a.md"].encode() not in index.read_bytes()
    elif edit_name != "line ends":
        assert HOOKS["a.md"].encode() in index.read_bytes()


def test_restore_names_index_entries_that_exist_already(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1)
    with (folder / "MEMORY.md").open("ab") as index:
        index.write(AGAIN)
    words = output_of("restore", folder, receipt.digest[:12])
    assert "4 memories restored" in words
    assert "index: it has an entry of 1 of them already, which stays as it is: a.md" in words
    second_receipt = memlab.restore(receipt)
    assert second_receipt.memories == 0
    assert second_receipt.entries_left == ()


def test_undo_accepts_a_file_put_back_by_hand(tmp_path: Path) -> None:
    """Its index line differs from the archived one."""
    folder = filled(tmp_path)
    old = folder / "a.md"
    content = old.read_bytes()
    there = old.stat()
    receipt = applied(folder, 1)
    old.write_bytes(content)
    os.utime(old, ns=(there.st_mtime_ns, there.st_mtime_ns))
    with (folder / "MEMORY.md").open("ab") as index:
        index.write(AGAIN)
    assert memlab.restore(receipt).memories == 3
    assert set(FILES) <= named(folder)


def test_taken_file_name_is_reported_with_a_way_out(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1)
    (folder / "a.md").write_text("another memory\n")
    run = run_command("restore", str(folder), receipt.digest[:12])
    assert run.exit_code == 2
    assert "into a new file" not in run.output
    assert "--export memories.jsonl" in run.output
    with pytest.raises(MemlabError, match="--export"):
        memlab.restore(receipt, into=tmp_path / "new")
    out = tmp_path / "memories.jsonl"
    output_of("archive", folder, "--export", out)
    assert len(out.read_text().splitlines()) == 4
    assert memlab.restore(receipt, ids=["b.md", "c.md", "d.md"]).memories == 3


def test_recovery_and_its_undo_keep_handwritten_entries(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    keep_copies(folder)
    index = folder / "MEMORY.md"
    (folder / "a.md").unlink()
    (folder / "b.md").write_bytes(b"")
    (folder / "c.md").unlink()
    hand = INDEX.replace(HOOKS["a.md"].encode(), AGAIN.strip())
    hand = hand.replace(HOOKS["b.md"].encode(), b"- [b](b.md) - by hand")
    hand = hand.replace(HOOKS["c.md"].encode() + b"\n", b"")
    index.write_bytes(hand)
    lost = state(folder)
    result = recover(folder)
    assert sorted(result.entries_left) == ["a.md", "b.md"]
    line = HOOKS["c.md"].encode() + b"\n"
    assert index.read_bytes().replace(line, b"") == hand
    assert (folder / "b.md").read_bytes() != b""
    assert "entry of 2 of them already" in str(result)
    assert memlab.restore(result.digest, store=folder).memories == 3
    assert state(folder) == lost


# Edits of the index while a plan is applied


@pytest.mark.parametrize("retire", [False, True])
@pytest.mark.parametrize("instant", ["before the exchange", "before it is read again"])
def test_index_line_edited_during_apply_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retire: bool, instant: str
) -> None:
    folder = filled(tmp_path)
    index = folder / "MEMORY.md"
    reworded = INDEX.replace(HOOKS["a.md"].encode(), b"- [a](a.md) reworded by hand")
    waiting = [reworded]

    def hand() -> None:
        if waiting:
            draft = folder / "draft"
            draft.write_bytes(waiting.pop())
            draft.rename(index)

    does = (Folder, "exchange") if instant == "before the exchange" else (Operation, "swap_index")
    true = getattr(*does)

    def meddled(*given: object, **how: object) -> object:
        hand()
        return true(*given, **how)

    monkeypatch.setattr(*does, meddled)
    with pytest.raises(StalePlanError):
        applied(folder, 1, retire=retire)
    assert index.read_bytes() == reworded
    assert set(state(folder)) == {*FILES, "MEMORY.md"}


@pytest.mark.parametrize("way", ["moved", "copied"])
@pytest.mark.parametrize("step", ["checked", "archived", "swap"])
def test_line_returned_by_hand_during_apply_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, step: str
) -> None:
    """The line is moved by hand from RETIRED.md to MEMORY.md while a plan returns it."""
    folder = filled(tmp_path)
    applied(folder, 1, retire=True)
    aside = folder / "RETIRED.md"
    index = folder / "MEMORY.md"
    log = folder.parent / "reads.jsonl"
    folder.parent.joinpath("memlab.toml").write_text('log = "reads.jsonl"\n')
    log.write_text('{"memory_id": "d.md", "at": "2090-01-01T00:00:00Z"}\n')
    plan = planned(folder, 2, retire=True)
    (returned,) = [memory.memory_id for memory in plan.returns]
    own_line = f"- [{returned}]({returned}) reworded by hand\n".encode()
    waiting = [True]

    def hand() -> None:
        if waiting:
            waiting.pop()
            if way == "moved":
                line = HOOKS[returned].encode() + b"\n"
                aside.write_bytes(aside.read_bytes().replace(line, b""))
            index.write_bytes(index.read_bytes() + own_line)

    if step == "swap":
        swap = Operation.swap_index

        def meddled(*given: object, **how: object) -> object:
            hand()
            return swap(*given, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(Operation, "swap_index", meddled)
    with pytest.raises(StalePlanError):
        memlab.apply(plan, on_step=lambda done: hand() if done == step else None)
    assert not waiting
    assert own_line in index.read_bytes()
    assert (
        memlab.restore(plan.digest, store=folder).memories == 0
        if _was_noted(folder, plan)
        else True
    )
    assert own_line in index.read_bytes()


def _was_noted(folder: Path, plan: memlab.Plan) -> bool:
    return plan.digest[:12] in output_of("archive", folder)


def test_reworded_index_line_is_restored_as_reworded(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1, retire=True)
    aside = folder / "RETIRED.md"
    aside.write_bytes(aside.read_bytes().replace("b](<b.md>) — hook".encode(), b"b](b.md) by hand"))
    assert memlab.restore(receipt).memories == 4
    assert not aside.exists()
    wanted = INDEX.replace(HOOKS["b.md"].encode(), b"- [b](b.md) by hand")
    assert (folder / "MEMORY.md").read_bytes() == wanted


def test_line_reworded_in_both_indexes_stays_in_both(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1, retire=True)
    aside = folder / "RETIRED.md"
    index = folder / "MEMORY.md"
    aside.write_bytes(aside.read_bytes().replace("b](<b.md>) — hook".encode(), b"b](b.md) by hand"))
    index.write_bytes(index.read_bytes() + b"- [b](b.md) by hand, too\n")
    memlab.restore(receipt)
    assert b"- [b](b.md) by hand\n" in aside.read_bytes()
    assert b"- [b](b.md) by hand, too\n" in index.read_bytes()
    assert set(FILES) <= named(folder)


# RETIRED.md is missing or a link


def test_undo_restores_lines_without_retired_md(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    before = state(folder)
    receipt = applied(folder, 1, retire=True)
    (folder / "RETIRED.md").unlink()
    checks = {check.name: check for check in doctor(folder).checks}
    assert checks["retired_lines"].counts == {"found": 4}
    assert "neither" in checks["retired_lines"].summary
    assert "RETIRED.md" in checks["index_links"].summary
    words = output_of("restore", folder, receipt.digest[:12])
    assert "4 memories are active again" in words
    assert "back already" not in words
    assert state(folder) == before
    assert "retired_lines" not in {check.name for check in doctor(folder).checks}


@pytest.mark.parametrize("put", [lambda path: path.symlink_to("other.md"), Path.mkdir, os.mkfifo])
def test_retired_md_that_is_no_regular_file_is_reported(
    tmp_path: Path, put: Callable[[Path], object]
) -> None:
    folder = filled(tmp_path)
    before = state(folder)
    receipt = applied(folder, 1, retire=True)
    aside = folder / "RETIRED.md"
    aside.rename(tmp_path / "aside.md")
    put(aside)
    checks = {check.name: check for check in doctor(folder).checks}
    assert "is a link or no ordinary file" in checks["retired_lines"].summary
    with pytest.raises(StoreError, match=r"RETIRED\.md is a link or no ordinary file"):
        memlab.restore(receipt)
    aside.rmdir() if aside.is_dir() else aside.unlink()
    (tmp_path / "aside.md").rename(aside)
    assert memlab.restore(receipt).memories == 4
    assert state(folder) == before


def test_retired_md_without_final_newline_is_restored_exactly(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    applied(folder, 3, retire=True)
    aside = folder / "RETIRED.md"
    aside.write_bytes(aside.read_bytes() + b"by hand, without an end")
    aside.chmod(0o600)
    before = state(folder)
    receipt = applied(folder, 1, retire=True)
    assert memlab.restore(receipt).memories == 2
    assert state(folder) == before


NESTED = {
    "nested memories": b"- [A](a.md) - hook\n  - [D](d.md) nested\n",
    "no line end": b"- [A](a.md) - hook\n  - [D](d.md) nested",
    "two levels": b"- [A](a.md)\n  - [B](b.md)\n    - [C](c.md)\n",
    "below a heading entry": b"- Notes\n  - [A](a.md)\n  - [B](b.md) hook\n",
    "a continuation": b"- [A](a.md)\n  - [B](b.md) hook\n    and more of it\n",
}


@pytest.mark.parametrize("index", NESTED.values(), ids=NESTED.keys())
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_retired_nested_entries_are_restored_exactly(
    tmp_path: Path, index: bytes, keep: int
) -> None:
    folder = filled(tmp_path, index)
    before = state(folder, with_index_times=True)
    receipt = applied(folder, keep, retire=True)
    if receipt.archive:
        memlab.restore(receipt)
    assert state(folder, with_index_times=True) == before


def test_handwritten_line_to_retired_md_stays(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1, retire=True)
    index = folder / "MEMORY.md"
    own_line = b"- [Older](RETIRED.md): by hand\n"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(own_line if b"RETIRED.md" in line else line for line in lines))
    memlab.restore(receipt)
    assert own_line in index.read_bytes()
    assert (folder / "RETIRED.md").exists()


# Earlier versions of the index in the archive


def versions_in(archive: Path) -> list[str]:
    with closing(sqlite3.connect(archive)) as connection:
        rows = connection.execute("SELECT value FROM about WHERE name LIKE 'index_versions:%'")
        return [value for (value,) in rows]


def test_erasing_a_deletion_erases_earlier_index_versions(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    first = applied(folder, 3)
    second = applied(folder, 2)
    assert len(versions_in(Path(str(first.archive)))) == 2
    drop_archived(folder, digest=first.digest)
    assert versions_in(Path(str(first.archive))) == []
    assert memlab.restore(second).memories == 1


DAMAGED_VERSIONS = {
    "no JSON": "{",
    "not a list": '{"name": "MEMORY.md"}',
    "invalid base64": '[{"name": "MEMORY.md", "data": "*", "written": 0, "after": ""}]',
    "not compressed": '[{"name": "MEMORY.md", "data": "YWJj", "written": 0, "after": ""}]',
    "another file": '[{"name": "../MEMORY.md", "data": null, "written": 0, "after": ""}]',
    "too large a time": '[{"name": "MEMORY.md", "data": null, "written": 1e400, "after": ""}]',
    "deeply nested": "[" * 100_000,
}


@pytest.mark.parametrize("value", DAMAGED_VERSIONS.values(), ids=DAMAGED_VERSIONS.keys())
@pytest.mark.parametrize("retire", [False, True])
def test_undo_without_a_readable_index_version_inserts_entries(
    tmp_path: Path, value: str, retire: bool
) -> None:
    folder = filled(tmp_path)
    before = state(folder)
    receipt = applied(folder, 1, retire=retire)
    with closing(sqlite3.connect(str(receipt.archive))) as connection, connection:
        connection.execute(
            "UPDATE about SET value = ? WHERE name LIKE 'index_versions:%'", (value,)
        )
    assert memlab.restore(receipt).memories == 4
    assert state(folder) == before


@pytest.mark.parametrize("retire", [False, True])
def test_edited_index_is_not_replaced_by_its_earlier_version(tmp_path: Path, retire: bool) -> None:
    folder = filled(tmp_path)
    receipt = applied(folder, 1, retire=retire)
    index = folder / "MEMORY.md"
    index.write_bytes(index.read_bytes() + b"\nby hand\n")
    memlab.restore(receipt)
    assert index.read_bytes().endswith(b"\nby hand\n")
    assert named(folder) == set(FILES)


# Random indexes and edits at any step


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    return lambda index: filled(tmp_path_factory.mktemp("any"), index)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(INDEXES, EDITS, st.integers(0, 4), st.booleans())
def test_random_edits_between_apply_and_undo_are_kept(
    fresh: Callable[[bytes], Path],
    raw: bytes,
    edits: list[Edit],
    keep: int,
    retire: bool,
) -> None:
    folder = fresh(raw)
    before = state(folder)
    exactly = state(folder, with_index_times=True)
    was_named = named(folder)
    plan = planned(folder, keep, retire=retire)
    receipt = memlab.apply(plan, all_prunable=True)
    is_edited = edit(folder, edits)
    hand = written(folder)
    if receipt.archive:
        memlab.restore(receipt)
    now = state(folder)
    if not is_edited:
        assert state(folder, with_index_times=True) == exactly
    assert {name: now[name] for name in FILES} == {name: before[name] for name in FILES}
    assert written(folder) == hand
    assert was_named & moved_by(plan) <= named(folder)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(
    INDEXES, EDITS, st.integers(0, 4), st.booleans(), st.booleans(), st.sampled_from(APPLY_STEPS)
)
def test_random_edits_during_apply_or_undo_are_kept(
    fresh: Callable[[bytes], Path],
    raw: bytes,
    edits: list[Edit],
    keep: int,
    retire: bool,
    applies: bool,
    step: str,
) -> None:
    folder = fresh(raw)
    before = state(folder)
    was_named = named(folder)
    plan = planned(folder, keep, retire=retire)
    recorded: list[tuple[list[bytes], set[str]]] = []

    def hand(done: str) -> None:
        if done == step and not recorded:
            edit(folder, edits)
            recorded.append((written(folder), named(folder)))

    is_applied = True
    try:
        memlab.apply(plan, all_prunable=True, on_step=hand if applies else no_progress)
    except (StalePlanError, ChangedWhileReadError):
        is_applied = False
        assert recorded
        assert recorded[0][1] <= named(folder)
    if is_applied and not plan.is_empty:
        with suppress(ChangedWhileReadError):
            memlab.restore(plan.digest, store=folder, on_step=no_progress if applies else hand)
        memlab.restore(plan.digest, store=folder)
        assert was_named & moved_by(plan) <= named(folder) | (
            was_named - named_at_edit(recorded, was_named)
        )
    now = state(folder)
    assert {name: now[name] for name in FILES} == {name: before[name] for name in FILES}
    assert not recorded or written(folder) == recorded[0][0]


def edit(folder: Path, edits: list[Edit]) -> bool:
    """Edit the index; return whether that changed it."""
    index = folder / "MEMORY.md"
    left = edited(index.read_bytes(), edits)
    if left == index.read_bytes():
        return False
    index.write_bytes(left)
    return True


def moved_by(plan: memlab.Plan) -> set[str]:
    """Return the memories that a plan deletes or retires."""
    return {memory.memory_id for memory in (*plan.memories, *plan.retires)}


def named_at_edit(recorded: list[tuple[list[bytes], set[str]]], otherwise: set[str]) -> set[str]:
    """Return the files that the index named after the edit."""
    return recorded[0][1] if recorded else otherwise


def test_archive_says_that_a_retirement_is_undone(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memories(folder, "a", "b", "c")
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1), retire=True))
    assert "undone" not in str(archive_listing(folder))
    memlab.restore(receipt)
    assert "retired 2 memories, undone" in str(archive_listing(folder))


def test_archive_does_not_call_an_interrupted_retirement_undone(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memories(folder, "a", "b", "c")

    def stop(step: str) -> None:
        if step == "archived":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memlab.apply(memlab.plan(folder, memlab.KeepRecent(1), retire=True), on_step=stop)
    listing = str(archive_listing(folder))
    assert "CUT SHORT" in listing
    assert "retired 2 memories" in listing
    assert "undone" not in listing
