"""The recommended cap or budget of a store with its evidence, as ``memlab size`` prints it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence import reads as reading
from memlab.evidence.past import HistoryLike, present_rows
from memlab.evidence.reads import Log
from memlab.evidence.references import COUNTED, counted_in_words, not_counted_in_words
from memlab.evidence.store_history import StoreHistory
from memlab.evidence.unused_log import UnusedLog, unused_log_of
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.growth.context import FutureDates, count_below_cut, cut_in_words
from memlab.settings import Sized
from memlab.sizing.advice import Advice, BudgetAdvice
from memlab.sizing.answer import LOADED_CASES_THAT_KEEP_ALL, answer_by_use, case_of
from memlab.sizing.backtest import Verdict
from memlab.sizing.curve import BudgetSizing, Sizing
from memlab.sizing.goal import SizingGoal, recommend
from memlab.sizing.saving import save_number
from memlab.sizing.timeline import backtest_of, table_of_backtest
from memlab.sources.capabilities import StartLimit
from memlab.text import DisplayMixin, TextPage, command, counted, verb_for, zoneless_in_words

if TYPE_CHECKING:
    from memlab.replay.by_use import BudgetByUse

Unit = Literal["memories", "tokens"]
"""The unit of a recommended number: a cap in memories, or a budget in tokens."""
UNITS: Final = get_args(Unit)

_MAX_SEARCHED_TEXTS: Final = 20_000
"""Maximum number of memories whose texts are searched for mentions when a page is printed."""


@dataclass(frozen=True, repr=False)
class Recommendation(DisplayMixin):
    """A recommended cap or budget, the curve around it, and its evidence.

    Attributes
    ----------
    evidence : StoreHistory
        The store's past, its references, and the mentions that were not counted.
    goal : SizingGoal
        The goal: target, budget, confidence and horizon.
    sizing : Sizing or BudgetSizing
        The store, prepared for look-ups at any cap or budget.
    advice : Advice or BudgetAdvice
        The recommended numbers.
    other_settings : dict
        The settings that :meth:`save` writes in addition to the number.
    explain : bool
        Whether to print more caps, the backtest and the reasons.
    limit : StartLimit or None
        The limit of the store's system, if it is used as the token budget; else None.

    Examples
    --------
    >>> import memlab
    >>> recommendation = memlab.size(memlab.store_path("two_years"))
    >>> recommendation.advice.keep_recent in recommendation.curve.index
    True
    """

    evidence: StoreHistory
    goal: SizingGoal
    sizing: Sizing
    advice: Advice
    other_settings: dict[str, Any] = field(default_factory=dict)
    explain: bool = False
    limit: StartLimit | None = None

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Caps or budgets near the recommended one, each with the share served and the cost."""
        numbers = self.sizing.around(
            *self.advice.marked_numbers, self._native_cap(), self.goal.keep_recent
        )
        return self.sizing.at(numbers)

    def _native_cap(self) -> int | None:
        """Return the cap that the store's system applies, or the cap that keeps all if it is less.

        Return None if the system has no cap, or if a budget is sized.
        """
        source = self.evidence.source
        if source is None or source.native_cap is None or isinstance(self.sizing, BudgetSizing):
            return None
        native_cap = source.native_cap.current()
        if native_cap is None:
            return None
        return min(native_cap, self.sizing.number_to_keep_all)

    @cached_property
    def backtest(self) -> pd.DataFrame | None:
        """The backtest: caps chosen at earlier moments, and the shares that they then served.

        It is None for a budget.
        """
        if isinstance(self.sizing, BudgetSizing):
            return None
        return backtest_of(self.sizing, self.sizing.splits, self.goal.target)

    @cached_property
    def usage(self) -> AgeOrUse | None:
        """The comparison of age and use as predictors of reads; None without an access log."""
        evidence = self.evidence
        if evidence.log is None:
            return None
        return age_or_use(evidence.past, evidence.references, confidence=self.goal.confidence)

    @cached_property
    def by_use(self) -> "BudgetByUse | None":
        """The token budget for retirement by use.

        It is None if use predicts reads no better than age, or if the store cannot retire memories.
        """
        evidence = self.evidence
        if self.usage is None or self.usage.verdict != "use":
            return None
        if evidence.source is None or evidence.source.retirement is None:
            return None
        # Imported here, because importing policies makes the start of a command a tenth slower.
        from memlab.replay.by_use import budget_by_use

        goal = self.goal._asdict()
        del goal["keep_recent"]
        del goal["context_window"]
        budgets = budget_by_use(evidence.past, evidence.references, **goal)
        return replace(budgets, store=evidence.name, log=evidence.log_option)

    @cached_property
    def chances(self) -> "pd.Series[Any] | None":
        """For each memory, whether it was read or could have been; None without an access log."""
        past = self.evidence.past
        log = self.evidence.log
        if log is None:
            return None
        reads = reading.reads_of_store(log, past, self.evidence.now)
        return reading.reading_chances(present_rows(past), reads)

    @cached_property
    def unused_log(self) -> UnusedLog | None:
        """An access log beside the store with reads of it, if no log is used; else None."""
        return unused_log_of(self.evidence)

    def _size_with(self, log: UnusedLog) -> str:
        """Return the command that sizes the store with a log."""
        return command("size", self.evidence.name, "--log", log.file)

    @cached_property
    def mentioned(self) -> str:
        """A sentence about mentions that are no references; empty if no text is searched."""
        source = self.evidence.source
        if source is None or not (source.is_folder or source.is_native_format):
            return ""
        if len(self.evidence.past) > _MAX_SEARCHED_TEXTS:
            searched = f"over {_MAX_SEARCHED_TEXTS:,} texts"
            return f"not looked for in {searched}; memlab.evidence.find_mentions does"
        from memlab.evidence.mentions import find_mentions, mentions_in_words, uncounted_mentions

        mentions = find_mentions(source)
        past = self.evidence.past
        return mentions_in_words(uncounted_mentions(mentions, past, self.evidence.references))

    @property
    def answer(self) -> str:
        """The answer in sentences.

        It recommends a budget by use if that is better, and else the cap or the budget.
        """
        by_use = self.by_use
        advice = self.advice
        if by_use is None or by_use.budget is None or not by_use.is_better:
            return f"{advice.answer}{self._below_cut_in_words()}"
        row = by_use.table.loc[by_use.budget].to_dict()
        return answer_by_use(
            loaded=advice.loaded,
            budget=by_use.budget,
            served=row["served"],
            limits=(row["low"], row["high"]),
            newest=row["newest"],
            context_window=self.goal.context_window,
        )

    def _below_cut_in_words(self) -> str:
        """Return a sentence for an answer that keeps all memories although the index is cut.

        It names a plan that retires as many memories as are below the cut. It is empty for other
        answers.
        """
        source = self.evidence.source
        if source is None or source.index is None:
            return ""
        if case_of(self.advice) not in LOADED_CASES_THAT_KEEP_ALL:
            return ""
        below = count_below_cut(present_rows(self.evidence.past))
        if not below:
            return ""
        problem = f"{counted(below)} {verb_for(below, 'are')} below the cut of the index"
        # A line of the index leads to the retired memories.
        remaining = self.advice.prunable - below - 1
        if source.retirement is None or remaining < 1:
            return f" But {problem} and never loaded."
        plan = command("compact", self.evidence.name, "--keep-recent", remaining, "--retire")
        return f" But {problem} and never loaded: {plan} can make room for them."

    def sheet(self) -> TextPage:
        """Return the recommendation as a page. Its title is the answer."""
        advice = self.advice
        page = advice.sheet() if self.explain else advice.brief(self.curve, self.goal.keep_recent)
        facts = [*self._facts_by_use(), *page.facts, *self._evidence()]
        tables = list(page.tables)
        if self.explain and advice.verdict is not Verdict.NOTHING_PRUNABLE:
            tables.append(advice.table(self.curve))
            if self.backtest is not None:
                tables.append(table_of_backtest(self.backtest))
            if self.by_use is not None:
                tables += self.by_use.sheet().tables
        return TextPage(self.answer, facts, tables)

    def _facts_by_use(self) -> list[tuple[str, str]]:
        """Return the facts that compare age with use, and the name of the store."""
        facts: list[tuple[str, str]] = []
        if self.usage is not None and self.usage.decided:
            facts.append(("age or use", self.usage.answer))
        if self.by_use is not None:
            if self.by_use.is_better:
                facts.insert(0, ("by age", self.advice.answer))
            else:
                facts.append(("by use", self.by_use.answer))
            facts += self.by_use.caveats
        if self.evidence.name:
            facts.append(("store", self.evidence.name))
        return facts

    def next_steps(self) -> list[str]:
        """Return the next steps for the cap; retirement by use comes first if it is better."""
        evidence = self.evidence
        steps = self.advice.next_steps(
            evidence.name,
            evidence.source,
            log=evidence.log_file,
            unused_log=None if self.unused_log is None else self.unused_log.file,
            log_option=evidence.log_option,
            goal_options=self._goal_options(),
            brief=not self.explain,
        )
        steps_by_use = [] if self.by_use is None else self.by_use.next_steps()
        if not steps_by_use:
            return steps
        # Only the first step of a page is marked as the next one.
        later_steps = [step.replace("next: ", "      ", 1) for step in steps]
        return [*steps_by_use, *later_steps]

    def _goal_options(self) -> list[Any]:
        """Return the options for those parts of the goal that differ from the store's settings."""
        goal_of_settings = SizingGoal.of(self.evidence.settings)._asdict()
        options: list[Any] = []
        for name, value in self.goal._asdict().items():
            if value != goal_of_settings[name]:
                options += [f"--{name.replace('_', '-')}", value]
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendation, its command and its evidence as JSON values."""
        advice = self.advice
        name = self.evidence.name
        source = self.evidence.source
        is_cap = not isinstance(advice, BudgetAdvice)
        fields: dict[str, Any] = dict(advice.to_dict())
        fields["store"] = name
        fields["answer"] = self.answer
        fields["command"] = advice.command(name)
        if self.by_use is not None and self.by_use.is_better:
            fields["command"] = f"{self.by_use.command} --apply"
        fields["setting"] = None
        native = None if source is None else source.native_cap
        if is_cap and native is not None and advice.number is not None:
            fields["setting"] = native.setting_for(advice.number)
        fields["not_counted"] = self._not_counted()
        fields["caps" if is_cap else "budgets"] = _records(self.curve.reset_index())
        if self.backtest is not None:
            fields["backtest"] = _records(self.backtest)
        if self.chances is not None:
            fields["chances"] = self.chances.value_counts(sort=False).to_dict()
        if self.usage is not None:
            fields["age_or_use"] = self.usage.figures
        if self.by_use is not None:
            fields["by_use"] = self.by_use.figures
        return fields

    def _not_counted(self) -> dict[str, dict[str, int]]:
        """Return the number of mentions that are no references, by kind and reason.

        Reasons without mentions are left out, and so are kinds without reasons.
        """
        not_counted: dict[str, dict[str, int]] = {}
        by_kind = self.evidence.counts.drop(columns=COUNTED)
        for kind, row in by_kind.iterrows():
            counts = {str(reason): int(count) for reason, count in row.items() if count}
            if counts:
                not_counted[str(kind)] = counts
        return not_counted

    def save(self) -> str:
        """Write the safe cap with its horizon and its evidence to ``memlab.toml``.

        Returns
        -------
        str
            A sentence with the file, and the commands that use the saved number.

        Raises
        ------
        MemlabError
            If the memories are a frame, which has no settings.
        """
        advice = self.advice
        settings = self.evidence.settings
        source = self.evidence.source
        policy = advice.policy
        if source is None:
            raise MemlabError("a frame has no settings: size the store itself to save its number")
        if policy is None:
            return "nothing was saved: there is no number"
        sized = Sized(self.evidence.now.replace(microsecond=0), advice.memories, advice.until)
        saved = save_number(source, policy, sized, self.other_settings)
        commands = " and ".join(command(name, source.name) for name in ("compact", "maintain"))
        sentence = f"saved in {saved.file}; {commands} use it, {saved.validity}"
        if policy["name"] == "recent" and not settings.is_auto:
            verb = "retires" if settings.retire else "deletes"
            maintain = command("maintain", source.name, "--apply")
            sentence += f"; {maintain} then {verb} prunable memories beyond {advice.number:,}"
        return sentence

    def _evidence(self) -> Iterator[tuple[str, str]]:
        """Yield the facts about the evidence: references, time zones, the log and the index."""
        if self.explain:  # a brief page contains the number of references already
            yield from self._reference_facts()
        zoneless = self.evidence.past.attrs[c.WITHOUT_ZONE]
        if zoneless:
            yield "dates", zoneless_in_words(zoneless)
        future = self._future_in_words()
        if future:
            yield "future", future
        yield from self._log_facts()
        yield from self._index_facts()

    def _future_in_words(self) -> str:
        """Return a sentence about present memories dated in the future; empty for none."""
        present = present_rows(self.evidence.past)
        created_at = present[c.CREATED_AT].to_numpy("datetime64[us]")
        dates = FutureDates.of(created_at, self.evidence.now)
        summary = dates.in_words(present[c.MEMORY_ID].tolist())
        if not summary:
            return ""
        if not dates.is_wrong_clock:
            summary += "; the days kept do not count them"
        if self.evidence.source is None:
            return summary
        return f"{summary}; {command('doctor', self.evidence.name)} says what to do"

    def _reference_facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts about counted references, uncounted ones, and mentions."""
        counts = self.evidence.counts
        kinds = ", ".join(f"{count:,} {name}" for name, _, count in counted_in_words(counts))
        reasons = ", ".join(f"{count:,} {why}" for why, count in not_counted_in_words(counts))
        not_counted = f"; not counted: {reasons}" if reasons else ""
        yield "later needs", f"{kinds or 'none'}{not_counted}"
        if self.mentioned:
            yield "mentions", self.mentioned

    def _reads_in_words(self, log: pd.DataFrame) -> str:
        """Return the number of lines of the log, and how many of them are used as reads."""
        counts = self.evidence.counts
        needs = int(counts[COUNTED].get("log", 0))
        summary = f"{counted(len(log), 'lines')} in the log, {needs:,} of them later needs"
        if self.usage is None or not self.usage.reads:
            return summary
        # A memory that is read several times a day counts once.
        daily_reads = self.usage.reads
        return (
            f"{summary}; age and use are compared on {daily_reads:,} of these, at most one a day "
            "for each memory"
        )

    def _log_facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts about the access log, if there is one."""
        past = self.evidence.past
        log = self.evidence.log
        if self.unused_log is not None:
            reads = counted(self.unused_log.reads, "reads")
            note = f"a log of {reads} is beside the store and is not used"
            yield "reads", f"{note}: {self._size_with(self.unused_log)}"
        if log is None or self.chances is None:
            return
        if reading.is_other_stores_log(log, past[c.MEMORY_ID]):
            yield "the log", reading.NO_READ_OF_STORE
            return
        if len(log):
            yield "reads", self._reads_in_words(log)
            yield "by the log", reading.describe_chances(self.chances)
        for line in reading.describe_log(log, past):
            name, _, sentence = line.partition(": ")
            yield name, sentence

    def _index_facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts about the limit of the store's system, and about a cut index."""
        if self.limit is not None:
            yield "own limit", f"{counted(self.limit.tokens, 'tokens')}: {self.limit.words}"
        source = self.evidence.source
        present = present_rows(self.evidence.past)
        if source is None or source.index is None:
            return
        summary = cut_in_words(present)
        if summary:
            yield "index", summary


