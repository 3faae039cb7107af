"""Conversion of an archive to the newest format, in its own file and in one transaction.

The file keeps its identity. A process that has it open and waits for its lock adds to the same file
that others read. If that process knows only older formats, it finds unknown tables, fails, and
deletes nothing from its store.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError
from memlab.store.archive import formats, packing, schema
from memlab.store.archive.open_archive import OpenArchive, archive_errors
from memlab.store.archive.schema import NewCopy, PlanText

_OLD_TABLE: Final = "archived_before"
_PLAN: Final = "memlab_plan"
_MEMORIES: Final = "memories"
_KEY: Final = "key"


class SpaceNeeded(NamedTuple):
    """Space that an archive and its conversion take.

    Attributes
    ----------
    size : int
        The size of the archive, in bytes.
    extra : int
        The most that the conversion needs beside it, in bytes.
    """

    size: int
    extra: int


def space_for(archive: OpenArchive) -> SpaceNeeded:
    """Return the size of an archive and the space that its conversion needs.

    The new tables are written before the old ones are dropped, and the journal keeps every changed
    page of the old ones. VACUUM then writes the file again without the free pages, which needs as
    much.
    """
    rows = archive.rows("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
    page_count, page_size = rows[0]
    size = page_count * page_size
    return SpaceNeeded(size=size, extra=2 * size)


def upgrade(archive: OpenArchive) -> None:
    """Convert an open archive to the newest format. The caller holds the lock of its store.

    Raises
    ------
    ArchiveError
        If a copy in it is damaged. Nothing is changed.
    """
    new = formats.KNOWN[max(formats.KNOWN)](archive.connection)
    old = archive.format
    if old.number >= new.number:
        return
    with archive.transaction() as connection:
        connection.execute("DROP VIEW IF EXISTS archived_memories")
        connection.execute(f"ALTER TABLE archived RENAME TO {_OLD_TABLE}")
        for name in new.in_each:
            new.make_table(name)
        if archive.has_table("copies"):
            connection.execute(
                "ALTER TABLE copies ADD COLUMN dictionary INTEGER NOT NULL DEFAULT 1"
            )
        for entry_number, plan in connection.execute(
            "SELECT apply, plan_json_zlib FROM applies ORDER BY apply"
        ).fetchall():
            _convert_entry(archive, new, entry_number, plan)
        connection.execute(f"DROP TABLE {_OLD_TABLE}")
        connection.execute(new.view)
        new.note_versions()
    # If the disk has no room for VACUUM, the free pages stay in the file and are used again.
    with suppress(ArchiveError), archive_errors(archive.path):
        connection.execute("VACUUM")


def _convert_entry(
    archive: OpenArchive, new: formats.ArchiveFormat, entry_number: int, packed: bytes | None
) -> None:
    """Convert the copies of a deletion, and shorten its plan."""
    connection = archive.connection
    keys = [
        schema.key_in(key)
        for (key,) in connection.execute(
            f"SELECT key FROM {_OLD_TABLE} WHERE apply = ? ORDER BY rowid", (entry_number,)
        )
    ]
    text, plan_rows = _plan_of(packed, keys)
    shortened = new.insert_copies(
        entry_number, _sound_copies(archive, entry_number, plan_rows), text
    )
    if packed is not None:
        connection.execute(
            "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?",
            (packed if text is None else shortened, entry_number),
        )
    # The new copies get the time at which each was restored from the old ones.
    connection.execute(
        f"UPDATE archived SET restored_at = (SELECT restored_at FROM {_OLD_TABLE} AS old "
        "WHERE old.apply = archived.apply AND old.key = archived.key) WHERE apply = ?",
        (entry_number,),
    )
    if new.count_sound(entry_number) != len(keys):
        raise ArchiveError(
            f"{archive.path} did not keep every memory as it is; nothing was changed: check the "
            "disk"
        )


def _sound_copies(
    archive: OpenArchive, entry_number: int, plan_rows: Mapping[schema.Key, Mapping[str, Any]]
) -> Iterator[NewCopy]:
    """Yield the copies of a deletion; raise ArchiveError if one is damaged."""
    for key, fingerprint, record, reason in archive.connection.execute(
        f"SELECT key, fingerprint, record, reason FROM {_OLD_TABLE} WHERE apply = ? ORDER BY rowid",
        (entry_number,),
    ):
        try:
            copy = schema.copy_of(key, schema.fingerprint_in(fingerprint), reason, None)
            text = schema.raw_text_in(record, "its record")
            raw = schema.record_of(text, copy, _any_record)
        except ValueError as error:
            raise ArchiveError(
                f"{archive.path} is damaged: a copy of deletion {entry_number} ({error}); nothing "
                "was changed: restore a backup of it, or drop that plan first"
            ) from error
        yield NewCopy(copy.key, raw, copy.reason, plan_rows.get(copy.key))


def _any_record(key: schema.Key, record: bytes, fields: dict[str, Any]) -> None:
    """Accept any record: it was checked when it was archived and is checked when it is used."""


def _plan_of(
    packed: bytes | None, keys: list[schema.Key]
) -> tuple[PlanText | None, dict[schema.Key, dict[str, Any]]]:
    """Return the text of a plan, of which the rows can be left out, and these rows by key.

    Return None and no rows if there is no plan, or if it does not agree with the copies: its stored
    text is then kept unchanged.
    """
    if packed is None:
        return None, {}
    try:
        plan = json.loads(packing.unpacked(packed))
        memories = plan[_MEMORIES]
        plan_rows = {row[_KEY]: row for row in memories}
        archived_keys = set(keys)
        planned_keys = [row[_KEY] for row in memories if row[_KEY] in archived_keys]
        if _PLAN not in plan or planned_keys != keys or len(plan_rows) != len(memories):
            return None, {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, {}
    head = {key: value for key, value in plan.items() if key != _MEMORIES}
    pieces = [json.dumps(head, separators=(",", ":"))]
    not_archived = {
        place: row for place, row in enumerate(memories) if row[_KEY] not in archived_keys
    }
    text = PlanText(
        whole=lambda: pieces, without_memories=lambda: pieces, not_archived=not_archived
    )
    return text, plan_rows
