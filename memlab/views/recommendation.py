"""A number for a store with all that it rests on, as ``memlab size`` prints it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence import reads as reading
from memlab.evidence.past import Memories, present_rows
from memlab.evidence.reads import Log
from memlab.evidence.references import (
    Evidence,
    collect_evidence,
    counted_in_words,
    not_counted_in_words,
)
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.settings import SIZED, Sized
from memlab.sizing.advice import Advice, BudgetAdvice
from memlab.sizing.curve import BudgetSizing, Sizing
from memlab.sizing.goal import SizingGoal, recommend
from memlab.sizing.record import Verdict
from memlab.sizing.timeline import backtest_of, table_of_backtest
from memlab.sources.opening import remember
from memlab.text import DisplayMixin, TextPage, command, counted

if TYPE_CHECKING:
    from memlab.replay.by_use import BudgetByUse

Unit = Literal["memories", "tokens"]
UNITS: Final = ("memories", "tokens")

_MOST_TEXTS: Final = 20_000
"""Texts that are read for names of other memories, at most, when a page is shown."""


@dataclass(frozen=True, repr=False)
class Recommendation(DisplayMixin):
    """A recommended number, the curve around it, and what it rests on.

    Attributes
    ----------
    evidence : Evidence
        The store's past, its references and what was not counted.
    asked, kept, explain : SizingGoal, dict, bool
        What was asked for, what of it is remembered with the number, and whether to show all.
    sizing : Sizing, or the like for budgets
        The store, prepared for look-ups at any number.
    advice : Advice or BudgetAdvice
        The numbers.
    """

    evidence: Evidence
    asked: SizingGoal
    sizing: Sizing
    advice: Advice
    kept: dict[str, Any] = field(default_factory=dict)
    explain: bool = False

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Numbers around the recommended ones, with what each serves and costs."""
        source = self.evidence.source
        in_use = None
        if source is not None and not isinstance(self.sizing, BudgetSizing):
            in_use = source.cap_now()
        shown = in_use if in_use is None else min(in_use, self.sizing.most)
        also = shown, self.asked.keep_recent
        return self.sizing.at(self.sizing.around(*self.advice.answers, *also))

    @cached_property
    def backtest(self) -> pd.DataFrame | None:
        """What caps chosen at earlier cuts served; None of a budget."""
        if isinstance(self.sizing, BudgetSizing):
            return None
        return backtest_of(self.sizing, self.sizing.cuts, self.asked.target)

    @cached_property
    def usage(self) -> AgeOrUse | None:
        """Whether age or use says what is read next, where there is a log."""
        found = self.evidence
        if found.log is None:
            return None
        return age_or_use(found.past, found.references, confidence=self.asked.confidence)

    @cached_property
    def by_use(self) -> "BudgetByUse | None":
        """To how many tokens to retire by use; None where use says no more, or nothing can."""
        found = self.evidence
        asked = self.asked
        says_more = self.usage is not None and self.usage.verdict == "use"
        if not says_more or found.source is None or not found.source.retires:
            return None
        from memlab.replay.by_use import budget_by_use  # with policies, a tenth of a start without

        aim = asked._asdict()
        del aim["keep_recent"]
        budgets = budget_by_use(found.past, found.references, **aim)
        return replace(budgets, store=found.name, log=found.log_option)

    @cached_property
    def chances(self) -> "pd.Series[Any] | None":
        """Which memories the log could show read."""
        past = self.evidence.past
        log = self.evidence.log
        now = self.evidence.now
        if log is None:
            return None
        return reading.reading_chances(present_rows(past), reading.reads_of_store(log, past, now))

    @cached_property
    def mentioned(self) -> str:
        """How often the texts of a folder's memories, or of an agent's own, name others."""
        source = self.evidence.source
        if source is None or not (source.is_folder or source.is_native_format):
            return ""
        if len(self.evidence.past) > _MOST_TEXTS:
            return (
                f"not looked for in over {_MOST_TEXTS:,} texts; memlab.evidence.find_mentions does"
            )
        from memlab.evidence.mentions import find_mentions, mentions_in_words

        return mentions_in_words(find_mentions(source))

    def sheet(self) -> TextPage:
        """Return what is printed: first whether age or use decides what to load."""
        advice = self.advice
        first = list[tuple[str, str]]()
        page = advice.sheet() if self.explain else advice.brief(self.curve, self.asked.keep_recent)
        title = page.title
        tables = [*page.tables]
        evidence = [*self._evidence()]
        if self.usage is not None and self.usage.decided:
            first.append(("age or use", self.usage.answer))
        if self.by_use is not None:
            first.insert(0, ("by age", title))
            title = self.by_use.answer
            first += self.by_use.caveats
        if self.evidence.name:
            first.append(("store", self.evidence.name))
        if self.explain and advice.verdict is not Verdict.NOTHING_PRUNABLE:
            tables.append(advice.table(self.curve))
            if self.backtest is not None:
                tables.append(table_of_backtest(self.backtest))
            if self.by_use is not None:
                tables += self.by_use.sheet().tables
        return TextPage(title, [*first, *page.facts, *evidence], tables)

    def next_steps(self) -> list[str]:
        """Say what to run next: retire by use where that is the answer, and look at the number."""
        found = self.evidence
        plain = SizingGoal.of(found.settings)._asdict()
        asked = [
            word
            for name, value in self.asked._asdict().items()
            if value != plain[name]
            for word in (f"--{name.replace('_', '-')}", value)
        ]
        how: Any = {"log": found.log_file, "log_option": found.log_option, "asked": asked}
        steps = self.advice.next_steps(found.name, found.source, **how, brief=not self.explain)
        first = [] if self.by_use is None else self.by_use.next_steps()
        return (
            [*first, *(each.replace("next: ", "      ", 1) for each in steps)] if first else steps
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the advice's own fields, its command, and what it rests on, as JSON values."""
        advice = self.advice
        name = self.evidence.name
        source = self.evidence.source
        is_cap = not isinstance(advice, BudgetAdvice)
        setting = None
        if is_cap and source is not None and advice.number is not None:
            setting = source.cap_setting(advice.number)
        left_out = self.evidence.counts.drop(columns="counted").T.to_dict().items()
        told = {
            **advice.to_dict(),
            "store": name,
            "command": advice.command(name),
            "setting": setting,
            "not_counted": {
                kind: {reason: count for reason, count in reasons.items() if count}
                for kind, reasons in left_out
                if any(reasons.values())
            },
            "caps" if is_cap else "budgets": _records(self.curve.reset_index()),
        }
        if self.backtest is not None:
            told["backtest"] = _records(self.backtest)
        if self.chances is not None:
            told["chances"] = self.chances.value_counts(sort=False).to_dict()
        by = {"age_or_use": self.usage, "by_use": self.by_use}
        return told | {name: each.figures for name, each in by.items() if each is not None}

    def save(self) -> str:
        """Remember the safe number in ``memlab.toml``, until when it speaks and what it rests on.

        Returns what was remembered, where, and what goes by it; MemlabError of a frame.
        """
        advice = self.advice
        settings = self.evidence.settings
        source = self.evidence.source
        policy = advice.policy
        if source is None:
            raise MemlabError("a frame has no settings: size the store itself to save its number")
        if policy is None:
            return "nothing was remembered: there is no number to remember"
        sized = Sized(self.evidence.now.replace(microsecond=0), advice.memories, advice.until)
        if settings.is_auto and (settings.policy or {})["name"] == policy["name"]:
            policy = dict(settings.policy or {})
            until = 'its number stays "auto", found each time'
        else:
            policy[SIZED] = sized.to_setting()
            until = f"until {sized.until:,} memories have been written; {sized.memories:,} have"
        file = remember(source, {"policy": policy, **self.kept})
        by_it = " and ".join(command(name, source.name) for name in ("compact", "maintain"))
        return f"remembered in {file}; {by_it} go by it, {until}"

    def _evidence(self) -> Iterator[tuple[str, str]]:
        """Name what a number rests on: references, times without a zone, a log, an index, use."""
        found = self.evidence
        counts = found.counts
        past = found.past
        log = found.log
        if self.explain:  # else how many references there are stands in the page
            kinds = ", ".join(f"{count:,} {name}" for name, _, count in counted_in_words(counts))
            left_out = ", ".join(f"{n:,} {why}" for why, n in not_counted_in_words(counts))
            no_need = f"; no later need, so not counted: {left_out}" if left_out else ""
            yield "references", f"{kinds or 'none'}{no_need}"
            if words := self.mentioned:
                yield "mentions", words
        if zoneless := past.attrs[c.WITHOUT_ZONE]:
            yield "the store", f"{counted(zoneless, 'times')} without a zone, taken as UTC"
        if log is not None and self.chances is not None:
            if reading.is_other_stores_log(log, past):
                yield "the log", reading.ANOTHERS
            else:
                if len(log):
                    yield "by the log", reading.describe_chances(self.chances)
                yield from (line.partition(": ")[::2] for line in reading.describe_log(log, past))
        present = present_rows(past)
        if found.source is not None and found.source.cuts_index and c.LOADED_AT_START in present:
            named = int(present[c.ACTIVE].sum())
            fits = int((present[c.ACTIVE] & present[c.LOADED_AT_START]).sum())
            if fits < named:
                loads = f"a start loads {fits:,} of the {named:,} files that it names"
                more = f"a cap that leaves more than {fits:,} memories loads no more"
                yield "by the index", f"{loads}; {more}"


def size(  # noqa: PLR0913 - what is asked of a store
    frame: Memories,
    *,
    target: float | None = None,
    token_budget: int | None = None,
    confidence: float | None = None,
    until: float | None = None,
    unit: Unit = "memories",
    log: Log = None,
    only_log: bool = False,
    explain: bool = False,
    now: datetime | None = None,
) -> Recommendation:
    """Recommend a cap or a budget for a store, with what it rests on and what to run next.

    What is not given is what ``memlab.toml`` remembers of the store, else the default.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or what ``memlab.load_past`` returns.
    target, token_budget, confidence, until
        As for :func:`memlab.recommend_cap`.
    unit : {"memories", "tokens"}
        Whether to recommend a number of memories, or a budget in tokens.
    log : DataFrame, str or Path, optional
        An access log, or what ``memlab.read_access_log`` returns.
    only_log : bool
        Leave aside what the store itself says; the log is all.
    explain : bool
        Show all numbers around the answer, its record, and why.
    now : datetime, optional
        The moment after which a read is none yet, with a time zone; the current one by default.

    Returns
    -------
    Recommendation
        ``advice`` holds the numbers; ``save()`` remembers them.
    """
    call = "memlab.size"
    for name, flag in (("only_log", only_log), ("explain", explain)):
        arguments.expect(flag, bool, call=call, name=name)
    arguments.expect(unit, str, call=call, name="unit")
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    asked: dict[str, Any] = {"target": target, "token_budget": token_budget}
    asked |= {"confidence": confidence, "until": until}
    found = collect_evidence(frame, log, call=call, only_log=only_log, now=now)
    if only_log and found.log is None:
        raise MemlabError("only_log (--only-log) needs a log: give one as log (--log FILE)")
    goal = SizingGoal.of(found.settings, **asked)
    sizing, advice = recommend(found.past, found.references, goal, tokens=unit == "tokens")
    log_file = None if log is None else found.log_file
    kept = asked | {"target": goal.target, "token_budget": goal.token_budget, "log": log_file}
    kept = {name: value for name, value in kept.items() if value is not None}
    return Recommendation(found, goal, sizing, advice, kept, explain)


def _records(table: pd.DataFrame) -> Any:
    return json.loads(table.to_json(orient="records"))
