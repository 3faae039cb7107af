"""odek folders: read, compacted in writing order, restored byte for byte."""

import json
import os
import time
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

import memlab
from memlab.errors import ArchiveError, BadRowError, StoreError
from memlab.sources.readers import Key
from memlab.store.shapes import fields, integer
from memlab.systems.odek import EpisodeIndex, Odek
from memlab.testing.conformance import DeletingSuite, delete_all, fingerprints, put_back, records_of
from memlab.testing.labs import MODES, TEXTS, Lab
from memlab.upkeep.health import Status, doctor
from tests.support.odek_store import (
    DERIVED,
    START,
    entries_of,
    entry,
    hold_lock_of_odek,
    nanoseconds,
    write_episode,
    write_index,
    write_odek,
)
from tests.support.programs import forked
from tests.support.shell import output_of
from tests.support.stores import files_in


class OdekLab(Lab):
    """A folder of episodes, some untrusted, some without a file."""

    where = "memory"
    scheme = "odek:"

    def fill(self, count: int) -> None:
        write_odek(self.path, [TEXTS[number % 5] * 9 for number in range(count)])
        entries = entries_of(self.path)
        entries[2]["provenance"] = {"untrusted": True, "sources": ["web"]}
        entries[3]["provenance"] = {"untrusted": True, "user_approved": True}
        fifth = entries.pop(4)
        entries.insert(5, fifth)
        write_index(self.path, entries)
        (self.path / "s6.md").unlink()
        (self.path / "orphan.md").write_text("no entry names it")
        (self.path / "user.md").write_text("facts")
        for number, path in enumerate(sorted(self.path.glob("s*.md"))):
            path.chmod(MODES[number % 5])

    def edit_index(self) -> bytes:
        entries = entries_of(self.path)
        entries.append(entry("hand", "by hand", nanoseconds(900)))
        (self.path / "index.json").write_text(json.dumps(entries))
        return json.dumps(entries[-1]).encode()

    def index(self) -> bytes:
        return (self.path / "index.json").read_bytes()

    def others(self) -> dict[str, str]:
        return {"notes.txt": "x", "facts.md": "no episode's\n", "sub/s1.md": "deeper\n"}

    def add_pair(self, number: int) -> None:
        entries = entries_of(self.path)
        for side in "ab":
            name = f"p{number}{side}"
            write_episode(self.path, name, f"pair {number}")
            entries.append(entry(name, f"pair {number}", nanoseconds(10_000 + number)))
        write_index(self.path, entries)

    def change(self, key: Key) -> None:
        with (self.path / f"{key}.md").open("a") as file:
            file.write("!")

    def exactly(self) -> dict[Key, Any]:
        files: dict[Key, Any] = {}
        for listed in entries_of(self.path):
            path = self.path / f"{listed['session_id']}.md"
            file = None
            if path.exists():
                stat = path.stat()
                file = (path.read_bytes(), stat.st_mode, stat.st_mtime_ns, stat.st_uid)
            files[listed["session_id"]] = (json.dumps(listed), file)
        return files


class TestOdek(DeletingSuite):
    lab_type = OdekLab


def test_episode_is_a_row_with_its_trust(tmp_path: Path) -> None:
    write_odek(tmp_path, ["first line\nsecond", "other"])
    (tmp_path / "s1.md").unlink()  # the index holds the text, too
    entries = entries_of(tmp_path)
    entries[1]["provenance"] = {"untrusted": True, "sources": ["web", "mail"]}
    write_index(tmp_path, entries)
    for name in (tmp_path, f"odek:{tmp_path}"):
        assert "none loaded at start, recalled from         2" in output_of("show", name)
    frame = memlab.load(tmp_path, with_body=True)
    assert frame["title"].tolist() == ["first line", "other"]
    assert frame["body"].tolist() == ["second", ""]
    assert frame["trusted"].tolist() == [True, False]
    assert not frame["loaded_at_start"].any()
    assert frame["tags"].tolist() == [(), ("untrusted", "web", "mail")]
    assert frame["created_at"][0] >= START
    assert frame["prunable"].all()


@pytest.mark.parametrize("session_id", ["../victim", "a/b", "..", ".", "", "a\\b", "x\0y", "a..b"])
def test_id_with_a_path_never_touches_a_file_outside(tmp_path: Path, session_id: str) -> None:
    folder = write_odek(tmp_path / "memory", ["one"])
    (tmp_path / "victim.md").write_text("not odek's")
    write_index(folder, [*entries_of(folder), entry(session_id, "evil", nanoseconds(9))])
    before = {name: file for name, file in files_in(tmp_path).items() if "episodes_" not in name}
    assert memlab.load(folder)["title"].tolist() == ["one", "evil"]
    records = records_of(folder, [session_id])
    delete_all(folder, records)
    assert [entry["session_id"] for entry in entries_of(folder)] == ["s0"]
    assert (tmp_path / "victim.md").read_text() == "not odek's"
    put_back(folder, records)
    assert files_in(tmp_path) == before


