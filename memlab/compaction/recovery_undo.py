"""Undo a recovery: remove the memories that it put back."""

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
    """Remove the memories that a recovery had put back; load-bearing ones stay in the store."""
    source = undo.source
    on_step = undo.on_step
    copies = undo.requested_copies()
    replaced = _replaced(undo)
    check_deletable(source)
    with source.changing() as writer:
        on_step("locked")
        load_bearing = set[Key]()
        current = dict[Key, bytes]()
        for key, record in writer.records(copies.known_keys):
            if source.is_load_bearing(source.facts_of(record), if_invalid=True):
                load_bearing.add(key)
            else:
                current[key] = record
        for key in current.keys() & replaced.keys():
            # Such a memory is as it was before the recovery: that is undone already.
            if writer.is_unchanged(current[key], replaced[key]):
                del current[key]
        restored = {
            key: record
            for key, record in undo.archive.records(copies.entry, current)
            if writer.has_inserted_parts(current[key], record)
        }
        expected = {key: fingerprint_of(writer.comparable_record(current[key])) for key in restored}
        changed_keys = sorted(current.keys() - expected.keys(), key=str)
        if changed_keys:
            raise ArchiveError(
                f"{counted(len(changed_keys))} written since ({some_of(changed_keys)}); nothing "
                "was changed: take others out by id"
            )
        if expected:
            writer.delete_inserted_parts(expected, restored.items())
            on_step("deleted")
            earlier_records = [(key, replaced[key]) for key in expected if key in replaced]
            if earlier_records:
                writer.insert(earlier_records)
        on_step("verified")
    on_step("committed")
    return Restored(memories=len(expected), stay=len(load_bearing))


def _replaced(undo: Undo) -> dict[Key, bytes]:
    """Return by key the records that a recovery replaced: memories that were empty or unlisted."""
    replaced = dict[Key, bytes]()
    entry = undo.recorded.entry
    if not entry.has_plan:
        return replaced
    try:
        for key, text in json.loads(undo.archive.plan_text(entry)):
            record = text.encode()
            check_size(record)
            undo.source.check_copy(key, record, json.loads(record))
            replaced[key] = record
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"what {entry.digest[:12]} replaced cannot be read ({error}); nothing was changed"
        ) from error
    return replaced
