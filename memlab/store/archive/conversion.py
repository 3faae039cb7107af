"""Conversion of an archive to the newest format, in its own file and in one transaction.

The archive is converted in place, and not replaced by another file: a process that has it open and
waits for its lock would write into the replaced file. If that process knows only older formats, it
finds unknown tables, fails, and deletes nothing from its store.
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
"""Name of the table ``archived`` of the old format during the conversion."""
_PLAN: Final = "memlab_plan"
"""Key that marks a JSON text as a plan."""
_MEMORIES: Final = "memories"
"""Key of the list of deleted memories in a plan."""
_KEY: Final = "key"
"""Key of a memory's key in that list."""


class SpaceNeeded(NamedTuple):
    """Space on the disk that an archive takes, and that its conversion needs.

    Attributes
    ----------
    size : int
        The size of the archive, in bytes.
    extra : int
        The maximum that the conversion needs in addition, in bytes.
    """

    size: int
    extra: int


def space_for(archive: OpenArchive) -> SpaceNeeded:
    """Return the size of an archive and the space that its conversion needs.

    The new tables are written before the old ones are dropped, and the journal has a copy of every
    changed page of the old ones: at most twice the size. VACUUM, which then writes the file again
    without free pages, needs as much, one after the other.
    """
    rows = archive.rows("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
    page_count, page_size = rows[0]
    size = page_count * page_size
    return SpaceNeeded(size=size, extra=2 * size)


def upgrade(archive: OpenArchive) -> None:
    """Convert an open archive to the newest format. The caller has locked its store.

    Raises
    ------
    ArchiveError
        If a copy in the archive is damaged. Nothing is changed.
    """
    new = formats.KNOWN[max(formats.KNOWN)](archive.connection)
    old = archive.format
    if old.number >= new.number:
        return
    with archive.transaction() as connection:
        connection.execute("DROP VIEW IF EXISTS archived_memories")
        connection.execute(f"ALTER TABLE archived RENAME TO {_OLD_TABLE}")
        for name in new.required_tables:
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
    # If the disk has no room for VACUUM, the free pages stay in the file. SQLite uses them later.
    with suppress(ArchiveError), archive_errors(archive.path):
        connection.execute("VACUUM")


def _convert_entry(
    archive: OpenArchive, new: formats.ArchiveFormat, entry_number: int, packed: bytes | None
) -> None:
    """Convert the copies of a deletion, and remove from its plan what its copies have.

    Parameters
    ----------
    archive : OpenArchive
        The archive, in the transaction of the conversion.
    new : ArchiveFormat
        The newest format.
    entry_number : int
        The number of the deletion.
    packed : bytes or None
        Its compressed plan; None if it has none.
    """
    connection = archive.connection
    keys = [
        schema.key_in(key)
        for (key,) in connection.execute(
            f"SELECT key FROM {_OLD_TABLE} WHERE apply = ? ORDER BY rowid", (entry_number,)
        )
    ]
    text, plan_rows = _plan_of(packed, keys)
    copies = _sound_copies(archive, entry_number, plan_rows)
    packed_plan = new.insert_copies(entry_number, copies, text)
    if text is not None:
        connection.execute(
            "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?", (packed_plan, entry_number)
        )
    # Each new copy gets the time of restoration of the old one.
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
    """Accept any record: each is checked when it is archived, and again when it is used."""


def _plan_of(
    packed: bytes | None, keys: list[schema.Key]
) -> tuple[PlanText | None, dict[schema.Key, dict[str, Any]]]:
    """Return the text of a plan that can be shortened, and its rows for memories, by key.

    Return None and no rows if there is no plan, or if it does not agree with the copies: its stored
    text is then kept unchanged.

    Parameters
    ----------
    packed : bytes or None
        The compressed plan.
    keys : list of key
        The keys of the copies, in order.
    """
    if packed is None:
        return None, {}
    try:
        plan = json.loads(packing.unpacked(packed))
        memories = plan[_MEMORIES]
        plan_rows = {row[_KEY]: row for row in memories}
        archived_keys = set(keys)
        planned_keys = [row[_KEY] for row in memories if row[_KEY] in archived_keys]
        has_repeated_keys = len(plan_rows) != len(memories)
        if _PLAN not in plan or planned_keys != keys or has_repeated_keys:
            return None, {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, {}
    fields_without_memories = {key: value for key, value in plan.items() if key != _MEMORIES}
    pieces = [json.dumps(fields_without_memories, separators=(",", ":"))]
    not_archived = {
        index: row for index, row in enumerate(memories) if row[_KEY] not in archived_keys
    }
    # A new format never needs the whole text here, because the shortened one always fits it.
    text = PlanText(
        whole=lambda: pieces, without_memories=lambda: pieces, not_archived=not_archived
    )
    return text, plan_rows
