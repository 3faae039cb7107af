"""Which memories there are, who needed each, what a compaction does with it, what that costs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from memlab import columns as c
from memlab.arguments import expect, whole_number
from memlab.clock import moment_or_now
from memlab.compaction.plans import LOAD_BEARING, PRUNABLE, RETIRED, SUPERSEDED, Plan
from memlab.compaction.wire import as_data, in_words
from memlab.errors import MemlabError
from memlab.evidence import reads as reading
from memlab.evidence.past import Memories, names_a_store, present_rows, resolve_history
from memlab.evidence.reads import CHANCE, Log, describe_log
from memlab.evidence.references import Evidence, collect_evidence
from memlab.frame.fields import Flags, arrays_of, passed_on, retired_rows, rows_in_state
from memlab.growth.context import Boot, boot_of, size_of
from memlab.items import Size
from memlab.policies import KeepRecent, Policy, decide
from memlab.policies.activation import activity_of, per_length
from memlab.settings import NUMBERS
from memlab.sizing import Verdict
from memlab.sizing.goal import SizingGoal, prepared_for
from memlab.sizing.in_force import effective_policy
from memlab.sources.opening import SourceLike, open_source
from memlab.text import Cell, DisplayMixin, Table, TextPage, as_text, counted, for_terminal, or_dash

LABEL: Final = "label"
AGE_DAYS: Final = "age_days"
READS: Final = "reads"
NEED: Final = "need"
DELETED: Final = "deleted"
UNREAD: Final = "unread"
NOT_KEPT: Final = "not-kept"
DOUBTFUL: Final = "doubtful"

LABELS: Final = (LOAD_BEARING, PRUNABLE, SUPERSEDED, RETIRED, c.REACHED, c.UNLISTED, DELETED)
WHERE: Final = (*LABELS, DOUBTFUL, NOT_KEPT, UNREAD)
BY: Final = {name: name for name in (c.TOKENS, READS, c.REFERENCES, NEED)} | {"age": AGE_DAYS}
FACTS: Final = "facts"
"""Key of ``attrs``: by which policy, log and evidence, as names and words."""

_ORDER: Final = (
    c.MEMORY_ID,
    LABEL,
    c.KEEP,
    c.TITLE,
    c.TOKENS,
    AGE_DAYS,
    READS,
    c.REFERENCES,
    NEED,
    CHANCE,
    c.REASON,
    c.DOUBT,
    c.KIND,
    c.TAGS,
    c.AUTHORED_BY,
    c.CREATED_AT,
    c.DELETED_AT,
    c.POSITION,
)
_GRID: Final = 5_000
"""Rows of a grid: a browser sorts so many at once."""
_HEADERS: Final = {c.MEMORY_ID: "id", AGE_DAYS: "days", c.REFERENCES: "refs"}
_COMMON: Final = {True: "all kept", False: "none kept"}
_SHORTEST: Final = 10
"""Characters that a title has at least."""
_LONGEST: Final = 80
"""Characters of an id, which may be of any length, that a table shows."""
_NEEDS: Final = {
    NOT_KEPT: "which memories are not kept is for a policy to say: give one, such as keep_recent",
    UNREAD: "which memories are unread is for an access log to say: give one; memlab harvest "
    "fills it from what agents write",
}
_NO_LOG: Final = "not known: no access log; memlab harvest fills one from what agents write"


class Rows(pd.DataFrame):
    """Memories as a frame that a notebook shows as a grid, where itables is installed."""

    @property
    def _constructor(self) -> type["Rows"]:
        return Rows

    def _repr_html_(self) -> str | None:
        try:
            from itables import javascript, utils
        except ImportError:
            plain: str | None = super()._repr_html_()  # type: ignore[misc]  # pandas has it
            return plain
        grid = pd.DataFrame(without_controls(self.head(_GRID)))
        words = [n for n, kind in enumerate(grid.dtypes) if not is_numeric_dtype(kind)]
        shown: str = javascript.to_html_datatable(
            grid,
            caption=f"the first {_GRID:,} of {len(self):,} memories" if len(self) > _GRID else None,
            allow_html=False,  # said here, for an itables.toml in the folder may say otherwise
            connected=False,
            maxBytes=0,
            classes="display compact",
            columnDefs=[{"targets": words, "className": "dt-left"}],
            scrollX=True,
            showIndex=False,
            text_in_header_can_be_selected=False,
            display_logo_when_loading=False,
        )
        # Each grid brings the library: it draws without a network, in an exported page too.
        script = utils.find_package_file("html", "dt_bundle.js")
        return f"{javascript.generate_init_offline_itables_html(script)}{shown}"


def rows(  # noqa: PLR0913 - which memories, and in what order
    frame: Memories,
    policy: Policy | None = None,
    *,
    where: str | None = None,
    tag: str | None = None,
    author: str | None = None,
    by: str = c.TOKENS,
    log: Log = None,
    now: datetime | None = None,
) -> pd.DataFrame:
    """List the memories of a store, what each costs, who needed it, and what a policy would do.

    A notebook shows the result as a grid that sorts, filters and pages, where itables is installed.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or what ``memlab.load_past`` or ``memlab.load`` returns.
    policy : Policy, optional
        The rule; of a store itself what ``memlab.toml`` remembers by default.
    where : str, optional
        "load-bearing", "prunable", "superseded", "retired", "reached", "unlisted", "deleted",
        "doubtful", "not-kept" or "unread". Which memories: those with a label, those that count as
        load-bearing until a person says otherwise, those that the policy does not keep, or those
        that the log could show read and does not. By default all that are in the store, whose
        archive has the deleted ones.
    tag, author : str, optional
        Only those with this tag, or that this one wrote.
    by : {"tokens", "age", "reads", "references", "need"}
        The order, the most first.
    log : DataFrame, str or Path, optional
        An access log, or what ``memlab.read_access_log`` returns; of a store itself the logs that
        ``memlab.toml`` remembers by default.
    now : datetime, optional
        When ages, reads and the policy are judged, with a time zone; the current moment by default.

    Returns
    -------
    DataFrame
        A row for each memory: ``label``, ``age_days``, ``tokens``, ``reads`` (missing without a
        log), ``references`` (other memories that name it), ``need``, and what it is called. With a
        policy ``keep`` and ``reason``, with a log ``chance``, one of
        ``memlab.evidence.reading_chances``. ``need`` is its base-level activation by reads,
        references and the store's counter, over ``(tokens + 10)^0.4`` (:class:`memlab.Activation`):
        what would be worth loading at start comes first by it.
        ``attrs["facts"]`` says in words what that rests on.
    """
    call = "memlab.rows"
    expect(policy, Policy, call=call, name="policy", optional=True)
    expect(tag, str, call=call, name="tag", optional=True)
    expect(author, str, call=call, name="author", optional=True)
    for name, value, known in (("where", where, WHERE), ("by", by, BY)):
        expect(value, str, call=call, name=name, optional=name == "where")
        if value is not None and value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    now = moment_or_now(now, call=call)
    words = ""
    if names_a_store(frame):
        frame = source = open_source(frame)
        policy, words = effective_policy(source) if policy is None else (policy, "")
    with_body = policy is not None and any(step.reads_bodies for step in policy.steps)
    evidence = collect_evidence(frame, log, call=call, with_body=with_body, now=now)
    past = evidence.past
    reads = evidence.log
    facts = [("memlab.toml", each) for each in (evidence.settings.not_obeyed, words) if each]
    activity = activity_of(past, past, evidence.references, now=now)
    found = _joined(evidence)
    found[NEED] = per_length(activity.levels, past[c.TOKENS].to_numpy())
    facts += _odd_facts(past, by, now, has_log=reads is not None)
    present = present_rows(past)
    if policy is not None:
        decided = decide(present, policy.after(past, evidence.references), now=now)
        found[c.KEEP] = decided[c.KEEP].astype("boolean")
        found[c.REASON] = decided[c.REASON]
        facts.append(("policy", in_words(as_data(policy))))
    if reads is None:
        facts.append((READS, _NO_LOG))
    else:
        found[CHANCE] = reading.reading_chances(present, reading.reads_of_store(reads, past, now))
        if reading.is_other_stores_log(reads, past):
            facts.append((READS, reading.ANOTHERS))
        elif len(reads):
            facts.append((READS, reading.describe_chances(found[CHANCE].dropna())))
        facts += [("log", words) for words in describe_log(reads, past)]
    if by == NEED:
        searched = past.attrs.get(c.RECALLED) and len(evidence.references)
        facts.append((NEED, _WORTH_LOADING if searched else _NEED))
        facts += [(NEED, note) for note in activity.notes]
    chosen = _chosen(found, where)
    if tag is not None:
        chosen &= found[c.TAGS].map(lambda tags: tag in tags).astype(bool)
    if author is not None:
        chosen &= found[c.AUTHORED_BY] == author
    listed = found[chosen].sort_values(BY[by], ascending=False, kind="stable")
    result = Rows(listed[[name for name in _ORDER if name in found]].reset_index(drop=True))
    result.attrs = passed_on(past) | {FACTS: facts}
    return result


_NEED: Final = "activation by reads and references, over (tokens + 10)^0.4"
_WORTH_LOADING: Final = f"{_NEED}; the first are worth loading at start"


def _odd_facts(
    past: pd.DataFrame, by: str, now: datetime, *, has_log: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a list cannot show as asked: an order without a log, an age before a birth."""
    if by == READS and not has_log:
        yield "order", "of writing, for there is no log to order by"
    if ahead := int((past[c.CREATED_AT] > now).sum()):
        yield AGE_DAYS, f"{counted(ahead)} dated after now: their age is 0"


