"""A recommended cap or budget with its evidence, as values, pages and next steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from pathlib import Path
from typing import Any, ClassVar, Final

import pandas as pd

from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_TARGET
from memlab.growth.context import CONTEXT_WINDOW
from memlab.sizing.answer import (
    CASES_THAT_KEEP_ALL,
    CASES_WITHOUT_LIKELY,
    answer_of,
    case_of,
    exceeds_window,
    floor_exceeds_window,
    when_limit_holds,
)
from memlab.sizing.backtest import Verdict
from memlab.sizing.curve import CurvePoint
from memlab.sizing.lifetimes import Floor
from memlab.sizing.number_kinds import BUDGET, CAP, NumberKind
from memlab.sizing.prior import others_in_words
from memlab.sources import opening
from memlab.sources.base import Source
from memlab.text import (
    Cell,
    DisplayMixin,
    Table,
    TextPage,
    command,
    counted,
    or_dash,
    percent,
    percent_as_given,
    verb_for,
)

MARK_NOTE: Final = "> safe, ~ likely"
_USUAL_GOAL: Final = (DEFAULT_TARGET, DEFAULT_CONFIDENCE)
"""Target and confidence that the short page does not repeat."""


_JSON_KEYS: Final = {"cluster_count": "sittings", "interval_inflation": "widened"}
"""JSON keys of the fields of `Advice` whose key is not the field's name."""

_BRIEF_FACTS: Final[frozenset[str]] = frozenset(
    {
        "verdict",
        "evidence",
        "record",
        "cap",
        "budget",
        "token budget",
        "tokens",
        "would go",
        "days kept",
    }
)
"""Names of the facts and columns that the short page has."""


