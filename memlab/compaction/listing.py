"""Which memories there are: label, age, cost and use of each, and what a policy does with it."""

from datetime import datetime
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from memlab import columns as c
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.plans import LOAD_BEARING, PRUNABLE, RETIRED, SUPERSEDED
from memlab.compaction.wire import as_data, in_words
from memlab.errors import MemlabError
from memlab.evidence.past import Memories, names_a_store, past_in, present_rows
from memlab.evidence.reads import (
    CHANCE,
    Log,
    describe_chances,
    describe_log,
    reading_chances,
    reads_in,
)
from memlab.evidence.references import find_references
from memlab.evidence.usage import HALF_LIFE
from memlab.frame.fields import passed_on, retired_rows
from memlab.policies import Policy, decide
from memlab.settings import NOTHING
from memlab.sizing.in_force import policy_seen
from memlab.sources.opening import open_source, settings_of
from memlab.text import Cell, Sheet, Table, as_text, for_terminal

LABEL: Final = "label"
AGE_DAYS: Final = "age_days"
READS: Final = "reads"
NEED: Final = "need"
DELETED: Final = "deleted"
UNREAD: Final = "unread"
NOT_KEPT: Final = "not-kept"

LABELS: Final = (LOAD_BEARING, PRUNABLE, SUPERSEDED, RETIRED, DELETED)
WHERE: Final = (*LABELS, NOT_KEPT, UNREAD)
BY: Final = {name: name for name in (c.TOKENS, READS, c.REFERENCES, NEED)} | {"age": AGE_DAYS}
FACTS: Final = "facts"
"""Key of ``attrs``: by which policy, log and evidence, as names and words."""

_ORDER: Final = (
    *(c.MEMORY_ID, LABEL, c.KEEP, c.TITLE, c.TOKENS, AGE_DAYS, READS, c.REFERENCES, NEED, CHANCE),
    *(c.REASON, c.KIND, c.TAGS, c.AUTHORED_BY, c.CREATED_AT, c.DELETED_AT, c.POSITION),
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
        "load-bearing", "prunable", "superseded", "retired", "deleted", "not-kept" or "unread".
        Which memories: those with a label, those that the policy does not keep, or those that the
        log could show read and does not. By default all that are in the store, whose archive has
        the deleted ones.
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
        ``memlab.evidence.reading_chances``. ``need`` is what its reads, without a log its
        references, come to per 1,000 tokens when each has faded by half in the 14 days before the
        last of all: what would be worth loading at start comes first by it.
        ``attrs["facts"]`` says in words what that rests on.
    """
    call = "memlab.rows"
    expect(policy, Policy, call=call, name="policy", optional=True)
    for name, text in (("tag", tag), ("author", author)):
        expect(text, str, call=call, name=name, optional=True)
    for name, value, known in (("where", where, WHERE), ("by", by, BY)):
        expect(value, str, call=call, name=name, optional=name == "where")
        if value is not None and value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    now = moment_or_now(now, call=call)
    facts: list[tuple[str, str]] = []
    settings = NOTHING
    if names_a_store(frame):
        frame = source = open_source(frame)
        settings = settings_of(source)
        policy, words = policy_seen(source) if policy is None else (policy, "")
        facts += [("memlab.toml", each) for each in (settings.not_obeyed, words) if each]
    log, _ = reads_in(log, settings, call=call)
    with_body = policy is not None and any(step.reads_bodies for step in policy.steps)
    past = past_in(frame, call=call, with_body=with_body, log=log)
    references = find_references(past, log, now=None if log is None else now)
    found = _joined(past, references, has_log=log is not None, now=now)
    present = present_rows(past)
    if policy is not None:
        decided = decide(present, policy.after(past), now=now)
        found[c.KEEP] = decided[c.KEEP].astype("boolean")
        found[c.REASON] = decided[c.REASON]
        facts.append(("policy", in_words(as_data(policy))))
    if log is None:
        facts.append((READS, _NO_LOG))
    else:
        found[CHANCE] = reading_chances(present, log[log[c.AT] <= now])
        if len(log):
            facts.append((READS, describe_chances(found[CHANCE].dropna())))
        facts += [("log", words) for words in describe_log(log)]
    if by == NEED:
        evidence = c.REFERENCES if log is None else READS
        words = f"{evidence}, each fading by half in 14 days, per 1,000 tokens"
        searched = past.attrs.get(c.RECALLED) and found[NEED].any()
        facts.append((NEED, words + "; the first are worth loading at start" * bool(searched)))
    chosen = _chosen(found, where)
    if tag is not None:
        chosen &= found[c.TAGS].map(lambda tags: tag in tags).astype(bool)
    if author is not None:
        chosen &= found[c.AUTHORED_BY] == author
    listed = found[chosen].sort_values(BY[by], ascending=False, kind="stable")
    result = Rows(listed[[name for name in _ORDER if name in found]].reset_index(drop=True))
    result.attrs = passed_on(past) | {FACTS: facts}
    return result


def _joined(
    past: pd.DataFrame, references: pd.DataFrame, *, has_log: bool, now: datetime
) -> pd.DataFrame:
    """Return what is known of each memory without a policy: label, age, and who needed it."""
    found = past[[name for name in _ORDER if name in past]].copy()
    deleted = past[c.DELETED_AT].notna() if c.DELETED_AT in past else np.zeros(len(past), bool)
    states = [deleted, retired_rows(past), ~past[c.ACTIVE], past[c.LOAD_BEARING]]
    label = np.select(states, [DELETED, RETIRED, SUPERSEDED, LOAD_BEARING], PRUNABLE)
    found[LABEL] = pd.Categorical(label, list(LABELS))
    found[AGE_DAYS] = ((now - past[c.CREATED_AT]).dt.total_seconds() / 86_400).round(2)
    is_read = references[c.KIND] == "log"

    def to_each(of: "pd.Series[Any]") -> "pd.Series[Any]":
        totals = of.groupby(references[c.TARGET_POSITION]).sum()
        return past[c.POSITION].map(totals).fillna(0)

    reads = to_each(is_read.astype("int64")).astype("Int64")
    found[READS] = reads if has_log else pd.Series(pd.NA, past.index, "Int64")
    found[c.REFERENCES] = to_each((~is_read).astype("int64")).astype("int64")
    evidence = is_read if has_log else ~is_read
    age = references[c.AT].where(evidence).max() - references[c.AT]
    faded = (0.5 ** (age / pd.Timedelta(days=HALF_LIFE)).clip(lower=0)).where(evidence)
    found[NEED] = 1000 * to_each(faded) / past[c.TOKENS].clip(lower=1)
    return found


def _chosen(found: pd.DataFrame, where: str | None) -> "pd.Series[bool]":
    if where is None:
        return found[LABEL] != DELETED
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
    first = listed.head(most).assign(**{NEED: listed[NEED].map("{:,.1f}".format)})
    cells = list(zip(*(map(_cell, first[name]) for name in columns), strict=True))
    beside = as_text(Sheet("", (), [Table("", header, cells, whole=True)])).splitlines()
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
