"""Compaction does not change what is computed from the past of a store."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
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
from tests.support.shell import output_of
from tests.support.stores import write_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAST = ["served", "low", "high", "served_own", "served_observed"]

Compact = Callable[[Path], None]


def in_steps(path: Path, steps: int, compact: Compact) -> Path:
    """Write the rows in parts and compact after each part."""
    rows = recorded_rows(700)
    size = -(-len(rows) // steps)
    for start in range(0, len(rows), size):
        write_rows(path, rows[start : start + size])
        compact(path)
    return path


def keep(cap: int) -> Compact:
    def compact(store: Path) -> None:
        memlab.apply(memlab.plan(store, KeepRecent(cap), now=NOON), now=NOON)

    return compact


def as_sized(store: Path) -> None:
    """Size the store and compact it to the recommended cap."""
    output_of("size", store, "--save")
    output_of("maintain", store, "--apply")


def restored_half_way(store: Path) -> None:
    receipt = memlab.apply(memlab.plan(store, KeepRecent(40), now=NOON), now=NOON)
    if receipt.archive:
        memlab.restore(receipt, now=NOON)
        keep(90)(store)


WAYS: dict[str, tuple[int, Compact]] = {
    "once, at the end": (1, keep(200)),
    "once, to zero": (1, keep(0)),
    "every tenth": (10, keep(60)),
    "to zero in between": (3, keep(0)),
    "as sized, repeatedly": (7, as_sized),
    "restored half way": (4, restored_half_way),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_steps(tmp_path_factory.mktemp("whole") / "memory.db", 1, lambda store: None)


SHOWN_BY_ANOTHER = ("once, at the end", "once, to zero")
"""Ways of which a default run tries a harder one: in steps, and to zero in between."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.long) if name in SHOWN_BY_ANOTHER else name
        for name in WAYS
    ],
)
def compacted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_steps(tmp_path_factory.mktemp("compacted") / "memory.db", *WAYS[request.param])


def test_compaction_does_not_change_results_from_the_past(whole: Path, compacted: Path) -> None:
    expected, partial = (load_past(store) for store in (whole, compacted))
    for ask in (memlab.find_references, age_ranks, backtest_cap):
        pd.testing.assert_frame_equal(ask(partial), ask(expected))
    then, now = (memlab.sizing.prepare_sizing(past) for past in (expected, partial))
    pd.testing.assert_frame_equal(now.curve[PAST], then.curve[PAST])
    compacted_frame = memlab.load(compacted)
    assert now.present.prunable == compacted_frame[c.PRUNABLE].sum()
    assert (
        now.present.tokens_newest[-1]
        == compacted_frame.loc[compacted_frame[c.PRUNABLE], c.TOKENS].sum()
    )
    before, after = (advise(sizing) for sizing in (then, now))
    for name in ("keep_recent", "interval", "served", "references", "weight", "memories"):
        assert getattr(after, name) == getattr(before, name), name
    policies = [KeepRecent(50), TimeToLive()]
    tables = [compare(past, None, policies, workers=1).table for past in (expected, partial)]
    pd.testing.assert_frame_equal(tables[1], tables[0])


ASKED: dict[str, Callable[[Any], Any]] = {
    "find_references": memlab.find_references,
    "count_references": memlab.evidence.count_references,
    "recommend_cap": lambda store: memlab.recommend_cap(store).to_json(),
    "recommend_budget": lambda store: recommend_budget(store).to_json(),
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
def emptied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_steps(tmp_path_factory.mktemp("emptied") / "memory.db", 2, keep(40))


@pytest.mark.parametrize("name", ASKED)
def test_functions_of_a_store_read_its_whole_past(name: str, emptied: Path) -> None:
    result, expected = (ASKED[name](given) for given in (emptied, load_past(emptied)))
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(result, expected)
    else:
        assert str(result) == str(expected)


def test_recommend_cap_accepts_every_form_of_store(emptied: Path) -> None:
    expected = memlab.recommend_cap(load_past(emptied))
    assert memlab.recommend_cap(str(emptied)) == memlab.recommend_cap(emptied) == expected
    assert memlab.recommend_cap(open_source(emptied)) == expected
    with memlab.SqliteMemoryStore(emptied) as store:
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


def test_frame_without_its_past_is_sized_with_a_warning(emptied: Path, whole: Path) -> None:
    for recommend in (memlab.recommend_cap, recommend_budget):
        assert "give the store's path in place of the frame" in str(recommend(memlab.load(emptied)))
        for complete in (emptied, load_past(emptied), memlab.load(whole)):
            assert "in place of the frame" not in str(recommend(complete))


def test_growth_before_a_deletion_is_unchanged(whole: Path, compacted: Path) -> None:
    curves = [growth_curve(load_past(store), freq="D") for store in (whole, compacted)]
    before = curves[0].index[curves[0].index < min(NOON, curves[0].index[-1])]
    expected, grown = (curve.loc[before] for curve in curves)
    pd.testing.assert_frame_equal(grown, expected, check_freq=False)
    assert len(before) > 5
    assert grown.attrs[c.CAVEAT] == expected.attrs[c.CAVEAT] == ""
    assert curves[1][c.PRUNABLE].iloc[-1] == int(memlab.load(compacted)[c.PRUNABLE].sum())
