"""Compaction does not change what is computed from the past of a store."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.evidence.past import load_past
from memlab.growth import growth_curve
from memlab.policies import KeepRecent, TimeToLive
from memlab.replay import compare
from memlab.sizing import advise, age_ranks, backtest_cap, cap_curve
from memlab.sources.opening import open_source
from tests.support.histories import recommend_budget, recorded_rows
from tests.support.properties import all_but
from tests.support.shell import output_of
from tests.support.stores import write_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAST = ["served", "low", "high", "served_own", "served_observed"]

Compact = Callable[[Path], None]


def write_in_parts(path: Path, parts: int, compact: Compact) -> Path:
    """Write the rows in parts and compact after each part."""
    rows = recorded_rows(700)
    size = math.ceil(len(rows) / parts)
    for start in range(0, len(rows), size):
        write_rows(path, rows[start : start + size])
        compact(path)
    return path


def do_nothing(store: Path) -> None:
    pass


def keep(store: Path, cap: int) -> None:
    memlab.apply(memlab.plan(store, KeepRecent(cap), now=NOON), now=NOON)


def compact_as_sized(store: Path) -> None:
    """Size the store and compact it to the recommended cap."""
    output_of("size", store, "--save")
    output_of("maintain", store, "--apply")


def restore_and_keep_more(store: Path) -> None:
    """Compact the store, restore it, and compact it to a larger cap."""
    receipt = memlab.apply(memlab.plan(store, KeepRecent(40), now=NOON), now=NOON)
    if receipt.archive:
        memlab.restore(receipt, now=NOON)
        keep(store, 90)


COMPACTIONS: dict[str, tuple[int, Compact]] = {
    "once, at the end": (1, partial(keep, cap=200)),
    "once, to zero": (1, partial(keep, cap=0)),
    "every tenth": (10, partial(keep, cap=60)),
    "to zero in between": (3, partial(keep, cap=0)),
    "as sized, repeatedly": (7, compact_as_sized),
    "restored half way": (4, restore_and_keep_more),
}
"""Number of parts in which the rows are written, and what is done after each."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_in_parts(tmp_path_factory.mktemp("whole") / "memory.db", 1, do_nothing)


ONLY_WITH_ALL = ("once, at the end", "once, to zero")
"""Compactions of which others test the same in several steps."""


@pytest.fixture(scope="module", params=all_but(COMPACTIONS, ONLY_WITH_ALL))
def compacted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts, compact = COMPACTIONS[request.param]
    return write_in_parts(tmp_path_factory.mktemp("compacted") / "memory.db", parts, compact)


@pytest.fixture(scope="module")
def whole_past(whole: Path) -> pd.DataFrame:
    return load_past(whole)


@pytest.fixture(scope="module")
def compacted_past(compacted: Path) -> pd.DataFrame:
    return load_past(compacted)


def test_compaction_does_not_change_references(
    whole_past: pd.DataFrame, compacted_past: pd.DataFrame
) -> None:
    for function in (memlab.find_references, age_ranks, backtest_cap):
        pd.testing.assert_frame_equal(function(compacted_past), function(whole_past))


def test_compaction_does_not_change_the_recommendation(
    whole_past: pd.DataFrame, compacted_past: pd.DataFrame
) -> None:
    before = memlab.sizing.prepare_sizing(whole_past)
    after = memlab.sizing.prepare_sizing(compacted_past)
    pd.testing.assert_frame_equal(after.curve[PAST], before.curve[PAST])
    advice_before = advise(before)
    advice_after = advise(after)
    for name in ("keep_recent", "interval", "served", "references", "weight", "memories"):
        assert getattr(advice_after, name) == getattr(advice_before, name), name


def test_sizing_knows_the_present_of_a_compacted_store(
    compacted: Path, compacted_past: pd.DataFrame
) -> None:
    frame = memlab.load(compacted)
    prunable = frame[frame[c.PRUNABLE]]
    present = memlab.sizing.prepare_sizing(compacted_past).present
    assert present.prunable == len(prunable)
    assert present.tokens_newest[-1] == prunable[c.TOKENS].sum()


