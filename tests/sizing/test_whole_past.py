"""Compacting a store changes nothing of what its past says: not the curve, not the number."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from histories import recorded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Row, row, write_rows

import memlab
from memlab import columns as c
from memlab.evidence.past import load_past
from memlab.growth import growth_curve
from memlab.policies import KeepRecent, TimeToLive
from memlab.replay import compare
from memlab.sizing import age_ranks, backtest_cap, cap_curve

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS = 700
PAST = ["served", "low", "high", "served_own", "served_observed"]

Compact = Callable[[Path], None]


def written() -> list[Row]:
    """Rows whose references are written down in them."""
    frame, _ = recorded()
    return [
        row(
            one.memory_id,
            "episodic",
            *one.tags,
            title="",
            body="x" * one.chars,
            created_at=one.created_at.isoformat(),
            evidence_refs_json=json.dumps(one.evidence_refs),
        )
        for one in frame.iloc[:ROWS].itertuples()
    ]


def in_steps(path: Path, steps: int, compact: Compact) -> Path:
    """Write the rows as an agent would, and compact after each part of them."""
    rows = written()
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
    """Do what a nightly job would: size, and compact to that."""
    keep(memlab.recommend_cap(load_past(store)).keep_recent)(store)


def restored_half_way(store: Path) -> None:
    receipt = memlab.apply(memlab.plan(store, KeepRecent(40), now=NOON), now=NOON)
    if receipt.archive:
        memlab.restore(receipt, now=NOON)
        keep(90)(store)


WAYS: dict[str, tuple[int, Compact]] = {
    "once, at the end": (1, keep(200)),
    "once, to nothing": (1, keep(0)),
    "twice": (2, keep(100)),
    "every tenth": (10, keep(60)),
    "every twentieth": (20, keep(30)),
    "to nothing in between": (3, keep(0)),
    "as sized, once": (1, as_sized),
    "as sized, often": (7, as_sized),
    "restored half way": (4, restored_half_way),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_steps(tmp_path_factory.mktemp("whole") / "memory.db", 1, lambda store: None)


@pytest.fixture(scope="module", params=WAYS)
def compacted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("compacted")
    yield in_steps(folder / "memory.db", *WAYS[request.param])
    shutil.rmtree(folder)


def test_the_number_is_the_same(whole: Path, compacted: Path) -> None:
    expected, found = (memlab.recommend_cap(load_past(store)) for store in (whole, compacted))
    for name in ("keep_recent", "interval", "served", "references", "weight", "memories"):
        assert getattr(found, name) == getattr(expected, name), name


def test_the_curve_is_the_same_at_every_cap(whole: Path, compacted: Path) -> None:
    expected, found = (cap_curve(load_past(store)) for store in (whole, compacted))
    pd.testing.assert_frame_equal(found[PAST], expected[PAST])


def test_references_and_their_age_ranks_are_the_same(whole: Path, compacted: Path) -> None:
    expected, found = (load_past(store) for store in (whole, compacted))
    pd.testing.assert_frame_equal(memlab.find_references(found), memlab.find_references(expected))
    pd.testing.assert_frame_equal(age_ranks(found), age_ranks(expected))


def test_the_track_record_is_the_same(whole: Path, compacted: Path) -> None:
    expected, found = (backtest_cap(load_past(store)) for store in (whole, compacted))
    pd.testing.assert_frame_equal(found, expected)


def test_the_comparison_is_the_same(whole: Path, compacted: Path) -> None:
    policies = [KeepRecent(50), TimeToLive()]
    tables = []
    for store in (whole, compacted):
        past = load_past(store)
        tables.append(compare(past, memlab.find_references(past), policies, workers=1))
    pd.testing.assert_frame_equal(tables[1], tables[0])


def test_growth_was_the_same_until_something_was_deleted(whole: Path, compacted: Path) -> None:
    curves = [growth_curve(load_past(store), freq="D") for store in (whole, compacted)]
    before = curves[0].index[curves[0].index < min(NOON, curves[0].index[-1])]
    expected, found = (curve.loc[before] for curve in curves)
    pd.testing.assert_frame_equal(found, expected, check_freq=False)
    assert len(before) > 5
    assert found.attrs[c.CAVEAT] == expected.attrs[c.CAVEAT] == ""
    assert curves[1][c.PRUNABLE].iloc[-1] == int(memlab.load(compacted)[c.PRUNABLE].sum())


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(caps=st.lists(st.integers(0, 300), min_size=1, max_size=4))
def test_no_sequence_of_compactions_changes_the_number(
    whole: Path, tmp_path: Path, caps: list[int]
) -> None:
    store = tmp_path / "memory.db"
    for beside in tmp_path.glob("memory.db*"):
        beside.unlink()
    shutil.copy(whole, store)
    expected = memlab.recommend_cap(load_past(whole)).keep_recent
    for cap in caps:
        keep(cap)(store)
        assert memlab.recommend_cap(load_past(store)).keep_recent == expected
