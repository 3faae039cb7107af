"""The result of a comparison: the answer, the advised rule, and the printed page."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.policies import KeepAll
from memlab.replay.summary import RETIRED
from memlab.text import (
    Cell,
    DisplayMixin,
    Table,
    TextPage,
    command,
    counted,
    in_shell,
    or_dash,
    percent,
    signed_percent,
)

FEW_REFERENCES: Final = 30
"""Number of references below which shares cannot distinguish policies."""
GOOD_SHARE: Final = 0.9
"""Share of references that an advised rule should serve."""
MAX_LOST_SHARE: Final = 0.01
"""Share of references up to which a deletion counts as one without loss."""

_MORE_THAN_NEWEST: Final = "more than newest"
"""Title of the column of gains."""

_LEGEND: Final = {
    "served": (
        "share of the past references whose memory was still kept; memlab size estimates "
        "future references, which reach further back"
    ),
    "at best": "the largest share that any policy of the same size could have served",
    "tokens": (
        "{}: the mean over the history, which early {} may keep below the present floor, and the "
        "number that 95% of {} did not exceed"
    ),
    "only here": "memories that this line alone would have deleted",
    _MORE_THAN_NEWEST: (
        "percentage points that it serves more than the newest memories in as many tokens, with "
        "joint 90% limits"
    ),
    "retired": "nothing is deleted: a memory is not loaded until it is read again",
    "with hindsight": (
        "it uses {} of today, because the store does not keep earlier ones: no advice is based "
        "on it"
    ),
}
"""Entries of the legend, by the column or word that each explains."""
_WITH_HINDSIGHT: Final = ", with hindsight"
"""Ending of the name of a rule that used values which were not known at that time."""


class _Step(NamedTuple):
    """A command to run next, and its purpose."""

    command: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.command}    {self.purpose}"


@dataclass(frozen=True, repr=False)
class Comparison(DisplayMixin):
    """The result of :func:`memlab.compare` for a store.

    Attributes
    ----------
    store : str
        Name of the store.
    table : DataFrame
        One row for each replay; see :func:`memlab.replay.summarise`.
    references : int
        Number of references.
    every : int
        Number of rows written from one application of a policy to the next.
    token_budget : int or None
        Number of tokens that 95% of starts may not exceed; other policies are not shown.
    retires : bool
        Whether a plan can retire memories of the store.
    log : tuple of str
        Options that name the access log on the command line.
    deletes : bool
        Whether a plan can delete memories of the store.
    missing_signals : tuple of str
        A sentence for each signal that the store does not keep, with its effect on rules.
    off_by_default : tuple of str
        Systems whose rule is off by default.
    not_compared : tuple of str
        Rules that have no size of the same cost as the others.
    harvests : bool
        Whether the agents of the store record their reads.
    memories : int or None
        Number of memories in the past.
    prunable : int or None
        Number of memories in the past that are or were prunable.

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
    missing_signals: tuple[str, ...] = ()
    off_by_default: tuple[str, ...] = ()
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
        """Whether the agent only searches the memories, so that none is loaded at start."""
        return bool(self.table.attrs.get(col.RECALLED))

    @property
    def comparable(self) -> pd.DataFrame:
        """The comparable rows: those without hindsight whose cost equals that of other rows."""
        rows = self.fitting
        return rows[rows["cost_group"].notna() & ~rows["hindsight"]]

    @property
    def advised(self) -> pd.Series | None:
        """The row of the advised rule.

        It is None if there is too little evidence, or if the advice is to keep all memories.

        If a start loads memories, the row is from the cheapest cost group in which a rule serves
        nine in ten references. Of this group, it is the row that serves most, or the row of the
        newest memories if the difference does not exceed noise. If memories are searched, it is the
        row that deletes most without loss.
        """
        if self.references < FEW_REFERENCES:
            return None
        if self.searched:
            return self._most_deleted_without_loss
        if self.comparable.empty:
            return self._cheapest_good
        return self._best_of(self._answer_group)

    @property
    def _cheapest_good(self) -> pd.Series | None:
        """The cheapest row that serves nine in ten references, for a table without equal costs."""
        rows = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        rows = rows[(rows["served"] >= GOOD_SHARE) & (rows["options"] != "")]
        if rows.empty:
            return None
        return rows.sort_values(["boot_tokens_mean", "retire"], ascending=[True, False]).iloc[0]

    @property
    def _most_deleted_without_loss(self) -> pd.Series | None:
        """Of the rows that lose almost no reference, the row that deletes most."""
        rows = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        rows = rows[rows["lost"] <= MAX_LOST_SHARE * self.references]
        return None if rows.empty else _row_of_largest(rows, "deleted")

    @property
    def _best_retired(self) -> pd.Series | None:
        """Of the rows that retire memories, the row that serves most; None if there is none."""
        rows = self.fitting[self.fitting["retire"] & (self.fitting["options"] != "")]
        is_given_policy = rows["rule"] == ""  # rules tried by default have a name
        rows = rows[~rows["hindsight"] & is_given_policy]
        if rows.empty or not self.references:
            return None
        return _row_of_largest(rows, "served")

    @property
    def _answer_group(self) -> pd.DataFrame:
        """The cheapest cost group whose best row serves nine in ten, or else the middle group."""
        groups = [rows for _, rows in self.comparable.groupby("cost_group")]
        for rows in groups:
            if self._best_of(rows)["served"] >= GOOD_SHARE:
                return rows
        return groups[len(groups) // 2]

    @staticmethod
    def _best_of(rows: pd.DataFrame) -> pd.Series:
        """Return the row that serves most.

        If it does not serve more than the newest memories beyond noise, return their row.
        """
        best = rows.sort_values(["served", "retire"], ascending=False, kind="stable").iloc[0]
        newest = rows[rows["newest"]]
        exceeds_noise = best["gain_low"] > 0  # false if it is NaN
        if len(newest) and not exceeds_noise:
            return newest.iloc[0]
        return best

    @property
    def answer(self) -> str:
        """A sentence: the rule that serves most, its cost, and whether its gain exceeds noise."""
        if self.memories == 0:
            return "There are no memories to compare rules on."
        if self.memories and self.prunable == 0:
            return f"Every memory is load-bearing ({self.memories:,}): no rule removes any."
        if not self.references:
            return (
                "No later need is known of this store, so rules can be compared by their cost only."
            )
        return self._answer_from_references(counted(self.references, "references"))

    def _answer_from_references(self, counted_references: str) -> str:
        """Return the answer if there are references."""
        if self.references < FEW_REFERENCES:
            return f"Too few references to tell which rule serves more: {counted_references}."
        if self.comparable.empty:
            return self._answer_without_groups(counted_references)
        if self.searched:
            return self._answer_searched(counted_references)
        return self._answer_loaded(counted_references)

    def _answer_without_groups(self, counted_references: str) -> str:
        """Return the answer if no two rows cost the same."""
        if len(set(self.table["rule"])) == 1:
            return f"One rule was tried on {counted_references}; name a second to compare it."
        untried = "No two rules were tried at equal tokens"
        return f"{untried}, so {counted_references} say nothing of them."

    def _answer_loaded(self, counted_references: str) -> str:
        """Return the answer for a store whose memories a start loads."""
        rows = self._answer_group
        best = self._best_of(rows)
        tokens = f"{best['boot_tokens_mean']:,.0f} tokens at start on average over the past"
        name = str(best.name)
        served = f"{self._share(best['served'])} of {counted_references}"
        statement = f"{name[0].upper()}{name[1:]} serves {served} in {tokens}"
        others = rows[rows.index != best.name].sort_values("served", ascending=False)
        if others.empty:
            return f"{statement}; nothing else was tried at that cost."
        exceeds_noise = best["gain_low"] > 0  # false if it is NaN
        if not best["newest"] and exceeds_noise:
            return f"{statement}, {_gain_over_newest(best, others)}"
        runner_up = others.iloc[0]
        # The row of the newest memories is the best one if no other exceeds it beyond noise.
        if runner_up["served"] > best["served"]:
            return f"{statement}{_none_better(others)}"
        if runner_up["served"] == best["served"]:
            return f"{statement}, the most; {runner_up.name} serves as many."
        comparison = "more than noise" if runner_up["behind_low"] > 0 else "no more than noise"
        share = self._share(runner_up["served"])
        return f"{statement}, the most; {runner_up.name} serves {share}, {comparison} less."

    def _answer_searched(self, counted_references: str) -> str:
        """Return the answer for a store whose memories are searched."""
        start = "Nothing of this store is loaded at start"
        without_loss = self._most_deleted_without_loss
        if without_loss is not None:
            deleted = counted(without_loss["deleted"])
            lost = f"loses {without_loss['lost']:,} of {counted_references}"
            return f"{start}; {without_loss.name} deletes {deleted} and {lost}."
        # The group with the most tokens loses least.
        cost_group = self.comparable["cost_group"]
        rows = self.comparable[cost_group == cost_group.max()]
        best = _row_of_largest(rows, "served")
        lost = f"{best.name} loses {self._share(1 - best['served'])} of {counted_references}"
        newest = rows[rows["newest"]]
        if len(newest) and newest.index[0] != best.name:
            lost += f", {newest.index[0]} {self._share(1 - newest.iloc[0]['served'])}"
        cost = f"in {best['boot_tokens_mean']:,.0f} tokens"
        return f"{start}, and no rule deletes without loss: {cost} {lost}. Keep all."

    def to_json(self) -> str:
        """Return the rows within the token budget as a JSON array, with an object for each."""
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
        references_text = counted(self.references, "later needs") if self.references else "none"
        if self.references < FEW_REFERENCES:
            references_text += (
                ": too few to tell policies apart by what they serve, so compare what they cost; "
                "memlab harvest adds what the agent read"
            )
        facts = [("references", references_text), ("floor", floor)]
        if self.every > 1:
            interval = f"each policy after every {self.every:,} memories, to save time"
            facts.append(("applied", f"{interval}; --every 1 applies it after each"))
        if self.off_by_default:
            facts.append(("off by default", ", ".join(self.off_by_default)))
        if self.not_compared:
            names = ", ".join(dict.fromkeys(self.not_compared))
            facts.append(("not compared", f"{names}: no setting of it uses as many tokens"))
        facts += [("not known", sentence) for sentence in self.missing_signals]
        return TextPage(f"policies on the past of {self.store}", facts, self._tables())

    def _tables(self) -> list[Table]:
        """Return the tables of policies, and the legend.

        If rules were tried by default, there is a table for each cost group.
        """
        removed_title = "not loaded" if self.fitting["retire"].any() else "deleted"
        by_rule = bool((self.fitting["rule"] != "").any())
        last_title = _MORE_THAN_NEWEST if by_rule else "only here"
        header = ("policy", "served", "at best", "tokens", "95%", removed_title, last_title)
        shown_rows, remark = self._rows_to_show(by_rule=by_rule)
        if by_rule:
            tables = self._tables_by_cost(header, shown_rows)
        else:
            rows = [self._cells(label, row, by_rule=False) for label, row in shown_rows.iterrows()]
            tables = [Table("", header, rows, remark, whole=True)]
        legend = self._legend(header)
        if legend:
            tables.append(Table("", (), legend, whole=True))
        return tables

    def _rows_to_show(self, *, by_rule: bool) -> tuple[pd.DataFrame, str]:
        """Return the rows to show, and a remark on the other rows.

        A row that retires is left out if retiring changes nothing.
        """
        rows = self.fitting
        removing = rows
        if not by_rule:
            removing = rows[(rows["deleted"] > 0) | (rows["policy"] == KeepAll.name)]
        # Rows of given policies are repeated if they serve equally. Their costs always differ a
        # little, because a policy that retires is applied at night.
        compared = ["served"]
        if by_rule:
            compared += ["offline_optimum", "boot_tokens_mean", "boot_tokens_p95", "deleted"]
        label = removing.index.str.removesuffix(RETIRED)
        is_repeated = removing.assign(label=label).duplicated(["label", *compared])
        shown_rows = removing[~is_repeated]
        left_out = {
            "with nothing to delete": len(rows) - len(removing),
            "with nothing gained by retiring": len(removing) - len(shown_rows),
        }
        remarks = [
            f"{counted(count, 'lines')} {reason}" for reason, count in left_out.items() if count
        ]
        remark = f"left out: {', '.join(remarks)}" if remarks else ""
        return shown_rows, remark

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
                entry = text.format(place, occasions, occasions)
            if name == "with hindsight":
                entry = text.format("importance and graduation")
            legend.append((name, entry))
        return legend

    def _tables_by_cost(self, header: tuple[str, ...], shown_rows: pd.DataFrame) -> list[Table]:
        """Return a table for each cost group, and one for the other rows."""
        tables = []
        for _, group in shown_rows[shown_rows["cost_group"].notna()].groupby("cost_group"):
            cost = f"{group['boot_tokens_mean'].iloc[0]:,.0f} tokens"
            rows = [self._cells(label, row, by_rule=True) for label, row in group.iterrows()]
            place = "of memories to search" if self.searched else "at start"
            tables.append(Table(f"In {cost} {place}", header, rows, whole=True))
        others = shown_rows[shown_rows["cost_group"].isna()]
        rows = [self._cells(label, row, by_rule=True) for label, row in others.iterrows()]
        tables.append(Table("By default, and without any rule", header, rows, whole=True))
        return tables

    def _cells(self, label: Any, row: pd.Series, *, by_rule: bool) -> tuple[Cell, ...]:
        """Return the cells of a row."""
        name = str(label)
        if not by_rule:
            name = name.removesuffix(RETIRED)
        if row["hindsight"]:
            name += _WITH_HINDSIGHT
        last_cell: Cell = int(row["only_here"])
        if by_rule:
            last_cell = ""
            is_known = not np.isnan(row["gain"]) and self.references >= FEW_REFERENCES
            if is_known and not row["newest"]:
                last_cell = _points(row, "gain", unit=False)
        return (
            name,
            self._share(row["served"]),
            self._share(row["offline_optimum"]),
            or_dash(row["boot_tokens_mean"], "{:,.0f}".format),
            or_dash(row["boot_tokens_p95"], "{:,.0f}".format),
            int(row["deleted"]),
            last_cell,
        )

    @property
    def command(self) -> str:
        """The command to run next."""
        return self._steps()[0].command

    def next_steps(self) -> list[str]:
        """Return the answer and the commands to run, the most important one first."""
        first, *others = self._steps()
        lines = [self.answer, "", f"next: {first}"]
        lines += [f"      {step}" for step in others]
        return lines

    def _steps(self) -> list[_Step]:
        """Return the commands to run, the most important one first."""
        steps = []
        advised = self.advised
        if advised is None and not self.searched:
            advised = self._best_retired
        if self.references < FEW_REFERENCES:
            steps.append(self._more_references())
        if self.searched:
            need = command("rows", self.store, "--by", "need", *self.log)
            steps.append(_Step(need, "what would be worth loading at start"))
        has_size_step = self.references < FEW_REFERENCES and not self.harvests
        if not self.searched and not has_size_step and self.memories != 0:
            steps.append(_Step(command("size", self.store, *self.log), "which cap is safe"))
        # The past shows how many of the newest memories were enough, not how many are safe.
        is_sized = advised is not None and advised["newest"] and not self.searched
        if advised is not None and advised["options"] and not is_sized:
            options = list(self.log)
            effect = "would delete"
            if advised["retire"] and self.retires:
                options.insert(0, "--retire")
                effect = "would retire; memories that are read come back"
            compact = f"{command('compact', self.store)} {advised['options']} {in_shell(*options)}"
            steps.append(_Step(compact.rstrip(), f"shows what it {effect}"))
        return steps

    def _more_references(self) -> _Step:
        """Return the command that adds references, or that checks an empty store."""
        if self.harvests:
            return _Step(
                command("harvest", self.store), "collects the reads that agents have recorded"
            )
        if not self.memories:
            return _Step(command("doctor", self.store), "checks the store, which has no memories")
        explain = command("size", self.store, *self.log, "--explain")
        return _Step(explain, "says how to log reads")

    def _share(self, share: Any) -> str:
        """Return a share as text: a percentage, or a count if there are few references."""
        if not self.references:
            return "–"
        if self.references < FEW_REFERENCES:
            return f"{round(share * self.references)} of {self.references}"
        return percent(share)


def _row_of_largest(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return the first row with the largest value of a column."""
    return rows.iloc[int(np.argmax(rows[column].to_numpy()))]


def _gain_over_newest(best: pd.Series, others: pd.DataFrame) -> str:
    """Return the end of an answer if a row serves more than the newest, by more than noise."""
    ending = f"{_points(best, 'gain')} more than the newest: more than noise"
    is_behind = others["behind_low"] > 0
    equally_good = others[~is_behind & (others["rule"] != best["rule"])]
    if equally_good.empty:
        return f"{ending}."
    return f"{ending}; {equally_good.index[0]} is as good, within noise."


def _none_better(others: pd.DataFrame) -> str:
    """Return the end of an answer if another rule serves more, but not by more than noise."""
    if not (others["behind_low"] > 0).any():
        return "; all rules are equal within noise."
    ending = ", and no rule serves more beyond noise"
    runner_up = others.iloc[0]
    if round(100 * runner_up["gain"]) == 0:
        return f"{ending}."
    return f"{ending}: {runner_up.name} serves {_points(runner_up, 'gain')} more."


def _points(row: pd.Series, name: str, *, unit: bool = True) -> str:
    """Return a difference in percentage points, with its limits.

    >>> row = pd.Series({"gain": 0.29, "gain_low": 0.2, "gain_high": 0.38})
    >>> _points(row, "gain"), _points(row, "gain", unit=False)
    ('29 points (+20 to +38)', '+29 (+20 to +38)')
    """
    mean = 100 * row[name]
    points = "point" if f"{mean:.0f}" in {"1", "-1"} else "points"
    limits = f"({signed_percent(row[name + '_low'])} to {signed_percent(row[name + '_high'])})"
    if not unit:
        return f"{signed_percent(row[name])} {limits}"
    return f"{mean:.0f} {points} {limits}"
