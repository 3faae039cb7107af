"""What ``memlab size --by tokens`` prints: a budget, what others serve, what to do next."""

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memlab.cli.output import print_json, print_lines

if TYPE_CHECKING:
    import pandas as pd

    from memlab.cli.asking import Asked
    from memlab.sizing import BudgetAdvice, BudgetSizing

STEPS = (0, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Memories of mean length for which a budget is shown beside the answer's."""


class Budget(NamedTuple):
    """What a target takes, and what may be spent at the most; None where nothing was said."""

    advice: "BudgetAdvice"
    table: "pd.DataFrame"
    limit: int | None

    @property
    def is_within(self) -> bool:
        """Whether the target is met within what may be spent."""
        return self.limit is None or self.advice.max_tokens <= self.limit

    @property
    def policy(self) -> dict[str, Any] | None:
        """What may be remembered; None where target and limit cannot both be had."""
        return {"name": "tokens", "max_tokens": self.advice.max_tokens} if self.is_within else None


def budget_found(
    frame: "pd.DataFrame", references: "pd.DataFrame", asked: "Asked", *, confidence: float
) -> Budget:
    """Recommend a budget for a store by its past and the references to it."""
    from memlab.sizing import advise_budget, prepare_budget

    prepared = prepare_budget(frame, references, confidence=confidence)
    advice = advise_budget(prepared, target=asked.target)
    return Budget(
        advice, prepared.at(_around(prepared, advice, asked.token_budget)), asked.token_budget
    )


def say_budget(path: Path, budget: Budget, by_log: list[str], *, as_json: bool) -> None:
    """Print a recommended budget, what others serve, and what to do next."""
    advice, table, limit = budget
    if as_json:
        budgets = json.loads(table.reset_index().to_json(orient="records"))
        command = command_for(path, advice) if budget.is_within else None
        told = {"store": str(path), **json.loads(advice.to_json()), "token_budget": limit}
        print_json(told | {"command": command, "budgets": budgets})
        return
    print_lines(
        f"{path}:",
        *str(advice).splitlines(),
        *_limit_lines(budget),
        "",
        *_table_lines(table, advice),
        *by_log,
        "",
        *(_next_lines(path, advice) if budget.is_within else _either(path, advice, limit)),
    )


def command_for(path: Path, advice: "BudgetAdvice") -> str | None:
    """Return the command that keeps to the budget; None where it would delete nothing."""
    return f"{_dry_run(path, advice.max_tokens)} --apply" if advice.pruned else None


def _dry_run(path: Path, max_tokens: int) -> str:
    store = shlex.quote(str(path))
    return f"memlab compact {store} --policy tokens --max-tokens {max_tokens}"


def _around(prepared: "BudgetSizing", advice: "BudgetAdvice", limit: int | None) -> list[int]:
    """Return the budgets of answer and limit, of all there is, and of round numbers of memories."""
    round_ones = {prepared.budget_of(step) for step in STEPS}
    below = {each for each in round_ones if each < prepared.most}
    limits = set() if limit is None else {limit}
    return sorted({*below, advice.max_tokens, prepared.most, *limits})


def _limit_lines(budget: Budget) -> list[str]:
    """Say what the tokens that may be spent serve."""
    if budget.limit is None:
        return []
    row = budget.table.loc[budget.limit]
    ends = "the target is met within it" if budget.is_within else "the target takes more"
    served = f"{row['served']:.1%} of references, limits {row['low']:.1%} to {row['high']:.1%}"
    return [f"  token budget   {budget.limit:,} tokens serve {served}: {ends}"]


def _either(path: Path, advice: "BudgetAdvice", limit: int | None) -> list[str]:
    """Show the two ends where target and limit cannot both be had."""
    return [
        f"next: {_dry_run(path, advice.max_tokens)}    for the target",
        f"      {_dry_run(path, limit or 0)}    for the budget",
    ]


def _table_lines(table: "pd.DataFrame", advice: "BudgetAdvice") -> list[str]:
    """Return a table of budgets; the recommended one is marked."""
    head = f"  {'max_tokens':>11}  {'served':>7}  {'limits':<17}  {'so far':>7}"
    lines = [f"{head}  {'kept':>7}  {'would go':>8}  {'days':>6}"]
    for budget, row in table.iterrows():
        mark = ">" if budget == advice.max_tokens else " "
        limits = f"{row['low']:.1%} to {row['high']:.1%}"
        so_far = "–" if math.isnan(row["served_observed"]) else f"{row['served_observed']:.1%}"
        lines.append(
            f"{mark} {budget:>11,}  {row['served']:>7.1%}  {limits:<17}  {so_far:>7}"
            f"  {row['kept']:>7,.0f}  {row['pruned']:>8,.0f}  {row['days']:>6,.0f}"
        )
    return lines


def _next_lines(path: Path, advice: "BudgetAdvice") -> list[str]:
    command = command_for(path, advice)
    if command is not None:
        learned = command.replace("--policy tokens", "--policy learned").removesuffix(" --apply")
        return [
            f"next: {command.removesuffix(' --apply')}    shows what would go",
            f"      {learned}    keeps what is expected to be needed, in as many",
            f"      {command}    does it",
        ]
    dry_run = _dry_run(path, advice.max_tokens)
    return [f"next: {dry_run}    deletes nothing yet; safe to repeat as the store grows"]
