"""A recommended cap or budget with its evidence, as values, pages and next steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, ClassVar, Final

import pandas as pd

from memlab.evidence.prior import in_words
from memlab.settings import NUMBERS
from memlab.sizing.answer import CONTEXT_WINDOW, answer_of
from memlab.sizing.curve import KEEP_RECENT, MAX_TOKENS, BudgetSizing, CurvePoint, Sizing
from memlab.sizing.history import Floor
from memlab.sizing.record import Verdict
from memlab.sources import opening
from memlab.sources.base import Source
from memlab.text import DisplayMixin, Table, TextPage, command, counted, or_dash

MARKS: Final = "> safe, ~ likely"

_JSON_KEYS: Final = {"cluster_count": "sittings", "interval_inflation": "widened"}
"""JSON keys of the fields of `Advice` whose key is not the field's name."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Advice(DisplayMixin):
    """A recommended cap with its evidence, or a verdict that explains why no cap meets the goal.

    Attributes
    ----------
    verdict : Verdict
    keep_recent, likely : int or None
        The safe cap is the smallest whose lower limit meets the target. The likely cap is the
        smallest whose estimate meets it, with even odds. None if a token budget forbids a cap, or
        if no prunable memory was written yet.
    interval : tuple of int or None
        Limits of the cap that serves the target until the horizon.
    served, served_limits : float, tuple of float or None
        Estimated share of references that `keep_recent` serves.
    references, cluster_count : int
        References of the store's own, and the number of clusters among those that a cap could
        fail. References of one task form one cluster, because they are not independent.
    weight, projects : float, int
        Weight of the store's own references in the number, from 0 to 1, and the number of other
        projects, whose references have the rest of the weight.
    missing : int
        References or reads until the store's own have the weight one half.
    measured, missed, waste : int, int, float or None
        Backtest: splits of the history at which such a number was measured, those at which it
        served less than the target, and the median of chosen over needed.
    interval_inflation : float
        Factor by which the limits are wider than the references alone give, from the backtest
        at those cuts; 1.0 where every cut met its limits.
    memories, until : int
        Prunable memories written so far, and the number of them at the horizon, up to which the
        recommendation is valid.
    boot_tokens, boot_tokens_p95 : int or None
        Boot context under `keep_recent`: now, and over the history under continuous compaction.
    days : float or None
        Age in days of the oldest prunable memory that the cap keeps now.
    loaded, prunable : int
        Tokens of the present boot context, and number of prunable rows.
    target, confidence, token_budget : float, float, int or None
    within_budget : CurvePoint or None
        The largest cap whose boot context fits the budget, now and at its 95th percentile.
    trade : tuple of CurvePoint
        If target and budget conflict: the cap that meets the target, then the one that fits.
    floor : Floor
        Size of the load-bearing memories.
    would_change : tuple of str
        Notes on what would change the recommendation.
    token_rule, source : str
        How tokens were counted, and the name of the store, if known.
    likely_boot_tokens : int or None
        Boot context under `likely`, now.
    loads_at_start : bool
        Whether the agent loads memories at start. Else it only searches them, and `loaded` is the
        size of what it searches.
    context_window : int
        Tokens of the context window that the answer compares with.
    """

    verdict: Verdict
    likely: int | None
    interval: tuple[int, int] | None
    served: float | None
    served_limits: tuple[float, float] | None
    references: int
    weight: float
    projects: int
    missing: int
    measured: int
    missed: int
    waste: float | None
    memories: int
    until: int
    days: float | None
    loaded: int
    target: float
    confidence: float
    token_budget: int | None
    token_rule: str
    source: str = ""
    keep_recent: int | None
    cluster_count: int
    interval_inflation: float
    boot_tokens: int | None
    boot_tokens_p95: int | None
    prunable: int
    within_budget: CurvePoint | None
    trade: tuple[CurvePoint, ...]
    floor: Floor
    would_change: tuple[str, ...]
    likely_boot_tokens: int | None = None
    loads_at_start: bool = True
    context_window: int = CONTEXT_WINDOW

    NUMBER: ClassVar = KEEP_RECENT
    """Name of the field that holds the safe number."""
    WORD: ClassVar = Sizing.WORD
    EACH: ClassVar = "episodes"
    """Name of what the number counts, in the plural."""
    POLICY: ClassVar = "recent"
    OPTIONS: ClassVar[tuple[str, ...]] = ("--keep-recent",)
    """Options of ``memlab compact`` before the number."""
    BY: ClassVar[tuple[str, ...]] = ()
    """Options of ``memlab size`` for this kind of number."""
    SHARES: ClassVar = {"own": "served_own", "others": "served_elsewhere"}
    LEFT: ClassVar = {
        "memories": "boot_memories",
        "tokens": "boot_tokens",
        "tokens at 95%": "boot_tokens_p95",
        "would go": "pruned",
        "days kept": "days",
    }
    """Column of the printed table -> column of the curve."""
    COLUMNS: ClassVar = (
        "; own, others: by this store's references alone, by other projects' alone; memories and "
        "tokens: at start, were the store compacted to that cap now, and in 95% of starts held to "
        "it at most"
    )
    """Explanation of the columns, which follows the marks."""
    BRIEF: ClassVar[frozenset[str]] = frozenset(
        {
            "verdict",
            "evidence",
            "record",
            "target",
            "cap",
            "budget",
            "token budget",
            "tokens",
            "would go",
            "days kept",
        }
    )
    """Facts and columns of the short page."""

    @property
    def number(self) -> int | None:
        """The safe number."""
        number: int | None = getattr(self, self.NUMBER)
        return number

    @property
    def answer(self) -> str:
        """The answer in sentences: what to do, what it saves, and how sure that is."""
        return answer_of(self)

    def number_in_words(self, number: int) -> str:
        """Return a cap or a budget in words."""
        if number == 1:
            return "the newest episode"
        return f"the newest {counted(number, self.EACH)}"

    @property
    def numbers(self) -> str:
        """Both numbers in words; empty without a number."""
        if self.number is None:
            return ""
        return f"{self.NUMBER} = {self.number:,} is safe, {self.likely:,} is likely"

    @property
    def evidence(self) -> str:
        """Weights of the store's own references and of other projects, in words."""
        others = f"{in_words(self.projects)} other projects"
        own = counted(self.references, "later needs")
        if self.weight:
            seen = f"{own} seen in this store count {self.weight:.0%}"
            return f"{seen}, the data of {others} {1 - self.weight:.0%}"
        if self.references:
            return f"the data of {others}; {own} seen in this store are too few to count"
        return f"the data of {others}; no later need was seen in this store yet"

    @property
    def track_record(self) -> str:
        """Result of the backtest in words; empty without one."""
        if self.waste is None:
            return ""
        missed = f"at {self.missed} of {self.measured} earlier moments"
        return (
            f"{missed} this rule would have missed the target; it chose {self.waste:.1f} times "
            "what was then needed (median)"
        )

    @property
    def policy(self) -> dict[str, Any] | None:
        """Policy for the settings; None without a number."""
        if self.number is None:
            return None
        return {"name": self.POLICY, NUMBERS[self.POLICY]: self.number}

    @property
    def budget_cap(self) -> int | None:
        """Largest number within the token budget; None without a budget, or if none fits."""
        return None if self.within_budget is None else self.within_budget.number

    @property
    def keeps_all(self) -> int:
        """Smallest number that keeps all present memories."""
        return self.prunable

    @property
    def answers(self) -> tuple[int | None, ...]:
        """Numbers that a table around the recommendation shows."""
        return (self.number, self.likely, self.budget_cap, *(end.number for end in self.trade))

    def to_dict(self) -> dict[str, Any]:
        """Return every field under its JSON key, and the rule."""
        values = {_JSON_KEYS.get(name, name): value for name, value in super().to_dict().items()}
        values["rule"] = self.rule
        values["answer"] = self.answer
        return values

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        return TextPage(self.answer, list(self._facts()), self._tables())

    def brief(self, rows: pd.DataFrame, looked_at: int | None = None) -> TextPage:
        """Return the short page: the numbers, their evidence, and rows of the curve around them."""
        facts = [(name, value) for name, value in self._facts() if name in self.BRIEF]
        asked = () if self.verdict is Verdict.NOTHING_PRUNABLE else (*self.answers, looked_at)
        numbers = rows.index.tolist()
        places = [numbers.index(number) for number in asked if number is not None]
        if not places:
            return self.sheet()._replace(facts=facts, tables=())
        shown = {len(rows) - 1, *places}
        if len(places) < 3:  # there is room for the row before each number
            shown.update(place - 1 for place in places if place > 0)
        table = self.table(rows.iloc[sorted(shown)])
        kept = [n for n, name in enumerate(table.header) if n < 3 or name in self.BRIEF]
        header = tuple(str(table.header[n]) for n in kept)
        lines = [tuple(row[n] for n in kept) for row in table.rows]
        remark = f"{MARKS}; tokens: {self.token_rule}"
        tables = [Table("", header, lines, remark)]
        return self.sheet()._replace(facts=facts, tables=tables)

    def _tables(self) -> list[Table]:
        """Return the tables of the page: the floor or the trade, if the verdict is about them."""
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = self.floor
            memories = counted(floor.memories, "memories")
            return floor.tables(f"Load-bearing: {memories}, {floor.tokens:,} tokens")
        header = ("choose", self.NUMBER, "served", "limits", "boot tokens", "p95", "days kept")
        if not self.trade:
            return []
        rows = []
        for name, end in zip(("the target", "the budget"), self.trade, strict=False):
            low, high = end.served_limits
            row = (
                name,
                end.number,
                f"{end.served:.1%}",
                f"{low:.1%} to {high:.1%}",
                end.boot_tokens,
                "–" if end.boot_tokens_p95 is None else end.boot_tokens_p95,
                _days_in_words(end.days),
            )
            rows.append(row)
        return [Table("Both ends of the trade", header, rows)]

    def table(self, rows: pd.DataFrame) -> Table:
        """Return rows of the curve as a printed table, with the recommended numbers marked."""
        marks = {self.likely: "~ ", self.number: "> "}
        lines = [
            (
                f"{marks.get(number, '')}{number:,}",
                or_dash(row["served"]),
                f"{or_dash(row['low'])} to {or_dash(row['high'])}",
                *(or_dash(row[name]) for name in self.SHARES.values()),
                *(_rounded(row[name]) for name in self.LEFT.values()),
            )
            for number, row in zip(rows.index.tolist(), rows.to_dict("records"), strict=True)
        ]
        header = (self.NUMBER, "served", "limits", *self.SHARES, *self.LEFT)
        return Table("", header, lines, f"{MARKS}{self.COLUMNS}")

    def command(self, store: str = "") -> str | None:
        """Return the command that applies the number, or None if it would delete nothing."""
        deletes_any = self.number is not None and self.number < self.keeps_all
        if not deletes_any or not opening.can_delete_from(self.source):
            return None
        return f"{self._compact(store or self.source, self.number)} --apply"

    def _compact(self, store: str, number: int | None, log_option: Sequence[str] = ()) -> str:
        return command("compact", store, *self.OPTIONS, number, *log_option)

    def next_steps(
        self,
        store: str = "",
        source: Source | None = None,
        *,
        log: Path | None = None,
        log_option: Sequence[str] = (),
        asked: Sequence[object] = (),
        brief: bool = False,
    ) -> list[str]:
        """Return lines with the next commands, at least one; `brief` leaves out deletions."""
        name = str(store or self.source)
        to_know_more = self.weight < 0.5 and self.interval is not None
        more = [*self._to_know_more(name, source, log)] if to_know_more else []
        acts = [*self._to_act_on(name, source, log_option, brief=brief)]
        if brief:
            acts += [line.strip() for line in more if line.startswith("  memlab harvest")]
            explain = command("size", name, *self.BY, *asked, *log_option, "--explain")
            reason = "why; how to have a number of its own" if to_know_more else "why"
            acts.append(f"{explain}    {reason}")
            more = []
        first = [f"{'      ' if place else 'next: '}{act}" for place, act in enumerate(acts)]
        parts = (first, more, self._in_settings(source))
        return "\n\n".join("\n".join(part) for part in parts if part).split("\n")

    def _to_act_on(
        self, name: str, source: Source | None, log_option: Sequence[str], *, brief: bool
    ) -> Iterator[str]:
        """Yield the commands that apply the number, each with its effect."""
        if source is not None and source.read_only_reason:
            return
        for end, what in zip(self.trade, ("target", "budget"), strict=False):
            yield f"{self._compact(name, end.number, log_option)}    for the {what}"
        if self.trade:
            return
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            yield f"{command('floor', name)}    what the load-bearing memories cost"
            return
        if self.number is None:
            for trouble in source.diagnostics() if source is not None else ():
                if trouble.name == "sub_folders" and trouble.found:
                    yield f"{command('doctor', name)}    {trouble.summary}"
            yield f"{command('size', name, *self.BY)}    again, once it holds episodes"
            return
        dry_run = self._compact(name, self.number, log_option)
        if self.number >= self.keeps_all:
            yield f"{dry_run}    deletes nothing yet; safe to repeat as the store grows"
        else:
            yield f"{dry_run}    shows what would go"
            if not brief:
                yield f"{dry_run} --apply    does it"
        likely = self.likely or 0
        if likely < min(self.number, self.keeps_all):
            serves = f"the likely number: even odds that it serves {self.target:.0%}"
            yield f"{self._compact(name, likely, log_option)}    {serves}"

    def _to_know_more(self, store: str, source: Source | None, log: Path | None) -> Iterator[str]:
        """Yield lines on how to collect reads, so that the store's own references weigh more.

        `log` is an access log that the store has already.
        """
        yield (
            f"for a number of its own, this store needs {self.missing:,} more references or reads "
            "of its memories:"
        )
        reads = Path("reads.jsonl")
        file = store
        if opening.is_named_by_scheme(store):
            file = store.partition(":")[2].partition("?")[0]
        if "://" not in store:
            named = Path(file)
            if not named.name.strip("."):  # "." and ".." have no name of their own
                named = named.resolve()
            reads = named.with_suffix(".reads.jsonl")
        if log is not None:
            reads = reads if log.suffix == ".csv" else log
            yield "  let the runtime go on writing them down, each time it reads a memory:"
        else:
            if source and any(source.scheme in system.schemes for system in opening.harvestable()):
                harvest = command("harvest", file, "-o", reads)
                yield f"  {harvest}    reads in what agents already write"
            yield f"  {command('size', store, *self.BY, '--log', reads)}    with what was read"
            yield "  or let the runtime write it, each time it reads a memory:"
        yield f"    log = memlab.AccessLog({str(reads)!r})"
        yield "    log.add(memory_id)"

    def _in_settings(self, source: Source | None) -> list[str]:
        """Return lines on how to set the cap in the settings of the store's own system."""
        native = None if source is None else source.native_cap
        if source is None or native is None:
            return []
        if source.read_only_reason:
            lines: list[str] = []
            for cap in (*(end.keep_recent for end in self.trade), self.keep_recent):
                if cap is not None:
                    lines.extend(native.instructions(cap))
            return lines
        if self.keep_recent is None:
            return []
        by_its_rule = "a cap of that size in its own settings, by its own rule"
        return [f"      {native.setting_for(self.keep_recent)}    {by_its_rule}"]

    @property
    def rule(self) -> str:
        """How the numbers are defined, in words."""
        return (
            f"safe: the smallest {self.WORD} that serves {self.target:.0%} with "
            f"{self.confidence:.0%} confidence; likely: with even odds"
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts of the page."""
        yield "verdict", f"{self.verdict}: {self.verdict.meaning}"
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "evidence", self.evidence
        if self.track_record:
            yield "record", self.track_record
        yield "target", self.target_in_words
        if self.numbers:
            valid = f"until {self.until:,} memories are written; {self.memories:,} were so far"
            yield self.WORD, f"{self.numbers}, {valid}"
        if self.served is not None and self.served_limits is not None:
            yield "served", share_in_words(self.served, self.served_limits)
        if self.boot_tokens is not None:
            boot = f"{self.boot_tokens:,} tokens under the safe {self.WORD}, {self.loaded:,} now; "
            boot += f"{self._starts} ({self.token_rule})"
            yield opening.start_words(self.source), boot
            if self.days is not None and not isnan(self.days):
                yield "memory kept", f"{self.days:,.1f} days"
        if self.token_budget is not None:
            fits = f"no {self.WORD} fits"
            end = self.within_budget
            if end is not None:
                served = share_in_words(end.served, end.served_limits)
                fits = f"{self.WORD}s up to {end.number:,} fit, which serves {served}"
            yield "token budget", f"{self.token_budget:,}; {fits}"
        yield "prunable now", f"{self.prunable:,} of {self.memories:,} written"
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "rule", self.rule
        for text in self.would_change:
            yield "note", text

    @property
    def target_in_words(self) -> str:
        """The goal in words."""
        share = f"{self.target:.1%} of later needs are served"
        return f"{share}, with {self.confidence:.0%} confidence"

    @property
    def _starts(self) -> str:
        """Note on the tokens at start under the safe number."""
        return f"at most {self.boot_tokens_p95:,} in 95% of starts held to it"


@dataclass(frozen=True, repr=False, kw_only=True)
class BudgetAdvice(Advice):
    """A recommended budget in tokens with its evidence.

    It has the fields of `Advice`; `likely`, `interval` and other numbers are in tokens.

    Attributes
    ----------
    max_tokens : int or None
        The safe budget: the smallest whose lower limit meets the target.
    keep_recent : int or None
        Number of prunable memories that the budget would keep now.
    mean : float
        Mean number of tokens of a prunable memory.
    """

    max_tokens: int | None
    mean: float

    NUMBER = MAX_TOKENS
    WORD = BudgetSizing.WORD
    EACH = "tokens"
    POLICY = "tokens"
    OPTIONS = ("--policy", "tokens", "--max-tokens")
    BY = ("--unit", "tokens")
    SHARES: ClassVar = {"so far": "served_observed"}
    LEFT: ClassVar = {"kept": "kept", "would go": "pruned", "days kept": "days"}
    COLUMNS = ""

    @property
    def keeps_all(self) -> int:
        """Tokens of all present memories, load-bearing ones included."""
        return self.loaded

    def number_in_words(self, number: int) -> str:
        """Return a budget in words."""
        return f"a budget of {counted(number, self.EACH)}"

    @property
    def _starts(self) -> str:
        return f"load-bearing memories take {self.floor.tokens:,} of them"

    @property
    def rule(self) -> str:
        """How the numbers were found, in a few words."""
        return f"{super().rule}; a memory counts as the mean, {counted(self.mean, 'tokens')}"

    def _in_settings(self, source: Source | None) -> list[str]:  # noqa: ARG002
        return []  # systems have caps


def share_in_words(share: float, limits: tuple[float, float]) -> str:
    """Return the share of references that a number serves, with its limits."""
    low, high = limits
    return f"{share:.1%} of references, limits {low:.1%} to {high:.1%}"


def _rounded(number: float) -> int | str:
    """Return a rounded number; a dash for an unknown one, such as the days of undated memories."""
    return "–" if isnan(number) else round(number)


def _days_in_words(days: float) -> str:
    """Return days with one decimal; a dash if no memory has a date."""
    return "–" if isnan(days) else f"{days:,.1f}"