def _joined(evidence: Evidence) -> pd.DataFrame:
    """Return what is known of each memory without a policy: label, age, and who needed it."""
    past = evidence.past
    references = evidence.references
    has_log = evidence.log is not None
    found = past[[name for name in _ORDER if name in past]].copy()
    deleted = past[c.DELETED_AT].notna() if c.DELETED_AT in past else np.zeros(len(past), bool)
    by_label = {
        DELETED: deleted,
        RETIRED: retired_rows(past),
        c.REACHED: rows_in_state(past, c.REACHED),
        c.UNLISTED: rows_in_state(past, c.UNLISTED),
        SUPERSEDED: ~past[c.ACTIVE],
        LOAD_BEARING: past[c.LOAD_BEARING],
    }
    label = np.select(list(by_label.values()), list(by_label), PRUNABLE)
    found[LABEL] = pd.Categorical(label, list(LABELS))
    age = (evidence.now - past[c.CREATED_AT]).dt.total_seconds() / 86_400
    found[AGE_DAYS] = age.clip(lower=0).round(2)
    is_read = references[c.KIND] == "log"

    def to_each(of: "pd.Series[Any]") -> "pd.Series[Any]":
        totals = of.groupby(references[c.TARGET_POSITION]).sum()
        return past[c.POSITION].map(totals).fillna(0)

    reads = to_each(is_read.astype("int64")).astype("Int64")
    found[READS] = reads if has_log else pd.Series(pd.NA, past.index, "Int64")
    found[c.REFERENCES] = to_each((~is_read).astype("int64")).astype("int64")
    return found