def test_compaction_does_not_change_the_comparison(
    whole_past: pd.DataFrame, compacted_past: pd.DataFrame
) -> None:
    policies = [KeepRecent(50), TimeToLive()]
    before = compare(whole_past, None, policies, workers=1).table
    after = compare(compacted_past, None, policies, workers=1).table
    pd.testing.assert_frame_equal(after, before)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "find_references": memlab.find_references,
    "count_references": memlab.evidence.count_references,
    "recommend_cap": lambda store: replace(memlab.recommend_cap(store), store="").to_json(),
    "recommend_budget": lambda store: replace(recommend_budget(store), store="").to_json(),
    "prepare_sizing": lambda store: memlab.sizing.prepare_sizing(store).curve,
    "cap_curve": cap_curve,
    "backtest_cap": backtest_cap,
    "age_ranks": age_ranks,
    "age_rank_quantiles": memlab.sizing.age_rank_quantiles,
    "boot_over_time": lambda store: memlab.sizing.boot_over_time(store, [20, 200]),
    "caps_along": memlab.sizing.caps_along,
    "growth_curve": growth_curve,
    "summarize": lambda store: str(memlab.growth.summarize(store, now=NOON)),
    "boot_context": memlab.growth.boot_context,
    "cap_effect": lambda store: str(memlab.sizing.cap_effect(store, 30)),
    "survivors": lambda store: memlab.sizing.survivors(store, 30)[c.MEMORY_ID],
    "compare": lambda store: compare(store, policies=[KeepRecent(50)], workers=1).table,
    "replay": lambda store: memlab.replay.replay(store, None, KeepRecent(50)).references,
    "offline_optimum": lambda store: memlab.replay.offline_optimum(store, None, 50).served,
    "examine": lambda store: str(memlab.views.findings.examine(store, now=NOON).advice),
}


@pytest.fixture(scope="module")
def compacted_to_40(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("compacted_to_40") / "memory.db"
    return write_in_parts(store, 2, partial(keep, cap=40))


@pytest.fixture(scope="module")
def past_of_40(compacted_to_40: Path) -> pd.DataFrame:
    return load_past(compacted_to_40)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_a_store_read_its_whole_past(
    function: Callable[[Any], Any], compacted_to_40: Path, past_of_40: pd.DataFrame
) -> None:
    result = function(compacted_to_40)
    expected = function(past_of_40)
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(result, expected)
    else:
        assert str(result) == str(expected)


def test_recommend_cap_accepts_every_form_of_store(compacted_to_40: Path) -> None:
    expected = memlab.recommend_cap(load_past(compacted_to_40))
    assert memlab.recommend_cap(compacted_to_40) == expected
    assert memlab.recommend_cap(str(compacted_to_40)) == expected
    assert memlab.recommend_cap(open_source(compacted_to_40)) == expected
    with memlab.SqliteMemoryStore(compacted_to_40) as store:
        assert memlab.recommend_cap(store) == expected


def test_sizing_uses_the_log_of_the_settings(whole: Path, tmp_path: Path) -> None:
    store = memlab.copy_store(whole, tmp_path / "memory.db")
    log = memlab.AccessLog(tmp_path / "reads.jsonl")
    ids = memlab.load(store)[c.MEMORY_ID]
    for number in range(0, 300, 3):
        log.add(ids[number], datetime(2026, 4, 1 + number // 24, number % 24, tzinfo=UTC))
    plain = memlab.recommend_cap(store)
    (tmp_path / "memlab.toml").write_text('log = "reads.jsonl"\n')
    advice = memlab.recommend_cap(store)
    assert advice.references == plain.references + 100
    assert advice.keep_recent > plain.keep_recent
    assert json.loads(output_of("size", store, "--json"))["keep_recent"] == advice.keep_recent
    assert (memlab.find_references(store)[c.KIND] == "log").sum() == 100


def test_frame_without_its_past_is_sized_with_a_warning(compacted_to_40: Path, whole: Path) -> None:
    for recommend in (memlab.recommend_cap, recommend_budget):
        assert "give the store's path in place of the frame" in str(
            recommend(memlab.load(compacted_to_40))
        )
        for complete in (compacted_to_40, load_past(compacted_to_40), memlab.load(whole)):
            assert "in place of the frame" not in str(recommend(complete))


def test_growth_before_a_deletion_is_unchanged(whole: Path, compacted: Path) -> None:
    curve_of_whole = growth_curve(load_past(whole), freq="D")
    curve = growth_curve(load_past(compacted), freq="D")
    days = curve_of_whole.index
    days_before = days[days < NOON]
    assert len(days_before) > 5
    expected = curve_of_whole.loc[days_before]
    pd.testing.assert_frame_equal(curve.loc[days_before], expected, check_freq=False)
    assert curve_of_whole.attrs[c.CAVEAT] == ""
    assert curve.attrs[c.CAVEAT] == ""
    assert curve[c.PRUNABLE].iloc[-1] == int(memlab.load(compacted)[c.PRUNABLE].sum())
