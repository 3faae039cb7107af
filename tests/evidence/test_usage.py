"""Recency against use: reach of reads, chances, and the verdict."""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.base_activation import base_level_of_days, per_length
from memlab.evidence import AgeOrUse, age_or_use, find_references
from memlab.evidence.usage import GROUPS, USE_GROUPS, score_recency_vs_use
from tests.support.frames import START, make_episodes, make_frame, make_log, row

STORE = memlab.store_path("looked_up")


BEST_HITS_AGAIN = (0.327, 0.176, 0.106)
"""Share of notes found on one, two, and three or more days in public stores (best hits only)."""


def usage_by_reads(frame: pd.DataFrame, *reads: tuple[str, float]) -> AgeOrUse:
    """Score recency against use by reads, given as memory and days after the first row."""
    reads_in_hours = [(name, 24 * day) for name, day in reads]
    log = make_log(*reads_in_hours)
    return age_or_use(frame, find_references(frame, log))


class Read(NamedTuple):
    """Day of a read, and number of the row that was read."""

    day: int
    target: int


class History(NamedTuple):
    """Days on which rows were written and deleted, their tokens, and reads of them."""

    written: list[int]
    deleted: list[int]
    tokens: list[int]
    reads: list[Read]

    def rows_on(self, day: int) -> list[int]:
        """Return the rows that a start on a day could load."""
        return [
            number
            for number, (written, deleted) in enumerate(
                zip(self.written, self.deleted, strict=True)
            )
            if written < day <= deleted
        ]

    def days_since_reads(self, row_number: int, day: int) -> set[int]:
        """Return the ages of earlier reads of a row."""
        written = self.written[row_number]
        return {
            day - read.day
            for read in self.reads
            if read.target == row_number and written <= read.day < day
        }


@st.composite
def histories(draw: st.DrawFn) -> History:
    written = sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=8)))
    deleted = [day + draw(st.integers(0, 12)) for day in written]
    tokens = [draw(st.integers(0, 30)) for _ in written]
    reads = st.builds(Read, st.integers(0, 12), st.integers(0, len(written) - 1))
    return History(written, deleted, tokens, draw(st.lists(reads, max_size=20)))


def share_down_to(target: int, rows: list[int], scores: list[float], sizes: list[int]) -> float:
    """Return the share of sizes down to a row, from the highest score to the lowest."""
    order = sorted(rows, key=lambda number: (-round(scores[number], 9), -number))
    loaded = order[: order.index(target) + 1]
    return sum(sizes[number] for number in loaded) / sum(sizes[number] for number in order)


def reaches(history: History) -> list[list[float]]:
    """Return the share that must be loaded for each read, by sorting the memories.

    The shares are of memories and of tokens, each by age and by activity.
    """
    count = len(history.written)
    by_age = [0.0] * count
    ones = [1] * count
    sizes = [max(size, 1) for size in history.tokens]
    shares = []
    for day, target in sorted(set(history.reads)):
        rows = history.rows_on(day)
        if target not in rows:
            continue
        activity = []
        for number, written in enumerate(history.written):
            days = history.days_since_reads(number, day)
            activity.append(base_level_of_days(day - written, days))
        by_length = [per_length(level, size) for level, size in zip(activity, sizes, strict=True)]
        shares.append(
            [
                share_down_to(target, rows, by_age, ones),
                share_down_to(target, rows, activity, ones),
                share_down_to(target, rows, by_age, sizes),
                share_down_to(target, rows, by_length, sizes),
            ]
        )
    return shares


@given(histories())
def test_reach_equals_brute_force_ranks(history: History) -> None:
    day, target = np.array(history.reads, np.int64).reshape(-1, 2).T
    written = np.array(history.written, np.float64)
    at = day.astype(np.float64)
    scored = score_recency_vs_use(
        written, np.array(history.deleted), np.array(history.tokens), at, target
    )
    count = len(scored.day)
    assert scored.reach == pytest.approx(np.reshape(reaches(history), (-1, 4)))
    for part in (slice(len(USE_GROUPS)), slice(len(USE_GROUPS), None)):
        seen = scored.observed[:, part]
        expected = scored.expected[:, part]
        assert (seen.sum(axis=1) == 1).all()
        assert expected.sum(axis=1) == pytest.approx(np.ones(count))
        assert (expected[seen > 0] > 0).all()
    assert scored.times.sum() == count


def test_chance_is_reads_of_group_over_expected_reads() -> None:
    frame = make_frame("a", "b", "c", "d")
    usage = usage_by_reads(frame, ("a", 2), ("a", 3), ("a", 4), ("d", 4))
    table = usage.chances
    assert table["reads"].tolist() == [2, 1, 1, 0, 0, 1, 0, 0, 3]
    expected_of_unread = 1 + 3 / 4 + 2 * 3 / 4
    expected = [expected_of_unread, 1 / 4, 2 / 4, 0, 0, 1, 1, 1, 1]
    assert table["expected"].tolist() == pytest.approx(expected)
    assert table["chance"]["once"] == pytest.approx(4)
    assert table["chance"]["oldest quarter"] == 3
    assert table.index.tolist() == list(GROUPS)
    assert usage.again == (2 / 4, 1 / 4, 1 / 4)


