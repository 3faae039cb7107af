"""Looking into an archive: list what was taken out, search it, export it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memlab import columns as col
from memlab.compaction.applying import plan_in, receipt_of
from memlab.compaction.plans import Plan
from memlab.compaction.receipts import Receipt
from memlab.files import limit_like, whole_file
from memlab.items import strings_of
from memlab.sources.base import Key, Source, archive_at
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.tables import SCHEMA, TEXT
from memlab.store.archive import Archive
from memlab.store.archive_entries import Entry
from memlab.store.archive_file import is_begun, read_archive
from memlab.store.dropped import Dropped, dropped_in
from memlab.store.identity import check_not_renamed

Result = TypeVar("Result")

EXPORTS: Final = (".jsonl", ".parquet")

_HEAD: Final = ("digest", "archived_at", "restored_at", "reason")
_LISTED: Final = (
    *(*_HEAD, col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.CREATED_AT, col.NAMESPACE),
)
_TAGS: Final = "tags_json"
_SEARCHED: Final = (col.MEMORY_ID, col.TITLE, col.BODY, _TAGS)
_RECORD: Final = "record"
_PARQUET: Final = pa.schema(
    [
        *((name, TEXT) for name in (*_HEAD, col.KEY)),
        *((f.name, TEXT if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA),
        (_RECORD, TEXT),
    ]
)


def archived_plans(store: SourceLike) -> list[Entry]:
    """Return every plan that was applied to a store, oldest first.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Raises
    ------
    ArchiveError
        When it has no archive, or one that cannot be read.
    """
    return _look(open_source(store), lambda archive: archive.entries())


def dropped_plans(store: SourceLike) -> list[Dropped]:
    """Return every deletion whose words were erased and whose facts are kept, oldest first.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Raises
    ------
    ArchiveError
        When it has no archive, or one that cannot be read.
    """
    return _look(open_source(store), dropped_in)


def last_applied(store: SourceLike) -> tuple[Plan, Receipt] | None:
    """Return the last plan that deleted from a store, with its receipt; None without one.

    What a runtime deleted by itself was no plan.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Raises
    ------
    ArchiveError
        When it has an archive that cannot be read.
    """
    source = open_source(store)

    def read(archive: Archive) -> tuple[Plan, Receipt] | None:
        finished = [e for e in archive.entries() if e.finished_at and e.planned and e.memories]
        if not finished:
            return None
        plan = plan_in(archive, finished[-1])
        moment = finished[-1].finished_at or finished[-1].archived_at
        return plan, receipt_of(plan, source, moment, archived=True)

    place = archive_at(source)
    return read_archive(place, read) if is_begun(place) else None


def archived_rows(
    store: SourceLike, *, digest: str | None = None, search: str | None = None
) -> pd.DataFrame:
    """Return what was taken out of a store, oldest first.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    digest : str, optional
        Only what this plan took out; the beginning of its digest will do.
    search : str, optional
        Only memories that have this text in id, title, body or tags, whatever the case of its
        letters.

    Returns
    -------
    DataFrame
        ``digest``, ``archived_at``, ``restored_at``, ``reason``, ``position``, ``memory_id``,
        ``kind``, ``title``, ``created_at``, ``namespace``. What cannot be read is missing, and so
        is a namespace where a memory has none.

    Raises
    ------
    ArchiveError
        When there is no archive, or no such plan in it.
    """
    source = open_source(store)

    def read(archive: Archive) -> pd.DataFrame:
        lines = [
            (*head, *(row.get(name) for name in _LISTED[len(_HEAD) :]))
            for heads, table, _ in _found(source, archive, digest, search)
            for head, row in zip(heads, table.to_pylist(), strict=True)
        ]
        return pd.DataFrame(lines, columns=list(_LISTED))

    return _look(source, read)


def export_archived(
    store: SourceLike,
    path: str | Path,
    *,
    digest: str | None = None,
    search: str | None = None,
) -> int:
    """Write archived memories with every column into a file that appears whole or not at all.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    path : str or Path
        ``.jsonl`` keeps everything, one memory a line: when and why it was deleted, and the fields
        of its record, without those that are NULL. ``.parquet`` has the columns that every store
        has, and the record as text.
    digest, search
        As for :func:`archived_rows`.

    Returns
    -------
    int
        How many memories were written.

    Raises
    ------
    ValueError
        When `path` ends otherwise.
    ArchiveError
        When there is no archive, or no such plan in it.
    MemlabError
        When the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in EXPORTS:
        raise ValueError(f"path must end in {' or '.join(EXPORTS)}, not {str(target)!r}")
    write = _write_jsonl if target.suffix == ".jsonl" else _write_parquet
    source = open_source(store)

    def read(archive: Archive) -> int:
        with whole_file(target, limit=limit_like(archive.path)) as draft:
            return write(draft, _found(source, archive, digest, search))

    return _look(source, read)


