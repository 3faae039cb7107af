"""A task done to every store of a fleet, in one frame; kept as Parquet files that appear whole.

The first of such tasks is a survey: what an agent loads from each.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

import pyarrow as pa

from memlab.clock import moment_or_now
from memlab.compaction.reclaim import space
from memlab.errors import MemlabError
from memlab.files import OWNER_ONLY, read_whole, whole_file, write_whole
from memlab.fleet import workers
from memlab.fleet.names import Member, Sources, members_of
from memlab.fleet.workers import FleetTask, Given, Outcome, Progress, Row, Runner
from memlab.growth.summary import past_arrays, summary_of
from memlab.sources.base import Source
from memlab.sources.opening import open_source
from memlab.text import refused
from memlab.versions import FileFormat, written_in

if TYPE_CHECKING:
    import pandas as pd

STORE: Final = "store"

SECONDS: Final = 2.0
"""How long a result waits to be written, about."""

_ARROW: Final = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.large_binary(),
    datetime: pa.timestamp("us", "UTC"),
}
_STORE: Final = pa.field(STORE, pa.string())
_OWN: Final = [pa.field(name, pa.string()) for name in ("error", "error_kind", "store_state")]
_RUN: Final = "_run.json"
"""Parquet readers pass over names that begin with an underscore."""
_MARKER: Final = "memlab_fleet_run"
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""The format of a folder of results."""


def outcomes_of(
    task: FleetTask[Row],
    sources: Sources,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
    given: Given = workers.nothing,
) -> list[Outcome[Row]]:
    """Do a task to every store; return what became of each, in the order of their names."""
    members = members_of(sources).stores
    parts = None if out is None else ParquetShards(Path(out), task)
    found = {} if parts is None else parts.still_there(members)
    missing = [member for member in members if member.name not in found]
    if progress is not None and found:
        progress(len(found), len(members))
    try:
        for outcome in (runner or workers.usual_runner(missing)).run(task, missing, given):
            found[outcome.name] = outcome if parts is None else parts.add(outcome)
            if progress is not None:
                progress(len(found), len(members))
    finally:
        if parts is not None:
            parts.flush()
    if parts is not None:
        parts.note(finished=True)
    return [found[member.name] for member in members]


def table_of(task: FleetTask[Any], sources: Sources, **how: Any) -> "pd.DataFrame":
    """Do a task to every store, as :func:`outcomes_of` does; return a row for each."""
    import pandas as pd

    lines = [_line_of(each) for each in outcomes_of(task, sources, **how)]
    table = pa.Table.from_pylist(lines, _schema_of(task))
    types = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    return frame.drop(columns=["error_kind", "store_state"])


def _schema_of(task: FleetTask[Any]) -> Any:
    """Return the columns of the store's name, of what is annotated in a row, and of an error."""
    names = stored_names_of(task.row)
    own = [each for each in fields(task.row) if names[each.name] != STORE]
    kinds = [next(k for k in (each.type, *get_args(each.type)) if k in _ARROW) for each in own]
    columns = [
        pa.field(names[each.name], _ARROW[kind]) for each, kind in zip(own, kinds, strict=True)
    ]
    return pa.schema([_STORE, *columns, *_OWN])


def stored_names_of(row: type[Any]) -> Mapping[str, str]:
    """Return the name of the column for each field of a row: in a frame, and in Parquet files.

    A row says them in a table ``stored_names``, so that a field may be renamed and its column
    stays. A row without it, which is nobody's but the caller's, has a column named as each field.
    """
    own: Mapping[str, str] = getattr(row, "stored_names", {})
    return own or {each.name: each.name for each in fields(row)}


def _line_of(outcome: Outcome[Any]) -> dict[str, Any]:
    value = {}
    if outcome.value is not None:
        names = stored_names_of(type(outcome.value))
        value = {key: getattr(outcome.value, name) for name, key in names.items()}
    own = {"error": outcome.error or None, "error_kind": outcome.kind or None}
    return value | own | {"store_state": outcome.state, STORE: outcome.name}


