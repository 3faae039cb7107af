"""References found in a frame and in an access log."""

from datetime import datetime
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab.evidence.references import REASONS, count_references, find_references
from tests.support.frames import START, make_frame, make_log, row


def references_in(
    frame: pd.DataFrame, log: pd.DataFrame | None = None
) -> list[tuple[str, int, str]]:
    """Return target, at_position and kind of every reference."""
    references = find_references(frame, log)
    columns = references[[c.TARGET_ID, c.AT_POSITION, c.KIND]]
    return [
        (str(target), int(position), str(kind))
        for target, position, kind in columns.itertuples(index=False)
    ]


def left_out(frame: pd.DataFrame, log: pd.DataFrame | None = None) -> dict[tuple[str, str], int]:
    """Count the mentions that are no reference, by kind and reason."""
    table = count_references(frame, log)[list(REASONS)].stack()  # noqa: PD013 - pairs are wanted
    return {place: int(count) for place, count in table.items() if count}


NEEDS: dict[str, tuple[list[Any], list[tuple[str, int, str]]]] = {
    "an id among the evidence is a reference at the time of writing": (
        ["a", "b", row("c", evidence_refs=("a",))],
        [("a", 3, "evidence")],
    ),
    "a task reference points at the newest earlier item that carries it": (
        [
            row("a", source_task_ref="T"),
            row("b", source_task_ref="T"),
            row("c", source_task_ref="U", evidence_refs=("T",)),
            row("d", source_task_ref="T"),
        ],
        [("b", 3, "evidence"), ("b", 4, "task")],
    ),
    "an id wins over a task reference of the same name": (
        ["x", row("b", source_task_ref="x"), row("c", evidence_refs=("x",))],
        [("x", 3, "evidence")],
    ),
    "a superseded row is referred to when its successor is written": (
        ["a", row("b", superseded_by="d"), row("c", supersedes=("a",)), "d"],
        [("a", 3, "supersedes"), ("b", 4, "superseded")],
    ),
    "a resumed task refers to its last item": (
        [row(name, source_task_ref=task) for name, task in zip("abc", "TUT", strict=True)],
        [("a", 3, "task")],
    ),
}


@pytest.mark.parametrize("name", NEEDS)
def test_find_references_finds_later_needs(name: str) -> None:
    rows, needs = NEEDS[name]
    assert references_in(make_frame(*rows)) == needs


def test_repeated_id_refers_to_the_newest_earlier_memory() -> None:
    frame = make_frame("a", row("b", evidence_refs=("a",)), "a", row("d", evidence_refs=("a",)))
    positions = find_references(frame)[[c.TARGET_POSITION, c.AT_POSITION]]
    assert positions.to_numpy().tolist() == [[1, 2], [3, 4]]


def test_supersession_named_by_both_rows_is_one_reference() -> None:
    frame = make_frame(
        row("a", superseded_by="b", source_task_ref="T"),
        row("b", supersedes=("a",)),
        row("c", source_task_ref="T"),
    )
    assert references_in(frame) == [("a", 2, "supersedes")]
    assert left_out(frame) == {("superseded", "duplicate"): 1, ("task", "continued"): 1}


def test_forward_self_and_dangling_mentions_are_counted() -> None:
    frame = make_frame(
        row("a", source_task_ref="A", evidence_refs=("b", "a", "nothing", "A", "B")),
        row("b", source_task_ref="B", supersedes=("b", "c", "gone")),
        row("c", superseded_by="gone"),
        row("d", superseded_by="a"),
    )
    assert references_in(frame) == []
    assert left_out(frame) == {
        ("evidence", "forward"): 2,
        ("evidence", "self"): 2,
        ("evidence", "dangling"): 1,
        ("supersedes", "forward"): 1,
        ("supersedes", "self"): 1,
        ("supersedes", "dangling"): 1,
        ("superseded", "forward"): 1,
        ("superseded", "dangling"): 1,
    }


def test_store_without_mentions_has_no_references() -> None:
    references = find_references(make_frame("a", "b"))
    assert len(references) == 0
    dtypes = {name: str(dtype) for name, dtype in c.REFERENCE_DTYPES.items()}
    assert references.dtypes.map(str).to_dict() == dtypes
    assert len(find_references(make_frame())) == 0


