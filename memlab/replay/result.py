"""The result of a comparison: the answer, the advised rule, and the page that shows them."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.policies import KeepAll
from memlab.replay.summary import RETIRED
from memlab.text import Cell, DisplayMixin, Table, TextPage, command, counted, in_shell, or_dash

FEW_REFERENCES: Final = 30
"""Number of references below which shares cannot distinguish policies."""
GOOD_SHARE: Final = 0.9
"""Share of references that an advised rule should serve."""
MAX_LOST_SHARE: Final = 0.01
"""Share of references that a deletion without loss may lose."""

_LEGEND: Final = {
    "served": (
        "references in this past that found their memory, as they were; memlab size estimates "
        "those to come, which reach further back"
    ),
    "at best": "the most that any policy with as many slots could have served",
    "tokens": "{}: the mean of this past, and what 95% of {} did not pass",
    "only here": "memories that this line alone would have deleted",
    "over newest": (
        "points more than the newest in as many tokens, with limits of 90% for all lines together"
    ),
    "retired": "not loaded, still to be found, and back once it is read; nothing is deleted",
    "with hindsight": (
        "it goes by {} of today, which the store does not keep as they were: no advice rests on it"
    ),
}
HINDSIGHT: Final = ", with hindsight"


@dataclass(frozen=True, repr=False)
class Comparison(DisplayMixin):
    """The result of :func:`memlab.compare` for a store.

    Attributes
    ----------
    store : str
        Name of the store.
    table : DataFrame
        One row for each replay; see :func:`memlab.replay.summarise`.
    references, every : int
        Number of references; rows written from one application of a policy to the next.
    token_budget : int or None
        Largest p95 of the boot context that is shown.
    retires, deletes : bool
        Whether plans can retire, and delete, memories of the store.
    log : tuple of str
        Options that name its log to a command.
    not_known : tuple of str
        Signals that the store does not keep, with the effect on rules that use them.
    off : tuple of str
        Systems whose rule is off by default.
    not_compared : tuple of str
        Rules that cost as much as the others at no size.
    harvests : bool
        Whether its agents record their reads.
    memories, prunable : int or None
        Number of memories in the past, and of those that are or were prunable.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> store = memlab.store_path("looked_up")
    >>> comparison = memlab.compare(store, policies=[KeepRecent(20), KeepRecent(50)])
    >>> comparison.memories, comparison.token_budget is None
    (480, True)
    """

    store: str
    table: pd.DataFrame
    references: int
    every: int = 1
    token_budget: int | None = None
    retires: bool = True
    log: tuple[str, ...] = ()
    deletes: bool = True
    not_known: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    harvests: bool = False
    memories: int | None = None
    prunable: int | None = None

    @property
    def fitting(self) -> pd.DataFrame:
        """The rows within the token budget."""
        if self.token_budget is None:
            return self.table
        return self.table[self.table["boot_tokens_p95"] <= self.token_budget]

    @property
    def searched(self) -> bool:
        """Whether no memory of the store is loaded at start."""
        return bool(self.table.attrs.get(col.RECALLED))

    @property
    def judged(self) -> pd.DataFrame:
        """The rows that are compared: at equal cost with others, and without hindsight."""
        lines = self.fitting
        return lines[lines["cost_group"].notna() & ~lines["hindsight"]]

    @property
    def advised(self) -> pd.Series | None:
        """The row that advice rests on; None if the evidence is too small or all should be kept.

        If a start loads memories, it is the row that serves most at equal tokens, at the least cost
        that serves nine in ten; the newest, if no rule serves more beyond noise. If memories are
        searched, it is the row that deletes most without loss.
        """
        if self.references < FEW_REFERENCES:
            return None
        if self.searched:
            return self._without_loss
        if self.judged.empty:
            return self._cheapest_good
        return self._better(self._room_of_answer)

    @property
    def _cheapest_good(self) -> pd.Series | None:
        """The cheapest row that serves nine in ten, for a table without rows of equal cost."""
        lines = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        lines = lines[(lines["served"] >= GOOD_SHARE) & (lines["options"] != "")]
        if lines.empty:
            return None
        return lines.sort_values(["boot_tokens_mean", "retire"], ascending=[True, False]).iloc[0]

    @property
    def _without_loss(self) -> pd.Series | None:
        """The row that deletes most and loses almost no reference."""
        lines = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        lines = lines[lines["lost"] <= MAX_LOST_SHARE * self.references]
        return None if lines.empty else lines.iloc[int(np.argmax(lines["deleted"].to_numpy()))]

    @property
    def _best_retired(self) -> pd.Series | None:
        """The row that retires and serves most, if retiring was asked for."""
        lines = self.fitting[self.fitting["retire"] & (self.fitting["options"] != "")]
        lines = lines[~lines["hindsight"] & (lines["rule"] == "")]
        if lines.empty or not self.references:
            return None
        return lines.iloc[int(np.argmax(lines["served"].to_numpy()))]

    @property
    def _room_of_answer(self) -> pd.DataFrame:
        """The cheapest group of equal cost in which a row serves nine in ten; else the middle."""
        rooms = [lines for _, lines in self.judged.groupby("cost_group")]
        for lines in rooms:
            if self._better(lines)["served"] >= GOOD_SHARE:
                return lines
        return rooms[len(rooms) // 2]

    @staticmethod
    def _better(lines: pd.DataFrame) -> pd.Series:
        """Return the row that serves most; that of the newest unless the gain exceeds noise."""
        best = lines.sort_values(["served", "retire"], ascending=False, kind="stable").iloc[0]
        newest = lines[lines["newest"]]
        if len(newest) and not best["gain_low"] > 0:
            return newest.iloc[0]
        return best

    @property
    def answer(self) -> str:
        """The rule that serves most, its cost, and whether the difference exceeds noise."""
        if self.memories == 0:
            return "There are no memories to compare rules on."
        if self.memories and self.prunable == 0:
            return f"Every memory is load-bearing ({self.memories:,}): no rule removes any."
        if not self.references:
            return (
                "No later need is known of this store, so rules can be compared by their cost only."
            )
        counted_references = counted(self.references, "references")
        if self.references < FEW_REFERENCES:
            return f"Too few references to tell which rule serves more: {counted_references}."
        if self.judged.empty:
            return self._answer_unjudged(counted_references)
        return (
            self._answer_searched(counted_references)
            if self.searched
            else self._answer_loaded(counted_references)
        )

    def _answer_unjudged(self, counted_references: str) -> str:
        """Return the answer if no two rows cost the same."""
        if len(set(self.table["rule"])) == 1:
            return f"One rule was tried on {counted_references}; name a second to compare it."
        untried = "No two rules were tried at equal tokens"
        return f"{untried}, so {counted_references} say nothing of them."

    def _answer_loaded(self, counted_references: str) -> str:
        """Return the answer for a store whose memories are loaded at start."""
        lines = self._room_of_answer
        chosen = self._better(lines)
        tokens = f"{chosen['boot_tokens_mean']:,.0f} tokens at start"
        name = str(chosen.name)
        served = f"{self._share(chosen['served'])} of {counted_references}"
        statement = f"{name[0].upper()}{name[1:]} serves {served} in {tokens}"
        others = lines[lines.index != chosen.name].sort_values("served", ascending=False)
        if others.empty:
            return f"{statement}; nothing else was tried at that cost."
        if not chosen["newest"] and chosen["gain_low"] > 0:
            as_good = others[~(others["behind_low"] > 0) & (others["rule"] != chosen["rule"])]
            remark = f"; {as_good.index[0]} is as good, within noise" if len(as_good) else ""
            gain = f"{_points(chosen, 'gain')} more than the newest"
            return f"{statement}, {gain}: more than noise{remark}."
        other = others.iloc[0]
        if other["served"] > chosen["served"]:
            return f"{statement}{_none_better(others)}"
        if other["served"] == chosen["served"]:
            return f"{statement}, the most; {other.name} serves as many."
        comparison = "more than noise" if other["behind_low"] > 0 else "no more than noise"
        share = self._share(other["served"])
        return f"{statement}, the most; {other.name} serves {share}, {comparison} less."

    def _answer_searched(self, counted_references: str) -> str:
        """Return the answer for a store whose memories are searched."""
        start = "Nothing of this store is loaded at start"
        safe = self._without_loss
        if safe is not None:
            deleted = counted(safe["deleted"])
            lost = f"loses {safe['lost']:,} of {counted_references}"
            return f"{start}; {safe.name} deletes {deleted} and {lost}."
        lines = self.judged[self.judged["cost_group"] == self.judged["cost_group"].max()]
        best = lines.iloc[int(np.argmax(lines["served"].to_numpy()))]
        lost = f"{best.name} loses {self._share(1 - best['served'])} of {counted_references}"
        newest = lines[lines["newest"]]
        if len(newest) and newest.index[0] != best.name:
            lost += f", {newest.index[0]} {self._share(1 - newest.iloc[0]['served'])}"
        kept = f"in {best['boot_tokens_mean']:,.0f} tokens"
        return f"{start}, and no rule deletes without loss: {kept} {lost}. Keep all."

    def to_json(self) -> str:
        """Return a JSON object for each policy."""
        return self.fitting.reset_index().to_json(orient="records", indent=2)

    def sheet(self) -> TextPage:
        """Return the page: facts, the policies side by side, and a legend."""
        memories = self.table["floor_memories"].iloc[0]
        tokens = self.table["floor_tokens"].iloc[0]
        floor = f"{counted(memories, 'load-bearing memories')}, {counted(tokens, 'tokens')}"
        if self.fitting.empty:
            smallest = f"the least is {self.table['boot_tokens_p95'].min():,.0f}"
            title = f"nothing that was tried stays within {self.token_budget:,} tokens: {smallest}"
            return TextPage(title, [("floor", floor)])
        references_text = f"{self.references:,}" if self.references else "none"
        if self.references < FEW_REFERENCES:
            references_text += (
                ": too few to tell policies apart by what they serve, so compare what they cost; "
                "memlab harvest adds what the agent read"
            )
        facts = [("references", references_text), ("floor", floor)]
        if self.every > 1:
            interval = f"each policy after every {self.every:,} memories, to save time"
            facts.append(("applied", f"{interval}; --every 1 applies it after each"))
        if self.off:
            facts.append(("off by default", ", ".join(self.off)))
        if self.not_compared:
            names = ", ".join(self.not_compared)
            facts.append(("not compared", f"{names}: no setting of it uses as many tokens"))
        facts += [("not known", words) for words in self.not_known]
        return TextPage(f"policies on the past of {self.store}", facts, self._tables())

    def _tables(self) -> list[Table]:
        """Return the tables of policies, and the legend."""
        lines = self.fitting
        deleted_or_not_loaded = "not loaded" if lines["retire"].any() else "deleted"
        by_rule = bool((lines["rule"] != "").any())
        last = "over newest" if by_rule else "only here"
        header = ("policy", "served", "at best", "tokens", "95%", deleted_or_not_loaded, last)
        shown, remark = self._shown(by_rule=by_rule)
        if by_rule:
            tables = self._by_cost(header, shown)
        else:
            rows = [self._row(label, line, by_rule=False) for label, line in shown.iterrows()]
            tables = [Table("", header, rows, remark, whole=True)]
        legend = self._legend(header)
        if legend:
            tables.append(Table("", (), legend, whole=True))
        return tables

    def _shown(self, *, by_rule: bool) -> tuple[pd.DataFrame, str]:
        """Return the rows to show, and a remark on those that are left out."""
        lines = self.fitting
        deleting = lines
        if not by_rule:
            deleting = lines[(lines["deleted"] > 0) | (lines["policy"] == KeepAll.name)]
        # A policy that retires costs a little more in any case: it is applied at night.
        compared = ["served"]
        if by_rule:
            compared += ["offline_optimum", "boot_tokens_mean", "boot_tokens_p95", "deleted"]
        label = deleting.index.str.removesuffix(RETIRED)
        shown = deleting[~deleting.assign(label=label).duplicated(["label", *compared])]
        left_out = {
            "with nothing to delete": len(lines) - len(deleting),
            "with nothing gained by retiring": len(deleting) - len(shown),
        }
        remarks = [
            f"{counted(count, 'lines')} {reason}" for reason, count in left_out.items() if count
        ]
        return shown, f"left out: {', '.join(remarks)}" if remarks else ""

    def _legend(self, header: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return the entries of the legend that apply."""
        names = set[str]()
        if self.fitting["retire"].any():
            names.add("retired")
        if self.fitting["hindsight"].any():
            names.add("with hindsight")
        if self.references:
            names |= {"served", "at best", "tokens", header[-1]}
        place = "loaded at start"
        occasions = "starts"
        if self.searched:
            place = "there to be found"
            occasions = "moments"
        legend = []
        for name, text in _LEGEND.items():
            if name not in names:
                continue
            entry = text
            if name == "tokens":
                entry = text.format(place, occasions)
            if name == "with hindsight":
                entry = text.format("importance and graduation")
            legend.append((name, entry))
        return legend

    def _by_cost(self, header: tuple[str, ...], shown: pd.DataFrame) -> list[Table]:
        """Return a table for each set of rows of equal cost, and one for the others."""
        tables = []
        for _, lines in shown[shown["cost_group"].notna()].groupby("cost_group"):
            cost = f"{lines['boot_tokens_mean'].iloc[0]:,.0f} tokens"
            rows = [self._row(label, line, by_rule=True) for label, line in lines.iterrows()]
            place = "of memories to search" if self.searched else "at start"
            tables.append(Table(f"In {cost} {place}", header, rows, whole=True))
        others = shown[shown["cost_group"].isna()]
        rows = [self._row(label, line, by_rule=True) for label, line in others.iterrows()]
        tables.append(Table("By default, and without any rule", header, rows, whole=True))
        return tables

    def _row(self, label: Any, line: pd.Series, *, by_rule: bool) -> tuple[Cell, ...]:
        """Return the cells of a row."""
        name = str(label)
        if not by_rule:
            name = name.removesuffix(RETIRED)
        if line["hindsight"]:
            name += HINDSIGHT
        last_cell: Cell = int(line["only_here"])
        if by_rule:
            is_known = not np.isnan(line["gain"]) and self.references >= FEW_REFERENCES
            last_cell = _points(line, "gain", unit=False) if is_known and not line["newest"] else ""
        return (
            name,
            self._share(line["served"]),
            self._share(line["offline_optimum"]),
            or_dash(line["boot_tokens_mean"], "{:,.0f}"),
            or_dash(line["boot_tokens_p95"], "{:,.0f}"),
            int(line["deleted"]),
            last_cell,
        )

    @property
    def command(self) -> str:
        """The command that follows the answer."""
        return self._steps()[0].partition("    ")[0]

    def next_steps(self) -> list[str]:
        """Return the answer and the commands to run, the one that follows from it first."""
        first, *others = self._steps()
        return [self.answer, "", f"next: {first}", *(f"      {step}" for step in others)]

    def _steps(self) -> list[str]:
        """Return the commands to run, each with its purpose."""
        steps = []
        advised = self.advised
        if advised is None and not self.searched:
            advised = self._best_retired
        if self.references < FEW_REFERENCES:
            steps.append(self._more_references())
        if self.searched:
            need = command("rows", self.store, "--by", "need", *self.log)
            steps.append(f"{need}    what would be worth loading at start")
        has_size_line = self.references < FEW_REFERENCES and not self.harvests
        if not self.searched and not has_size_line and self.memories != 0:
            steps.append(f"{command('size', self.store, *self.log)}    which cap is safe")
        if advised is not None and advised["options"]:
            retire = ("--retire",) if advised["retire"] and self.retires else ()
            options = in_shell(*retire, *self.log)
            line = f"{command('compact', self.store)} {advised['options']} {options}".rstrip()
            effect = "would retire; memories that are read come back" if retire else "would delete"
            steps.append(f"{line}    shows what it {effect}")
        return steps

    def _more_references(self) -> str:
        """Return the command that adds references."""
        if self.harvests:
            return f"{command('harvest', self.store)}    reads in what agents already write"
        if not self.memories:
            return f"{command('doctor', self.store)}    checks the store, which has no memories"
        explain = command("size", self.store, *self.log, "--explain")
        return f"{explain}    says how to log reads"

    def _share(self, share: Any) -> str:
        """Return a share as text: a percentage, or a count if there are few references."""
        if not self.references:
            return "–"
        if self.references < FEW_REFERENCES:
            return f"{round(share * self.references)} of {self.references}"
        return f"{share:.1%}" if self.references >= 10 * FEW_REFERENCES else f"{share:.0%}"