def _chosen(found: pd.DataFrame, where: str | None) -> "pd.Series[bool]":
    if where is None:
        return found[LABEL] != DELETED
    if where == DOUBTFUL:
        is_there = found[LABEL] != DELETED
        return found[c.DOUBT].notna() & is_there if c.DOUBT in found else is_there & False
    column, value = {NOT_KEPT: (c.KEEP, False), UNREAD: (CHANCE, UNREAD)}.get(where, (LABEL, where))
    if column not in found:
        raise MemlabError(_NEEDS[where])
    return (found[column] == value).fillna(value=False).astype(bool)


def without_controls(listed: pd.DataFrame) -> pd.DataFrame:
    """Return rows with nothing in their texts that could steer a terminal; tags are one text."""

    def harmless(value: Any) -> Any:
        value = ", ".join(value) if isinstance(value, tuple) else value
        return for_terminal(value) if isinstance(value, str) else value

    texts = listed.select_dtypes(["object", "str"]).astype(object)
    return listed.assign(**texts.map(harmless, na_action="ignore"))


def table_of(listed: pd.DataFrame, *, most: int, width: int, by: str = "", more: str = "") -> Table:
    """Return the first rows as a table; what all rows have in common stands above it."""
    used = READS if CHANCE in listed else c.REFERENCES
    columns = [c.MEMORY_ID, c.TOKENS]
    columns += [used, NEED] if by == NEED else dict.fromkeys((AGE_DAYS, used, c.REFERENCES))
    common = []
    for name in (LABEL, c.KEEP):
        values = list(listed[name].dropna().unique()) if name in listed else []
        if len(values) == 1:
            common.append(_COMMON.get(values[0], f"all {values[0]}"))
        elif len(values):
            columns.append(name)
    header = tuple(_HEADERS.get(name, name) for name in columns)
    first = listed.head(most).assign(**{NEED: listed[NEED].map("{:.3f}".format)})
    cells = list(zip(*(map(_cell, first[name]) for name in columns), strict=True))
    beside = as_text(TextPage("", (), [Table("", header, cells, whole=True)])).splitlines()
    room = max(width - 2 - max(map(len, beside), default=0), _SHORTEST)
    titles = [for_terminal(title[: room + 1]) for title in first[c.TITLE].fillna("")]
    titles = [text if len(text) <= room else f"{text[: room - 1]}…" for text in titles]
    whole = [(*row, title) for row, title in zip(cells, titles, strict=True)]
    hidden = len(listed) - len(first)
    remark = f"and {hidden:,} more{more}" if hidden else ""
    return Table(", ".join(common), (*header, c.TITLE), whole, remark, whole=True)