class ParquetShards:
    """A folder of results of one task."""

    def __init__(self, folder: Path, task: FleetTask[Any]) -> None:
        self.folder = folder
        self._task = task
        self._schema = _schema_of(task)
        self._question = {"asked": task.name, **task.asked, "columns": self._schema.names}
        self._waiting: list[dict[str, Any]] = []
        self._since = monotonic()
        self._is_fresh = self._begin()

    def still_there(self, members: Sequence[Member]) -> dict[str, Outcome[Any]]:
        """Return the results that still hold, and drop all others: a store has one row, or none."""
        small = [each for each in self._schema if not pa.types.is_large_binary(each.type)]
        kept: dict[str, tuple[Path, Outcome[Any]]] = {}
        for part in _parts_of(self.folder):
            for row in _read(part, pa.schema(small)).to_pylist():
                kept[row["store"]] = part, self._outcome(row)  # of two results the later
        named = {member.name: member for member in members}
        found = {
            name: outcome
            for name, (_, outcome) in kept.items()
            if name in named and self._still_holds(named[name], outcome)
        }
        if len(found) < len(kept):
            self._keep({name: kept[name][0] for name in found})
        return found

    def add(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Keep a result; return it without what is large in it, which need not be held."""
        line = _line_of(outcome)
        names = stored_names_of(self._task.row)
        large = [name for name, key in names.items() if isinstance(line.get(key), bytes)]
        self._waiting.append(line)
        # what was done to a store is said at once, whatever happens next
        if self._task.changes or monotonic() - self._since > SECONDS:
            self.flush()
        if outcome.value is None or not large:
            return outcome
        return replace(outcome, value=replace(outcome.value, **dict.fromkeys(large)))

    def flush(self) -> None:
        """Write what waits to be written."""
        if self._waiting:
            files = _parts_of(self.folder)
            number = int(files[-1].stem.removeprefix("part-")) + 1 if files else 1
            table = pa.Table.from_pylist(self._waiting, self._schema)
            self._write(self.folder / f"part-{number:06}.parquet", table)
        self._waiting = []
        self._since = monotonic()

    def _still_holds(self, member: Member, outcome: Outcome[Any]) -> bool:
        """Whether a result need not be asked for again: an error always is.

        A store that cannot be seen from here is, once the run that asked for it has finished.
        """
        if outcome.error:
            return False
        now = member.state()
        return outcome.state == now if now else not self._is_fresh

    def _keep(self, kept: Mapping[str, Path]) -> None:
        """Drop all results but those of these stores, each in its part."""
        for part in _parts_of(self.folder):
            table = _read(part, self._schema)
            stay = [kept.get(name) == part for name in table["store"].to_pylist()]
            if not any(stay):
                part.unlink()
            elif not all(stay):
                self._write(part, table.filter(pa.array(stay)))

    def _outcome(self, row: dict[str, Any]) -> Outcome[Any]:
        store, error, kind, state = (row[each.name] for each in (_STORE, *_OWN))
        if error is not None:
            return Outcome(store, error=error, kind=kind or "", state=state)
        names = stored_names_of(self._task.row)
        value = {name: row.get(key) for name, key in names.items()}
        return Outcome(store, self._task.row(**value), state=state)

    def _write(self, part: Path, table: Any) -> None:
        import pyarrow.parquet as pq  # with file systems of clouds, which take their time

        with whole_file(part, limit=OWNER_ONLY) as draft:
            pq.write_table(table, draft, compression="zstd")

    def _begin(self) -> bool:
        """Whether this is a new run: the last one finished, or there was none."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MemlabError(refused(f"{self.folder} cannot be made", error)) from error
        before = self._read_note()
        if not before and any(self.folder.iterdir()):
            raise MemlabError(f"{self.folder} holds other files; name a new folder")
        if before and before.get("question") != self._question:
            raise MemlabError(
                f"{self.folder} holds the answers to another question, or those of another memlab; "
                "name a new folder, or empty this one, as --fresh does"
            )
        is_fresh = bool(before.get("finished", True))
        rests_on = self._task.rests_on
        if is_fresh and (rests_on is None or before.get("rests_on", "") != rests_on):
            self._keep({})
        self.note(finished=False)
        return is_fresh

    def _read_note(self) -> dict[str, Any]:
        file = self.folder / _RUN
        found = None
        with suppress(ValueError):
            found = json.loads(read_whole(file)) if file.exists() else None
        if not isinstance(found, dict) or _MARKER not in found:
            return {}
        with suppress(ValueError):  # others made it
            written = written_in(found[_MARKER], found.get("readable_from"))
            FORMAT.check(f"what is in {self.folder}", written, MemlabError)
        return found

    def note(self, *, finished: bool) -> None:
        """Note what was asked, and whether every store has its result."""
        on = {"question": self._question, "rests_on": self._task.rests_on}
        versions = {_MARKER: FORMAT.number, "readable_from": FORMAT.readable_from}
        note = {**versions, **on, "finished": finished}
        write_whole(self.folder / _RUN, json.dumps(note, indent=1) + "\n", limit=OWNER_ONLY)


def column_of(folder: Path, name: str) -> Callable[[str], bytes | None]:
    """Return what gives a field of bytes of a store; those of one part are in memory."""
    parts: dict[str, Path] = {}
    for part in _parts_of(folder):
        parts |= dict.fromkeys(_read(part, pa.schema([_STORE]))[STORE].to_pylist(), part)

    @lru_cache(maxsize=1)
    def column(part: Path) -> dict[str, bytes]:
        table = _read(part, pa.schema([_STORE, (name, _ARROW[bytes])]))
        return dict(zip(table[STORE].to_pylist(), table[name].to_pylist(), strict=True))

    return lambda store: column(parts[store])[store] if store in parts else None


def start_over(folder: Path) -> None:
    """Remove the results in a folder, and nothing else."""
    if folder.is_dir():
        for file in [*_parts_of(folder), folder / _RUN]:
            file.unlink(missing_ok=True)


def _parts_of(folder: Path) -> list[Path]:
    """Return the parts in the order in which they were written."""
    return sorted(folder.glob("part-*.parquet"))


def _read(part: Path, schema: Any) -> Any:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(part, columns=schema.names, partitioning=None)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        why = str(error).partition("\n")[0]
        raise MemlabError(f"{part} cannot be read ({why}); remove it, and run again") from error
    if not table.schema.equals(schema) or table["store"].null_count:
        raise MemlabError(f"{part} cannot be read (others made it); remove it, and run again")
    return table


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

    stored_names: ClassVar[Mapping[str, str]] = {
        "scheme": "scheme",
        "memories": "memories",
        "boot_memories": "boot_memories",
        "boot_tokens": "boot_tokens",
        "floor_memories": "floor_memories",
        "floor_tokens": "floor_tokens",
        "prunable": "prunable",
        "prunable_tokens": "prunable_tokens",
        "per_day": "per_day",
        "first_at": "first_at",
        "last_at": "last_at",
        "bytes": "bytes",
        "free_bytes": "free_bytes",
        "unreadable": "unreadable",
    }


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
    return FleetTask("survey", partial(_surveyed, now=now), StoreLine)


def _surveyed(where: str, *, now: datetime) -> StoreLine:
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
        free_bytes=None if source.permissions_template is None else space(source).free,
        unreadable=int(memories.unreadable.sum()),
    )


def bytes_of(source: Source) -> int | None:
    """Return the size of a store's files; None for a server."""
    if source.permissions_template is None:
        return None
    return sum(file.stat().st_size for file in source.files() if file.is_file())