def _look(source: Source, read: Callable[[Archive], Result]) -> Result:
    """Look into a source's archive."""
    place = archive_at(source)
    check_not_renamed(place)
    return read_archive(place, read)


class _Found(NamedTuple):
    """Some archived memories: when and why they were deleted, their rows and their records."""

    heads: list[tuple[str, str, str | None, str]]
    table: Any
    records: list[tuple[Key, bytes]]


def _found(
    source: Source, archive: Archive, digest: str | None, search: str | None
) -> Iterator[_Found]:
    """Read the chosen memories, some at a time, in the order in which they were deleted."""
    for entry in archive.entries() if digest is None else [archive.entry(digest)]:
        for copies in archive.batches(entry):
            records = [(copy.key, record) for copy, record in copies]
            rows = source.rows_of(records, with_body=True)
            table = pa.concat_tables([each.table for each in rows], promote_options="default")
            heads = [
                (entry.digest, entry.archived_at.isoformat(), copy.restored_at, copy.reason)
                for copy, _ in copies
            ]
            wanted = range(len(records)) if search is None else _matching(table, search)
            yield _Found(
                [heads[place] for place in wanted],
                table.take(pa.array(wanted, pa.int64())),
                [records[place] for place in wanted],
            )


def _matching(table: Any, search: str) -> list[int]:
    """Return the places of rows that have a text in one of their columns."""
    texts = {name: table[name].cast(TEXT) for name in _SEARCHED}
    texts[_TAGS] = pa.array([_in_words(tags) for tags in texts[_TAGS].to_pylist()], TEXT)
    lowered = [pc.utf8_lower(text) for text in texts.values()]
    hits = [pc.match_substring(each, search.lower()).to_pylist() for each in lowered]
    return [place for place, found in enumerate(zip(*hits, strict=True)) if any(found)]


def _in_words(tags_json: str | None) -> str | None:
    """Return stored tags as they read, whatever JSON has escaped in them."""
    try:
        return None if tags_json is None else "\n".join(strings_of(tags_json))
    except ValueError:
        return tags_json


def _write_jsonl(draft: Path, found: Iterator[_Found]) -> int:
    count = 0
    with draft.open("w", encoding="utf-8") as file:
        for heads, table, records in found:
            positions = table[col.POSITION].to_pylist()
            for head, position, (key, record) in zip(heads, positions, records, strict=True):
                named = dict(zip(_HEAD, head, strict=True)) | {"key": key, "position": position}
                file.write(json.dumps(named | json.loads(record)) + "\n")
                count += 1
    return count


def _write_parquet(draft: Path, found: Iterator[_Found]) -> int:
    count = 0
    with pq.ParquetWriter(draft, _PARQUET) as writer:
        for heads, table, records in found:
            columns: dict[str, Any] = {name: table[name].to_pylist() for name in SCHEMA.names}
            columns |= {name: [head[at] for head in heads] for at, name in enumerate(_HEAD)}
            columns[col.KEY] = [str(key) for key, _ in records]
            columns[_RECORD] = [record.decode() for _, record in records]
            writer.write_table(pa.table({n: columns[n] for n in _PARQUET.names}, _PARQUET))
            count += len(heads)
    return count