def _cell(value: Any) -> Cell:
    """Return a cell: whole numbers, a long id cut, and a dash for what is missing."""
    if pd.isna(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
    return int(value)


_AT_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)
"""The newest stay whatever the clock says."""


@dataclass(frozen=True, slots=True, repr=False)
class CapEffect(DisplayMixin):
    """What one compaction to `keep_recent` prunable memories would do to a boot context.

    `oldest_kept`, `newest_kept` and `newest_deleted` say when the first and the last prunable
    memory to stay, and the last to be deleted, were created, in order of position; else None.
    """

    keep_recent: int
    before: Boot
    after: Boot
    deleted: Size
    oldest_kept: datetime | None
    newest_kept: datetime | None
    newest_deleted: datetime | None

    def sheet(self) -> TextPage:
        """Return what is printed."""
        ends = {
            "last episode to be deleted": self.newest_deleted,
            "first episode to stay": self.oldest_kept,
            "last episode to stay": self.newest_kept,
        }
        facts = [(name, f"{moment:%Y-%m-%d}") for name, moment in ends.items() if moment]
        rows: list[tuple[Cell, ...]] = []
        for name, boot in (("before", self.before), ("after", self.after)):
            prunable = or_dash(boot.prunable_by_memories)
            rows.append((name, boot.memories, boot.tokens, prunable))
        rows.append(("deleted", *self.deleted, ""))
        table = Table("", ("boot context", "memories", "tokens", "prunable"), rows)
        return TextPage(f"keep_recent = {self.keep_recent:,}", facts, [table])


def cap_effect(frame: Memories, keep_recent: int) -> CapEffect:
    """Return what one compaction would do, without doing it.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load`` returns, or the store itself. Of a past, what was deleted is left out.
    keep_recent : int
        How many of the newest prunable memories stay, newest by position.
    """
    keep_recent = whole_number("keep_recent", keep_recent)
    frame = present_rows(resolve_history(frame, call="memlab.compaction.cap_effect"))
    stays = _stays(frame, keep_recent)
    memories = arrays_of(frame)
    kept = frame[c.POSITION].where(frame[c.PRUNABLE].to_numpy(bool) & stays)
    return CapEffect(
        keep_recent=keep_recent,
        before=boot_of(memories, np.ones(len(frame), dtype=bool)),
        after=boot_of(memories, stays),
        deleted=size_of(memories, ~stays),
        oldest_kept=_created(frame, kept.min()),
        newest_kept=_created(frame, kept.max()),
        newest_deleted=_created(frame, frame[c.POSITION].mask(stays).max()),
    )