def test_vectors_are_removed_and_restored_on_failure(tmp_path: Path) -> None:
    folder = write_odek(tmp_path / "memory", ["one", "two"])
    before = files_in(folder)
    with suppress(ZeroDivisionError), Odek(folder).changing() as writer:
        writer.delete(fingerprints(list(writer.records(["s0"])), folder))
        assert not any((folder / name).exists() for name in DERIVED)
        raise ZeroDivisionError
    assert files_in(folder) == before
    records = records_of(folder, ["s0"])
    delete_all(folder, records)
    for name in DERIVED:
        (folder / name).write_bytes(b"new")
    put_back(folder, records)
    assert not any((folder / name).exists() for name in DERIVED)


def test_files_are_removed_before_the_index() -> None:
    assert not Odek.index_first


ENTRIES = ('{\n    "session_id": "a"\n  }', "7", '{"session_id": "b"}', '{"session_id": "a"}')


def test_any_index_list_is_restored_byte_for_byte() -> None:
    for end in ("", "\n", "\r\n\n"):
        raw = ("[\n  " + ",\n  ".join(ENTRIES) + "\n]" + end).encode()
        source = Odek("episodes")
        entries = EpisodeIndex.read(raw).entries_by_key()
        for names in ({"a"}, {"b"}, {"a", "b"}):
            deleted = {key: entries[key] for key in names}
            shortened = source.remove_entries(raw, deleted, ())
            remaining = {entry.session_id for entry in EpisodeIndex.read(shortened).entries}
            assert remaining.isdisjoint(names)
            assert source.insert_entries(shortened, deleted, ()) == raw


def test_list_in_another_layout_is_read_but_not_changed(tmp_path: Path) -> None:
    write_odek(tmp_path, ["one", "two"])
    raw = json.dumps(entries_of(tmp_path)).encode()
    (tmp_path / "index.json").write_bytes(raw)
    records = records_of(tmp_path, ["s0"])
    with pytest.raises(StoreError, match="is not laid out as odek writes it"):
        delete_all(tmp_path, records)
    assert (tmp_path / "index.json").read_bytes() == raw
    for empty in (b"null\n", b""):
        (tmp_path / "index.json").write_bytes(empty)
        assert memlab.load(f"odek:{tmp_path}").empty


@pytest.mark.parametrize("raw", [b"{}", b"[", b"[{}", b"[{},]", b"[] x", b"nonsense", b"[" * 9999])
def test_invalid_list_is_an_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "index.json").write_bytes(raw)
    with pytest.raises(StoreError, match=r"index\.json is not odek's list"):
        memlab.load(f"odek:{tmp_path}")


def test_episode_without_a_time_is_named(tmp_path: Path) -> None:
    write_odek(tmp_path, ["one"])
    write_index(tmp_path, [*entries_of(tmp_path), {"session_id": "x", "summary": "y"}])
    with pytest.raises(BadRowError, match="created_at None"):
        memlab.load(tmp_path)
    assert memlab.load(tmp_path, on_bad_row="keep")["prunable"].tolist() == [False, True]


def test_restored_episode_precedes_newer_ones(tmp_path: Path) -> None:
    write_odek(tmp_path, ["a", "b", "c"])
    records = records_of(tmp_path, ["s1"])
    write_odek(tmp_path, ["d"], start=3)
    assert delete_all(tmp_path, records) == 1
    put_back(tmp_path, records)
    assert [entry["session_id"] for entry in entries_of(tmp_path)] == ["s0", "s1", "s2", "s3"]
    assert entries_of(tmp_path)[1]["summary"] == "b"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    folder = write_odek(tmp_path / "episodes", [f"summary of {number}" for number in range(9)])
    (folder / "episodes.lock").touch(0o600)  # as odek leaves it
    return folder


