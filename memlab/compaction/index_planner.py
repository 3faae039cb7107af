"""Plan the mend of an index: which lines to add, remove, restore and move."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

from memlab import columns as c
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.index_plans import IndexPlan
from memlab.errors import PlanError
from memlab.evidence.losses import losses_of
from memlab.evidence.reads import Log, reads_in
from memlab.sources.base import Source
from memlab.sources.capabilities import MOVES, REMOVES, IndexLine, IndexLoad, IndexMending, require
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.store.archive.index_versions import digest_of
from memlab.text import command, counted

_CALL: Final = "memlab.plan_index"


def plan_index(
    store: SourceLike,
    *,
    log: Log = None,
    empty_headings: bool = False,
    reorder: bool = True,
    now: datetime | None = None,
) -> IndexPlan:
    r"""Plan the mend of the index that a start loads; the store is only read.

    Each file that nothing names gets a line, in the style of the index. Entries whose file is gone
    are removed; sentences, headings, and lines that name something else too stay. If the index was
    lost or overwritten, its lines come back from git or from copies in the archive. If a start does
    not load the whole index, the entries that are read most move into the part that it loads,
    within their section.

    Parameters
    ----------
    store : str, Path or Source
        A store with an index, such as a folder of Claude Code's memory.
    log : DataFrame, str or Path, optional
        The access log with the reads; by default the logs in ``memlab.toml``. Without reads the
        order is left alone.
    empty_headings : bool
        Remove headings with nothing below them, too.
    reorder : bool
        Move lines so that what is read most is loaded.
    now : datetime, optional
        The time of the decision, with a time zone. The current time by default.

    Returns
    -------
    IndexPlan
        The plan. :func:`memlab.apply` applies it, and :func:`memlab.restore` undoes it.

    Raises
    ------
    MemlabError
        If the store has no index.
    PlanError
        If the index is not UTF-8, or cannot be mended without changing other lines.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("MEMORY.md").write_text("- [Build](build.md)\n- [Old](old.md)\n")
    >>> _ = Path("build.md").write_text("Use make.\n")
    >>> _ = Path("tests.md").write_text("Use pytest.\n")
    >>> plan = plan_index("claude:.")
    >>> plan.effect
    'Changes MEMORY.md: removes 1 line, adds 1 line.'
    >>> plan.text.splitlines()
    ['- [Build](build.md)', '- [tests](tests.md)']
    """
    expect(empty_headings, bool, call=_CALL, name="empty_headings")
    expect(reorder, bool, call=_CALL, name="reorder")
    source = open_source(store)
    mending = mending_of(source)
    moment = moment_or_now(now, call=_CALL)
    reads, _ = reads_in(log, settings_of(source), call=_CALL, source=source)
    losses = losses_of(source, with_memlab_deletions=False, now=moment)
    unlisted = {name: loss.record for name, loss in losses.restorable.items() if loss.is_unlisted}
    read_counts = Counter[str]()
    if reads is not None:
        read_counts.update(reads[c.MEMORY_ID])
    mend = mending.planned(read_counts, unlisted, empty_headings=empty_headings, reorder=reorder)
    restorable_files = losses.restorable.keys() - unlisted.keys()
    order_note = _order_note(
        mend.load_after,
        source,
        reorder=reorder,
        has_reads=bool(read_counts),
        has_moves=any(line.action == MOVES for line in mend.lines),
    )
    return IndexPlan(
        store=source.name,
        made_at=moment,
        index=mend.name,
        digest_before=digest_of(mend.before),
        text=(mend.after or b"").decode(),
        lines=tuple(_with_remedy(mend.lines, restorable_files, source)),
        loads=(mend.load_before, mend.load_after),
        order_note=order_note,
    )


def _order_note(
    load: IndexLoad, source: Source, *, reorder: bool, has_reads: bool, has_moves: bool
) -> str:
    """Return why a plan does not put first what is read most.

    Return an empty text if it does, or if a start loads all lines.

    Parameters
    ----------
    load : IndexLoad
        How much of the index a start loads after the mend.
    source : Source
        The store.
    reorder : bool
        Whether lines may move.
    has_reads : bool
        Whether a log of reads is known.
    has_moves : bool
        Whether lines of load-bearing memories move back into the part that a start loads.
    """
    not_loaded = load.named - load.loaded
    if not_loaded == 0:
        return ""
    problem = f"a start does not load the lines of {counted(not_loaded)}"
    if not reorder:
        return f"not changed, as asked; {problem}"
    if has_reads:
        return ""
    change = "changed only for load-bearing memories" if has_moves else "not changed"
    harvest = command("harvest", source.name, "-o", "LOG")
    reorder_command = command("index", source.name, "--log", "LOG")
    return (
        f"{change}, because no log says what is read most; {problem}: {harvest} writes a log of "
        f"what agents read, and {reorder_command} puts first what is read most"
    )


def mending_of(source: Source) -> IndexMending:
    """Return the ability of a source to change its index; raise PlanError if it has none."""
    mending = require(source, "index").mending
    if mending is None:
        raise PlanError(f"memlab never changes the index of {source.name}; mend it by hand")
    return mending


def _with_remedy(
    lines: Collection[IndexLine], restorable_files: Collection[str], source: Source
) -> Iterator[IndexLine]:
    """Yield the lines of a plan, with a command for each removed line whose file can be restored.

    The reason of such a line ends with the command.
    """
    for line in lines:
        if line.action == REMOVES and line.file in restorable_files:
            restore = command("lost", source.name, "--restore", line.file)
            yield line._replace(reason=f"{line.reason}; {restore} would bring it back")
        else:
            yield line
