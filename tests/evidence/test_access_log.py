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

import pandas as pd
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
    at = datetime.fromisoformat(second["at"])
    assert before <= at
    assert at <= datetime.now(UTC)


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

    writers = [FORK.Process(target=write, args=(number,)) for number in range(16)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log = read_access_log(path)
    assert log.attrs[PASSED_OVER] == {}
    names = log[c.MEMORY_ID].str.extract(r"(?P<writer>\d+)-(?P<number>\d+)").astype(int)
    numbers_by_writer = names.groupby("writer")["number"].agg(list)
    assert len(numbers_by_writer) == 16
    for numbers in numbers_by_writer:
        assert numbers == list(range(200))
    assert [part.name for part in log_parts(path)[:2]] == ["reads.log.1", "reads.log.2"]
    assert len(log_parts(path)) > 10  # parts are sorted by number
    assert all(part.stat().st_size <= 2**14 for part in log_parts(path))


@pytest.mark.parametrize("kind", [FORK.Process, threading.Thread])
def test_open_log_can_be_used_by_forked_children_and_threads(tmp_path: Path, kind: Any) -> None:
    log = AccessLog(tmp_path / "reads.log", max_bytes=4096)
    log.add("before", NOON)
    writers = [kind(target=write_on, args=(log, number, 100)) for number in range(4)]
    for writer in writers:
        writer.start()
    write_on(log, 4, 100)
    for writer in writers:
        writer.join()
    assert len(lines_of(log.path)) == 501


def log_truncated_by(path: Path, size: int) -> pd.DataFrame:
    """Cut a log of two lines, append two more, and read it."""
    with AccessLog(path) as log:
        log.add("a", NOON)
        log.add("torn", NOON)
    os.truncate(path, path.stat().st_size - size)
    with AccessLog(path) as log:
        log.add("b", NOON)
        log.add("c", NOON)
    return read_access_log(path)


@pytest.mark.parametrize("size", [2, 20, 50])
def test_truncated_line_loses_only_that_line(tmp_path: Path, size: int) -> None:
    logged = log_truncated_by(tmp_path / "reads.log", size)
    assert logged[c.MEMORY_ID].tolist() == ["a", "b", "c"]
    assert logged.attrs[PASSED_OVER] == {"cut short, or no JSON object": 1}


def test_line_without_its_end_is_not_lost(tmp_path: Path) -> None:
    logged = log_truncated_by(tmp_path / "reads.log", 1)
    assert logged[c.MEMORY_ID].tolist() == ["a", "torn", "b", "c"]
    assert logged.attrs[PASSED_OVER] == {}


def test_killed_writer_loses_at_most_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reads.log"
    for turn in range(3):
        events = [FORK.Event() for _ in range(3)]
        writers = [
            FORK.Process(target=keep_writing, args=(path, f"{turn}.{number}", event))
            for number, event in enumerate(events)
        ]
        for writer in writers:
            writer.start()
        for event in events:
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


def modes_of_new_log(path: Path, like: Path | None) -> set[int]:
    """Write a log of two parts without a umask; return the permissions of its parts."""
    before = os.umask(0)
    try:
        with AccessLog(path, like=like, max_bytes=1) as log:
            log.add("a", NOON)
            log.add("b", NOON)
    finally:
        os.umask(before)
    assert len(lines_of(path)) == 2, "a line longer than a part is a part of its own"
    return {part.stat().st_mode & 0o777 for part in log_parts(path)}


def test_new_log_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    assert modes_of_new_log(tmp_path / "reads.log", like=None) == {0o600}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_new_log_has_the_permissions_of_its_store(tmp_path: Path, mode: int) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(1))
    store.chmod(mode)
    assert modes_of_new_log(tmp_path / "reads.log", like=store) == {mode & 0o666}


def test_existing_log_keeps_its_permissions(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(1))
    path = tmp_path / "reads.log"
    AccessLog(path).close()
    path.chmod(0o604)
    with AccessLog(path, like=store) as log:
        log.add("c", NOON)
    assert path.stat().st_mode & 0o777 == 0o604


def link_to_a_file(path: Path) -> None:
    path.symlink_to("precious")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def second_name_of_a_file(path: Path) -> None:
    path.hardlink_to(path.parent / "precious")


def diary(path: Path) -> None:
    path.write_text("dear diary\n")


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (link_to_a_file, "is a link"),
        (link_to_nothing, "is a link"),
        (second_name_of_a_file, "has another name too"),
        (diary, "is not an access log"),
        (Path.mkdir, r"reads\.log cannot be written \(Is a directory\)"),
        (os.mkfifo, "is not an ordinary file"),
    ],
)
def test_file_that_is_no_access_log_is_rejected_and_unchanged(
    tmp_path: Path, make: Any, fault: str
) -> None:
    def status_of_files() -> dict[str, Any]:
        """Return the status of each file, without the time of its last access."""
        statuses = {}
        for file in tmp_path.iterdir():
            status = file.lstat()
            statuses[file.name] = (*status[:7], status.st_mtime_ns)
        return statuses

    (tmp_path / "precious").write_text("")
    make(tmp_path / "reads.log")
    before = status_of_files()
    with pytest.raises(MemlabError, match=fault):
        AccessLog(tmp_path / "reads.log")
    assert status_of_files() == before


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
