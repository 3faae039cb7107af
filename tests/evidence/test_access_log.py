"""Access logs: what counts as one, and what is said about a file that is none."""

from pathlib import Path

import pandas as pd
import pytest
from frames import make_frame

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence.access_log import read_access_log
from memlab.evidence.references import find_references

JSON_LINES = """
{"memory_id": "a", "at": "2025-01-01T02:30:00Z"}

{"at": "2025-01-01T02:30:00Z", "memory_id": "b", "score": 0.5}
"""


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "reads.log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        "memory_id,at\na,2025-01-01T02:30:00+00:00\nb,2025-01-01T04:30:00+02:00\n",
        "at,who,memory_id\r\n2025-01-01T02:30:00Z,x,a\r\n\r\n2025-01-01T02:30:00+00:00,y,b\r\n",
        "\ufeffmemory_id,at\na,2025-01-01T02:30:00Z\nb,2025-01-01T02:30:00Z\n",
        JSON_LINES,
    ],
    ids=["csv", "other columns", "byte order mark", "json lines"],
)
def test_both_forms_are_read(tmp_path: Path, content: str) -> None:
    log = read_access_log(written(tmp_path, content))
    assert log[c.MEMORY_ID].tolist() == ["a", "b"]
    assert log[c.AT].tolist() == [pd.Timestamp("2025-01-01T02:30", tz="UTC")] * 2
    assert log[c.AT].dtype == c.TIME


def test_a_log_makes_references(tmp_path: Path) -> None:
    log = read_access_log(written(tmp_path, "memory_id,at\na,2025-01-01T01:30:00Z\n"))
    references = find_references(make_frame("a", "b", "c"), log)
    assert references[c.TARGET_ID].tolist() == ["a"]
    assert references[c.AT_POSITION].tolist() == [3]


def test_a_log_without_reads_is_one(tmp_path: Path) -> None:
    log = read_access_log(written(tmp_path, "memory_id,at\n"))
    assert log.empty
    assert find_references(make_frame("a", "b"), log).empty


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "line 1: no column at and no column memory_id"),
        ("id,when\na,b\n", "line 1: no column at and no column memory_id"),
        ("memory_id,at\na,2025-01-01T00:00:00\n", "line 2: at '2025-01-01T00:00:00' has no time"),
        ("memory_id,at\na,1767225600\n", "line 2: at '1767225600' is not a timestamp"),
        ("memory_id,at\na\n", "line 2: at must be a text, not missing"),
        ("memory_id,at\n,2025-01-01T00:00:00Z\n", "line 2: memory_id must be a text"),
        ('memory_id,at\n"a,2025', "near line 1: unexpected end of data"),
        ('{"memory_id": "a"', "line 1: not a JSON object"),
        ('{"memory_id": "a", "at": "2025-01-01T00:00:00Z"}\n[1]', "line 2: not a JSON object"),
        ('{"memory_id": 7, "at": "2025-01-01T00:00:00Z"}', "memory_id must be a text, not 7"),
        ('{"memory_id": "a", "at": 1767225600000}', "at must be a text, not 1767225600000"),
        ('{"a":' * 100_000, "line 1: not a JSON object"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, content: str, fault: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(MemlabError) as caught:
        read_access_log(path)
    assert fault in str(caught.value)
    assert str(path) in str(caught.value)
    assert "2026-06-30T18:00:00+00:00" in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"is not text in UTF-8 \(byte 14\)"):
        read_access_log(written(tmp_path, b"memory_id,at\na\xff\x00"))


def test_no_such_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"nothing\.csv cannot be read"):
        read_access_log(tmp_path / "nothing.csv")
