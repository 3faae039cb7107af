"""Table of the memories of a store: size, use, and the decision of a policy."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from memlab import columns as c
from memlab.arguments import expect
from memlab.compaction.plans import LOAD_BEARING, PRUNABLE, RETIRED, SUPERSEDED
from memlab.compaction.wire import as_data, policy_in_words
from memlab.errors import MemlabError
from memlab.evidence import reads as reading
from memlab.evidence.past import HistoryLike, present_rows, source_of
from memlab.evidence.reads import CHANCE, Log, describe_log
from memlab.evidence.store_history import StoreHistory
from memlab.evidence.unused_log import unused_log_of
from memlab.evidence.use_times import per_length
from memlab.frame.fields import inherited_attrs, labels_of
from memlab.policies import Policy, decide
from memlab.policies.activation import activity_of
from memlab.sizing.in_force import effective_policy
from memlab.text import Cell, Table, TextPage, as_text, command, counted, for_terminal

LABEL: Final = c.LABEL
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
"""Columns to sort by, by the name that a caller gives."""
FACTS: Final = "facts"
"""Key of ``attrs`` for facts about the policy, the log and the evidence: pairs of name and text."""

_COLUMNS: Final = (
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
"""Columns of a list, in their order."""
_MAX_GRID_ROWS: Final = 5_000
"""Maximum number of rows in a grid; a browser can still sort them quickly."""
_HEADERS: Final = {c.MEMORY_ID: "id", AGE_DAYS: "days", c.REFERENCES: "refs"}
"""Headers of a printed table, for columns whose name is too long."""
_KEEP_OF_ALL: Final = {True: "all kept", False: "none kept"}
"""Headings of tables in which all rows have the same decision."""
_MIN_TITLE_WIDTH: Final = 10
"""Minimum width of a title, in characters."""
_MAX_TEXT_LENGTH: Final = 80
"""Maximum length of an id or another text in a table, in characters. Titles are cut to fit."""
_MISSING_EVIDENCE: Final = {
    NOT_KEPT: "only a policy can tell which memories are not kept: give one, such as keep_recent",
    UNREAD: (
        "only an access log can tell which memories are unread: give one; memlab harvest "
        "writes one from what agents record"
    ),
}
"""Error messages for selections that need a policy or a log."""
_NO_LOG: Final = "not known: no access log; memlab harvest writes one from what agents record"


class Rows(pd.DataFrame):
    """Frame of memories that a notebook shows as an interactive grid, if itables is installed."""

    @property
    def _constructor(self) -> type["Rows"]:
        return Rows

    def _repr_html_(self) -> str | None:
        """Return the grid with the library that draws it; without itables, a plain table."""
        try:
            from itables import javascript, utils
        except ImportError:
            plain: str | None = super()._repr_html_()  # type: ignore[misc]  # pandas has it
            return plain
        shown_rows = pd.DataFrame(without_controls(self.head(_MAX_GRID_ROWS)))
        text_columns = [
            index for index, dtype in enumerate(shown_rows.dtypes) if not is_numeric_dtype(dtype)
        ]
        caption = None
        if len(self) > _MAX_GRID_ROWS:
            caption = f"the first {_MAX_GRID_ROWS:,} of {len(self):,} memories"
        grid: str = javascript.to_html_datatable(
            shown_rows,
            caption=caption,
            allow_html=False,  # explicit, because an itables.toml in the folder may change defaults
            connected=False,
            maxBytes=0,
            classes="display compact",
            columnDefs=[{"targets": text_columns, "className": "dt-left"}],
            scrollX=True,
            showIndex=False,
            text_in_header_can_be_selected=False,
            display_logo_when_loading=False,
        )
        # Each grid includes the library, so that it works offline and in an exported page.
        script = utils.find_package_file("html", "dt_bundle.js")
        return f"{javascript.generate_init_offline_itables_html(script)}{grid}"


def rows(  # noqa: PLR0913 - which memories, and in what order
    frame: HistoryLike,
    policy: Policy | None = None,
    *,
    where: str | None = None,
    tag: str | None = None,
    author: str | None = None,
    by: str = c.TOKENS,
    log: Log = None,
    now: datetime | None = None,
) -> pd.DataFrame:
    """List the memories of a store with their size, their use and the decision of a policy.

    A notebook shows the result as a grid to sort, filter and page through, if itables is installed.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or the result of ``memlab.load_past`` or ``memlab.load``.
    policy : Policy, optional
        The retention policy. For a store, the policy in ``memlab.toml`` by default.
    where : str, optional
        The memories to list; by default all memories in the store. One of these labels lists the
        memories with the label: "load-bearing", "prunable", "superseded", "retired", "reached",
        "unlisted" or "deleted". Deleted memories come from the archive. "doubtful" lists the
        memories that count as load-bearing until a person confirms it. "not-kept" lists the
        memories that the policy does not keep. "unread" lists the memories that have no read in the
        log, although the log could have one.
    tag, author : str, optional
        List only memories with this tag, or by this author.
    by : {"tokens", "age", "reads", "references", "need"}
        The column to sort by, in descending order.
    log : DataFrame, str or Path, optional
        An access log, or the result of ``memlab.read_access_log``. For a store, the logs in
        ``memlab.toml`` by default.
    now : datetime, optional
        The time at which ages, reads and the policy are evaluated, with a time zone; by default
        the current time.

    Returns
    -------
    DataFrame
        A row for each memory, with the columns ``label``, ``age_days``, ``tokens``, ``reads``
        (missing without a log), ``references`` (from other memories), ``need``, the title, and
        more. A policy adds ``keep`` and ``reason``. A log adds ``chance``, which is a value of
        ``memlab.evidence.reading_chances``. ``attrs["facts"]`` explains the policy, the log and the
        evidence in words.

        ``need`` is the base-level activation by reads, references and the store's counter, divided
        by ``(tokens + 10)^0.4`` (:class:`memlab.Activation`). The higher it is, the more a memory
        is worth loading at start.

    Examples
    --------
    >>> import memlab
    >>> table = memlab.rows(memlab.store_path("looked_up"), memlab.KeepRecent(50), where="not-kept")
    >>> bool(table["tokens"].is_monotonic_decreasing)
    True
    """
    call = "memlab.rows"
    expect(policy, Policy, call=call, name="policy", optional=True)
    expect(tag, str, call=call, name="tag", optional=True)
    expect(author, str, call=call, name="author", optional=True)
    expect(where, str, call=call, name="where", optional=True)
    _check_choice("where", where, WHERE)
    expect(by, str, call=call, name="by")
    _check_choice("by", by, BY)
    policy_note = ""
    source = source_of(frame)
    if source is not None and policy is None:
        effective = effective_policy(source)
        policy = effective.policy
        policy_note = effective.note
    with_body = policy is not None and any(step.reads_bodies for step in policy.steps)
    evidence = StoreHistory.of(frame, log, call=call, with_body=with_body, now=now)
    result = rows_of(evidence, policy, where=where, tag=tag, author=author, by=by)
    if evidence.log is None:
        result.attrs[FACTS].append((READS, _reads_without_log(evidence)))
    if policy_note:
        # A fact about ignored settings stays the first one.
        place = 1 if evidence.settings.ignored_reason else 0
        result.attrs[FACTS].insert(place, ("memlab.toml", policy_note))
    return result


def rows_of(
    evidence: StoreHistory,
    policy: Policy | None = None,
    *,
    where: str | None = None,
    tag: str | None = None,
    author: str | None = None,
    by: str = c.TOKENS,
) -> pd.DataFrame:
    """List the memories of a history; see :func:`rows`. The policy in ``memlab.toml`` is not used.

    If the history already has its references, they are not searched for again.
    """
    evidence = evidence.with_references()
    now = evidence.now
    past = evidence.past
    log = evidence.log
    ignored_reason = evidence.settings.ignored_reason
    facts = [("memlab.toml", ignored_reason)] if ignored_reason else []
    activity = activity_of(past, past, evidence.references, now=now)
    table = _table_of_memories(evidence)
    table[NEED] = per_length(activity.levels, past[c.TOKENS].to_numpy())
    facts += _notes_on_columns(past, by, now, has_log=log is not None)
    present = present_rows(past)
    if policy is not None:
        decided = decide(present, policy.with_past(past, evidence.references), now=now)
        table[c.KEEP] = decided[c.KEEP].astype("boolean")
        table[c.REASON] = decided[c.REASON]
        facts.append(("policy", policy_in_words(as_data(policy))))
    if log is not None:
        reads = reading.reads_of_store(log, past, now)
        table[CHANCE] = reading.reading_chances(present, reads)
        facts += _log_facts(log, past, table[CHANCE])
    if by == NEED:
        is_only_searched = past.attrs.get(c.RECALLED)
        has_references = len(evidence.references) > 0
        explanation = _NEED_OF_SEARCHED if is_only_searched and has_references else _NEED
        facts.append((NEED, explanation))
        facts += [(NEED, note) for note in activity.notes]
    is_listed = _is_selected(table, where) & _has_tag_and_author(table, tag, author)
    listed = table[is_listed].sort_values(BY[by], ascending=False, kind="stable")
    columns = [name for name in _COLUMNS if name in table]
    result = Rows(listed[columns].reset_index(drop=True))
    result.attrs = inherited_attrs(past)
    result.attrs[FACTS] = facts
    return result


def _reads_without_log(evidence: StoreHistory) -> str:
    """Return the note on reads if no access log is used. It names a log beside the store."""
    log = unused_log_of(evidence)
    if log is None:
        return _NO_LOG
    with_log = command("rows", evidence.name, "--log", log.file)
    return f"not known: the log beside the store has {counted(log.reads, 'reads')}; {with_log}"


def _has_tag_and_author(
    table: pd.DataFrame, tag: str | None, author: str | None
) -> "pd.Series[bool]":
    """Flag the rows that have a tag and an author; None stands for any tag or author."""
    has_both = pd.Series(True, table.index)  # noqa: FBT003 - the value of each row
    if tag is not None:
        has_both &= table[c.TAGS].map(lambda tags: tag in tags).astype(bool)
    if author is not None:
        has_both &= table[c.AUTHORED_BY] == author
    return has_both


def _log_facts(
    log: pd.DataFrame, past: pd.DataFrame, chances: "pd.Series[Any]"
) -> Iterator[tuple[str, str]]:
    """Yield the facts about an access log and its reads of a store's memories."""
    if reading.is_other_stores_log(log, past[c.MEMORY_ID]):
        yield READS, reading.NO_READ_OF_STORE
    elif len(log):
        yield READS, reading.describe_chances(chances.dropna())
    for sentence in describe_log(log, past):
        yield "log", sentence