_LEADING_COLUMNS: Final = 3
"""Number of leading columns that the short page has: the number, the share and its limits."""
_MAX_NUMBERS_WITH_NEIGHBOURS: Final = 2
"""A short table for at most this many numbers also lists the row before each of them."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Advice(DisplayMixin):
    """A recommended cap with its evidence, or a verdict that explains why no cap meets the goal.

    Attributes
    ----------
    verdict : Verdict
    keep_recent, likely : int or None
        The safe cap is the smallest at which the lower limit of the share served meets the target.
        The likely cap is the smallest at which the estimate of that share meets it, with even odds.
        None if a token budget forbids a cap, or if no prunable memory was written yet.
    interval : tuple of int or None
        Limits of the cap that serves the target until the horizon.
    served : float or None
        Estimated share of references that `keep_recent` serves.
    served_limits : tuple of float or None
        Limits of this share.
    references, cluster_count : int
        Number of the store's own references, and number of clusters of those to prunable memories.
        References of one task form one cluster, because they are not independent.
    weight : float
        Weight of the store's own references in the number, from 0 to 1.
    projects : int
        Number of other projects, whose references have the rest of the weight.
    missing : int
        Number of further references or reads at which the store's own have the weight one half.
    measured, missed : int
        Backtest: at how many splits of the history a number was measured, and at how many of them
        it missed the target.
    waste : float or None
        Backtest: median ratio of the chosen number to the needed one.
    interval_inflation : float
        Factor by which the backtest widens the limits; 1.0 if all splits were within their limits.
    memories, until : int
        Prunable memories written so far, and the number of them at the horizon, up to which the
        recommendation is valid.
    boot_tokens, boot_tokens_p95 : int or None
        Tokens of a start under `keep_recent`: now, and the 95th percentile over the history if the
        cap is held after every row.
    days : float or None
        Age in days of the oldest prunable memory that the cap keeps now.
    loaded, active_tokens : int
        Tokens that a start loads now, and tokens of all active memories, loaded at start or not.
    prunable : int
        Number of present prunable memories.
    target, confidence : float
        The goal: the share of references to serve, and the confidence of the limit.
    token_budget : int or None
        Largest start of the goal, in tokens.
    within_budget : CurvePoint or None
        The largest cap under which a start fits the budget, now and at its 95th percentile.
    trade : tuple of CurvePoint
        If target and budget conflict: the cap that meets the target, then the largest cap within
        the budget. Otherwise empty.
    floor : Floor
        Size of the load-bearing memories.
    would_change : tuple of str
        Notes on what would change the recommendation.
    token_rule : str
        How tokens were counted.
    source : str
        Name of the store for charts, if known.
    store : str
        Name of the store as it was given, for commands, if known.
    likely_boot_tokens : int or None
        A start under `likely`, now.
    loads_at_start : bool
        Whether the agent loads prunable memories at start. Else it only searches them, and `loaded`
        is the size of what it searches.
    load_bearing_at_start : int
        Tokens of load-bearing memories that a start loads, if prunable ones are only searched.
    context_window : int
        Tokens of the context window that the answer compares with.

    Examples
    --------
    >>> import memlab
    >>> advice = memlab.recommend_cap(memlab.store_path("two_years"))
    >>> advice.number == advice.keep_recent, str(advice.verdict)
    (True, 'ok')
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
    active_tokens: int
    target: float
    confidence: float
    token_budget: int | None
    token_rule: str
    source: str = ""
    store: str = field(default="", compare=False)
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
    load_bearing_at_start: int = 0
    context_window: int = CONTEXT_WINDOW

    number_kind: ClassVar[NumberKind] = CAP
    """The kind of the number, with its names and options."""

    @property
    def number(self) -> int | None:
        """The safe number: `keep_recent`, or `max_tokens` of a budget."""
        number: int | None = getattr(self, self.number_kind.field)
        return number

    @property
    def name_for_commands(self) -> str:
        """Name of the store as a command takes it; for a frame the name without its folder."""
        return self.store or self.source

    @property
    def answer(self) -> str:
        """The answer in sentences: what to do, what it saves, and how sure that is."""
        return answer_of(self)

    def number_in_words(self, number: int) -> str:
        """Return a cap or a budget in words."""
        if number == 1:
            return "the newest episode"
        return f"the newest {counted(number, self.number_kind.unit)}"

    @property
    def numbers(self) -> str:
        """Both numbers in words; empty without a number."""
        if self.number is None:
            return ""
        return f"{self.number_kind.field} = {self.number:,} is safe, {self.likely:,} is likely"

    @property
    def verdict_in_words(self) -> str:
        """The verdict with its meaning, and a warning if a start still exceeds the window."""
        verdict = f"{self.verdict}: {self.verdict.meaning}"
        if not exceeds_window(self):
            return verdict
        return f"{verdict}; but a start still exceeds the context window of {self.context_window:,}"

    @property
    def evidence(self) -> str:
        """Weights of the store's own references and of other projects, in words."""
        other_projects = others_in_words(self.projects)
        own_needs = counted(self.references, "later needs")
        if self.weight:
            own_evidence = f"{percent(self.weight, 0)} from {own_needs} seen in this store"
            return (
                f"{own_evidence}, {percent(1 - self.weight, 0)} from the data of {other_projects}"
            )
        if self.references:
            return (
                f"the data of {other_projects}; {own_needs} seen in this store are too few to count"
            )
        return f"the data of {other_projects}; no later need was seen in this store yet"

    @property
    def track_record(self) -> str:
        """Result of the backtest in words; empty without one."""
        if self.waste is None:
            return ""
        missed = f"at {self.missed} of {self.measured} earlier moments"
        return (
            f"{missed} this rule would have missed the target; its {self.number_kind.noun} was "
            f"{self.waste:.1f} times the smallest that would have met it (median)"
        )

    @property
    def policy(self) -> dict[str, Any] | None:
        """Policy for the settings; None without a number."""
        if self.number is None:
            return None
        return self.number_kind.policy_with(self.number)

    @property
    def budget_cap(self) -> int | None:
        """Largest number within the token budget; None without a budget, or if none fits."""
        return None if self.within_budget is None else self.within_budget.number

    @property
    def number_to_keep_all(self) -> int:
        """Smallest number that keeps all present memories."""
        return self.prunable

    @property
    def marked_numbers(self) -> tuple[int | None, ...]:
        """The safe and the likely number, `budget_cap`, and the numbers of `trade`.

        A number that the recommendation lacks is None.
        """
        conflicting_numbers = [point.number for point in self.trade]
        return (self.number, self.likely, self.budget_cap, *conflicting_numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, the rule and the answer, by JSON key."""
        values = {_JSON_KEYS.get(name, name): value for name, value in super().to_dict().items()}
        values["rule"] = self.rule
        values["answer"] = self.answer
        return values

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        return TextPage(self.answer, list(self._facts()), self._tables())

    def brief(self, rows: pd.DataFrame, chosen: int | None = None) -> TextPage:
        """Return the short page: the numbers, their evidence, and rows of the curve around them.

        Parameters
        ----------
        rows : DataFrame
            Rows of the curve, with those of `marked_numbers` and `chosen`.
        chosen : int, optional
            Another number to list, which the user chose.
        """
        shown_facts = set(_BRIEF_FACTS)
        if (self.target, self.confidence) != _USUAL_GOAL:
            shown_facts.add("target")
        facts = [(name, value) for name, value in self._facts() if name in shown_facts]
        numbers: list[int] = []
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            candidates = (*self.marked_numbers, chosen)
            numbers = [number for number in candidates if number is not None]
        if not numbers:
            return self.sheet()._replace(facts=facts, tables=())
        nearby_rows = rows.iloc[_rows_around(rows.index.tolist(), numbers)]
        return self.sheet()._replace(facts=facts, tables=[self._short_table(nearby_rows)])

    def _short_table(self, rows: pd.DataFrame) -> Table:
        """Return rows of the curve as the table of the short page, which has fewer columns."""
        table = self.table(rows)
        column_numbers = [
            number
            for number, name in enumerate(table.header)
            if number < _LEADING_COLUMNS or name in _BRIEF_FACTS
        ]
        header = tuple(str(table.header[number]) for number in column_numbers)
        lines = [tuple(row[number] for number in column_numbers) for row in table.rows]
        note = f"{MARK_NOTE}; tokens: {self.token_rule}{_note_on_dearer_caps(rows)}"
        return Table("", header, lines, note)

    def _tables(self) -> list[Table]:
        """Return the tables of the page: the floor, or both ends of a trade-off, if any."""
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = self.floor
            memories = counted(floor.memories, "memories")
            return floor.tables(f"Load-bearing: {memories}, {floor.tokens:,} tokens")
        header = (
            "choose",
            self.number_kind.field,
            "served",
            "limits",
            "tokens at start",
            "p95",
            "days kept",
        )
        if not self.trade:
            return []
        rows = []
        for name, point in zip(("the target", "the budget"), self.trade, strict=False):
            low, high = point.served_limits
            row = (
                name,
                point.number,
                percent(point.served),
                f"{percent(low)} to {percent(high)}",
                point.boot_tokens,
                "–" if point.boot_tokens_p95 is None else point.boot_tokens_p95,
                _days_in_words(point.days),
            )
            rows.append(row)
        return [Table("Two numbers to choose from", header, rows)]

    def table(self, rows: pd.DataFrame) -> Table:
        """Return rows of the curve as a printed table, with the recommended numbers marked."""
        kind = self.number_kind
        marks = {self.likely: "~ ", self.number: "> "}
        lines: list[tuple[Cell, ...]] = []
        for number, row in zip(rows.index.tolist(), rows.to_dict("records"), strict=True):
            marked_number = f"{marks.get(number, '')}{number:,}"
            limits = f"{or_dash(row['low'])} to {or_dash(row['high'])}"
            shares = [or_dash(row[name]) for name in kind.share_columns.values()]
            costs = [_rounded(row[name]) for name in kind.cost_columns.values()]
            lines.append((marked_number, or_dash(row["served"]), limits, *shares, *costs))
        header = (kind.field, "served", "limits", *kind.share_columns, *kind.cost_columns)
        note = f"{MARK_NOTE}{kind.column_note}{_note_on_dearer_caps(rows)}"
        return Table("", header, lines, note)

    def command(self, store: str = "") -> str | None:
        """Return the command that applies the safe number.

        It is None if the command would delete nothing, or if the answer is to keep all memories.
        """
        deletes_any = self.number is not None and self.number < self.number_to_keep_all
        if not deletes_any or not opening.can_delete_from(self.source):
            return None
        if case_of(self) in CASES_THAT_KEEP_ALL:
            return None
        return f"{self._compact(store or self.name_for_commands, self.number)} --apply"

    def _compact(self, store: str, number: int | None, log_option: Sequence[str] = ()) -> str:
        """Return the command that shows what compacting to a number would delete."""
        return command("compact", store, *self.number_kind.compact_options, number, *log_option)

    def next_steps(  # noqa: PLR0913 - each parameter is a separate fact
        self,
        store: str = "",
        source: Source | None = None,
        *,
        log: Path | None = None,
        unused_log: Path | None = None,
        log_option: Sequence[str] = (),
        goal_options: Sequence[object] = (),
        brief: bool = False,
    ) -> list[str]:
        """Return lines with the next commands, and lines on the settings of the store's system.

        Commands that delete are left out if memlab only reads the store.

        Parameters
        ----------
        store : str, optional
            The store's name for the commands; by default the name in `store`, else in `source`.
        source : Source, optional
            The store, which decides whether commands that delete are listed.
        log : Path, optional
            An access log that the store has already.
        unused_log : Path, optional
            An access log beside the store that was not used.
        log_option, goal_options : sequence, optional
            Options of the present command to repeat: the log, and the goal.
        brief : bool, optional
            Whether to leave out the commands that delete, and how a runtime logs reads. The list
            then has the command that explains the answer.
        """
        name = str(store or self.name_for_commands)
        needs_evidence = self.weight < 0.5 and self.interval is not None
        commands = list(self._commands(name, source, log_option, brief=brief))
        evidence_lines: list[str] = []
        if needs_evidence and not brief:
            evidence_lines.extend(self._lines_on_evidence(name, source, log))
        if brief:
            if needs_evidence and log is None:
                if unused_log is not None:
                    with_log = command("size", name, "--log", unused_log)
                    commands.append(f"{with_log}    sizes a cap by these reads")
                elif _is_harvestable(source):
                    commands.append(_harvest_step(name))
            size_options = self.number_kind.size_options
            options = (*size_options, *goal_options, *log_option, "--explain")
            reason = "why"
            if needs_evidence:
                reason = "why, and how to get more evidence"
            explanation = f"{command('size', name, *options)}    {reason}"
            if case_of(self) in CASES_THAT_KEEP_ALL:
                commands.insert(0, explanation)
            else:
                commands.append(explanation)
        lines: list[str] = []
        for command_line in commands:
            prefix = "      " if lines else "next: "
            lines.append(prefix + command_line)
        for paragraph in (evidence_lines, self._in_settings(source)):
            if lines and paragraph:
                lines.append("")
            lines.extend(paragraph)
        return lines

    def _commands(
        self, name: str, source: Source | None, log_option: Sequence[str], *, brief: bool
    ) -> Iterator[str]:
        """Yield the commands that apply the number, each with its effect."""
        if source is not None and source.read_only_reason:
            return
        for point, goal_name in zip(self.trade, ("target", "budget"), strict=False):
            yield f"{self._compact(name, point.number, log_option)}    for the {goal_name}"
        if self.trade:
            return
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            yield f"{command('floor', name)}    what the load-bearing memories cost"
            return
        if floor_exceeds_window(self):
            yield f"{command('floor', name)}    what the load-bearing memories cost"
        if self.number is None:
            diagnostics = source.diagnostics() if source is not None else ()
            for diagnostic in diagnostics:
                if diagnostic.name == "sub_folders" and diagnostic.occurrences:
                    yield f"{command('doctor', name)}    {diagnostic.summary}"
            yield f"{command('doctor', name)}    checks the store, which has no episodes yet"
            return
        case = case_of(self)
        keeps_all = case in CASES_THAT_KEEP_ALL
        if self.number < self.number_to_keep_all and not (keeps_all and brief):
            dry_run = self._compact(name, self.number, log_option)
            yield f"{dry_run}    shows what would go"
            if not brief:
                yield f"{dry_run} --apply    does it"
        likely = self.likely
        deletes_any = likely is not None and likely < min(self.number, self.number_to_keep_all)
        is_named = not brief or case not in CASES_WITHOUT_LIKELY
        if deletes_any and is_named:
            effect = f"the likely {self.number_kind.noun} (even odds)"
            yield f"{self._compact(name, likely, log_option)}    {effect}"

    def _lines_on_evidence(
        self, store: str, source: Source | None, log: Path | None
    ) -> Iterator[str]:
        """Yield lines on how to collect reads, so that the store's own references weigh more.

        `log` is an access log that the store has already.
        """
        yield (
            f"for a number of its own, this store needs {self.missing:,} more references or reads "
            "of its memories:"
        )
        reads = _log_for(store)
        if log is not None:
            if log.suffix != ".csv":  # AccessLog writes JSON lines
                reads = log
            yield "  let the runtime go on logging each read of a memory:"
        else:
            if _is_harvestable(source):
                yield f"  {_harvest_step(store)}"
            with_log = command("size", store, *self.number_kind.size_options, "--log", reads)
            yield f"  {with_log}    with what was read"
            yield "  or let the runtime log each read of a memory:"
        yield f"    log = memlab.AccessLog({str(reads)!r})"
        yield "    log.add(memory_id)"

    def _in_settings(self, source: Source | None) -> list[str]:
        """Return lines on how to set the cap in the settings of the store's own system."""
        native = None if source is None else source.native_cap
        if source is None or native is None:
            return []
        if source.read_only_reason:
            caps = [point.keep_recent for point in self.trade]
            if self.keep_recent is not None:
                caps.append(self.keep_recent)
            lines: list[str] = []
            for cap in caps:
                lines.extend(native.instructions(cap))
            return lines
        if self.keep_recent is None:
            return []
        effect = "sets a cap of that size in the system's own settings"
        return [f"      {native.setting_for(self.keep_recent)}    {effect}"]

    @property
    def rule(self) -> str:
        """How the numbers are defined, in words."""
        target = percent_as_given(self.target)
        confidence = percent_as_given(self.confidence)
        return (
            f"safe: the smallest {self.number_kind.noun} that serves {target} with {confidence} "
            "confidence; likely: with even odds"
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts of the page."""
        yield "verdict", self.verdict_in_words
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "evidence", self.evidence
        if self.track_record:
            yield "record", self.track_record
        yield "target", self.target_in_words
        if self.numbers:
            valid = f"until {self.until:,} episodes are written; {self.memories:,} were so far"
            yield self.number_kind.noun, f"{self.numbers}, {valid}"
        if self.served is not None and self.served_limits is not None:
            yield "served", served_in_words(self.served, self.served_limits)
        if self.boot_tokens is not None:
            noun = self.number_kind.noun
            today = f"today {self.loaded:,} tokens, and {self.boot_tokens:,} under the safe {noun}"
            boot = f"{today}; {self._note_on_starts} ({self.token_rule})"
            yield opening.start_label(self.source), boot
            if self.days is not None and not isnan(self.days):
                yield "memory kept", f"{self.days:,.1f} days"
        if self.token_budget is not None:
            fits = f"no {self.number_kind.noun} fits"
            point = self.within_budget
            if point is not None:
                served = served_in_words(point.served, point.served_limits)
                when = when_limit_holds(point, loads_at_start=self.loads_at_start)
                fits = f"{self.number_kind.noun}s up to {point.number:,} fit{when}"
                fits += f"; the largest serves {served}"
            yield "token budget", f"{self.token_budget:,}; {fits}"
        yield "prunable now", f"{self.prunable:,} of {self.memories:,} written"
        if self.verdict is not Verdict.NOTHING_PRUNABLE:
            yield "rule", self.rule
        for text in self.would_change:
            yield "note", text

    @property
    def target_in_words(self) -> str:
        """The goal in words."""
        share = f"{percent_as_given(self.target)} of later needs are served"
        return f"{share}, with {percent_as_given(self.confidence)} confidence"

    @property
    def _note_on_starts(self) -> str:
        """Note on the tokens at start under the safe number."""
        return f"95% of all past starts would have taken at most {self.boot_tokens_p95:,} under it"


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

    Examples
    --------
    >>> import memlab
    >>> advice = memlab.size(memlab.store_path("two_years"), unit="tokens").advice
    >>> advice.number == advice.max_tokens
    True
    """

    max_tokens: int | None
    mean: float

    number_kind: ClassVar[NumberKind] = BUDGET

    @property
    def number_to_keep_all(self) -> int:
        """Tokens of all present memories, load-bearing ones included."""
        return self.active_tokens

    def number_in_words(self, number: int) -> str:
        """Return a budget in words."""
        return f"a budget of {counted(number, self.number_kind.unit)}"

    @property
    def _note_on_starts(self) -> str:
        return f"load-bearing memories take {self.floor.tokens:,} of them"

    @property
    def rule(self) -> str:
        """How the numbers are defined, in words."""
        return f"{super().rule}; each memory counts as the mean of {counted(self.mean, 'tokens')}"

    def _in_settings(self, source: Source | None) -> list[str]:  # noqa: ARG002
        return []  # no system has a setting for a budget in tokens


def _file_in(store: str) -> str:
    """Return the file in a store's name, which may have the form SCHEME:FILE?OPTIONS."""
    if not opening.is_named_by_scheme(store):
        return store
    _, _, after_scheme = store.partition(":")
    file, _, _ = after_scheme.partition("?")
    return file


def _harvest_step(store: str) -> str:
    """Return the command that collects the reads of a store, with its effect."""
    harvest = command("harvest", _file_in(store), "-o", _log_for(store))
    return f"{harvest}    collects the reads that agents have recorded"


def _log_for(store: str) -> Path:
    """Return the path for a log of a store's reads: beside its file, if it has one."""
    return Path("reads.jsonl") if "://" in store else _reads_beside(_file_in(store))


def _reads_beside(file: str) -> Path:
    """Return the path of a log of reads beside a store's file."""
    path = Path(file)
    if not path.name.strip("."):  # "." and ".." are no names
        path = path.resolve()
    return path.with_suffix(".reads.jsonl")


def _is_harvestable(source: Source | None) -> bool:
    """Return whether ``memlab harvest`` knows the system of a store."""
    if source is None:
        return False
    return any(source.scheme in system.schemes for system in opening.harvestable())


def _note_on_dearer_caps(rows: pd.DataFrame) -> str:
    """Return a note on caps under which a start takes more than under a larger one; "" for none."""
    if "boot_tokens" not in rows:
        return ""
    dearer_caps: list[str] = []
    least_tokens_of_larger = inf
    for cap, tokens in reversed(list(rows["boot_tokens"].items())):
        if tokens > least_tokens_of_larger:
            dearer_caps.insert(0, f"{cap:,}")
        least_tokens_of_larger = min(least_tokens_of_larger, tokens)
    if not dearer_caps:
        return ""
    verb = verb_for(len(dearer_caps), "take")
    reason = (
        "a start loads only part of the index, and the lines that move up into that part are "
        "longer than the deleted ones"
    )
    return f"; {' and '.join(dearer_caps)} {verb} more tokens than a larger cap: {reason}"


def _rows_around(index: Sequence[int], numbers: Sequence[int]) -> list[int]:
    """Return the rows of a short table: those of some numbers, and the last row.

    If there are few numbers, the row before each of them is listed too, unless it is near one of
    them.

    Parameters
    ----------
    index : sequence of int
        The number of each row of the curve.
    numbers : sequence of int
        The numbers to list, which `index` contains.
    """
    rows = [index.index(number) for number in numbers]
    listed = {len(index) - 1, *rows}
    if len(rows) <= _MAX_NUMBERS_WITH_NEIGHBOURS:
        for row in rows:
            if row > 0 and not _is_near_any(index[row - 1], numbers):
                listed.add(row - 1)
    return sorted(listed)


def _is_near_any(number: int, others: Sequence[int]) -> bool:
    """Return whether a number differs from one of the others by a tenth of it at most."""
    return any(abs(number - other) <= 0.1 * other for other in others)


def served_in_words(share: float, limits: tuple[float, float]) -> str:
    """Return the share of references that a number serves, with its limits."""
    low, high = limits
    return f"{percent(share)} of later needs, limits {percent(low)} to {percent(high)}"


def _rounded(number: float) -> int | str:
    """Return a rounded number; a dash for an unknown one, such as the days of undated memories."""
    return "–" if isnan(number) else round(number)


def _days_in_words(days: float) -> str:
    """Return days with one decimal; a dash if no memory has a date."""
    return "–" if isnan(days) else f"{days:,.1f}"
