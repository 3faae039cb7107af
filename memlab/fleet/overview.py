"""What an agent loads from each store of a fleet: one line a store. Reads only."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from memlab.clock import moment_or_now
from memlab.compaction.reclaim import space
from memlab.fleet.names import Sources
from memlab.fleet.sweep import table_of
from memlab.fleet.workers import FleetTask, Progress, Runner
from memlab.growth.summary import past_arrays, summary_of
from memlab.sources.base import Source
from memlab.sources.opening import open_source

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StoreLine:
    """What a survey says of one store.

    ``boot_*`` is what an agent loads at start, ``floor_*`` the load-bearing part of it and
    ``prunable*`` the rest, which a cap could take away; ``per_day`` so many of these come in, None
    where none has. ``bytes`` counts its file and what lies beside it, ``free_bytes`` those of them
    that a vacuum gives back; None for a server. ``unreadable`` memories cannot be interpreted and
    count as load-bearing.
    """

    scheme: str
    memories: int
    boot_memories: int
    boot_tokens: int
    floor_memories: int
    floor_tokens: int
    prunable: int
    prunable_tokens: int
    per_day: float | None
    first_at: datetime | None
    last_at: datetime | None
    bytes: int | None
    free_bytes: int | None
    unreadable: int


def survey(
    sources: Sources,
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Say of every store what an agent loads of it at start. Nothing is written.

    Parameters
    ----------
    sources : str, Path, or iterable of them
        Paths, patterns, folders, URLs and ``@FILE`` of names; see
        :func:`memlab.fleet.expand_names`.
    now : datetime, optional
        The present, with a time zone.
    runner : Runner, optional
        Who does it; by default a process for each processor, and this one alone for a few stores.
    progress : callable, optional
        Called with how many stores are done and how many there are.
    out : str or Path, optional
        A folder in which results are kept as they come. The same call again does what is missing,
        what failed, and the stores that have changed. One that holds something else is refused.

    Returns
    -------
    DataFrame
        A row for each store, in the order in which they were named: ``store``, the fields of
        :class:`StoreLine`, and ``error``, missing where there is none. A store that cannot be read
        is a row with its error.
    """
    task = survey_task(moment_or_now(now, call="memlab.fleet.survey"))
    return table_of(task, sources, runner=runner, progress=progress, out=out)


def survey_task(now: datetime) -> FleetTask[StoreLine]:
    """Return the task of a survey."""
    return FleetTask("survey", partial(_line_of, now=now), StoreLine)


def _line_of(where: str, *, now: datetime) -> StoreLine:
    source = open_source(where)
    memories, _ = past_arrays(source, on_bad_row="keep")
    summary = summary_of(memories, now=now, threshold=None)
    boot = summary.boot
    return StoreLine(
        scheme=source.scheme,
        memories=summary.rows.memories,
        boot_memories=boot.memories,
        boot_tokens=boot.tokens,
        floor_memories=boot.load_bearing.memories,
        floor_tokens=boot.load_bearing.tokens,
        prunable=boot.prunable.memories,
        prunable_tokens=boot.prunable.tokens,
        per_day=None if summary.pace is None else summary.pace.per_day,
        first_at=summary.first_at,
        last_at=summary.last_at,
        bytes=bytes_of(source),
        free_bytes=None if source.like is None else space(source).free,
        unreadable=int(memories.unreadable.sum()),
    )


def bytes_of(source: Source) -> int | None:
    """Return the size of a store's files; None for a server."""
    if source.like is None:
        return None
    return sum(file.stat().st_size for file in source.files() if file.is_file())