@pytest.mark.parametrize("operation", ["apply", "restore"])
def test_lock_of_odek_is_waited_for(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """While odek writes, nothing is changed and the error names the holder of the lock."""
    receipt = memlab.apply(memlab.plan(f"odek:{many}", memlab.KeepRecent(6)))
    plan = memlab.plan(f"odek:{many}", memlab.KeepRecent(4))
    before = {path.name: path.read_bytes() for path in many.iterdir()}
    monkeypatch.setattr("memlab.systems.odek._LOCK_TIMEOUT", 0.1)
    reached = tmp_path / "reached"
    go_on = tmp_path / "go"
    with forked("tests.support.odek_store") as children:
        pid = children.start(hold_lock_of_odek, folder=many, reached=reached, go_on=go_on)
        while not reached.exists():
            time.sleep(0.01)
        change = partial(memlab.apply, plan)
        if operation == "restore":
            change = partial(memlab.restore, receipt)
        with pytest.raises(StoreError, match=r"odek is writing.*nothing was changed"):
            change()
        assert {path.name: path.read_bytes() for path in many.iterdir()} == before
        monkeypatch.setattr("memlab.systems.odek._LOCK_TIMEOUT", 20.0)
        Timer(0.3, go_on.touch).start()
        result = change()
        if operation == "apply":
            assert result.deleted == 2
        else:
            assert result.memories == 3
        children.wait(pid)


@pytest.mark.parametrize("was_there", [True, False])
def test_lock_is_held_while_memlab_changes_the_folder(many: Path, was_there: bool) -> None:
    """Another process cannot take the lock meanwhile."""
    if not was_there:
        (many / "episodes.lock").unlink()
    locked_steps = set()

    def try_the_lock(step: str) -> None:
        if not (many / "episodes.lock").exists():
            return
        with (many / "episodes.lock").open("r+") as lock:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                locked_steps.add(step)

    plan = memlab.plan(f"odek:{many}", memlab.KeepRecent(6))
    receipt = memlab.apply(plan, on_step=try_the_lock)
    assert {"locked", "checked", "copied", "archived", "verified"} <= locked_steps
    assert (many / "episodes.lock").exists() == was_there
    memlab.restore(receipt)
    assert (many / "episodes.lock").exists() == was_there


def test_lock_file_belongs_to_the_owner_of_the_folder(many: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file to another user")
    (many / "episodes.lock").unlink()
    for path in (many, *many.iterdir()):
        os.chown(path, 1234, 1234)
    recorded = []

    def record_status(step: str) -> None:
        if step == "checked":
            recorded.append((many / "episodes.lock").stat())

    memlab.apply(memlab.plan(f"odek:{many}", memlab.KeepRecent(6)), on_step=record_status)
    (status,) = recorded
    assert status.st_uid == 1234
    assert status.st_mode & 0o777 == 0o600


def test_doctor_warns_of_entries_without_a_file(many: Path) -> None:
    (many / "s3.md").unlink()
    (check,) = [check for check in doctor(f"odek:{many}").checks if check.name == "entries"]
    assert check.status is Status.WARN
    assert check.counts == {"found": 1}
    assert "s3" in check.summary


def test_restore_returns_a_missing_file_of_an_equal_entry(many: Path) -> None:
    """After the deletion odek rewrites its old list, whose entries have no files."""
    index = (many / "index.json").read_bytes()
    before = {path.name: path.read_bytes() for path in many.glob("*.md")}
    receipt = memlab.apply(memlab.plan(f"odek:{many}", memlab.KeepRecent(6)))
    (many / "index.json").write_bytes(index)
    assert memlab.restore(receipt).memories == 3
    assert {path.name: path.read_bytes() for path in many.glob("*.md")} == before
    assert (many / "index.json").read_bytes() == index


def test_restore_rejects_a_missing_file_of_another_entry(many: Path) -> None:
    index = (many / "index.json").read_bytes()
    receipt = memlab.apply(memlab.plan(f"odek:{many}", memlab.KeepRecent(6)))
    (many / "index.json").write_bytes(index.replace(b"summary of 0", b"another summary"))
    with pytest.raises(ArchiveError, match="nothing was restored"):
        memlab.restore(receipt)
    assert memlab.restore(receipt, ids=["s1", "s2"]).memories == 2


class UnrestorableOdek(Odek):
    """A source of one's own whose check refuses what the base class writes."""

    place = staticmethod(fields({"position": integer()}))


def test_record_that_a_restore_would_refuse_is_not_deleted(tmp_path: Path) -> None:
    folder = write_odek(tmp_path / "odek", ["first", "second", "third"])
    before = files_in(folder)
    source = UnrestorableOdek(folder)
    plan = memlab.plan(source, memlab.KeepRecent(1))
    with pytest.raises(ArchiveError, match="nothing was deleted: UnrestorableOdek wrote a record"):
        memlab.apply(plan, store=source)
    assert files_in(folder) == before
    assert len(memlab.load(folder)) == 3