def test_limits_are_those_of_a_poisson_count() -> None:
    frame = make_episodes(16)
    reads = [(f"m{1 + day % 4}", day) for day in range(2, 10)]
    chances = usage_by_reads(frame, *reads).chances
    oldest = chances.loc["oldest quarter"]
    newest = chances.loc["newest quarter"]
    assert oldest["reads"] == 8
    assert oldest["expected"] == 2
    # Exact limits of 8 (chi-squared): 4.66 and 12.99, of 0: 0 and 2.30.
    assert oldest["low"] * 2 == pytest.approx(4.66, abs=0.05)
    assert oldest["high"] * 2 == pytest.approx(12.99, abs=0.05)
    assert newest["low"] == pytest.approx(0, abs=0.1)
    assert newest["high"] * 2 == pytest.approx(2.30, abs=0.1)


def test_limits_are_wider_for_reads_on_few_days() -> None:
    frame = make_episodes(16)
    names = [f"m{number}" for number in (1, 2, 3, 4, 13, 14, 15, 16)]
    on_eight_days = list(zip(names, range(2, 10), strict=True))
    on_two_days = [(name, 2 + number // 4) for number, name in enumerate(names)]
    many_days = usage_by_reads(frame, *on_eight_days).chances.loc["oldest quarter"]
    few_days = usage_by_reads(frame, *on_two_days).chances.loc["oldest quarter"]
    for chances in (many_days, few_days):
        assert chances["reads"] == 4
        assert chances["chance"] == 2
    assert few_days["low"] < many_days["low"]
    assert many_days["low"] < many_days["high"]
    assert many_days["high"] < few_days["high"]


DAYS = range(2, 42)
VERDICTS = {
    "use": [("m7", day) for day in DAYS],
    "age": [(f"m{100 - day % 20}", day) for day in DAYS],
    "too-few-reads": [("m7", day) for day in range(2, 11)] * 3,
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdict_follows_from_the_limits_of_the_gain(verdict: str) -> None:
    usage = usage_by_reads(make_episodes(100).assign(created_at=START), *VERDICTS[verdict])
    assert usage.verdict == verdict
    newest, used = usage.served[c.MEMORIES].loc[0.25]
    gain, low, high = usage.gain
    assert gain == pytest.approx(used - newest)
    assert low <= gain <= high
    assert f"serves {used:.0%} of {usage.reads} reads" in usage.answer
    if verdict == "too-few-reads":
        assert not usage.decided
    else:
        assert usage.decided


def test_random_reads_rarely_give_the_use_verdict() -> None:
    frame = make_episodes(60).assign(created_at=START)
    verdicts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        reads = [(f"m{rng.integers(1, 61)}", float(day)) for day in range(2, 82)]
        verdicts.append(usage_by_reads(frame, *reads).verdict)
    assert verdicts.count("use") <= 6


def test_memory_counts_once_a_day_while_it_is_loadable() -> None:
    frame = make_frame(
        row("rule", kind="semantic"),
        row("old", superseded_by="new"),
        "new",
        row("retired", superseded_by="retired"),
        minutes=1440,
    )
    twice_a_day = usage_by_reads(
        frame, ("rule", 9), ("old", 9), ("new", 9), ("new", 9.1), ("new", 10)
    )
    assert twice_a_day.reads == 2
    assert twice_a_day.days == 2
    assert twice_a_day.left_out == 3
    assert usage_by_reads(frame, ("old", 1.9)).reads == 0
    assert usage_by_reads(frame, ("old", 2)).reads == 1
    assert usage_by_reads(frame, ("retired", 9)).reads == 1
    undated = frame.assign(created_at=pd.Series(pd.NaT, range(4), c.TIME))
    assert usage_by_reads(undated, ("new", 9)).reads == 0
    deleted = frame.assign(deleted_at=pd.Timestamp("2025-01-05", tz="UTC"))
    assert usage_by_reads(deleted, ("new", 4)).reads == 1
    assert usage_by_reads(deleted, ("new", 5)).reads == 0


@pytest.mark.parametrize(
    "reads",
    [[], [("other", 5.0)] * 30, [("m3", -1.0)], [("m3", 0.5)]],
    ids=["no read", "foreign reads", "before it was written", "on the day it was written"],
)
def test_log_without_matching_reads_gives_too_few_reads(reads: Any) -> None:
    usage = usage_by_reads(make_episodes(30), *reads)
    assert usage.verdict == "too-few-reads"
    assert usage.reads == 0
    assert usage.memories == 0
    assert usage.answer == "too few reads to tell age from use: 0 reads on 0 days"
    assert "other stores" in str(usage)


def test_bundled_searches_match_public_stores() -> None:
    log = memlab.read_access_log(STORE.with_suffix(".searches.jsonl"))
    past = memlab.load_past(STORE)
    usage = age_or_use(past, find_references(past, log))
    assert usage.again == pytest.approx(BEST_HITS_AGAIN, abs=0.03)
    figures = json.loads(json.dumps(usage.figures))
    assert figures["verdict"] == "use"
    assert [chance["group"] for chance in figures["chances"]] == list(GROUPS)
    served = {(share["loaded"], share["of"]): share for share in figures["served"]}
    assert f"{served[0.25, 'memories']['most active']:.0%}" in usage.answer
    assert "10% of memories" in str(usage)
    assert "50% of tokens" in str(usage)
