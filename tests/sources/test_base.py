"""What adapters share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.errors import ChangedWhileReadError
from memlab.sources.base import archive_elsewhere, at_one_moment, place_of, rows_from

TIMES = st.integers(0, 2**43 - 1)
TIES = st.integers(0, 2**20 - 1) | st.text()


@given(st.tuples(st.integers(), TIES), st.tuples(TIMES, TIES), st.integers(0, 2**20 - 2))
def test_places_rise_with_time_tell_numbers_apart_and_fit_into_64_bits_whatever_a_clock_says(
    one: tuple[int, int | str], other: tuple[int, int | str], first: int
) -> None:
    here, there = place_of(*one), place_of(*other)
    assert min(here, there) >= 0
    assert max(here, there) < 2**63
    if one[0] < other[0]:
        assert here < there or one[0] < 0
    assert place_of(other[0], first) + 1 == place_of(other[0], first + 1)


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
    looks: list[object] = []

    class Busy:
        @contextmanager
        def reading(self) -> Iterator[None]:
            yield None
            raise ChangedWhileReadError("somebody wrote")

    with pytest.raises(ChangedWhileReadError):
        at_one_moment(Busy(), looks.append)  # type: ignore[arg-type]
    assert len(looks) == 5
