"""No sequence of sizing by tokens and compacting with the budget makes the next one smaller."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import write_rows
from test_never_smaller import drop_oldest, stores

import memlab
from memlab.evidence.past import load_past
from memlab.policies import TokenBudget
from memlab.sizing.budget import recommend_budget
from memlab.store import SqliteMemoryStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def budget(store: Path) -> int:
    return recommend_budget(load_past(store)).max_tokens


def planned(store: Path) -> memlab.Plan:
    return memlab.plan(store, TokenBudget(budget(store)), now=NOON)


def plan_and_apply(store: Path) -> None:
    memlab.apply(planned(store), now=NOON)


def compact_for_good(store: Path) -> None:
    """Keep as many as the budget does, as a runtime would that can only count."""
    kept = len(planned(store).kept)
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(kept)


STEPS: dict[str, Callable[[Path], None]] = {
    "plan": plan_and_apply,
    "for good": compact_for_good,
    "drop": drop_oldest,
    "drop facts": lambda store: drop_oldest(store, facts_too=True),
}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=stores(),
    sizes=st.lists(st.integers(0, 600), min_size=160, max_size=160),
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
)
def test_no_walk_by_tokens_on_a_random_history(
    tmp_path: Path, rows: list[dict[str, object]], sizes: list[int], steps: list[str]
) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    sized = [each | {"body": "x" * size} for each, size in zip(rows, sizes, strict=False)]
    store = write_rows(tmp_path / "memory.db", sized)
    budgets = [budget(store)]
    for step in steps:
        STEPS[step](store)
        budgets.append(budget(store))
    assert budgets == sorted(budgets), steps