def test_read_is_placed_after_rows_created_before_it() -> None:
    frame = make_frame("a", "b", "c")
    reads = references_in(frame, make_log(("a", 0.0), ("a", 1.5), ("b", 90.0)))
    assert reads == [("a", 2, "log"), ("a", 3, "log"), ("b", 4, "log")]


def test_wrong_clock_of_a_row_does_not_affect_other_reads() -> None:
    late = row("b", created_at=START + pd.Timedelta(days=9999))
    frame = make_frame("a", late, "c", "d")
    assert references_in(frame, make_log(("a", 2.5))) == [("a", 3, "log")]


def test_unusable_reads_are_counted_by_reason() -> None:
    log = make_log(("a", -1.0), ("nothing", 1.0), ("b", 5.0), ("b", 5.0), ("a", 5.0))
    log.loc[4, c.AT] = pd.NaT
    frame = make_frame("a", "b")
    assert references_in(frame, log) == [("b", 3, "log")]
    reasons = ("forward", "dangling", "duplicate", "undated")
    assert left_out(frame, log) == {("log", reason): 1 for reason in reasons}


def test_repeated_read_in_one_session_counts_once() -> None:
    log = make_log(
        ("a", 1.5, "s"),
        ("a", 1.6, "s"),
        ("a", 1.7),
        ("b", 1.7, "s"),
        ("a", 90, "t"),
        ("a", 91),
    )
    frame = make_frame("a", "b", "c")
    assert references_in(frame, log) == [
        ("a", 3, "log"),
        ("a", 3, "log"),
        ("b", 3, "log"),
        ("a", 4, "log"),
        ("a", 4, "log"),
    ]
    assert left_out(frame, log) == {("log", "repeated"): 1}


def test_read_after_now_is_counted_as_future() -> None:
    frame = make_frame("a", "b", "c")
    log = make_log(("a", 1.5), ("a", 99.0))
    now = START + pd.Timedelta(hours=3)
    assert find_references(frame, log, now=now)[c.AT_POSITION].tolist() == [3]
    assert count_references(frame, log, now=now).loc["log", "future"] == 1
    with pytest.raises(ValueError, match="has no time zone"):
        find_references(frame, log, now=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the error


def test_log_without_time_zone_is_rejected() -> None:
    naive = pd.DataFrame({c.MEMORY_ID: ["a"], c.AT: [pd.Timestamp("2025-01-01")]})
    with pytest.raises(ValueError, match="must hold times with a zone"):
        find_references(make_frame("a"), naive)


def test_log_references_keep_positions_with_gaps() -> None:
    frame = make_frame(row("a", position=7), row("b", position=90, evidence_refs=("a",)))
    log = make_log(("a", 0.5), ("b", 5.0))
    assert references_in(frame, log) == [("a", 90, "evidence"), ("a", 90, "log"), ("b", 91, "log")]
    assert list(find_references(frame, log, only_log=True)[c.KIND]) == ["log", "log"]
    last = 2**63 - 1  # the largest position
    frame = make_frame("a", row("b", position=last))
    assert references_in(frame, make_log(("a", 90.0))) == [("a", last, "log")]


NAMES = [f"m{number}" for number in range(6)]
SOME = st.lists(st.sampled_from([*NAMES, "T0", "T1", "zz"]), max_size=3).map(tuple)
MENTIONS = {
    "source_task_ref": st.sampled_from([None, "T0", "T1"]),
    "evidence_refs": SOME,
    "supersedes": SOME,
    "superseded_by": st.sampled_from([None, None, *NAMES, "zz"]),
}


@given(st.lists(st.fixed_dictionaries(MENTIONS), min_size=6, max_size=6))
def test_every_mention_is_counted_once(drawn: list[dict[str, Any]]) -> None:
    rows = [row(name, **fields) for name, fields in zip(NAMES, drawn, strict=True)]
    table = count_references(make_frame(*rows))
    tasks = [memory["source_task_ref"] for memory in rows if memory["source_task_ref"]]
    mentions = {
        "evidence": sum(len(memory["evidence_refs"]) for memory in rows),
        "supersedes": sum(len(memory["supersedes"]) for memory in rows),
        "superseded": sum(memory["superseded_by"] is not None for memory in rows),
        "task": len(tasks) - len(set(tasks)),
        "log": 0,
    }
    assert table.sum(axis=1).to_dict() == mentions
