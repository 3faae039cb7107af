"""What ``memlab size --by tokens`` prints: a budget, what others serve, what to do next."""

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.cli.output import print_json, print_lines

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import BudgetAdvice, BudgetSizing

STEPS = (0, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Memories of mean length for which a budget is shown beside the answer's."""


def say_budget(
    path: Path,
    found: "tuple[pd.DataFrame, pd.DataFrame, float, float]",
    by_log: list[str],
    *,
    as_json: bool,
) -> None:
    """Recommend a budget for a store: its past, the references, the target and the confidence."""
    from memlab.sizing import advise_budget, prepare_budget

    frame, references, target, confidence = found
    prepared = prepare_budget(frame, references, confidence=confidence)
    advice = advise_budget(prepared, target=target)
    table = prepared.at(_around(prepared, advice))
    if as_json:
        budgets = json.loads(table.reset_index().to_json(orient="records"))
        command = command_for(path, advice)
        told = {"store": str(path), **json.loads(advice.to_json())}
        print_json(told | {"command": command, "budgets": budgets})
        return
    print_lines(
        f"{path}:",
        *str(advice).splitlines(),
        "",
        *_table_lines(table, advice),
        *by_log,
        "",
        *_next_lines(path, advice),
    )


def command_for(path: Path, advice: "BudgetAdvice") -> str | None:
    """Return the command that keeps to the budget; None where it would delete nothing."""
    if not advice.pruned:
        return None
    store = shlex.quote(str(path))
    return f"memlab compact {store} --policy tokens --max-tokens {advice.max_tokens} --apply"


def _around(prepared: "BudgetSizing", advice: "BudgetAdvice") -> list[int]:
    """Return the budgets of the answer, of all there is, and of round numbers of memories."""
    round_ones = {prepared.budget_of(step) for step in STEPS}
    below = {each for each in round_ones if each < prepared.most}
    return sorted({*below, advice.max_tokens, prepared.most})


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
    store = shlex.quote(str(path))
    command = command_for(path, advice)
    if command is not None:
        learned = command.replace("--policy tokens", "--policy learned").removesuffix(" --apply")
        return [
            f"next: {command.removesuffix(' --apply')}    shows what would go",
            f"      {learned}    keeps what is expected to be needed, in as many",
            f"      {command}    does it",
        ]
    dry_run = f"memlab compact {store} --policy tokens --max-tokens {advice.max_tokens}"
    return [f"next: {dry_run}    deletes nothing yet; safe to repeat as the store grows"]
