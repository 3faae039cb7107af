"""A recommended cap or budget with the evidence it rests on, in words too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pandas as pd

from memlab.evidence.prior import in_words
from memlab.settings import NUMBERS
from memlab.sizing.curve import KEEP_RECENT, MAX_TOKENS, BudgetSizing, CurvePoint, Sizing
from memlab.sizing.history import Floor
from memlab.sizing.record import TrackRecord, Verdict
from memlab.sources import opening
from memlab.sources.base import Source
from memlab.text import DisplayMixin, Table, TextPage, command, counted, or_dash

MARKS: Final = "> safe, ~ likely"

_JSON_KEYS: Final = {"cluster_count": "sittings", "interval_inflation": "widened"}
"""JSON keys of the fields of `Advice` whose key is not the field's name."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Advice(DisplayMixin):
    """A cap with its evidence, or a verdict that says why no cap meets what was asked.

    Attributes
    ----------
    verdict : Verdict
    keep_recent, likely : int or None
        The safe cap, the smallest whose lower limit meets the target, and the smallest whose
        estimate does: even odds. None where a token budget forbids one, or where nothing that a
        cap could delete was written yet.
    interval : tuple of int or None
        Limits of the cap that serves the target until the horizon.
    served, served_limits : float, tuple of float or None
        Estimated share of references that `keep_recent` serves.
    references, cluster_count : int
        References of the store's own, and the number of clusters among those that a cap could
        fail. References of one task form one cluster, because they are not independent.
    weight, projects : float, int
        How much of the number comes from them, from 0 to 1; the rest is from so many others.
    missing : int
        References or reads until the store's own weigh as much as other projects'.
    measured, missed, waste : int, int, float or None
        Earlier cuts of the history at which such a number was measured, how many of them served
        fewer than the target, and how many times the need it was, in the middle.
    interval_inflation : float
        Factor by which the limits are wider than the references alone give, from the backtest
        at those cuts; 1.0 where every cut met its limits.
    memories, until : int
        Prunable memories written so far, and until how many, the horizon, the numbers speak.
    boot_tokens, boot_tokens_p95 : int or None
        Boot context under `keep_recent`: now, and over the history under continuous compaction.
    days : float or None
        Days of memory that the cap buys now.
    loaded, prunable : int
        Boot context now, as it is, and prunable rows.
    target, confidence, token_budget : float, float, int or None
    within_budget : CurvePoint or None
        The largest cap whose boot context fits the budget, now and at its p95, and what it serves.
    trade : tuple of CurvePoint
        Where target and budget conflict: the cap that the target takes, then the one that fits.
    floor : Floor
    would_change : tuple of str
        What would change the answer.
    token_rule, source : str
        How tokens were counted, and what the store is called, where that is known.
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

    NUMBER: ClassVar = KEEP_RECENT
    """The field that holds the safe number, and its name in words."""
    WORD: ClassVar = Sizing.WORD
    UNIT: ClassVar = ""
    POLICY: ClassVar = "recent"
    OPTIONS: ClassVar[tuple[str, ...]] = ("--keep-recent",)
    """Those of ``memlab compact`` that the number follows."""
    BY: ClassVar[tuple[str, ...]] = ()
    """Those of ``memlab size`` that find it."""
    SHARES: ClassVar = {"own": "served_own", "others": "served_elsewhere"}
    LEFT: ClassVar = {
        "memories": "boot_memories",
        "tokens": "boot_tokens",
        "tokens at 95%": "boot_tokens_p95",
        "would go": "pruned",
        "days": "days",
    }
    """Columns of a table for people, and those of the curve that they show."""
    COLUMNS: ClassVar = (
        "; own, others: by this store's references alone, by other projects' alone; memories and "
        "tokens: at start, were the store compacted to that cap now, and in 95% of starts held to "
        "it at most"
    )
    """What they mean, where that is to be said."""
    BRIEF: ClassVar[frozenset[str]] = frozenset(
        {
            "target",
            "evidence",
            "cap needed",
            "budget needed",
            "token budget",
            "tokens",
            "would go",
            "days",
        }
    )
    """Facts and columns that stay where there is little room."""

    @property
    def number(self) -> int | None:
        """The safe number."""
        number: int | None = getattr(self, self.NUMBER)
        return number

    @property
    def numbers(self) -> str:
        """Both numbers in words; nothing where there is none."""
        if self.number is None:
            return ""
        return f"{self.NUMBER} = {self.number:,} is safe, {self.likely:,} is likely"

    @property
    def evidence(self) -> str:
        """Say how much of the number is whose."""
        others = f"{in_words(self.projects)} other projects"
        own = counted(self.references, "references")
        if self.weight:
            return f"{self.weight:.0%} from this store ({own}), {1 - self.weight:.0%} from {others}"
        return f"all from {others}" + (f"; {own} of this store's own" if self.references else "")

    @property
    def poor_record(self) -> str:
        """What to say beside the number where too many earlier ones missed; else nothing."""
        if not TrackRecord(self.measured, self.missed).poor:
            return ""
        return f"but at {self.missed} of {self.measured} earlier cuts such a number missed"

    @property
    def track_record(self) -> str:
        """How often such numbers met the target, and at how many times the need; else nothing."""
        if self.waste is None:
            return ""
        met = f"met {self.measured - self.missed} of {self.measured}"
        return f"{met}, at {self.waste:.1f} times the need (median)"

    @property
    def policy(self) -> dict[str, Any] | None:
        """The policy to remember; None without a number."""
        if self.number is None:
            return None
        return {"name": self.POLICY, NUMBERS[self.POLICY]: self.number}

    @property
    def budget_cap(self) -> int | None:
        """The largest that fits the token budget; None without a budget, or where none fits."""
        return None if self.within_budget is None else self.within_budget.number

    @property
    def _most(self) -> int:
        """The number that keeps all that is there."""
        return self.prunable

    @property
    def answers(self) -> tuple[int | None, ...]:
        """The numbers that a table around the answer shows."""
        return (self.number, self.likely, self.budget_cap, *(end.number for end in self.trade))

    def to_dict(self) -> dict[str, Any]:
        """Return every field under its JSON key, and the rule."""
        values = {_JSON_KEYS.get(name, name): value for name, value in super().to_dict().items()}
        values["rule"] = self.rule
        return values

    def sheet(self) -> TextPage:
        """Return what is printed."""
        title = f"{self.verdict}: {self.verdict.meaning}"
        if self.numbers:
            title = f"{', '.join(filter(None, (self.numbers, self.poor_record)))} ({title})"
        return TextPage(title, list(self._facts()), self._tables())

    def brief(self, rows: pd.DataFrame, looked_at: int | None = None) -> TextPage:
        """Return what fits a screen: the numbers, what they rest on, and lines of the curve."""
        facts = [(name, value) for name, value in self._facts() if name in self.BRIEF]
        asked = () if self.verdict is Verdict.NOTHING_PRUNABLE else (*self.answers, looked_at)
        at = [rows.index.tolist().index(each) for each in asked if each is not None]
        if not at:
            return self.sheet()._replace(facts=facts, tables=())
        beside = (-1, 0) if len(at) < 3 else (0,)
        around = {place + step for place in at for step in beside} | {len(rows) - 1}
        shown = sorted(around & set(range(len(rows))))
        table = self.table(rows.iloc[shown])
        kept = [n for n, name in enumerate(table.header) if n < 3 or name in self.BRIEF]
        header, *lines = (tuple(row[n] for n in kept) for row in (table.header, *table.rows))
        remark = f"{MARKS}; tokens: {self.token_rule}"
        tables = [Table("", tuple(map(str, header)), lines, remark)]
        return self.sheet()._replace(facts=facts, tables=tables)

    def _tables(self) -> list[Table]:
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = self.floor
            memories = counted(floor.memories, "memories")
            return floor.tables(f"Load-bearing: {memories}, {floor.tokens:,} tokens")
        header = ("choose", self.NUMBER, "served", "limits", "boot tokens", "p95", "days")
        rows = []
        for name, end in zip(("the target", "the budget"), self.trade, strict=False):
            served = (f"{end.served:.1%}", "{:.1%} to {:.1%}".format(*end.served_limits))
            p95 = "–" if end.boot_tokens_p95 is None else end.boot_tokens_p95
            boot = (end.boot_tokens, p95)
            rows.append((name, end.number, *served, *boot, f"{end.days:,.1f}"))
        return [Table("Both ends of the trade", header, rows)] if rows else []

    def table(self, rows: pd.DataFrame) -> Table:
        """Return lines of the curve for people; the safe and the likely number are marked."""
        marks = {self.likely: "~ ", self.number: "> "}
        lines = [
            (
                f"{marks.get(number, '')}{number:,}",
                or_dash(row["served"]),
                f"{or_dash(row['low'])} to {or_dash(row['high'])}",
                *(or_dash(row[name]) for name in self.SHARES.values()),
                *(round(row[name]) for name in self.LEFT.values()),
            )
            for number, row in zip(rows.index.tolist(), rows.to_dict("records"), strict=True)
        ]
        header = (self.NUMBER, "served", "limits", *self.SHARES, *self.LEFT)
        return Table("", header, lines, f"{MARKS}{self.COLUMNS}")

    def command(self, store: str = "") -> str | None:
        """Return the command that applies the number; None where nothing would be deleted."""
        goes = self.number is not None and self.number < self._most
        if not goes or not opening.can_delete_from(self.source):
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
        """Return lines that say what to run next, never none; `brief` keeps to looking first."""
        name = str(store or self.source)
        to_know_more = self.weight < 0.5 and self.interval is not None
        more = [*self._to_know_more(name, source, log)] if to_know_more else []
        acts = [*self._to_act_on(name, source, log_option, brief=brief)]
        if brief:
            acts += [line.strip() for line in more if line.startswith("  memlab harvest")]
            explain = command("size", name, *self.BY, *asked, *log_option, "--explain")
            acts.append(f"{explain}    why{'; how to have a number of its own' * to_know_more}")
            more = []
        first = [f"{'      ' if place else 'next: '}{act}" for place, act in enumerate(acts)]
        parts = (first, more, self._in_settings(source))
        return "\n\n".join("\n".join(part) for part in parts if part).split("\n")

    def _to_act_on(
        self, name: str, source: Source | None, log_option: Sequence[str], *, brief: bool
    ) -> Iterator[str]:
        """Say which commands carry the number out, and what each does."""
        if source is not None and not source.deletes:
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
        if self.number >= self._most:
            yield f"{dry_run}    deletes nothing yet; safe to repeat as the store grows"
        else:
            yield f"{dry_run}    shows what would go"
            if not brief:
                yield f"{dry_run} --apply    does it"
        likely = self.likely or 0
        if likely < min(self.number, self._most):
            serves = f"the likely number: even odds that it serves {self.target:.0%}"
            yield f"{self._compact(name, likely, log_option)}    {serves}"

    def _to_know_more(self, store: str, source: Source | None, log: Path | None) -> Iterator[str]:
        """Say how a store comes to a number of its own; `log` is one that it has already."""
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
            named = named if named.name.strip(".") else named.resolve()  # of "." there is no name
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
        if source is not None and not source.deletes:
            caps = [*(end.keep_recent for end in self.trade), self.keep_recent]
            return [
                line
                for cap in caps
                if cap is not None
                for line in source.native_cap_instructions(cap)
            ]
        if source is None or not source.setting or self.keep_recent is None:
            return []
        by_its_rule = "a cap of that size in its own settings, by its own rule"
        return [f"      {source.cap_setting(self.keep_recent)}    {by_its_rule}"]

    @property
    def rule(self) -> str:
        """How the numbers were found, in a few words."""
        return (
            f"safe: the smallest {self.WORD} that serves {self.target:.0%} with "
            f"{self.confidence:.0%} confidence; likely: with even odds"
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        share = f"{self.target:.1%} of references served"
        yield "target", f"{share}, with {self.confidence:.0%} confidence"
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "evidence", self.evidence
        if self.likely is not None and self.interval is not None:
            low, high = self.interval
            likely = counted(self.likely, self.UNIT).rstrip()
            needed = f"{likely} likely, {low:,} to {high:,}"
            yield f"{self.WORD} needed", f"{needed} until {self.until:,} memories are written"
        if self.served is not None and self.served_limits is not None:
            yield "served", share_in_words(self.served, self.served_limits)
        if self.track_record:
            yield "track record", f"{self.track_record}, at earlier cuts of its history"
        if self.boot_tokens is not None:
            boot = f"{self.boot_tokens:,} tokens under the safe {self.WORD}, {self.loaded:,} now; "
            boot += f"{self._starts} ({self.token_rule})"
            yield opening.start_words(self.source), boot
            yield "memory kept", f"{self.days:,.1f} days"
        if self.token_budget is not None:
            fits = f"no {self.WORD} fits"
            if end := self.within_budget:
                served = share_in_words(end.served, end.served_limits)
                fits = f"{self.WORD}s up to {end.number:,} fit, which serves {served}"
            yield "token budget", f"{self.token_budget:,}; {fits}"
        yield "prunable now", f"{self.prunable:,} of {self.memories:,} written"
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "rule", self.rule
        for text in self.would_change:
            yield "note", text

    @property
    def _starts(self) -> str:
        """Say more of the tokens at start under the safe number."""
        return f"at most {self.boot_tokens_p95:,} in 95% of starts held to it"


@dataclass(frozen=True, repr=False, kw_only=True)
class BudgetAdvice(Advice):
    """A budget in tokens with its evidence: what `Advice` says of a cap, and of its own.

    `likely`, `interval` and what is said of numbers are in tokens.

    Attributes
    ----------
    max_tokens : int or None
        The safe budget: the smallest whose lower limit meets the target.
    keep_recent : int or None
        Prunable memories that it would keep now.
    mean : float
        Tokens of a prunable memory on average.
    """

    max_tokens: int | None
    mean: float

    NUMBER = MAX_TOKENS
    WORD = BudgetSizing.WORD
    UNIT = "tokens"
    POLICY = "tokens"
    OPTIONS = ("--policy", "tokens", "--max-tokens")
    BY = ("--unit", "tokens")
    SHARES: ClassVar = {"so far": "served_observed"}
    LEFT: ClassVar = {"kept": "kept", "would go": "pruned", "days": "days"}
    COLUMNS = ""

    @property
    def _most(self) -> int:
        return self.loaded

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
