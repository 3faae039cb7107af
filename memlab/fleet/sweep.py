"""Run a task on every store of a fleet, and collect the results in a frame or in Parquet files.

Each Parquet file is written atomically. The simplest task is the survey: the tokens that an agent
loads from each store at start.
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
from memlab.fleet.workers import ArgumentOf, FleetTask, Outcome, Progress, Row, Runner
from memlab.growth.summary import past_arrays, summary_of
from memlab.sources.base import Source
from memlab.sources.opening import open_source
from memlab.text import failure_message
from memlab.versions import FileFormat, written_in

if TYPE_CHECKING:
    import pandas as pd

STORE: Final = "store"
"""Column with the store's name."""

FLUSH_SECONDS: Final = 2.0
"""Seconds after which queued results are written to a file."""

_ARROW_TYPES: Final = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.large_binary(),
    datetime: pa.timestamp("us", "UTC"),
}
_STORE_FIELD: Final = pa.field(STORE, pa.string())
_STATUS_FIELDS: Final = [
    pa.field(name, pa.string()) for name in ("error", "error_kind", "store_state")
]
_RUN_FILE: Final = "_run.json"
"""File that describes the run. Parquet readers skip names that begin with an underscore."""
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
    argument_of: ArgumentOf = workers.no_argument,
) -> list[Outcome[Row]]:
    """Run a task on every store, and return the outcomes in the order of the names.

    Parameters
    ----------
    task : FleetTask
        The task.
    sources, runner, progress
        As for :func:`survey`.
    out : str or Path, optional
        A folder of results. Results that are still valid are read from it, and only the others are
        computed.
    argument_of : callable, optional
        Returns the extra argument of the task for a store.

    Returns
    -------
    list of Outcome
        One for each store.
    """
    members = members_of(sources).stores
    shards = None if out is None else ParquetShards(Path(out), task)
    outcomes = {} if shards is None else shards.load_valid(members)
    missing = [member for member in members if member.name not in outcomes]
    if progress is not None and outcomes:
        progress(len(outcomes), len(members))
    if runner is None:
        runner = workers.default_runner(missing)
    try:
        for outcome in runner.run(task, missing, argument_of):
            if shards is None:
                outcomes[outcome.name] = outcome
            else:
                outcomes[outcome.name] = shards.add(outcome)
            if progress is not None:
                progress(len(outcomes), len(members))
    finally:
        if shards is not None:
            shards.flush()
    if shards is not None:
        shards.write_run_file(finished=True)
    return [outcomes[member.name] for member in members]


def table_of(task: FleetTask[Any], sources: Sources, **options: Any) -> "pd.DataFrame":
    """Run a task on every store, as :func:`outcomes_of` does, and return a frame of its rows."""
    import pandas as pd

    rows = [_row_of(outcome) for outcome in outcomes_of(task, sources, **options)]
    table = pa.Table.from_pylist(rows, _schema_of(task))
    types = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    return frame.drop(columns=["error_kind", "store_state"])


def _schema_of(task: FleetTask[Any]) -> Any:
    """Return the Arrow schema: the store's name, the fields of a row, and the status fields."""
    names = stored_names_of(task.row)
    columns = [
        pa.field(names[field.name], _arrow_type(field.type))
        for field in fields(task.row)
        if names[field.name] != STORE
    ]
    return pa.schema([_STORE_FIELD, *columns, *_STATUS_FIELDS])


def _arrow_type(annotation: Any) -> Any:
    """Return the Arrow type of a field's annotation, such as ``int`` or ``int | None``."""
    for kind in (annotation, *get_args(annotation)):
        if kind in _ARROW_TYPES:
            return _ARROW_TYPES[kind]
    raise TypeError(f"no column type for {annotation!r}")


def stored_names_of(row: type[Any]) -> Mapping[str, str]:
    """Return the column of each field of a row, in a frame and in Parquet files.

    A row class lists its columns in ``stored_names``, so that the column stays if its field is
    renamed. Without this list, each column has the name of its field.

    >>> stored_names_of(StoreLine)["boot_tokens"]
    'boot_tokens'
    """
    columns: Mapping[str, str] = getattr(row, "stored_names", {})
    if columns:
        return columns
    return {field.name: field.name for field in fields(row)}


