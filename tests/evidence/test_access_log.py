"""Writing the access log: whole lines from concurrent processes, kills, rotation."""

import itertools
import json
import multiprocessing as mp
import os
import resource
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence.access_log import AccessLog, log_parts
from memlab.evidence.reads import PASSED_OVER, read_access_log
from memlab.lifecycle import LifecycleStore
from memlab.store import SqliteMemoryStore
from tests.support.stores import episodes, write_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FORK = mp.get_context("fork")


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return the lines of all parts, and check that each is complete."""
    text = b"".join(part.read_bytes() for part in log_parts(path))
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def write_on(log: AccessLog, writer: int, count: int) -> None:
    for number in range(count):
        log.add(f"{writer}-{number}")


def keep_writing(path: Path, writer: str, begun: Any) -> None:
    log = AccessLog(path, max_bytes=20_000)
    for number in itertools.count():
        log.add(f"{writer}-{number}-" + "x" * 3000)
        begun.set()


def test_add_writes_a_line_with_utc_time_defaulting_to_now(tmp_path: Path) -> None:
    path = tmp_path / "reads.log"
    before = datetime.now(UTC)
    with AccessLog(path) as log:
        log.add("a", NOON.astimezone(timezone(timedelta(hours=2))), "s1")
        log.add("b")
    first, second = lines_of(path)
    assert first == {"memory_id": "a", "at": "2026-03-01T12:00:00+00:00", "session": "s1"}
    assert set(second) == {"memory_id", "at"}
    assert before <= datetime.fromisoformat(second["at"]) <= datetime.now(UTC)


@pytest.mark.parametrize("memory_id", ["a\nb", "\u2028", "ü", "\ud800", '"}', "x" * 100_000])
def test_any_memory_id_is_written_as_one_line(tmp_path: Path, memory_id: str) -> None:
    path = tmp_path / "reads.log"
    with AccessLog(path) as log:
        log.add(memory_id, NOON)
        log.add("after", NOON)
    assert [line["memory_id"] for line in lines_of(path)] == [memory_id, "after"]


def test_concurrent_processes_write_whole_lines_across_rotation(tmp_path: Path) -> None:
    path = tmp_path / "reads.log"

    def write(writer: int) -> None:
        write_on(AccessLog(path, max_bytes=2**14), writer, 200)

    writers = [FORK.Process(target=write, args=(n,)) for n in range(16)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log = read_access_log(path)
    assert log.attrs[PASSED_OVER] == {}
    names = log[c.MEMORY_ID].str.extract(r"(?P<writer>\d+)-(?P<number>\d+)").astype(int)
    assert [*names.groupby("writer")["number"].agg(list)] == [[*range(200)]] * 16
    assert [part.name for part in log_parts(path)[:2]] == ["reads.log.1", "reads.log.2"]
    assert len(log_parts(path)) > 10  # parts are sorted by number
    assert all(part.stat().st_size <= 2**14 for part in log_parts(path))


@pytest.mark.parametrize("kind", [FORK.Process, threading.Thread])
def test_open_log_can_be_used_by_forked_children_and_threads(tmp_path: Path, kind: Any) -> None:
    log = AccessLog(tmp_path / "reads.log", max_bytes=4096)
    log.add("before", NOON)
    writers = [kind(target=write_on, args=(log, n, 100)) for n in range(4)]
    for writer in writers:
        writer.start()
    write_on(log, 4, 100)
    for writer in writers:
        writer.join()
    assert len(lines_of(log.path)) == 501


@pytest.mark.parametrize("cut", [1, 2, 20, 50])
def test_truncated_line_loses_only_that_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "reads.log"
    with AccessLog(path) as log:
        log.add("a", NOON)
        log.add("torn", NOON)
    os.truncate(path, path.stat().st_size - cut)
    with AccessLog(path) as log:
        log.add("b", NOON)
        log.add("c", NOON)
    logged = read_access_log(path)
    whole = cut == 1  # only the line end is missing
    assert logged[c.MEMORY_ID].tolist() == ["a", *(["torn"] if whole else []), "b", "c"]
    assert logged.attrs[PASSED_OVER] == ({} if whole else {"cut short, or no JSON object": 1})


def test_killed_writer_loses_at_most_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reads.log"
    for turn in range(3):
        begun = {f"{turn}.{number}": FORK.Event() for number in range(3)}
        writers = [
            FORK.Process(target=keep_writing, args=(path, *range_of_ids))
            for range_of_ids in begun.items()
        ]
        for writer in writers:
            writer.start()
        for event in begun.values():
            event.wait()
        time.sleep(0.05)
        for writer in writers:
            writer.kill()
            writer.join()
    with AccessLog(path) as log:
        log.add("after", NOON)
    logged = read_access_log(path)
    assert sum(logged.attrs[PASSED_OVER].values()) <= 9
    assert logged[c.MEMORY_ID].iloc[-1] == "after"
    names = logged[c.MEMORY_ID].str.extract(r"(?P<writer>.+)-(?P<number>\d+)-x").dropna()
    for _, numbers in names["number"].astype(int).groupby(names["writer"]):
        assert numbers.tolist() == list(range(len(numbers)))


def test_log_moved_away_while_open_is_recreated(tmp_path: Path) -> None:
    path = tmp_path / "reads.log"
    with AccessLog(path) as log:
        log.add("a", NOON)
        path.rename(tmp_path / "elsewhere")
        log.add("b", NOON)
    assert [line["memory_id"] for line in lines_of(path)] == ["b"]


@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o664, 0o755])
def test_new_log_is_owner_only_or_has_permissions_of_store(
    tmp_path: Path, mode: int | None
) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(1))
    path = tmp_path / "reads.log"
    store.chmod(mode or 0o666)
    before = os.umask(0)
    try:
        with AccessLog(path, like=mode and store, max_bytes=1) as log:
            log.add("a", NOON)
            log.add("b", NOON)
    finally:
        os.umask(before)
    assert len(lines_of(path)) == 2  # a line longer than a part is a part of its own
    modes = {part.stat().st_mode & 0o777 for part in log_parts(path)}
    assert modes == {0o600 if mode is None else mode & 0o666}
    path.chmod(0o604)
    with AccessLog(path, like=store) as log:
        log.add("c", NOON)
    assert path.stat().st_mode & 0o777 == 0o604


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda path: path.symlink_to("precious"), "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
        (lambda path: path.hardlink_to(path.parent / "precious"), "has another name too"),
        (lambda path: path.write_text("dear diary\n"), "is not an access log"),
        (Path.mkdir, r"reads\.log cannot be written \(Is a directory\)"),
        (os.mkfifo, "is not an ordinary file"),
    ],
)
def test_file_that_is_no_access_log_is_rejected_and_unchanged(
    tmp_path: Path, make: Any, fault: str
) -> None:
    def seen() -> dict[str, Any]:
        return {e.name: (*e.lstat()[:7], e.lstat().st_mtime_ns) for e in tmp_path.iterdir()}

    (tmp_path / "precious").write_text("")
    make(tmp_path / "reads.log")
    before = seen()
    with pytest.raises(MemlabError, match=fault):
        AccessLog(tmp_path / "reads.log")
    assert seen() == before


def test_full_disk_leaves_log_unchanged(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with AccessLog(tmp_path / "reads.log") as log:
        log.add("a")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            for name in ("b" * 200, "c"):
                with pytest.raises(MemlabError, match=r"cannot be written \(File too large\)"):
                    log.add(name)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [line["memory_id"] for line in lines_of(log.path)] == ["a"]


@pytest.mark.parametrize("kind", [SqliteMemoryStore, LifecycleStore])
def test_store_get_logs_reads_and_warns_if_log_fails(tmp_path: Path, kind: Any) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(3))
    with AccessLog(tmp_path / "logs" / "reads.log") as log, kind(path, access_log=log) as store:
        store.get("e2")
        assert store.get("nothing") is None
        store.list_active()  # loading at start is not a read
        store.get("e1")
        assert [line["memory_id"] for line in lines_of(log.path)] == ["e2", "e1"]
        log.path.unlink()
        log.path.parent.rmdir()
        with pytest.warns(RuntimeWarning, match="a read was not logged"):
            assert store.get("e1") is not None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, r"^at must be a text .* not missing \(entry 2\); .* time as 2026-.*00:00$"),
        ({"at": NOON}, r"^at must be a text .* not datetime\.datetime\(2026, 3, .*00:00$"),
        ({"at": "yesterday"}, "^'yesterday' is not a timestamp"),
        ({"at": "2026-06-30T18:00:00"}, "has no time zone"),
        ({"memory_id": ""}, r"not '' \(entry 2\); write"),
        ({"at": "2026-06-30T18:00:00Z", "session": object()}, "not JSON .* write its fields as"),
    ],
    ids=["missing", "datetime", "no time", "no zone", "no id", "no JSON"],
)
def test_invalid_entry_is_rejected_with_reason(tmp_path: Path, entry: Any, message: str) -> None:
    good = {"memory_id": "b", "at": "2026-06-30T18:00:00+00:00"}
    with AccessLog(tmp_path / "reads.log") as log, pytest.raises(ValueError, match=message):
        log.extend([good, {"memory_id": "a", **entry}])
