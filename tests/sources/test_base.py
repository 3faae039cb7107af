"""What adapters share."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.sources.base import archive_elsewhere, at_one_moment, place_of, rows_from

TIMES = st.integers(0, 2**43 - 1)
TIES = st.integers(0, 2**20 - 1) | st.text()


@given(one=st.tuples(TIMES, TIES), other=st.tuples(TIMES, TIES))
def test_places_rise_with_time_and_fit_into_64_bits(
    one: tuple[int, int | str], other: tuple[int, int | str]
) -> None:
    here, there = place_of(*one), place_of(*other)
    assert 0 <= here < 2**63
    if one[0] < other[0]:
        assert here < there


@given(at=TIMES, first=st.integers(0, 2**20 - 2))
def test_numbers_tell_memories_of_one_moment_apart(at: int, first: int) -> None:
    assert place_of(at, first) + 1 == place_of(at, first + 1)


@given(at=st.integers(), tie=TIES)
def test_a_clock_that_is_far_off_gives_a_place_all_the_same(at: int, tie: int | str) -> None:
    assert 0 <= place_of(at, tie) < 2**63


def test_archives_of_servers_lie_apart_and_tell_names_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one, other = archive_elsewhere("redis://h/0?name=a"), archive_elsewhere("redis://h/0?name:a")
    assert one.parent == other.parent == tmp_path / "memlab"
    assert one != other
    assert archive_elsewhere("../../etc/passwd").parent == tmp_path / "memlab"


def test_what_a_source_has_no_column_for_is_filled_in() -> None:
    table = rows_from(
        {"position": [1, 2], "memory_id": ["a", None], "kind": ["episodic"] * 2,
         "title": ["é", None], "created_at": [None, None], "chars": [7, 0]}
    ).table  # fmt: skip
    assert table["chars"].to_pylist() == [7, 0]
    assert table["active"].to_pylist() == [True, True]
    assert table["supersedes_json"].to_pylist() == ["[]", "[]"]
    assert table["superseded_by"].to_pylist() == [None, None]
    assert "body" not in table.column_names


def test_a_reader_that_never_finds_quiet_gives_up() -> None:
    from contextlib import contextmanager

    from memlab.errors import ChangedWhileReadError

    looks = []

    class Busy:
        @contextmanager
        def reading(self):  # type: ignore[no-untyped-def]
            yield None
            raise ChangedWhileReadError("somebody wrote")

    with pytest.raises(ChangedWhileReadError):
        at_one_moment(Busy(), looks.append)  # type: ignore[arg-type]
    assert len(looks) == 5