def survivors(frame: Memories, keep_recent: int) -> pd.DataFrame:
    """Return the memories that the compaction of :func:`cap_effect` would leave, as they stand."""
    frame = present_rows(resolve_history(frame, call="memlab.compaction.survivors"))
    return frame[_stays(frame, whole_number("keep_recent", keep_recent))]


def _stays(frame: pd.DataFrame, keep_recent: int) -> Flags:
    decided = decide(frame, KeepRecent(keep_recent), now=_AT_ANY_TIME)
    return decided[c.KEEP].to_numpy(bool)


def _created(frame: pd.DataFrame, position: float) -> datetime | None:
    created = frame.loc[frame[c.POSITION] == position, c.CREATED_AT]
    found = None if created.empty else created.iloc[0]
    return None if pd.isna(found) else pd.Timestamp(found).to_pydatetime()


@dataclass(frozen=True, repr=False)
class Cost(DisplayMixin):
    """What a plan costs in later references and reads.

    Attributes
    ----------
    lost, lost_limits : float, tuple of float or None
        Share of later references that would find their memory gone, were its cap or budget held
        until the horizon of its store's settings; estimated. None for a rule that is neither.
    safe, likely : int or None
        The cap or budget that serves `target`: safe, and with even odds.
    references, to_deleted : int
        References so far, and those of them that led to what the plan deletes.
    """

    lost: float | None
    lost_limits: tuple[float, float] | None
    safe: int | None
    likely: int | None
    target: float
    references: int
    to_deleted: int

    def sheet(self) -> TextPage:
        """Return what is printed."""
        facts = []
        if self.lost is not None and self.lost_limits is not None:
            low, high = self.lost_limits
            lost = f"about {self.lost:.1%} would find their memory gone"
            facts.append(("later references", f"{lost}, limits {low:.1%} to {high:.1%}"))
        if self.safe is not None:
            numbers = f"{self.safe:,} is safe, {self.likely:,} is likely"
            facts.append((f"to serve {self.target:.0%}", numbers))
        found = counted(self.references, "references")
        led = f"{self.to_deleted:,} of {found} led to what it deletes"
        facts.append(("so far", led if self.references else "no reference or read is known"))
        return TextPage("what that costs", facts)


def cost_of(plan: Plan, *, store: SourceLike | None = None, log: Log = None) -> Cost:
    """Say what a plan costs in later references and reads, by the whole past of its store.

    Parameters
    ----------
    plan : Plan
        As :func:`memlab.plan` returns it.
    store : str, Path, SqliteMemoryStore or Source, optional
        The store, where it is not to be found by the name in the plan.
    log : DataFrame, str or Path, optional
        An access log; the logs that ``memlab.toml`` remembers by default.
    """
    call = "memlab.compaction.cost_of"
    expect(plan, Plan, call=call, name="plan")
    found = collect_evidence(plan.store if store is None else store, log, call=call)
    settings = found.settings
    past = found.past
    references = found.references
    gone = {memory.memory_id for memory in plan.memories}
    to_deleted = int(references[c.TARGET_ID].isin(gone).sum())
    asked = SizingGoal.of(settings)
    lost = None
    limits = None
    safe = None
    likely = None
    name = str(plan.policy.get("policy"))
    if name in NUMBERS:
        sizing = prepared_for(past, references, asked, tokens=name == "tokens")
        (row,) = sizing.at([plan.policy[NUMBERS[name]]]).to_dict("records")
        lost, low, high = (round(1 - row[share], 6) for share in ("served", "high", "low"))
        limits = (low, high)
        choice = sizing.choose(asked.target)
        if choice.verdict is not Verdict.NOTHING_PRUNABLE:
            safe, likely = map(sizing.number_for, (choice.keep_recent, choice.likely))
    return Cost(lost, limits, safe, likely, asked.target, len(references), to_deleted)
