"""Atomic changes of files and index of a folder, with concurrent edits and crashes."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Self

import pytest

from memlab.errors import ChangedWhileReadError, StalePlanError, StoreError
from memlab.sources.folder import files as folder_files
from memlab.sources.folder.change import FolderChange, MemoryParts, changed_folder
from memlab.sources.folder.files import Folder, opened_folder
from memlab.sources.folder.journal import FolderMoment, Index, folder_moment
from tests.support.crashing import Crashed, crash_everywhere, crashing

Steps = dict[str, Callable[[], object]]


@dataclass
class Lines(Index):
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
        missing = {k: v for k, v in entries.items() if k not in map(_named, lines)}
        for number, text in sorted(missing.values()):
            lines.insert(number, text.encode())
        return b"".join(lines)


def _named(line: bytes) -> str:
    return line.partition(b":")[0].decode()


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

    def content(self) -> dict[str, tuple[bytes, int, int]]:
        """Return bytes, mode and time of every file, without the time of the index."""
        files = {}
        for path in filter(Path.is_file, self.path.rglob("*")):
            stat = path.stat()
            when = 0 if path.name == "INDEX" else stat.st_mtime_ns
            files[str(path.relative_to(self.path))] = path.read_bytes(), stat.st_mode, when
        return files

    def leaving(self, *names: str) -> dict[str, MemoryParts]:
        lines = enumerate(self.file.read_bytes().splitlines(True))
        entries = {_named(line): [number, line.decode()] for number, line in lines}
        with opened_folder(self.path) as opened:
            return {name: MemoryParts(opened.read(name), entries[name]) for name in names}

    def changing(self) -> AbstractContextManager[FolderChange]:
        return changed_folder(self.path, self.index)

    def take(self, *names: str) -> dict[str, MemoryParts]:
        going = self.leaving(*names)
        with self.changing() as change:
            change.remove(going)
        return going

    def put(self, parts: Mapping[str, MemoryParts]) -> None:
        with self.changing() as change:
            change.insert(parts)

    def moment(self) -> AbstractContextManager[FolderMoment]:
        return folder_moment(self.path, self.index)

    def seen(self) -> tuple[list[str], bytes]:
        with self.moment() as moment:
            names = [name for name in moment.names if name != "INDEX"]
            assert all(moment.read(name).data for name in names)
            return names, b"" if moment.index is None else moment.index.data


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
    made = Steps()
    times = Counter[str]()

    def watched(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def step(*given: Any) -> None:
            call(*given)
            times[name] += 1
            made.setdefault(f"{name} {times[name]}", lambda: None)()

        return step

    for name in ("make_folder", "move", "link", "exchange"):
        monkeypatch.setattr(Folder, name, watched(name, getattr(Folder, name)))
    return made


def test_files_and_index_lines_are_removed_and_restored_together(
    notes: Notes, steps: Steps
) -> None:
    before = notes.content()
    taken = notes.take("b.md", "c.md")
    assert sorted(notes.content()) == ["INDEX", "a.md", "d.md"]
    assert notes.file.read_bytes() == b"# head\na.md:x\nd.md:w\n"
    steps_taken = list(steps)
    assert (
        steps_taken.index("exchange 1") < steps_taken.index("move 2")
    ) == notes.index.index_first
    assert steps_taken[-1] == "move 4"
    notes.put(taken)
    assert notes.content() == before


def test_several_operations_are_one_change(notes: Notes) -> None:
    before = notes.content()
    with suppress(ZeroDivisionError), notes.changing() as change:
        change.remove(notes.leaving("a.md"))
        change.remove(notes.leaving("b.md", "d.md"))
        assert sorted(path.name for path in notes.path.glob("*.md")) == ["c.md"]
        raise ZeroDivisionError
    assert notes.content() == before
    with notes.changing() as change:
        a = notes.leaving("a.md")
        change.remove(a)
        change.remove(notes.leaving("b.md"))
        change.insert(a)
    assert notes.seen() == (["a.md", "c.md", "d.md"], b"# head\na.md:x\nc.md:z\nd.md:w\n")


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
    [*product(["b.md"], ["make_folder 1", "move 1", "move 2"]), ("INDEX", "exchange 1")],
)
def test_writing_through_an_open_file_loses_nothing(
    notes: Notes, steps: Steps, name: str, step: str
) -> None:
    before = notes.seen()
    if name == "INDEX" and notes.index.index_first:
        step = "move 2"  # after the exchange; with the other order the edit would be missed
    with (notes.path / name).open("ab", buffering=0) as opened:
        steps[step] = lambda: opened.write(b"late")
        refused = (StalePlanError, ChangedWhileReadError)
        with pytest.raises(refused, match=f"{name} (was changed|is written)"):
            notes.take("b.md")
    assert (notes.path / name).read_bytes().endswith(b"late")
    names, raw = notes.seen()
    assert (names, raw.removesuffix(b"late")) == before


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
    refused = pytest.raises(StoreError, match="another memlab")
    with notes.changing(), refused, notes.changing():
        pass


@pytest.mark.parametrize("putting", [False, True])
def test_crash_anywhere_leaves_a_change_complete_or_undone(notes: Notes, putting: bool) -> None:
    archived = notes.leaving("b.md", "d.md")
    steps = [lambda: notes.take(*archived), lambda: notes.put(archived)]
    there = [(notes.content(), notes.seen())]
    steps[0]()
    there.append((notes.content(), notes.seen()))
    if not putting:
        steps[1]()
    before, after = there[::-1] if putting else there
    for crashes in crash_everywhere(steps[putting]):  # noqa: B007 - the last value is the number of crashes
        if notes.index.index_first:
            named = {_named(line) for line in notes.file.read_bytes().splitlines()[1:]}
            assert putting or named <= {path.name for path in notes.path.iterdir()}
        now = notes.seen()
        with notes.changing():
            pass
        assert notes.seen() == now
        assert now in (before[1], after[1])
        if now == after[1]:
            assert notes.content() == after[0]
            steps[not putting]()
        assert notes.content() == before[0]
        assert {path.name for path in notes.path.iterdir()} == set(before[0])
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
        names, raw = crashed.seen()
        assert raw.endswith(b"by hand\n")
        assert (crashed.path / "b.md").read_bytes() == b"by hand"
        assert sum(name.startswith("b.md.before") for name in names) == is_moved
        assert b"b.md:y" in raw or not is_moved


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
    for later in (True, False):
        with pytest.raises(ChangedWhileReadError), notes.moment() as moment:  # noqa: PT012
            if later:
                moment.read("a.md")
            (notes.path / "a.md").write_bytes(b"other" * (1 + later))
            if not later:
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
        for does, *names in (
            *((does, "link/x.md") for does in (folder.read, folder.stamp_of, folder.unlink)),
            (folder.move, "link/x.md", "y.md"),
            (folder.move, "x.md", "link/y.md"),
            (folder.link, "x.md", "link/new/y.md"),
        ):
            with pytest.raises((NotADirectoryError, StoreError), match="Not a directory"):
                does(*names)
    assert [path.name for path in outside.iterdir()] == ["x.md"]
    assert sorted(path.name for path in inside.iterdir()) == ["link", "x.md"]
