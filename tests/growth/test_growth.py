"""Growth curves, headline numbers and forecasts agree with the rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab.growth import PARTS, boot_context, growth_curve, summarize
from memlab.growth.summary import Pace
from memlab.items import Size
from tests.support.frames import (
    ROWS_OF_ANY_KIND,
    START,
    frame_of,
    make_episodes,
    make_frame,
    mixed_frame,
    row,
)

NOW = datetime(2025, 3, 1, tzinfo=UTC)
Drawn = list[dict[str, Any]]


def standing_at(frame: pd.DataFrame, instant: pd.Timestamp) -> dict[str, int]:
    """Count the rows as they were at `instant`, one by one."""
    created = dict(zip(frame[c.MEMORY_ID], frame[c.CREATED_AT], strict=True))
    counts = dict.fromkeys(list(c.GROWTH_DTYPES)[:8], 0)
    for memory in frame[frame[c.CREATED_AT] <= instant].to_dict("records"):
        name = c.LOAD_BEARING if memory[c.LOAD_BEARING] else c.PRUNABLE
        successor = memory[c.SUPERSEDED_BY]
        if isinstance(successor, str):
            superseded_at = created.get(successor, memory[c.CREATED_AT])
            if superseded_at <= instant:
                name = c.SUPERSEDED
        counts[name] += 1
        counts[f"{name}_tokens"] += memory[c.TOKENS]
    return counts


@given(rows=ROWS_OF_ANY_KIND, freq=st.sampled_from([None, "6h", "D", "W", "2W", "MS", "QS", "YS"]))
def test_growth_curve_equals_brute_force_counts(rows: Drawn, freq: str | None) -> None:
    frame = frame_of(rows)
    frame.index += 7  # as of a frame that was filtered
    same = frame.copy(deep=True)
    curve = growth_curve(frame, freq=freq)
    pd.testing.assert_frame_equal(frame, same)
    created = frame[c.CREATED_AT]
    at = curve.index
    if rows and freq:
        assert at[0] < created.min()
        assert created.min() <= at[1]
        assert at[-2] < created.max()
        assert created.max() <= at[-1]
    standing: dict[int, dict[str, int]] = {}
    written = [(created <= instant).sum() for instant in at]
    counts = curve.iloc[:, :8].astype(int).to_dict("records")
    for instant, before, counted in zip(at, written, counts, strict=True):
        if before not in standing:  # nothing changes between two writes
            standing[before] = standing_at(frame, instant)
        assert counted == standing[before]
    active = curve[c.PRUNABLE] + curve[c.LOAD_BEARING]
    share = curve[c.PRUNABLE] / active.where(active > 0)
    pd.testing.assert_series_equal(curve[c.PRUNABLE_SHARE], share, check_names=False)


def test_undated_rows_count_from_their_insertion() -> None:
    frame = make_frame("a", row("b", **{c.CREATED_AT: pd.NaT}), "c", minutes=24 * 60)
    curve = growth_curve(frame, freq="D")
    assert curve[c.PRUNABLE].tolist() == [0, 2, 2, 3]
    assert curve.attrs[c.UNDATED] == 1
    frame[c.CREATED_AT] = pd.Series([pd.NaT] * 3, dtype=c.TIME)
    assert growth_curve(frame)[c.PRUNABLE].iloc[-1] == 3


@pytest.mark.parametrize(
    ("rows", "caveat"), [([], ""), ([0], ""), ([0, 2], "1 memory was deleted earlier")]
)
def test_curve_of_few_rows_has_dtypes_and_caveat(rows: list[int], caveat: str) -> None:
    curve = growth_curve(make_episodes(3).iloc[rows])
    assert {name: str(dtype) for name, dtype in curve.dtypes.items()} == c.GROWTH_DTYPES
    assert str(curve.index.dtype) == c.TIME
    assert curve.index.name == c.AT
    assert curve.empty == (rows == [])
    assert curve.attrs[c.CAVEAT].partition(":")[0] == caveat
    assert curve.attrs[c.TOKEN_RULE] == "characters / 4, an estimate"


@pytest.mark.parametrize(("days", "step"), [(5e-5, "1s"), (1 / 24, "1h"), (20, "7D")])
def test_default_frequency_fits_the_span(days: float, step: str) -> None:
    ids = [f"m{number}" for number in range(100)]
    curve = growth_curve(make_frame(*ids, minutes=1440 * days))
    assert len(curve) <= 1_003
    assert curve.index.to_series().diff().max() == pd.Timedelta(step)


@pytest.mark.parametrize("bad_clock", ["0001-01-01", "1970-01-01", "9999-12-31T23:59:59.999999"])
def test_extreme_clock_does_not_break_the_curve(bad_clock: str) -> None:
    frame = make_frame("a", row("b", **{c.CREATED_AT: pd.Timestamp(bad_clock, tz="UTC")}), "c")
    curve = growth_curve(frame)
    assert curve[c.PRUNABLE].iloc[-1] == 3
    assert curve.index.max().year <= 9999


@pytest.mark.parametrize(
    ("freq", "message"),
    [
        ("min", r"freq 'min' gives more than 100,000 instants .* choose a coarser one"),
        ("-1D", "freq must go forward in time, not '-1D'"),
        ("0D", "freq must go forward in time, not '0D'"),
        ("fortnight", "fortnight"),
    ],
)
def test_unusable_frequency_is_rejected(freq: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        growth_curve(make_frame("a", "b", minutes=24 * 60 * 365), freq=freq)


def test_boot_context_is_split_into_parts() -> None:
    frame = mixed_frame()
    parts = boot_context(frame)
    tokens = {"decisions": 1, "skills": 2, "rejected paths": 4, "episodes": 8}
    assert parts[c.TOKENS].to_dict() == tokens
    assert parts[c.LOAD_BEARING].tolist() == [True, True, True, False]
    frame[c.PROBLEM] = pd.Series([None, None, "tags are not a list", None, None], dtype="str")
    parts = boot_context(frame)
    assert list(parts.index) == [part for part in PARTS if part != "protected"]
    assert parts.loc["unreadable"].tolist() == [1, 4, True]
    assert parts.loc["rejected paths", c.MEMORIES] == 0


@given(rows=ROWS_OF_ANY_KIND)
def test_parts_add_up_to_the_boot_context_summary(rows: Drawn) -> None:
    frame = frame_of(rows)
    frame.index += 7  # as of a frame that was filtered
    parts = boot_context(frame)
    summary = summarize(frame, now=NOW)
    assert summary.boot.memories == frame[c.ACTIVE].sum()
    assert summary.boot.memories == parts[c.MEMORIES].sum()
    assert summary.boot.tokens == parts[c.TOKENS].sum()
    assert summary.boot.prunable.memories == parts.loc["episodes", c.MEMORIES]
    assert summary.boot.load_bearing.tokens == parts.loc[parts[c.LOAD_BEARING], c.TOKENS].sum()
    assert summary.rows.memories == summary.boot.memories + summary.superseded.memories


def test_summary_of_small_and_empty_store() -> None:
    summary = summarize(mixed_frame(), now=NOW)
    assert summary.rows == Size(5, 31)
    assert summary.superseded == Size(1, 16)
    assert summary.boot.prunable_by_memories == 1 / 4
    assert summary.boot.prunable_by_tokens == 8 / 15
    assert summary.first_at == START
    assert summary.last_at == START + pd.Timedelta(hours=4)
    empty = summarize(mixed_frame().iloc[:0], now=NOW)
    assert empty.rows == Size(0, 0)
    assert empty.parts == {}
    assert empty.pace is None
    assert empty.first_at is None
    assert empty.forecast is None
    assert empty.boot.prunable_by_memories is None


def test_out_of_order_dangling_and_undated_rows_are_counted() -> None:
    late = START + pd.Timedelta(hours=9)
    dangling = row("b", superseded_by="nobody")
    undated = row("c", created_at=pd.NaT, superseded_by="a")
    frame = make_frame(row("a", created_at=late), dangling, undated, row("d", created_at=late))
    summary = summarize(frame, now=NOW)
    assert summary.out_of_order == 1
    assert summary.dangling == 1
    assert summary.undated == 1


def episodes_on(*days: float) -> pd.DataFrame:
    """Return episodes written the given days before NOW, oldest first."""
    created = pd.Timestamp(NOW) - pd.to_timedelta(sorted(days, reverse=True), unit="D")
    return make_episodes(len(days)).assign(**{c.CREATED_AT: created.astype(c.TIME)})


def pace_of(*days: float) -> Pace:
    """Return the pace of episodes written the given days before NOW."""
    pace = summarize(episodes_on(*days), now=NOW).pace
    assert pace is not None
    return pace


def test_pace_is_the_median_week_with_its_range() -> None:
    pace = pace_of(21, *[15] * 6, *[8] * 13, *[1] * 28)
    assert pace.windows == 3
    assert pace.window_days == 7
    assert pace.low == 1
    assert pace.median == 13 / 7
    assert pace.high == 4


def test_pace_counts_eight_weeks_at_most() -> None:
    pace = pace_of(300, *[100] * 50, 3)
    assert pace.windows == 8
    assert pace.window_days == 7
    assert pace.low == 0
    assert pace.median == 0
    assert pace.high == 1 / 7


def test_pace_of_less_than_a_week_has_one_window() -> None:
    pace = pace_of(3, 2, 1, 1)
    assert pace.windows == 1
    assert pace.window_days == 3
    assert pace.low == 4 / 3
    assert pace.median == 4 / 3
    assert pace.high == 4 / 3


def test_row_written_just_now_does_not_give_a_huge_pace() -> None:
    pace = pace_of(0.0001)
    assert pace.windows == 1
    assert pace.window_days == 1
    assert pace.low == 1
    assert pace.median == 1
    assert pace.high == 1


def test_pace_counts_only_past_prunable_memories() -> None:
    decision = row("d", **{c.KIND: "semantic", c.CREATED_AT: pd.Timestamp(NOW)})
    for frame in (episodes_on(-1, -30), make_frame(decision)):
        assert summarize(frame, now=NOW).pace is None


def test_pace_of_bursts_is_never_zero() -> None:
    burst = list(np.linspace(20, 21, 250))
    early = list(np.linspace(90, 91, 250))
    for days in (burst, early, [*burst, 1.0], [*early, 1.0], [*burst, *[90.0] * 7], [60.0, 3.0]):
        summary = summarize(episodes_on(*days), now=NOW, threshold=10_000)
        pace_in_words = dict(summary.sheet().facts)["pace"]
        assert float(pace_in_words.split()[0]) > 0
        assert summary.pace is not None
        if summary.pace.high == 0:
            assert summary.forecast.expected is None
        else:
            assert summary.forecast.expected is not None


def test_deleted_memories_count_towards_the_pace() -> None:
    frame = episodes_on(*[15] * 6, *[8] * 13, *[1] * 28)
    frame.loc[3, [c.SUPERSEDED_BY, c.ACTIVE, c.PRUNABLE]] = ["m9", False, False]
    before = summarize(frame, now=NOW, threshold=15)
    frame[c.DELETED_AT] = pd.Series(pd.NaT, index=frame.index, dtype=c.TIME)
    frame.loc[4:19, c.DELETED_AT] = pd.Timestamp(NOW) - pd.Timedelta(days=1.5)
    frame.loc[4:19, [c.ACTIVE, c.PRUNABLE]] = False
    after = summarize(frame, now=NOW, threshold=15)
    assert after.pace == before.pace
    assert after.rows.memories == 47 - 16
    assert after.boot.memories == 46 - 16
    assert before.dangling == 0
    assert after.dangling == 0
    assert before.forecast.passed_at is not None
    assert after.forecast.passed_at > before.forecast.passed_at


def test_forecast_divides_remaining_capacity_by_pace() -> None:
    forecast = summarize(episodes_on(14, *[10] * 6, *[3] * 14), now=NOW, threshold=50).forecast
    assert forecast.passed_at is None
    remaining = 51 - 21
    assert forecast.earliest == NOW + timedelta(days=remaining / 2)
    assert forecast.expected == NOW + timedelta(days=remaining / 1.5)
    assert forecast.latest == NOW + timedelta(days=remaining / 1)


def test_store_that_no_longer_grows_has_no_forecast() -> None:
    forecast = summarize(episodes_on(60, 59, 58), now=NOW, threshold=50).forecast
    assert forecast.expected is None
    assert forecast.latest is None


def test_forecast_beyond_the_calendar_has_no_date() -> None:
    assert summarize(episodes_on(6), now=NOW, threshold=10**8).forecast.latest is None


def test_passed_threshold_is_dated() -> None:
    frame = make_frame("a", row("b", superseded_by="c"), "c", "d", row("e", kind="semantic"), "f")
    created = list(frame[c.CREATED_AT])
    for threshold, passed in ((1, created[1]), (2, created[3]), (3, created[5]), (4, None)):
        assert summarize(frame, now=NOW, threshold=threshold).forecast.passed_at == passed


def test_superseded_memory_does_not_count_for_a_threshold() -> None:
    superseded = row("a", superseded_by="b")
    frame = make_frame(superseded, row("b", kind="semantic"), "c", "d")
    created = list(frame[c.CREATED_AT])
    assert summarize(frame, now=NOW, threshold=1).forecast.passed_at == created[3]


def test_boot_context_holds_only_loaded_memories() -> None:
    frame = make_frame("m1", "m2", row("d", kind="semantic"), "m4", "m5")
    frame[c.ACTIVE] = [True, True, True, True, False]
    frame[c.PRUNABLE] = frame[c.ACTIVE] & ~frame[c.LOAD_BEARING]
    frame[c.LOADED_AT_START] = [True, False, True, True, False]
    summary = summarize(frame, now=NOW)
    assert summary.boot.memories == 3
    assert summary.boot.prunable.memories == 2
    assert summary.not_loaded == Size(1, 10)
    assert summary.inactive == Size(1, 10)
    assert summary.superseded.memories == 0
    assert summary.dangling == 0
    assert boot_context(frame)[c.MEMORIES].sum() == 3
    assert "active, not loaded at start         1" in str(summary)
    assert "not active (not loaded)" in str(summary)
    frame[c.LOADED_AT_START] = False  # then the active ones are recalled from
    summary = summarize(frame, now=NOW)
    assert summary.boot.memories == 4
    assert summary.not_loaded.memories == 0
    assert "none loaded at start, recalled from" in str(summary)


def test_pace_of_bursts_counts_all_of_them() -> None:
    days = pd.to_timedelta([0] * 60 + [1] * 39 + [20], unit="D")
    frame = make_episodes(100)
    frame[c.CREATED_AT] = (START + days).astype(c.TIME)
    pace = summarize(frame, now=START + pd.Timedelta(days=400)).pace
    assert pace is not None
    assert pace.while_active == 5.0