def _check_choice(name: str, value: str | None, choices: Collection[str]) -> None:
    """Raise ValueError if an argument is neither None nor one of the choices."""
    if value is not None and value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


_NEED: Final = "activation by reads and references, over (tokens + 10)^0.4"
_NEED_OF_SEARCHED: Final = f"{_NEED}; the first are worth loading at start"
"""Explanation of the column ``need``, in general and for a store that is only searched."""


def _notes_on_columns(
    past: pd.DataFrame, by: str, now: datetime, *, has_log: bool
) -> Iterator[tuple[str, str]]:
    """Yield notes on the order and the ages of a list, each with its subject."""
    if by == READS and not has_log:
        yield "order", "by time of writing, because there is no log of reads"
    future_count = int((past[c.CREATED_AT] > now).sum())
    if future_count:
        yield AGE_DAYS, f"{counted(future_count)} dated after now: their age is 0"


def _table_of_memories(evidence: StoreHistory) -> pd.DataFrame:
    """Return the memories of a history with their label, age, reads and references."""
    past = evidence.past
    references = evidence.references
    table = past[[name for name in _COLUMNS if name in past]].copy()
    table[LABEL] = labels_of(past)
    age = (evidence.now - past[c.CREATED_AT]).dt.total_seconds() / 86_400
    table[AGE_DAYS] = age.clip(lower=0).round(2)
    is_read = references[c.KIND] == "log"

    def count_by_memory(is_counted: "pd.Series[Any]") -> "pd.Series[Any]":
        counts = is_counted.astype("int64").groupby(references[c.TARGET_POSITION]).sum()
        return past[c.POSITION].map(counts).fillna(0)

    if evidence.log is not None:
        table[READS] = count_by_memory(is_read).astype("Int64")
    else:
        table[READS] = pd.Series(pd.NA, past.index, "Int64")
    table[c.REFERENCES] = count_by_memory(~is_read).astype("int64")
    return table