def _row_of(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return an outcome as a row, by column."""
    row: dict[str, Any] = {}
    if outcome.value is not None:
        for name, column in stored_names_of(type(outcome.value)).items():
            row[column] = getattr(outcome.value, name)
    row["error"] = outcome.error or None
    row["error_kind"] = outcome.kind or None
    row["store_state"] = outcome.state
    row[STORE] = outcome.name
    return row


class ParquetShards:
    """A folder of Parquet files with the results of one task.

    A *run* is one pass over all stores. The next call continues an interrupted run. After a
    finished run, the next call begins a new run, which reuses the results that are still valid.

    Parameters
    ----------
    folder : Path
        The folder, which is created if it does not exist.
    task : FleetTask
        The task whose results the folder holds.

    Raises
    ------
    MemlabError
        If the folder holds other files, or the results of another task.
    """

    def __init__(self, folder: Path, task: FleetTask[Any]) -> None:
        self.folder = folder
        self._task = task
        self._schema = _schema_of(task)
        # The keys are stored in the folder, and never change.
        self._task_identity = {"asked": task.name, **task.settings, "columns": self._schema.names}
        self._queued: list[dict[str, Any]] = []
        self._flushed_at = monotonic()
        self._is_new_run = self._open()

    def load_valid(self, members: Sequence[Member]) -> dict[str, Outcome[Any]]:
        """Return the results that are still valid, by store, and delete all others.

        Afterwards the folder holds at most one row for each store. Columns of bytes are not loaded.
        """
        columns = [field for field in self._schema if not pa.types.is_large_binary(field.type)]
        outcomes: dict[str, Outcome[Any]] = {}
        parts: dict[str, Path] = {}
        for part in _parts_of(self.folder):
            for row in _read(part, pa.schema(columns)).to_pylist():
                # a later result of the same store replaces an earlier one
                outcomes[row[STORE]] = self._outcome_of(row)
                parts[row[STORE]] = part
        named = {member.name: member for member in members}
        valid = {
            name: outcome
            for name, outcome in outcomes.items()
            if name in named and self._is_valid(named[name], outcome)
        }
        if len(valid) < len(outcomes):
            self._delete_rows_except({name: parts[name] for name in valid})
        return valid

    def add(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Queue a result to be written, and return it with None in place of bytes."""
        row = _row_of(outcome)
        names = stored_names_of(self._task.row)
        without_bytes = {
            name: None for name, column in names.items() if isinstance(row.get(column), bytes)
        }
        self._queued.append(row)
        # a change to a store is recorded at once
        if self._task.changes or monotonic() - self._flushed_at > FLUSH_SECONDS:
            self.flush()
        if outcome.value is None or not without_bytes:
            return outcome
        return replace(outcome, value=replace(outcome.value, **without_bytes))

    def flush(self) -> None:
        """Write the queued results to a new file."""
        if self._queued:
            files = _parts_of(self.folder)
            number = 1
            if files:
                number = int(files[-1].stem.removeprefix("part-")) + 1
            table = pa.Table.from_pylist(self._queued, self._schema)
            self._write(self.folder / f"part-{number:06}.parquet", table)
        self._queued = []
        self._flushed_at = monotonic()

    def _is_valid(self, member: Member, outcome: Outcome[Any]) -> bool:
        """Return whether a saved result is still valid.

        An error is never valid. A row is valid if the store's files are unchanged. If this machine
        cannot see the files, the row is valid for the rest of the run that wrote it.
        """
        if outcome.error:
            return False
        state = member.state()
        if not state:
            return not self._is_new_run
        return outcome.state == state

    def _delete_rows_except(self, parts: Mapping[str, Path]) -> None:
        """Delete all rows, except the row of each store in `parts` that is in the given file."""
        for part in _parts_of(self.folder):
            table = _read(part, self._schema)
            is_kept = [parts.get(name) == part for name in table[STORE].to_pylist()]
            if not any(is_kept):
                part.unlink()
            elif not all(is_kept):
                self._write(part, table.filter(pa.array(is_kept)))

    def _outcome_of(self, row: dict[str, Any]) -> Outcome[Any]:
        """Return the outcome that a row holds."""
        store = row[STORE]
        state = row["store_state"]
        if row["error"] is not None:
            return Outcome(
                name=store, error=row["error"], kind=row["error_kind"] or "", state=state
            )
        names = stored_names_of(self._task.row)
        value = self._task.row(**{name: row.get(column) for name, column in names.items()})
        return Outcome(name=store, value=value, state=state)

    def _write(self, part: Path, table: Any) -> None:
        """Write a table to a file atomically, readable by the owner alone."""
        import pyarrow.parquet as pq  # loads cloud file systems, which is slow

        with whole_file(part, permissions=OWNER_ONLY) as draft:
            pq.write_table(table, draft, compression="zstd")

    def _open(self) -> bool:
        """Open or create the folder, and return whether a new run begins.

        A new run begins if the last one finished, or if there was none. If the results of the last
        run depend on other input (``FleetTask.depends_on``), they are deleted.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MemlabError(failure_message(f"{self.folder} cannot be made", error)) from error
        last_run = self._read_run_file()
        if not last_run and any(self.folder.iterdir()):
            raise MemlabError(f"{self.folder} holds other files; name a new folder")
        if last_run and last_run.get("question") != self._task_identity:
            raise MemlabError(
                f"{self.folder} holds the answers to another question, or those of another memlab; "
                "name a new folder, or empty this one, as --fresh does"
            )
        is_new_run = bool(last_run.get("finished", True))
        depends_on = self._task.depends_on
        input_of_last_run = last_run.get("rests_on", "")
        # A task that depends on None never has the same input twice.
        has_same_input = depends_on is not None and input_of_last_run == depends_on
        if is_new_run and not has_same_input:
            self._delete_rows_except({})
        self.write_run_file(finished=False)
        return is_new_run

    def _read_run_file(self) -> dict[str, Any]:
        """Return the description of the last run; empty if there is none."""
        file = self.folder / _RUN_FILE
        if not file.exists():
            return {}
        try:
            fields = json.loads(read_whole(file))
        except ValueError:
            return {}
        if not isinstance(fields, dict) or _MARKER not in fields:
            return {}
        with suppress(ValueError):  # malformed versions; the caller compares the task next
            written = written_in(fields[_MARKER], fields.get("readable_from"))
            FORMAT.check(f"what is in {self.folder}", written, MemlabError)
        return fields

    def write_run_file(self, *, finished: bool) -> None:
        """Write the description of this run: its task, and whether every store has a result."""
        fields = {
            _MARKER: FORMAT.number,
            "readable_from": FORMAT.readable_from,
            "question": self._task_identity,
            "rests_on": self._task.depends_on,
            "finished": finished,
        }
        write_whole(
            self.folder / _RUN_FILE, json.dumps(fields, indent=1) + "\n", permissions=OWNER_ONLY
        )


def value_lookup(folder: Path, name: str) -> Callable[[str], bytes | None]:
    """Return a function that looks up a store's value in a column of bytes.

    The function takes the store's name, and returns None if the store has no row. It keeps the
    column of one file at a time in memory.
    """
    parts: dict[str, Path] = {}
    for part in _parts_of(folder):
        for store in _read(part, pa.schema([_STORE_FIELD]))[STORE].to_pylist():
            parts[store] = part

    @lru_cache(maxsize=1)
    def values_in(part: Path) -> dict[str, bytes]:
        table = _read(part, pa.schema([_STORE_FIELD, (name, _ARROW_TYPES[bytes])]))
        return dict(zip(table[STORE].to_pylist(), table[name].to_pylist(), strict=True))

    def value_of(store: str) -> bytes | None:
        if store not in parts:
            return None
        return values_in(parts[store])[store]

    return value_of


def start_over(folder: Path) -> None:
    """Delete the results in a folder; other files stay."""
    if folder.is_dir():
        for file in [*_parts_of(folder), folder / _RUN_FILE]:
            file.unlink(missing_ok=True)


def _parts_of(folder: Path) -> list[Path]:
    """Return the result files in the order in which they were written."""
    return sorted(folder.glob("part-*.parquet"))


def _read(part: Path, schema: Any) -> Any:
    """Load the columns of a schema from a file; raise a MemlabError if their types differ."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(part, columns=schema.names, partitioning=None)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise MemlabError(f"{part} cannot be read ({reason}); remove it, and run again") from error
    if not table.schema.equals(schema) or table["store"].null_count:
        raise MemlabError(f"{part} cannot be read (others made it); remove it, and run again")
    return table


@dataclass(frozen=True)
class StoreLine:
    """The survey of one store.

    Attributes
    ----------
    scheme : str
        The kind of store.
    memories : int
        Memories in the store.
    boot_memories, boot_tokens : int
        Memories that an agent loads at start, and their tokens.
    floor_memories, floor_tokens : int
        Load-bearing memories that an agent loads at start, which no cap deletes, and their tokens.
    prunable, prunable_tokens : int
        Prunable memories that an agent loads at start, which a cap could delete, and their tokens.
    per_day : float or None
        Prunable memories written a day; None if there is none.
    first_at, last_at : datetime or None
        When the first and the last memory were written.
    bytes : int or None
        Size of the store's files; None for a server.
    free_bytes : int or None
        Bytes that a vacuum gives back; None for a server.
    unreadable : int
        Memories that cannot be interpreted; they count as load-bearing.

    Examples
    --------
    >>> import memlab.fleet
    >>> table = memlab.fleet.survey(memlab.store_path("looked_up"))
    >>> table[["scheme", "memories"]].to_dict("records")  # each row has these fields
    [{'scheme': 'file', 'memories': 480}]
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
    """Return the tokens that an agent loads at start from every store. The stores are only read.

    Parameters
    ----------
    sources : str, Path, or iterable of them
        Paths, patterns, folders, URLs and ``@FILE`` of names; see
        :func:`memlab.fleet.expand_names`.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock.
    runner : Runner, optional
        Runs the task on the stores. By default one process for each processor, and this process
        for a few stores.
    progress : callable, optional
        Called with the number of finished stores and the number of all stores.
    out : str or Path, optional
        A folder that stores results as they arrive. A later call computes only results that are
        missing, that failed, or that are of changed stores.

    Returns
    -------
    DataFrame
        A row for each store, in the order in which they were named: ``store``, the fields of
        :class:`StoreLine`, and ``error``, missing if there is none. A store that cannot be read is
        a row with an error.

    Raises
    ------
    MemlabError
        If no store was named, or `out` holds other files.

    Examples
    --------
    >>> import memlab.fleet
    >>> table = memlab.fleet.survey(memlab.store_path("looked_up"))
    >>> table["memories"].tolist(), table["error"].isna().tolist()
    ([480], [True])
    """
    task = survey_task(moment_or_now(now, call="memlab.fleet.survey"))
    return table_of(task, sources, runner=runner, progress=progress, out=out)


def survey_task(now: datetime) -> FleetTask[StoreLine]:
    """Return the task that surveys a store."""
    return FleetTask("survey", partial(_survey_store, now=now), StoreLine)


def _survey_store(location: str, *, now: datetime) -> StoreLine:
    """Return the survey of one store."""
    source = open_source(location)
    memories, _archive_problem = past_arrays(source, on_bad_row="keep")
    summary = summary_of(memories, now=now, threshold=None)  # without a forecast
    boot = summary.boot
    index_tokens = 0 if source.index is None else source.index.overhead_tokens()
    per_day = None if summary.pace is None else summary.pace.per_day
    free_bytes = None if source.is_server else space(source).free
    return StoreLine(
        scheme=source.scheme,
        memories=summary.rows.memories,
        boot_memories=boot.memories,
        boot_tokens=boot.tokens + index_tokens,
        floor_memories=boot.load_bearing.memories,
        floor_tokens=boot.load_bearing.tokens,
        prunable=boot.prunable.memories,
        prunable_tokens=boot.prunable.tokens,
        per_day=per_day,
        first_at=summary.first_at,
        last_at=summary.last_at,
        bytes=bytes_of(source),
        free_bytes=free_bytes,
        unreadable=int(memories.unreadable.sum()),
    )


def bytes_of(source: Source) -> int | None:
    """Return the size of a store's files in bytes; None for a server."""
    if source.is_server:
        return None
    return sum(file.stat().st_size for file in source.files() if file.is_file())
