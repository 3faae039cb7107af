"""Converting an archive into the newest format: in its own file, whole or not at all.

The file stays the same one, so that a process which has it open and waits for its lock adds to what
others read. Such a process finds other tables than it knows, and takes nothing out of its store.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError
from memlab.store.archive import entries, formats
from memlab.store.archive.archive import Archive, archive_errors
from memlab.store.archive.entries import Archived, PlanText

_BEFORE: Final = "archived_before"
_PLAN: Final = "memlab_plan"
_MEMORIES: Final = "memories"
_KEY: Final = "key"


class Room(NamedTuple):
    """Bytes of an archive now, and up to how many its conversion takes beside them meanwhile."""

    now: int
    meanwhile: int


def room_for(archive: Archive) -> Room:
    """Return what room an archive takes, and its conversion.

    The new tables are made before the old ones go, and the journal keeps every page of the old ones
    that is changed; then the file is written anew without the free pages, which takes as much.
    """
    pages = archive.rows("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
    count, size = pages[0]
    return Room(count * size, 2 * count * size)


def upgrade(archive: Archive) -> None:
    """Convert an open archive into the newest format; the caller holds its store's lock.

    Raises
    ------
    ArchiveError
        When a copy in it is not what was archived. Nothing is changed.
    """
    new = formats.KNOWN[max(formats.KNOWN)](archive.connection)
    old = archive.format
    if old.number >= new.number:
        return
    with archive.changing() as connection:
        connection.execute("DROP VIEW IF EXISTS archived_memories")
        connection.execute(f"ALTER TABLE archived RENAME TO {_BEFORE}")
        for name in new.in_each:
            new.make_table(name)
        if archive.has_table("copies"):
            connection.execute(
                "ALTER TABLE copies ADD COLUMN dictionary INTEGER NOT NULL DEFAULT 1"
            )
        for number, plan in connection.execute(
            "SELECT apply, plan_json_zlib FROM applies ORDER BY apply"
        ).fetchall():
            _convert_entry(archive, new, number, plan)
        connection.execute(f"DROP TABLE {_BEFORE}")
        connection.execute(new.view)
        new.note_versions()
    # Without room on the disk for it the free pages stay, and are filled again.
    with suppress(ArchiveError), archive_errors(archive.path):
        connection.execute("VACUUM")


def _convert_entry(
    archive: Archive, new: formats.ArchiveFormat, number: int, packed: bytes | None
) -> None:
    """Copy the copies of a deletion into the new tables, and shorten its plan."""
    connection = archive.connection
    keys = [
        entries.key_in(key)
        for (key,) in connection.execute(
            f"SELECT key FROM {_BEFORE} WHERE apply = ? ORDER BY rowid", (number,)
        )
    ]
    text, planned = _plan_of(packed, keys)
    shortened = new.insert_copies(number, _sound_copies(archive, number, planned), text)
    if packed is not None:
        connection.execute(
            "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?",
            (packed if text is None else shortened, number),
        )
    connection.execute(
        "UPDATE archived SET restored_at = (SELECT restored_at FROM "
        f"{_BEFORE} WHERE {_BEFORE}.apply = archived.apply AND {_BEFORE}.key = archived.key) "
        "WHERE apply = ?",
        (number,),
    )
    if new.count_sound(number) != len(keys):
        raise ArchiveError(
            f"{archive.path} did not keep every memory as it is; nothing was changed: check the "
            "disk"
        )


def _sound_copies(
    archive: Archive, number: int, planned: Mapping[entries.Key, Mapping[str, Any]]
) -> Iterator[Archived]:
    """Yield the copies of a deletion; refuse one that is not what was archived."""
    for key, fingerprint, record, reason in archive.connection.execute(
        f"SELECT key, fingerprint, record, reason FROM {_BEFORE} WHERE apply = ? ORDER BY rowid",
        (number,),
    ):
        try:
            copy = entries.copy_of(key, entries.fingerprint_in(fingerprint), reason, None)
            text = entries.raw_text_in(record, "its record")
            raw = entries.record_of(text, copy, _any_record)
        except ValueError as error:
            raise ArchiveError(
                f"{archive.path} is damaged: a copy of deletion {number} ({error}); nothing was "
                "changed: restore a backup of it, or drop that plan first"
            ) from error
        yield Archived(copy.key, raw, copy.reason, planned.get(copy.key))


def _any_record(key: entries.Key, record: bytes, said: dict[str, Any]) -> None:
    """Take any record: what it may say was checked when it was archived, and is when it is used."""


def _plan_of(
    packed: bytes | None, keys: list[entries.Key]
) -> tuple[PlanText | None, dict[entries.Key, dict[str, Any]]]:
    """Return the text of a plan to be shortened, and what it says of each memory, by key.

    None of one that says something else than the copies do, or is no plan: it stays as it is.
    """
    if packed is None:
        return None, {}
    try:
        said = json.loads(entries.unpacked(packed))
        memories = said[_MEMORIES]
        planned = {row[_KEY]: row for row in memories}
        known = set(keys)
        in_order = [row[_KEY] for row in memories if row[_KEY] in known]
        if _PLAN not in said or in_order != keys or len(planned) != len(memories):
            return None, {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, {}
    head = {key: value for key, value in said.items() if key != _MEMORIES}
    pieces = [json.dumps(head, separators=(",", ":"))]
    absent = {place: row for place, row in enumerate(memories) if row[_KEY] not in known}
    return PlanText(lambda: pieces, lambda: pieces, absent), planned
