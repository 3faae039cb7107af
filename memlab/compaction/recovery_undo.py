"""Undo a recovery: remove the memories that it restored."""

import json

from memlab.compaction.undo import Restored, Undo
from memlab.compaction.wire import some_of
from memlab.errors import ArchiveError
from memlab.sources.capabilities import check_deletable
from memlab.sources.readers import Key
from memlab.store.archive.schema import check_size
from memlab.store.records import fingerprint_of
from memlab.text import counted


def undo_recovery(undo: Undo) -> Restored:
    """Remove the memories that a recovery restored. Load-bearing ones stay in the store."""
    source = undo.source
    on_step = undo.on_step
    copies = undo.requested_copies()
    records_before = _replaced_records(undo)
    check_deletable(source)
    with source.changing() as writer:
        on_step("locked")
        load_bearing_keys = set[Key]()
        current = dict[Key, bytes]()
        for key, record in writer.records(copies.copied_keys):
            if source.is_load_bearing(source.facts_of(record), if_invalid=True):
                load_bearing_keys.add(key)
            else:
                current[key] = record
        for key in current.keys() & records_before.keys():
            # Such a memory is as it was before the recovery: that is undone already.
            if writer.is_unchanged(current[key], records_before[key]):
                del current[key]
        # A recovery may have inserted a file, its index entries, or both.
        removable = {
            key: record
            for key, record in undo.archive.records(copies.entry, current)
            if writer.has_inserted_parts(current[key], record)
        }
        changed_keys = sorted(current.keys() - removable.keys(), key=str)
        if changed_keys:
            raise ArchiveError(
                f"{counted(len(changed_keys))} written since ({some_of(changed_keys)}); nothing "
                "was changed: name the ids of the other memories to remove only these"
            )
        if removable:
            expected = {
                key: fingerprint_of(writer.comparable_record(current[key])) for key in removable
            }
            writer.delete_inserted_parts(expected, removable.items())
            on_step("deleted")
            to_insert = [(key, records_before[key]) for key in removable if key in records_before]
            if to_insert:
                writer.insert(to_insert)
        on_step("verified")
    on_step("committed")
    return Restored(memories=len(removable), load_bearing=len(load_bearing_keys))


def _replaced_records(undo: Undo) -> dict[Key, bytes]:
    """Return by key the records that a recovery replaced: memories that were empty or unlisted."""
    records = dict[Key, bytes]()
    entry = undo.recorded.entry
    if not entry.has_plan:
        return records
    try:
        # In place of a plan, the archive has the keys and the former records of a recovery.
        for key, text in json.loads(undo.archive.plan_text(entry)):
            record = text.encode()
            check_size(record)
            undo.source.check_copy(key, record, json.loads(record))
            records[key] = record
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"the content that {entry.digest[:12]} replaced cannot be read ({error}); "
            "nothing was changed"
        ) from error
    return records
