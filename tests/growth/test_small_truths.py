"""Details of numbers and sentences that must agree with each other and the store."""

import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab.fleet.page import FleetFindings
from memlab.growth import boot_context, summarize
from memlab.policies import ImportanceBudget, ValueCap, decide
from tests.support.frames import START, make_frame
from tests.support.frames import row as frame_row
from tests.support.stores import episodes, row, write_rows


def test_protected_tag_is_a_part_of_its_own_everywhere(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "memory.db",
        [
            row("d1", "semantic", "rejected-path"),
            row("r1", "episodic", "rejected-path"),
            row("p1", "episodic", "keep-me"),
            *episodes(3),
        ],
    )
    (tmp_path / "memlab.toml").write_text('protected_tags = ["keep-me"]\n')
    parts = {name: size.memories for name, size in memlab.show(path).summary.parts.items()}
    assert parts == {"decisions": 1, "rejected paths": 1, "protected": 1, "episodes": 3}
    assert boot_context(path)["memories"].to_dict() == {**parts, "skills": 0}
    assert memlab.doctor(path).checks[0].counts["rejected_paths"] == 1


def test_protected_part_needs_a_protected_tag() -> None:
    assert "protected" not in boot_context(make_frame("a", frame_row("b", tags=("rejected-path",))))


def test_pace_of_a_silent_store_names_no_window() -> None:
    summary = summarize(make_frame("a", "b", "c"), now=START + timedelta(days=149))
    assert "none since" in str(summary)
    assert "56 days" not in str(summary)


def test_memory_dated_after_now_has_age_zero(tmp_path: Path) -> None:
    listed = memlab.rows(make_frame("a", "b"), now=START + timedelta(minutes=1))
    assert listed["age_days"].min() == 0
    assert "1 memory dated after now" in dict(listed.attrs["facts"])["age_days"]


def test_order_by_reads_without_a_log_is_explained() -> None:
    listed = memlab.rows(make_frame("a", "b"), by="reads")
    assert "no log" in dict(listed.attrs["facts"])["order"]
    assert "order" not in dict(memlab.rows(make_frame("a", "b")).attrs["facts"])


@pytest.mark.parametrize(
    ("importance", "is_kept"),
    [([np.nan, np.inf], [True, False]), ([np.inf, np.nan], [False, True])],
)
def test_nan_importance_ranks_above_infinity(importance: list[float], is_kept: list[bool]) -> None:
    frame = make_frame("a", "b").assign(importance=importance)
    assert decide(frame, ImportanceBudget(1), now=START)["keep"].tolist() == is_kept


@pytest.mark.parametrize("importance", [1e308, np.inf, -1e308])
def test_extreme_importance_raises_no_warning(importance: float) -> None:
    frame = make_frame("a", "b", "c").assign(importance=[importance, 0.5, 0.1])
    with warnings.catch_warnings(action="error"):
        decide(frame, ValueCap(1, importance=100.0), now=START)
        decide(frame, ImportanceBudget(1), now=START)


def test_fleet_counts_each_unreadable_store_once() -> None:
    good = pd.DataFrame({"store": ["a", "b"], "error": [None, None]})
    bad = good.assign(error=[None, "no store"])
    for stores, sizes in ((bad, good), (good, bad), (bad, bad)):
        findings = FleetFindings(
            now=START,
            stores=stores,
            sizes=sizes,
            weeks=good,
            cohort=None,  # type: ignore[arg-type]
            repeated=0,
        )
        assert findings.failed == 1
