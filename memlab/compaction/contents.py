"""Looking into an archive: list what was taken out, search it, export it, drop what is old."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memlab.clock import aware
from memlab.compaction.applying import opened_for_change, receipt_of
from memlab.compaction.plans import Plan, Receipt
from memlab.errors import ArchiveError
from memlab.files import whole_file
from memlab.store.archive import (
    Archive,
    Entry,
    archive_errors,
    archive_path,
    open_archive,
    read_archive,
)
from memlab.store.database import COLUMNS, exact, transaction
from memlab.store.rows import jsonable

EXPORTS: Final = (".jsonl", ".parquet")
ROWS_AT_ONCE: Final = 10_000

_HEAD: Final = ("digest", "archived_at", "restored_at", "reason", "position")
_LISTED: Final = (*_HEAD, "memory_id", "kind", "title", "created_at")
_EXPORTED: Final = (*_HEAD, *COLUMNS, "signals")
_TYPES: Final = {"position": pa.int64(), "source_sequence": pa.int64(), "confidence": pa.float64()}


def archived_plans(store: str | Path) -> list[Entry]:
    """Return every plan that was applied to a store, oldest first.

    Parameters
    ----------
    store : str or Path
        The store.

    Raises
    ------
    ArchiveError
        When it has no archive, or one that cannot be read.
    """
    return read_archive(Path(store), lambda archive: archive.entries())


def last_applied(store: str | Path) -> tuple[Plan, Receipt] | None:
    """Return the last plan that was applied to a store, with its receipt; None without one.

    Parameters
    ----------
    store : str or Path
        The store.

    Raises
    ------
    ArchiveError
        When it has an archive that cannot be read.
    """
    path = Path(store).resolve()
    if not archive_path(path).exists():
        return None

    def read(archive: Archive) -> tuple[Plan, Receipt] | None:
        finished = [entry for entry in archive.entries() if entry.finished_at is not None]
        if not finished:
            return None
        plan = archive.plan_of(finished[-1])
        moment = finished[-1].finished_at or finished[-1].archived_at
        return plan, receipt_of(plan, path, moment, archived=True)

    return read_archive(path, read)


def archived_rows(
    store: str | Path, *, digest: str | None = None, search: str | None = None
) -> pd.DataFrame:
    """Return what was taken out of a store, oldest first.

    Parameters
    ----------
    store : str or Path
        The store.
    digest : str, optional
        Only what this plan took out; the beginning of its digest will do.
    search : str, optional
        Only rows that have this text in id, title, body or tags, whatever the case of its ASCII
        letters.

    Returns
    -------
    DataFrame
        ``digest``, ``archived_at``, ``restored_at``, ``reason``, ``position``, ``memory_id``,
        ``kind``, ``title``, ``created_at``. What is no text is shown with
        replacement characters.

    Raises
    ------
    ArchiveError
        When there is no archive, or no such plan in it.
    """

    def read(archive: Archive) -> pd.DataFrame:
        rows = [
            [_shown(value) for value in row] for row in _found(archive, _LISTED, digest, search)
        ]
        return pd.DataFrame(rows, columns=list(_LISTED))

    return read_archive(Path(store), read)


def export_archived(
    store: str | Path,
    path: str | Path,
    *,
    digest: str | None = None,
    search: str | None = None,
) -> int:
    """Write archived rows with every column into a file that appears whole or not at all.

    Parameters
    ----------
    store : str or Path
        The store.
    path : str or Path
        ``.jsonl`` keeps every value, one row a line: text that is not UTF-8 as
        ``{"text": "<hexadecimal>"}``, a blob as ``{"blob": "<hexadecimal>"}``. ``.parquet`` keeps
        values of the types that agents write.
    digest, search
        As for :func:`archived_rows`.

    Returns
    -------
    int
        How many rows were written.

    Raises
    ------
    ValueError
        When `path` ends otherwise.
    ArchiveError
        When there is no archive, or a row does not fit into Parquet.
    MemlabError
        When the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in EXPORTS:
        raise ValueError(f"path must end in {' or '.join(EXPORTS)}, not {str(target)!r}")
    write = _write_jsonl if target.suffix == ".jsonl" else _write_parquet

    def read(archive: Archive) -> int:
        mode = archive.path.stat().st_mode & 0o7777
        with whole_file(target, mode=mode) as draft:
            return write(draft, _found(archive, _EXPORTED, digest, search))

    return read_archive(Path(store), read)