def size(  # noqa: PLR0913 - each parameter is a separate option
    frame: HistoryLike,
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
    """Recommend a cap or a token budget for a store, with the evidence and the next steps.

    Arguments that are not given are taken from the store's ``memlab.toml``, or have defaults.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or the result of ``memlab.load_past``.
    target, token_budget, confidence, until
        As for :func:`memlab.recommend_cap`.
    unit : {"memories", "tokens"}
        Whether to recommend a number of memories, or a budget in tokens.
    log : DataFrame, str or Path, optional
        An access log, or the result of ``memlab.read_access_log``.
    only_log : bool
        Use only references from the log, and ignore those in the store.
    explain : bool
        Print the caps near the answer, the backtest and the reasons.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock. Later reads are
        ignored.

    Returns
    -------
    Recommendation
        ``advice`` holds the numbers; ``save()`` writes them to ``memlab.toml``.

    Raises
    ------
    MemlabError
        If the store cannot be read, or `only_log` is set without a log.
    ValueError
        If a number is out of range, or `unit` is unknown.

    Examples
    --------
    >>> import memlab
    >>> size(memlab.store_path("two_years")).advice.keep_recent is None
    False
    """
    call = "memlab.size"
    for name, flag in (("only_log", only_log), ("explain", explain)):
        arguments.expect(flag, bool, call=call, name=name)
    arguments.expect(unit, str, call=call, name="unit")
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    evidence = StoreHistory.of(frame, log, call=call, only_log=only_log, now=now).with_references()
    if only_log and evidence.log is None:
        raise MemlabError("only_log (--only-log) needs a log: give one as log (--log FILE)")
    goal = SizingGoal.of(
        evidence.settings,
        target=target,
        token_budget=token_budget,
        confidence=confidence,
        until=until,
    )
    limit = None
    if evidence.source is not None and goal.token_budget is None:
        limit = evidence.source.start_limit()
    if limit is not None:
        goal = goal._replace(token_budget=limit.tokens)
    sizing, advice = recommend(
        evidence, evidence.references, goal, tokens=unit == "tokens", now=evidence.now
    )
    # The number depends on the target and the budget, so both are saved with it.
    settings = {
        "target": goal.target,
        "token_budget": None if limit is not None else goal.token_budget,
        "confidence": confidence,
        "until": until,
        "log": None if log is None else evidence.log_file,
    }
    return Recommendation(
        evidence=evidence,
        goal=goal,
        sizing=sizing,
        advice=advice,
        other_settings={name: value for name, value in settings.items() if value is not None},
        explain=explain,
        limit=limit,
    )


def _records(table: pd.DataFrame) -> Any:
    """Return the rows of a table as JSON values."""
    return json.loads(table.to_json(orient="records"))