def _is_selected(table: pd.DataFrame, where: str | None) -> "pd.Series[bool]":
    """Flag the rows that `where` selects.

    Raise MemlabError if the selection needs a policy or a log that was not given.
    """
    is_present = table[LABEL] != DELETED
    if where is None:
        return is_present
    if where == DOUBTFUL:
        if c.DOUBT in table:
            return table[c.DOUBT].notna() & is_present
        return pd.Series(False, table.index)  # noqa: FBT003 - the value of each row
    column = LABEL
    value: object = where
    if where == NOT_KEPT:
        column = c.KEEP
        value = False
    elif where == UNREAD:
        column = CHANCE  # one of its values is "unread"
    if column not in table:
        raise MemlabError(_MISSING_EVIDENCE[where])
    return (table[column] == value).fillna(value=False).astype(bool)


def without_controls(listed: pd.DataFrame) -> pd.DataFrame:
    """Return rows without control characters in their texts, and with their tags joined."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, tuple):
            return for_terminal(", ".join(value))
        if isinstance(value, str):
            return for_terminal(value)
        return value

    texts = listed.select_dtypes(["object", "str"]).astype(object)
    return listed.assign(**texts.map(cleaned, na_action="ignore"))


def table_of(listed: pd.DataFrame, *, most: int, width: int, by: str = "", more: str = "") -> Table:
    """Return the first rows as a table to print.

    Parameters
    ----------
    listed : DataFrame
        The result of :func:`rows`.
    most : int
        The maximum number of rows.
    width : int
        The width of the page, in characters. Titles are cut to fit.
    by : str
        The column by which the rows are sorted.
    more : str
        The end of the remark about hidden rows.

    Returns
    -------
    Table
        The table. If all rows have the same label or decision, it is in the heading.
    """
    has_log = CHANCE in listed
    columns = [c.MEMORY_ID, c.TOKENS]
    if by == NEED:
        columns += [READS if has_log else c.REFERENCES, NEED]
    elif has_log:
        columns += [AGE_DAYS, READS, c.REFERENCES]
    else:
        columns += [AGE_DAYS, c.REFERENCES]
    shared_by_all = []
    for name in (LABEL, c.KEEP):
        if name not in listed:
            continue
        values = list(listed[name].dropna().unique())
        if len(values) == 1:
            shared_by_all.append(_KEEP_OF_ALL.get(values[0], f"all {values[0]}"))
        elif len(values) > 1:
            columns.append(name)
    header = tuple(_HEADERS.get(name, name) for name in columns)
    first = listed.head(most).assign(**{NEED: listed[NEED].map("{:.3f}".format)})
    cells_by_column = [map(_cell, first[name]) for name in columns]
    rows_without_title = list(zip(*cells_by_column, strict=True))
    title_width = width - 2 - _width_of(header, rows_without_title)  # two spaces between columns
    titles = _titles_of(first, max(title_width, _MIN_TITLE_WIDTH))
    table_rows = [(*row, title) for row, title in zip(rows_without_title, titles, strict=True)]
    hidden = len(listed) - len(first)
    remark = f"and {hidden:,} more{more}" if hidden else ""
    return Table(", ".join(shared_by_all), (*header, c.TITLE), table_rows, remark, whole=True)


def _width_of(header: tuple[str, ...], table_rows: list[tuple[Cell, ...]]) -> int:
    """Return the width of a printed table, in characters."""
    printed = as_text(TextPage("", (), [Table("", header, table_rows, whole=True)]))
    return max(map(len, printed.splitlines()), default=0)


def _titles_of(memories: pd.DataFrame, width: int) -> list[str]:
    """Return the titles of memories without control characters, cut to a width."""
    titles = []
    for title in memories[c.TITLE].fillna(""):
        # One character more than fits is enough to know that the title has to be cut.
        beginning = for_terminal(title[: width + 1])
        titles.append(_cut(beginning, width))
    return titles


def _cut(text: str, length: int) -> str:
    """Return a text of at most `length` characters, with an ellipsis if it was longer."""
    if len(text) <= length:
        return text
    return f"{text[: length - 1]}…"


def _cell(value: Any) -> Cell:
    """Return a value as a table cell: a whole number, a text, or a dash for a missing value."""
    if pd.isna(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _cut(value, _MAX_TEXT_LENGTH)
    return int(value)
