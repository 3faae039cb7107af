"""Reading access logs: formats, invalid lines, remarks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from memlab import columns as c
from memlab import read_access_log
from memlab.errors import MemlabError
from memlab.evidence import AccessLog, find_references
from memlab.evidence.reads import PASSED_OVER, describe_log, excluded_log_of, reading_chances
from memlab.sources.reads import MAINTENANCE, OWN_SESSION
from tests.support.frames import make_frame, make_log
from tests.support.paths import link_to_a_device

JSON_LINES = """
{"memory_id": "a", "at": "2025-01-01T02:30:00Z"}

{"at": "2025-01-01T02:30:00Z", "memory_id": "b", "score": 0.5}
"""


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "reads.log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


UTC_TAKEN = ["the log: 2 dates have no time zone; read as UTC"]


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        ("memory_id,at\na,2025-01-01T02:30:00+00:00\nb,2025-01-01T04:30:00+02:00\n", []),
        ("at,who,memory_id\r\n2025-01-01T02:30:00Z,x,a\r\n\r\n2025-01-01T02:30Z,y,b\r\n", []),
        ("\ufeffmemory_id,at\na,2025-01-01T02:30:00Z\nb,2025-01-01T02:30:00Z\n", []),
        ("memory_id,at\na,2025-01-01T02:30\nb,2025-01-01T02:30:00\n", UTC_TAKEN),
        (JSON_LINES, []),
        (JSON_LINES.replace("Z", ""), UTC_TAKEN),
    ],
)
def test_csv_and_json_logs_are_read_with_utc_default(
    tmp_path: Path, content: str, notes: Any
) -> None:
    log = read_access_log(written(tmp_path, content))
    assert describe_log(log) == notes
    assert log[c.MEMORY_ID].tolist() == ["a", "b"]
    assert log[c.AT].tolist() == [pd.Timestamp("2025-01-01T02:30", tz="UTC")] * 2
    assert log[c.AT].dtype == c.TIME


GOOD = '{"memory_id": "a", "at": "2025-01-01T02:30:00Z"}'


NO_READS = {
    "cut short, or no JSON object": [
        '{"memory_id": "b", "at": "2025-0',
        "[1]",
        f"{GOOD}{GOOD}",
        "\0\0\0",
        "\xff",
        '{"a":' * 100_000,
    ],
    "no memory_id": ['{"memory_id": 7, "at": "2025-01-01T02:30:00Z"}'],
    "no time": [
        '{"memory_id": "b"}',
        '{"memory_id": "b", "at": 1767225600}',
        '{"memory_id": "b", "at": "yesterday"}',
    ],
}


@pytest.mark.parametrize("reason", NO_READS)
@pytest.mark.parametrize("order", [1, -1], ids=["after", "before"])
def test_invalid_line_is_skipped_and_counted(tmp_path: Path, reason: str, order: int) -> None:
    for line in NO_READS[reason]:
        content = "\n".join([GOOD, line][::order])
        log = read_access_log(written(tmp_path, content.encode("latin-1")))
        assert log[c.MEMORY_ID].tolist() == ["a"]
        assert log.attrs[PASSED_OVER] == {reason: 1}
        assert describe_log(log) == [f"the log: lines passed over: 1 {reason}"]


def test_last_line_with_an_entry_id_counts(tmp_path: Path) -> None:
    entry = {"memory_id": "a", "at": "2025-01-01T02:30:00Z", "session": "", "id": "x"}
    path = written(tmp_path, "")
    with AccessLog(path) as log, AccessLog(excluded_log_of(path)) as apart:
        log.extend([entry, entry, {**entry, "id": "y"}, {**entry, "id": "z"}])
        log.extend([{**entry, "id": "y", "kind": MAINTENANCE}])
        without_id = {**entry, "id": "", "kind": ""}  # an empty id counts as missing
        log.extend([without_id, without_id])
        apart.extend([{**entry, "id": "v", "kind": MAINTENANCE}])
        apart.extend([{**entry, "id": "w", "kind": OWN_SESSION}])
    assert len(read_access_log(path)) == 4
    assert read_access_log(path)[c.SESSION].isna().all()
    assert len(read_access_log(path, maintenance=True)) == 6


def test_log_without_lines_is_empty(tmp_path: Path) -> None:
    AccessLog(tmp_path / "reads.log").close()
    for path in (tmp_path / "reads.log", written(tmp_path, "memory_id,at\n")):
        log = read_access_log(path)
        assert describe_log(log) == ["the log: it holds no read"]
        assert log[c.AT].dtype == c.TIME
        assert find_references(make_frame("a", "b"), log).empty


def test_rotated_part_is_read_without_a_current_file(tmp_path: Path) -> None:
    with AccessLog(tmp_path / "reads.log") as log:
        log.add("a")
    log.path.rename(tmp_path / "reads.log.1")
    assert read_access_log(log.path)[c.MEMORY_ID].tolist() == ["a"]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, link_to_a_device])
def test_special_file_in_place_of_log_is_rejected(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    with pytest.raises(MemlabError, match=r"reads\.log cannot be read \(No such file"):
        read_access_log(tmp_path / "reads.log")
    make(tmp_path / "reads.log")
    with pytest.raises(MemlabError, match=r"reads\.log cannot be read \((no ordinary|Is a dir)"):
        read_access_log(tmp_path / "reads.log")
    make(tmp_path / "other.log.1")
    (tmp_path / "other.log").write_text(JSON_LINES)
    log = read_access_log(tmp_path / "other.log")
    assert log["memory_id"].tolist() == ["a", "b"]
    assert describe_log(log)[0].endswith("passed over: 1 part that is not an ordinary file")


def test_huge_line_is_skipped_and_huge_file_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path, JSON_LINES + '{"memory_id": "')
    os.truncate(path, 2**27)
    assert read_access_log(path)["memory_id"].tolist() == ["a", "b"]
    os.truncate(path, 2**40)
    with pytest.raises(MemlabError, match=r"cannot be read \(larger than 2,048 MiB\)"):
        read_access_log(path)


def test_log_dominated_by_one_memory_is_remarked(tmp_path: Path) -> None:
    line = '{"memory_id":"a","at":"2025-01-01T02:30:00.%06dZ"}\n'
    lines = "".join(line % number for number in range(2_000))
    path = written(tmp_path, lines + '{"memory_id":"b","at":"2025-01-01T02:31:00Z"}')
    log = read_access_log(path)
    (note,) = describe_log(log)
    assert note.startswith("the log: 2,000 of 2,001 reads are of one memory, a;")
    assert len(find_references(make_frame("a", "b", "c", minutes=1), log)) == 2_001
    assert describe_log(log.iloc[1_901:]) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("id,when\na,b\n", "line 1: no column at and no column memory_id"),
        ("memory_id,at\na,1767225600\n", "line 2: at '1767225600' is not a timestamp"),
        ("memory_id,at\na\n", "line 2: at must be a text, not missing"),
        ("memory_id,at\n,2025-01-01T00:00:00Z\n", "line 2: memory_id must be a text"),
        ('memory_id,at\n"a,2025', "near line 1: unexpected end of data"),
        (b"memory_id,at\na\xff\x00", "near line 1: not text in UTF-8"),
        ('{"memory_id": "a", "at": 1767225600000}', "at must be a text, not 1767225600000"),
    ],
)
def test_invalid_log_is_rejected_with_line_number(tmp_path: Path, content: Any, fault: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(MemlabError) as caught:
        read_access_log(path)
    assert fault in str(caught.value)
    assert str(path) in str(caught.value)
    assert "2026-06-30T18:00:00+00:00" in str(caught.value)


LATE = make_log(("a", 2.5))


def chances_by_log(log: pd.DataFrame) -> list[str]:
    """Return the chances of four memories that a start loads."""
    frame = make_frame("a", "b", "c", "d")
    frame[c.LOADED_AT_START] = True
    frame.attrs[c.SOURCE] = "memory"
    return reading_chances(frame, log).tolist()


def test_frame_without_memories_has_no_reading_chances() -> None:
    frame = make_frame("a").iloc[:0].assign(**{c.LOADED_AT_START: True})
    frame.attrs[c.SOURCE] = "memory"
    assert reading_chances(frame, LATE).empty
    assert reading_chances(frame, make_log()).empty


def test_reading_chances_label_unread_and_too_new_memories() -> None:
    expected = ["read", "unread", "unread", "too new"]
    assert chances_by_log(LATE) == expected
    assert chances_by_log(LATE.drop(columns=c.SESSION)) == expected
    assert chances_by_log(make_log()) == ["too new", "too new", "too new", "too new"]


def test_memory_written_after_a_session_began_is_too_new_for_it() -> None:
    one_session = make_log(("a", 0.5, "s"), ("a", 9.0, "s"))
    assert chances_by_log(one_session) == ["read", "too new", "too new", "too new"]
    two_sessions = make_log(("a", 0.5, "s"), ("a", 9.0, "t"))
    assert chances_by_log(two_sessions) == ["read", "unread", "unread", "unread"]


@pytest.mark.parametrize(
    ("source", "chance"), [("memory", "not loaded"), ("openclaw:workspace", "unread")]
)
def test_memory_that_is_not_loaded_can_be_read_if_agents_search(source: str, chance: str) -> None:
    frame = make_frame("a", "b", "c", "d")
    frame[c.LOADED_AT_START] = [False, True, False, False]
    frame.attrs[c.SOURCE] = source
    assert reading_chances(frame, LATE).tolist() == ["read", "unread", chance, "too new"]


def test_lines_of_unknown_memories_are_counted_with_examples() -> None:
    past = make_frame("a", "b", "c", "d")
    log = make_log(("a", 1), ("x.md", 2), ("b", 3), ("y.md", 4), ("x.md", 5))
    (note,) = describe_log(log, past)
    assert note == "the log: 3 of 5 lines name no memory of this store: x.md, y.md"
    assert describe_log(log[log[c.MEMORY_ID].isin(["a", "b"])], past) == []
    assert describe_log(log) == []
