"""Atomic changes of files and index of a folder, with concurrent edits and crashes."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from memlab.errors import ChangedWhileReadError, StalePlanError, StoreError
from memlab.sources.folder import files as folder_files
from memlab.sources.folder.change import FolderChange, MemoryParts, changed_folder
from memlab.sources.folder.files import Folder, opened_folder
from memlab.sources.folder.journal import FolderMoment, FolderRules, folder_moment
from tests.support.crashing import Crashed, crash_everywhere, crashing
from tests.support.stores import FileState

Steps = dict[str, Callable[[], object]]


@dataclass
class Lines(FolderRules):
    """An index with a line for each file, ``name:words``; puts a line back by its number."""

    index_first: bool
    index_name = "INDEX"

    def remove_entries(
        self, raw: bytes, entries: Mapping[str, Any], there: Collection[str]
    ) -> bytes:
        return b"".join(line for line in raw.splitlines(True) if _named(line) not in entries)

    def insert_entries(
        self, raw: bytes, entries: Mapping[str, Any], there: Collection[str]
    ) -> bytes:
        assert set(entries) <= set(there)
        lines = raw.splitlines(True)
        present = {_named(line) for line in lines}
        missing = [entry for name, entry in entries.items() if name not in present]
        for number, text in sorted(missing):
            lines.insert(number, text.encode())
        return b"".join(lines)


def _named(line: bytes) -> str:
    return line.partition(b":")[0].decode()


class VisibleState(NamedTuple):
    """What a reader sees of a folder."""

    names: list[str]
    index: bytes


@dataclass
class Notes:
    """A folder of four files and their index."""

    path: Path
    index: Lines

    @property
    def file(self) -> Path:
        return self.path / "INDEX"

    def copied(self, to: Path) -> Self:
        return replace(self, path=shutil.copytree(self.path, to))

    def content(self) -> dict[str, FileState]:
        """Return the state of every file, without the time of the index."""
        return {
            str(path.relative_to(self.path)): FileState.of(path, with_time=path.name != "INDEX")
            for path in self.path.rglob("*")
            if path.is_file()
        }

    def parts_of(self, *names: str) -> dict[str, MemoryParts]:
        """Return the files of these names with their index lines."""
        lines = enumerate(self.file.read_bytes().splitlines(True))
        entries = {_named(line): [number, line.decode()] for number, line in lines}
        with opened_folder(self.path) as opened:
            return {name: MemoryParts(opened.read(name), entries[name]) for name in names}

    def changing(self) -> AbstractContextManager[FolderChange]:
        return changed_folder(self.path, self.index)

    def take(self, *names: str) -> dict[str, MemoryParts]:
        parts = self.parts_of(*names)
        with self.changing() as change:
            change.remove(parts)
        return parts

    def put(self, parts: Mapping[str, MemoryParts]) -> None:
        with self.changing() as change:
            change.insert(parts)

    def moment(self) -> AbstractContextManager[FolderMoment]:
        return folder_moment(self.path, self.index)

    def visible_state(self) -> VisibleState:
        with self.moment() as moment:
            names = [name for name in moment.names if name != "INDEX"]
            assert all(moment.read(name).data for name in names)
            index = b"" if moment.index is None else moment.index.data
            return VisibleState(names, index)


@pytest.fixture(params=[True, False], ids=["index first", "files first"])
def notes(request: pytest.FixtureRequest, tmp_path: Path) -> Notes:
    path = tmp_path / "memory"
    path.mkdir(mode=0o750)
    for number, name in enumerate("abcd"):
        (path / f"{name}.md").write_bytes(b"text of " + name.encode() * (number + 1))
        os.utime(path / f"{name}.md", ns=(10**18, 10**18 + number))
        (path / f"{name}.md").chmod(0o640)
    (path / "INDEX").write_bytes(b"# head\na.md:x\nb.md:y\nc.md:z\nd.md:w\n")
    (path / "INDEX").chmod(0o604)
    return Notes(path, Lines(request.param))


@pytest.fixture(autouse=True)
def _no_clock_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the file clock; these tests write no file twice within a tick."""
    monkeypatch.setattr("memlab.clock._STEP", 0)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Record renames in order; a test can register a function to run after one."""
    steps_made = Steps()
    times = Counter[str]()

    def do_nothing() -> None:
        pass

    def recorded(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def step(*arguments: Any) -> None:
            call(*arguments)
            times[name] += 1
            after_step = steps_made.setdefault(f"{name} {times[name]}", do_nothing)
            after_step()

        return step

    for name in ("make_folder", "move", "link", "exchange"):
        monkeypatch.setattr(Folder, name, recorded(name, getattr(Folder, name)))
    return steps_made


def test_files_and_index_lines_are_removed_and_restored_together(
    notes: Notes, steps: Steps
) -> None:
    before = notes.content()
    taken = notes.take("b.md", "c.md")
    assert sorted(notes.content()) == ["INDEX", "a.md", "d.md"]
    assert notes.file.read_bytes() == b"# head\na.md:x\nd.md:w\n"
    steps_taken = list(steps)
    changed_index_first = steps_taken.index("exchange 1") < steps_taken.index("move 2")
    assert changed_index_first == notes.index.index_first
    assert steps_taken[-1] == "move 4"
    notes.put(taken)
    assert notes.content() == before


def test_several_operations_are_one_change(notes: Notes) -> None:
    before = notes.content()
    with suppress(ZeroDivisionError), notes.changing() as change:
        change.remove(notes.parts_of("a.md"))
        change.remove(notes.parts_of("b.md", "d.md"))
        assert sorted(path.name for path in notes.path.glob("*.md")) == ["c.md"]
        raise ZeroDivisionError
    assert notes.content() == before
    with notes.changing() as change:
        first = notes.parts_of("a.md")
        change.remove(first)
        change.remove(notes.parts_of("b.md"))
        change.insert(first)
    state = notes.visible_state()
    assert state.names == ["a.md", "c.md", "d.md"]
    assert state.index == b"# head\na.md:x\nc.md:z\nd.md:w\n"


def test_missing_index_is_created_and_removed_by_undo(notes: Notes) -> None:
    taken = notes.take("a.md")
    notes.file.unlink()
    before = notes.content()
    with suppress(ZeroDivisionError), notes.changing() as change:
        change.insert(taken)
        assert notes.file.read_bytes() == b"a.md:x\n"
        raise ZeroDivisionError
    assert notes.content() == before
    notes.put(taken)
    assert notes.file.read_bytes() == b"a.md:x\n"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("b.md", "make_folder 1"),
        ("b.md", "move 1"),
        ("b.md", "move 2"),
        ("INDEX", "exchange 1"),
    ],
)
def test_writing_through_an_open_file_loses_nothing(
    notes: Notes, steps: Steps, name: str, step: str
) -> None:
    before = notes.visible_state()
    if name == "INDEX" and notes.index.index_first:
        step = "move 2"  # after the exchange; with the other order the edit would be missed
    with (notes.path / name).open("ab", buffering=0) as opened:
        steps[step] = lambda: opened.write(b"late")
        expected_errors = (StalePlanError, ChangedWhileReadError)
        with pytest.raises(expected_errors, match=f"{name} (was changed|is written)"):
            notes.take("b.md")
    assert (notes.path / name).read_bytes().endswith(b"late")
    after = notes.visible_state()
    assert after.names == before.names
    assert after.index.removesuffix(b"late") == before.index


@pytest.mark.parametrize("edits", [1, 2])
def test_index_edit_during_the_exchange_is_kept(
    notes: Notes, monkeypatch: pytest.MonkeyPatch, edits: int
) -> None:
    by_hand = [b"by hand %d\n" % number for number in range(edits)]
    waiting = list(by_hand)
    exchange = Folder.exchange

    def edited_just_before(*args: Any) -> None:
        if waiting:
            new = notes.path / "INDEX.new"
            new.write_bytes(notes.file.read_bytes() + waiting.pop())
            new.rename(notes.file)
        exchange(*args)

    monkeypatch.setattr(Folder, "exchange", edited_just_before)
    with pytest.raises(ChangedWhileReadError, match="try again"):
        notes.take("b.md")
    assert b"b.md:y" in notes.file.read_bytes()
    assert (notes.path / "b.md").exists()
    content = b"".join(path.read_bytes() for path in notes.path.glob("INDEX*"))
    assert all(edit in content for edit in by_hand)


def test_index_always_exists_without_atomic_exchange(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_files, "_RENAMEAT2", None)
    rename = os.rename
    before = notes.content()

    def watching(*args: Any, **kwargs: Any) -> None:
        rename(*args, **kwargs)
        assert notes.file.exists()

    monkeypatch.setattr(os, "rename", watching)
    notes.put(notes.take("b.md"))
    assert notes.content() == before


def test_folder_is_changed_by_one_process_at_a_time(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.sources.folder.change._LOCK_TIMEOUT", 0.1)
    with (
        notes.changing(),
        pytest.raises(StoreError, match="another memlab"),
        notes.changing(),
    ):
        pass


class FolderState(NamedTuple):
    content: dict[str, FileState]
    visible: VisibleState


@pytest.mark.parametrize("putting", [False, True])
def test_crash_anywhere_leaves_a_change_complete_or_undone(notes: Notes, putting: bool) -> None:
    archived = notes.parts_of("b.md", "d.md")
    take = partial(notes.take, *archived)
    put = partial(notes.put, archived)
    complete = FolderState(notes.content(), notes.visible_state())
    take()
    without_archived = FolderState(notes.content(), notes.visible_state())
    if putting:
        change = put
        undo = take
        before = without_archived
        after = complete
    else:
        put()
        change = take
        undo = put
        before = complete
        after = without_archived
    for crashes in crash_everywhere(change):  # noqa: B007 - the last value is the number of crashes
        if notes.index.index_first and not putting:
            named = {_named(line) for line in notes.file.read_bytes().splitlines()[1:]}
            assert named <= {path.name for path in notes.path.iterdir()}
        state = notes.visible_state()
        with notes.changing():
            pass
        assert notes.visible_state() == state
        assert state in (before.visible, after.visible)
        if state == after.visible:
            assert notes.content() == after.content
            undo()
        assert notes.content() == before.content
        assert {path.name for path in notes.path.iterdir()} == set(before.content)
    assert crashes > 15


def test_edits_after_a_crash_survive_recovery(notes: Notes, tmp_path: Path) -> None:
    with crashing() as calls:
        notes.copied(tmp_path / "counted").take("b.md")
    for number in range(1, calls.made):
        crashed = notes.copied(tmp_path / str(number))
        with pytest.raises(Crashed), crashing(number):
            crashed.take("b.md")
        with crashed.file.open("ab") as opened:
            opened.write(b"by hand\n")
        (crashed.path / "b.md").write_bytes(b"by hand")
        is_moved = any(crashed.path.glob(".memlab/*/out/*"))
        for _ in crash_everywhere(partial(crashed.put, {})):
            pass  # each continues where the last one stopped
        state = crashed.visible_state()
        assert state.index.endswith(b"by hand\n")
        assert (crashed.path / "b.md").read_bytes() == b"by hand"
        older_versions = [name for name in state.names if name.startswith("b.md.before")]
        if is_moved:
            assert len(older_versions) == 1
            assert b"b.md:y" in state.index
        else:
            assert older_versions == []


def test_foreign_journal_is_rejected(notes: Notes, tmp_path: Path) -> None:
    pending = notes.path / ".memlab"
    pending.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="in the way"), notes.changing():
        pass
    pending.unlink()
    (pending / "1").mkdir(parents=True)
    entry = {"key": "x", "name": "../victim", "written": 0, "said": None}
    journal = {"memlab_folder_change": 1, "taking_out": False, "entries": [entry]}
    (pending / "1" / "journal.json").write_text(json.dumps(journal))
    with pytest.raises(StoreError, match="not made by memlab"), notes.changing():
        pass
    for path in (pending, pending / "1"):
        path.chmod(0o700)
    for opened in (notes.changing, notes.moment):
        with pytest.raises(StoreError, match="not a file of the folder"), opened():
            pass


def test_reader_sees_one_state_or_an_error(notes: Notes) -> None:
    with notes.moment() as moment:
        (notes.path / "new.md").write_text("new")
        notes.file.write_text("all new")
        (notes.path / "c.md").unlink()
        assert moment.read("a.md").data == b"text of a"
        assert moment.index is not None
        assert b"c.md" in moment.index.data
        assert "new.md" not in moment.names
    with pytest.raises(ChangedWhileReadError), notes.moment() as moment:  # noqa: PT012
        moment.read("a.md")
        (notes.path / "a.md").write_bytes(b"changed after the read")
    with pytest.raises(ChangedWhileReadError), notes.moment() as moment:  # noqa: PT012
        (notes.path / "a.md").write_bytes(b"changed before the read")
        moment.read("a.md")


def test_paths_through_symlinks_are_rejected(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    outside = tmp_path / "outside"
    for target in (inside, outside):
        target.mkdir()
        (target / "x.md").write_text("text")
    (inside / "link").symlink_to(outside)
    with opened_folder(inside, lambda _: True) as folder:
        assert folder.listing().others == ("link",)
        for operation in (
            partial(folder.read, "link/x.md"),
            partial(folder.stamp_of, "link/x.md"),
            partial(folder.unlink, "link/x.md"),
            partial(folder.move, "link/x.md", "y.md"),
            partial(folder.move, "x.md", "link/y.md"),
            partial(folder.link, "x.md", "link/new/y.md"),
        ):
            with pytest.raises((NotADirectoryError, StoreError), match="Not a directory"):
                operation()
    assert [path.name for path in outside.iterdir()] == ["x.md"]
    assert sorted(path.name for path in inside.iterdir()) == ["link", "x.md"]