def drop_archived(
    store: str | Path, *, before: datetime | None = None, digest: str | None = None
) -> list[Entry]:
    """Delete copies from the archive for good, and give their room back to the disk.

    Parameters
    ----------
    store : str or Path
        The store. Its rows are not touched.
    before : datetime, optional
        Drop what was archived earlier than this, with a time zone.
    digest : str, optional
        Drop this plan; the beginning of its digest will do.

    Returns
    -------
    list of Entry
        What was dropped, oldest first.

    Raises
    ------
    ValueError
        When neither or both of `before` and `digest` are given, or `before` has no time zone.
    ArchiveError
        When there is no archive, or no such plan in it.
    """
    if (before is None) == (digest is None):
        raise ValueError(f"give either before={before!r} or digest={digest!r}")
    if before is not None:
        aware(before, call="drop_archived", name="before")
    path = Path(store)
    with open_archive(path) as archive:
        with _store_locked(path):
            named = [archive.entry(digest)] if digest is not None else archive.entries()
            dropped = [entry for entry in named if before is None or entry.archived_at < before]
            for entry in dropped:
                archive.forget(entry.digest)
        if dropped:
            # Without room on the disk for it the pages stay, and are filled again.
            with suppress(ArchiveError), archive_errors(archive.path):
                archive.connection.execute("VACUUM")
    return dropped


@contextmanager
def _store_locked(store: Path) -> Iterator[None]:
    """See to it that no apply is between its copies and its deletion."""
    if not store.exists():
        yield
        return
    with opened_for_change(store) as connection, transaction(connection):
        yield


def _found(
    archive: Archive, columns: tuple[str, ...], digest: str | None, search: str | None
) -> Iterator[tuple[Any, ...]]:
    """Read the chosen rows exactly, in the order they were taken out."""
    where, values = ["1"], []
    if digest is not None:
        where.append("digest = ?")
        values.append(archive.entry(digest).digest)
    if search is not None:
        places = ("memory_id", "title", "body", "tags_json")
        where.append(f"({' OR '.join(f'instr(lower({name}), lower(?))' for name in places)})")
        values += [search] * len(places)
    with archive_errors(archive.path), exact(archive.connection):
        yield from archive.connection.execute(
            f"SELECT {', '.join(columns)} FROM archived_rows WHERE {' AND '.join(where)}", values
        )


def _shown(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, (bytes, bytearray)) else value


def _write_jsonl(draft: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    count = 0
    with draft.open("w", encoding="utf-8") as file:
        for row in rows:
            values = {name: jsonable(v) for name, v in zip(_EXPORTED, row, strict=True)}
            if values["signals"] is not None:
                values["signals"] = json.loads(values["signals"])
            file.write(json.dumps(values) + "\n")
            count += 1
    return count


def _write_parquet(draft: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    schema = pa.schema([(name, _TYPES.get(name, pa.large_string())) for name in _EXPORTED])
    count = 0
    with pq.ParquetWriter(draft, schema) as writer:
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            try:
                columns = [
                    pa.array([_text_or_number(value) for value in column], type=field.type)
                    for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
                ]
            except (pa.ArrowException, ValueError, TypeError) as error:
                raise ArchiveError(
                    f"a row does not fit into Parquet ({error}); nothing was written: export to "
                    ".jsonl, which keeps every value"
                ) from error
            writer.write_table(pa.table(columns, schema=schema))
            count += len(chunk)
    return count


def _text_or_number(value: Any) -> Any:
    if isinstance(value, bytes):
        raise TypeError("a blob stands where text belongs")
    return value.decode() if isinstance(value, bytearray) else value
