"""Undo a plan that superseded, retired or returned memories: set their former links again."""

from collections.abc import Iterator
from itertools import chain

from memlab.compaction.plans import Plan, PlannedLink, PlannedMemory
from memlab.compaction.store_change import links_of, opened_to_supersede
from memlab.compaction.undo import Restored, Undo
from memlab.compaction.wire import some_of
from memlab.errors import ArchiveError
from memlab.sources.base import Source
from memlab.sources.readers import Key, LinkChange, Reader, SupersedingWriter
from memlab.store.archive.retired import forget_retired


def undo_links(undo: Undo) -> Restored:
    """Undo a plan that superseded, retired or returned memories."""
    plan = undo.recorded.plan
    if undo.into is not None:
        raise ArchiveError(
            f"plan {plan.digest[:12]} deleted no memory that a new file could hold; restore it "
            "without a new file"
        )
    on_step = undo.on_step
    count = 0
    with opened_to_supersede(plan, undo.source) as writer:
        on_step("locked")
        links = _links_to_set(undo, writer)
        entries = {entry.key: entry.index_entries for entry in plan.entries if entry.key in links}
        if len(links) == len(plan.links):
            # All links are set again, so the index from before the plan can be restored.
            writer.index_before = undo.recorded.index_before
        if links:
            count = writer.supersede(LinkChange(links, before=entries))
        on_step("verified")
    retired_again = {key: link for key, link in links.items() if link is not None}
    if plan.moves:
        # The store changes before the archive. No memory is therefore retired in the store without
        # a record in the archive.
        loaded_again = links.keys() - retired_again.keys()
        forget_retired(undo.archive, plan.digest, loaded_again, retired_again)
    on_step("committed")
    return Restored(
        memories=count,
        active_again=count - len(retired_again),
        retired_again=len(retired_again),
        entries_left=tuple(writer.entries_left),
    )


def _links_to_set(undo: Undo, writer: SupersedingWriter) -> dict[Key, str | None]:
    """Return the links to set so that a plan is undone, by key, for the requested ids.

    A link is the id of the memory that supersedes, or None for a memory that is loaded. Memories
    that have the link already are left out.

    Raise ArchiveError if the link of a memory is neither that of the plan nor the former one.
    """
    plan = undo.recorded.plan
    action_words = "retired or returned" if plan.moves else "superseded"
    memories: Iterator[PlannedLink | PlannedMemory] = chain(plan.supersedes, plan.moves)
    keys_by_id = {memory.memory_id: memory.key for memory in memories}
    undo.check_known(keys_by_id, action_words)
    if undo.ids is not None:
        keys_by_id = {
            memory_id: key for memory_id, key in keys_by_id.items() if memory_id in undo.ids
        }
    requested_keys = set(keys_by_id.values())
    planned_links = plan.links
    current = links_of(writer, undo.source, keys_by_id.values())
    # A memory without a former link was loaded before the plan.
    former = _former_links(plan, undo.source, writer)
    conflicting_ids = [
        memory_id
        for memory_id, key in keys_by_id.items()
        if key not in current or current[key] not in (planned_links[key], former.get(key))
    ]
    if conflicting_ids:
        raise ArchiveError(
            f"{len(conflicting_ids):,} memories that plan {plan.digest[:12]} {action_words} are "
            f"gone or superseded by others since ({some_of(conflicting_ids)}); nothing was "
            "restored: restore some ids"
        )
    links = {key: former.get(key) for key in keys_by_id.values() if current[key] != former.get(key)}
    # Retired memories without a link to set are loaded again. They may lack their index entry,
    # which the writer then restores.
    retired_keys = {memory.key for memory in plan.retires if memory.key in requested_keys}
    loaded_keys = retired_keys - links.keys()
    entries = {entry.key: entry.index_entries for entry in plan.entries if entry.key in loaded_keys}
    for key in writer.unlisted(entries):
        links[key] = None
    return links


def _former_links(plan: Plan, source: Source, reader: Reader) -> dict[Key, str]:
    """Return the ids of memories that a plan returned and that may be retired again, by key.

    A retired memory is superseded by itself. A memory that is load-bearing by now stays loaded and
    is left out.
    """
    links = {memory.key: memory.memory_id for memory in plan.returns}
    for key, record in reader.records(list(links)):
        if source.is_load_bearing(source.facts_of(record), if_invalid=True):
            del links[key]
    return links
