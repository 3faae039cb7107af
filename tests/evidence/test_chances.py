"""What was never read, and what never had a chance to be."""

import pandas as pd
import pytest
from frames import START, make_frame

from memlab import columns as c
from memlab.evidence.chances import CHANCES, describe_chances, reading_chances


def log_of(*reads: tuple[str, float, str | None]) -> pd.DataFrame:
    """Reads as (memory, hours after the first row, session)."""
    return pd.DataFrame(
        {
            c.MEMORY_ID: pd.array([memory for memory, _, _ in reads], dtype="str"),
            c.AT: pd.array([START + pd.Timedelta(hours=at) for _, at, _ in reads], dtype=c.TIME),
            c.SESSION: pd.array([session for *_, session in reads], dtype="str"),
        }
    )


def chances(frame: pd.DataFrame, log: pd.DataFrame) -> list[str]:
    return reading_chances(frame, log).tolist()


def test_what_was_written_after_the_last_read_had_no_chance() -> None:
    frame = make_frame("a", "b", "c", "d")
    assert chances(frame, log_of(("a", 2.5, None))) == ["read", "unread", "unread", "too new"]


def test_a_session_that_had_begun_is_no_chance_for_what_came_later() -> None:
    frame = make_frame("a", "b", "c")
    assert chances(frame, log_of(("a", 0.5, "s"), ("a", 9.0, "s"))) == [
        "read",
        "too new",
        "too new",
    ]
    assert chances(frame, log_of(("a", 0.5, "s"), ("a", 9.0, "t"))) == ["read", "unread", "unread"]


def test_what_no_agent_is_told_of_had_no_chance() -> None:
    frame = make_frame("a", "b", "c", "d").assign(loaded_at_start=[False, True, False, False])
    log = log_of(("a", 2.5, None))
    assert chances(frame, log) == ["read", "unread", "not loaded", "too new"]


def test_where_nothing_is_loaded_everything_is_searched() -> None:
    frame = make_frame("a", "b").assign(loaded_at_start=False)
    assert chances(frame, log_of(("a", 2.5, None))) == ["read", "unread"]


def test_without_a_read_nothing_had_a_chance() -> None:
    assert chances(make_frame("a", "b"), log_of()) == ["too new", "too new"]
    assert chances(make_frame(), log_of(("a", 1.0, None))) == []


def test_a_log_need_not_know_sessions() -> None:
    log = log_of(("a", 2.5, None)).drop(columns=c.SESSION)
    assert chances(make_frame("a", "b"), log) == ["read", "unread"]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (log_of(), "3 memories: 3 written after the last read in the log"),
        (
            log_of(("a", 1.5, None), ("zz", 1.6, None)),
            f"3 memories: 1 read, 1 {CHANCES['unread']}, 1 {CHANCES['too new']}",
        ),
    ],
)
def test_the_sentence_counts_every_memory_once(log: pd.DataFrame, words: str) -> None:
    assert describe_chances(reading_chances(make_frame("a", "b", "c"), log)) == words


def test_no_memories_are_said() -> None:
    assert describe_chances(reading_chances(make_frame(), log_of())) == "no memories"
