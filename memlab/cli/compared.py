"""What ``memlab compare`` prints: policies side by side, how to read them, what to do next."""

import shlex
from typing import TYPE_CHECKING, Any, Final

from memlab.text import Cell, Sheet, Table, counted

if TYPE_CHECKING:
    import pandas as pd

FEW: Final = 30
"""References below which shares of them tell no two policies apart."""
GOOD: Final = 0.9
"""The share of references that a cap to look at next serves."""

_LEGEND: Final = (
    (
        "served",
        (
            "references in this past that found their memory, as they were; memlab size "
            "estimates those to come, which reach further back"
        ),
    ),
    ("at best", "the most that any policy with as many slots could have served"),
    ("tokens", "loaded at start: the mean of this past, and what 95% of starts did not pass"),
    ("only here", "memories that this line alone would have deleted"),
)


def few_references(references: int) -> list[str]:
    """Say so where there is too little to tell policies apart by."""
    if references >= FEW:
        return []
    known = counted(references, "references") if references else "no reference"
    return [
        (
            f"{known} in this store: too few to tell policies apart by what they serve, so compare "
            "what they cost; memlab harvest adds what the agent read"
        ),
        "",
    ]


def compared_sheet(table: "pd.DataFrame", references: int) -> Sheet:
    """Return policies side by side; shares as exact as the references allow."""
    header = ("policy", "served", "at best", "tokens", "95%", "deleted", "only here")
    rows: list[tuple[Cell, ...]] = [
        (
            str(label),
            _served(row["served"], references),
            _served(row["oracle"], references),
            _whole(row["boot_tokens_mean"]),
            _whole(row["boot_tokens_p95"]),
            int(row["deleted"]),
            int(row["only_here"]),
        )
        for label, row in table.iterrows()
    ]
    return Sheet("", [], [Table("", header, rows, whole=True)])


def notes_on(table: "pd.DataFrame", references: int, every: int) -> list[str]:
    """Say how to read the table."""
    items, tokens = table["floor_memories"].iloc[0], table["floor_tokens"].iloc[0]
    floor = f"{counted(items, 'memories')}, {counted(tokens, 'tokens')}"
    lines = [f"{counted(references, 'references')}; the load-bearing floor is {floor}"]
    if every > 1:
        lines.append(
            f"each policy was applied after every {every:,} memories, to save time; --every 1 "
            "applies it after each"
        )
    if references:
        width = max(len(name) for name, _ in _LEGEND)
        lines += ["", *(f"{name:<{width}}  {words}" for name, words in _LEGEND)]
    return lines


def nothing_fits(table: "pd.DataFrame", budget: int) -> list[str]:
    """Say what the least is where nothing stays within a budget."""
    least, floor = table["boot_tokens_p95"].min(), table["floor_tokens"].iloc[0]
    return [
        f"nothing that was tried stays within {budget:,} tokens: the least is {least:,.0f}",
        f"load-bearing memories alone take {floor:,} now",
    ]


def next_steps(store: object, table: "pd.DataFrame") -> list[str]:
    """Say what to run next: for a number, and to see what the cheapest good cap would delete."""
    name = shlex.quote(str(store))
    lines = [f"next: memlab size {name}    which keep_recent, with evidence"]
    caps = table[(table["family"] == "recent") & (table["served"] >= GOOD)]
    if len(caps):
        cap = str(caps["boot_tokens_mean"].idxmin()).removeprefix("recent ")
        shows = "what that would delete; deletes nothing yet"
        lines.append(f"      memlab compact {name} --keep-recent {cap}    {shows}")
    return lines


def _served(share: Any, references: int) -> str:
    """Write a share as exactly as so many references allow: as a count of few."""
    if not references:
        return "–"
    if references < FEW:
        return f"{round(share * references)} of {references}"
    return f"{share:.1%}" if references >= 10 * FEW else f"{share:.0%}"


def _whole(value: float) -> Cell:
    return "–" if value != value else round(value)  # noqa: PLR0124 - not a number
