"""Recency against use: reach of reads, chances, and the verdict."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.base_activation import base_level_of_days, per_length
from memlab.evidence import AgeOrUse, age_or_use, find_references
from memlab.evidence.usage import GROUPS, TIMES, score_recency_vs_use
from tests.support.frames import START, make_episodes, make_frame, make_log, row

STORE = memlab.store_path("looked_up")


BEST_HITS_AGAIN = (0.327, 0.176, 0.106)
"""Share of notes found on one, two, and three or more days in public stores (best hits only)."""


def usage_by_reads(frame: pd.DataFrame, *reads: tuple[str, float]) -> AgeOrUse:
    """Score recency against use by reads, given as memory and days after the first row."""
    log = make_log(*((name, 24 * day) for name, day in reads))
    return age_or_use(frame, find_references(frame, log))


History = tuple[list[int], list[int], list[int], list[tuple[int, int]]]
"""Days of writing and leaving, tokens, and reads as pairs of day and row."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    written = sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=8)))
    left = [day + draw(st.integers(0, 12)) for day in written]
    tokens = [draw(st.integers(0, 30)) for _ in written]
    read = st.tuples(st.integers(0, 12), st.integers(0, len(written) - 1))
    return written, left, tokens, draw(st.lists(read, max_size=20))


def reaches(history: History) -> list[list[float]]:
    """Return the share that must be loaded for each read, by sorting the memories."""
    written, left, tokens, reads = history
    present = {d: [r for r in range(len(left)) if written[r] < d <= left[r]] for d in range(13)}
    counted = sorted({(day, target) for day, target in reads if target in present[day]})
    lines = []
    for day, target in counted:
        use = []
        for place, born in enumerate(written):
            idles = {day - d for d, t in reads if t == place and born <= d < day}
            use.append(base_level_of_days(day - born, idles))
        line = []
        by_length = [per_length(u, max(size, 1)) for u, size in zip(use, tokens, strict=True)]
        for weights, active in (
            ([1] * len(written), use),
            ([max(size, 1) for size in tokens], by_length),
        ):
            for key in ([0.0] * len(written), active):
                order = sorted(present[day], key=lambda r, key=key: (-round(key[r], 9), -r))
                loaded = order[: order.index(target) + 1]
                line.append(sum(weights[r] for r in loaded) / sum(weights[r] for r in order))
        lines.append(line)
    return lines


@given(histories())
def test_reach_equals_brute_force_ranks(history: Any) -> None:
    written, left, tokens, reads = history
    day, target = np.array(reads, np.int64).reshape(-1, 2).T
    born = np.array(written, np.float64)
    at = day.astype(np.float64)
    back = score_recency_vs_use(born, np.array(left), np.array(tokens), at, target)
    assert back.reach == pytest.approx(np.reshape(reaches(history), (-1, 4)))
    for part in (slice(len(TIMES)), slice(len(TIMES), None)):
        assert back.observed[:, part].sum(axis=1).tolist() == [1] * len(back.day)
        assert back.expected[:, part].sum(axis=1) == pytest.approx(np.ones(len(back.day)))
        assert (back.expected[:, part][back.observed[:, part] > 0] > 0).all()
    assert back.times.sum() == len(back.day)


def test_chance_is_reads_of_group_over_expected_reads() -> None:
    frame = make_frame("a", "b", "c", "d")
    usage = usage_by_reads(frame, ("a", 2), ("a", 3), ("a", 4), ("d", 4))
    table = usage.chances
    assert table["reads"].tolist() == [2, 1, 1, 0, 0, 1, 0, 0, 3]
    expected = [1 + 3 / 4 + 2 * 3 / 4, 1 / 4, 2 / 4, 0, 0, 1, 1, 1, 1]
    assert table["expected"].tolist() == pytest.approx(expected)
    assert table["chance"]["once"] == pytest.approx(4)
    assert table["chance"]["oldest quarter"] == 3
    assert table.index.tolist() == list(GROUPS)
    assert usage.again == (2 / 4, 1 / 4, 1 / 4)


def test_limits_are_those_of_a_poisson_count() -> None:
    frame = make_episodes(16)
    single = usage_by_reads(frame, *((f"m{1 + day % 4}", day) for day in range(2, 10))).chances
    oldest = single.loc["oldest quarter"]
    newest = single.loc["newest quarter"]
    assert oldest["reads"] == 8
    assert oldest["expected"] == 2
    # Exact limits of 8 (chi-squared): 4.66 and 12.99, of 0: 0 and 2.30.
    assert [oldest["low"] * 2, oldest["high"] * 2] == pytest.approx([4.66, 12.99], abs=0.05)
    assert [newest["low"], newest["high"] * 2] == pytest.approx([0, 2.30], abs=0.1)
    both = [f"m{n}" for n in (1, 2, 3, 4, 13, 14, 15, 16)]
    apart = usage_by_reads(frame, *zip(both, range(2, 10), strict=True))
    alike = usage_by_reads(frame, *((name, 2 + place // 4) for place, name in enumerate(both)))
    apart_chances, other = (usage.chances.loc["oldest quarter"] for usage in (apart, alike))
    assert apart_chances["reads"] == other["reads"] == 4
    assert apart_chances["chance"] == other["chance"] == 2
    assert other["low"] < apart_chances["low"] < apart_chances["high"] < other["high"]


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
    assert usage.decided == (verdict != "too-few-reads")


def test_random_reads_rarely_give_the_use_verdict() -> None:
    frame = make_episodes(60).assign(created_at=START)
    verdicts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        reads = [(f"m{rng.integers(1, 61)}", float(day)) for day in range(2, 82)]
        verdicts.append(usage_by_reads(frame, *reads).verdict)
    assert verdicts.count("use") <= 6


def test_memory_counts_once_a_day_while_it_is_loadable() -> None:
    others = row("old", superseded_by="new"), "new", row("retired", superseded_by="retired")
    frame = make_frame(row("rule", kind="semantic"), *others, minutes=1440)
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
    assert [usage_by_reads(deleted, ("new", day)).reads for day in (4, 5)] == [1, 0]


# no read, a foreign read, a read before the memory was written, and one on the same day
@pytest.mark.parametrize("reads", [[], [("other", 5.0)] * 30, [("m3", -1.0)], [("m3", 0.5)]])
def test_log_without_matching_reads_gives_too_few_reads(reads: Any) -> None:
    usage = usage_by_reads(make_episodes(30), *reads)
    assert usage.verdict == "too-few-reads"
    assert usage.reads == 0
    assert usage.memories == 0
    assert usage.answer == "too few reads to tell age from use: 0 reads on 0 days"
    assert "other stores" in str(usage)


def test_bundled_searches_match_public_stores() -> None:
    log = memlab.read_access_log(STORE.with_suffix(".searches.jsonl"))
    usage = age_or_use(past := memlab.load_past(STORE), find_references(past, log))
    assert usage.again == pytest.approx(BEST_HITS_AGAIN, abs=0.03)
    figures = json.loads(json.dumps(usage.figures))
    assert figures["verdict"] == "use"
    assert [chance["group"] for chance in figures["chances"]] == list(GROUPS)
    served = {(share["loaded"], share["of"]): share for share in figures["served"]}
    assert f"{served[0.25, 'memories']['most active']:.0%}" in usage.answer
    assert "10% of memories" in str(usage)
    assert "50% of tokens" in str(usage)