def _none_better(others: pd.DataFrame) -> str:
    """Return the end of an answer if a rule serves more than the chosen one, but within noise."""
    if not (others["behind_low"] > 0).any():
        return "; all rules are equal within noise."
    words = ", and no rule serves more beyond noise"
    best = others.iloc[0]
    if not round(100 * best["gain"]):
        return f"{words}."
    return f"{words}: {best.name} serves {_points(best, 'gain')} more."


def _points(line: pd.Series, name: str, *, unit: bool = True) -> str:
    """Return a difference in percentage points, with its limits.

    >>> line = pd.Series({"gain": 0.29, "gain_low": 0.2, "gain_high": 0.38})
    >>> _points(line, "gain"), _points(line, "gain", unit=False)
    ('29 points (+20 to +38)', '+29 (+20 to +38)')
    """
    mean = 100 * line[name]
    points = "point" if f"{mean:.0f}" in {"1", "-1"} else "points"
    limits = f"({_signed(line[name + '_low'])} to {_signed(line[name + '_high'])})"
    return f"{mean:.0f} {points} {limits}" if unit else f"{_signed(line[name])} {limits}"


def _signed(share: float) -> str:
    """Return a share in percent with its sign; zero has none.

    >>> _signed(0.29), _signed(-0.001)
    ('+29', '0')
    """
    percent = round(100 * share)
    return f"{percent:+}" if percent else "0"
