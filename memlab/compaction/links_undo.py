"""Undo a plan that superseded, retired or returned memories, by their former links."""

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
            f"plan {plan.digest[:12]} deleted nothing that a new file could be made of; restore "
            "without one"
        )
    on_step = undo.on_step
    with opened_to_supersede(plan, undo.source) as writer:
        on_step("locked")
        links = _links_before(undo, writer)
        entries = {
            planned.key: planned.index_entries for planned in plan.entries if planned.key in links
        }
        if len(links) == len(plan.links):
            writer.index_before = undo.recorded.index_before
        count = writer.supersede(LinkChange(links, before=entries)) if links else 0
        on_step("verified")
    if plan.moves:
        # The store changes first: from then on no memory in it is retired by this plan.
        retired = {key: by for key, by in links.items() if by is not None}
        forget_retired(undo.archive, plan.digest, links.keys() - retired, retired)
    on_step("committed")
    return Restored(memories=count, entries_left=tuple(writer.entries_left))


def _links_before(undo: Undo, writer: SupersedingWriter) -> dict[Key, str | None]:
    """Return by key the links to set so that a plan is undone, for the requested ids.

    A link is the id of the memory that supersedes, or None for a memory that is loaded. Memories
    that have the link already are left out.
    """
    plan = undo.recorded.plan
    action_words = "retired or returned" if plan.moves else "superseded"
    memories: Iterator[PlannedLink | PlannedMemory] = chain(plan.supersedes, plan.moves)
    keys = {memory.memory_id: memory.key for memory in memories}
    undo.check_known(keys, action_words)
    requested = keys
    if undo.ids is not None:
        requested = {name: key for name, key in keys.items() if name in undo.ids}
    requested_keys = set(requested.values())
    planned = plan.links
    current = links_of(writer, undo.source, requested.values())
    before = _retired_before(plan, undo.source, writer)
    conflicting = [
        name
        for name, key in requested.items()
        if key not in current or current[key] not in (planned[key], before.get(key))
    ]
    if conflicting:
        raise ArchiveError(
            f"{len(conflicting):,} memories that plan {plan.digest[:12]} {action_words} are gone "
            f"or superseded by others since ({some_of(conflicting)}); nothing was restored: "
            "restore some ids"
        )
    links = {key: before.get(key) for key in requested.values() if current[key] != before.get(key)}
    retired = {memory.key for memory in plan.retires if memory.key in requested_keys}
    loaded = retired - links.keys()
    entries = {entry.key: entry.index_entries for entry in plan.entries if entry.key in loaded}
    for key in writer.unlisted(entries):
        links[key] = None
    return links


def _retired_before(plan: Plan, source: Source, reader: Reader) -> dict[Key, str]:
    """Return by key the ids of memories that a plan returned and that may be retired again.

    A memory that is load-bearing by now stays loaded and is left out.
    """
    retired = {memory.key: memory.memory_id for memory in plan.returns}
    for key, record in reader.records(list(retired)):
        if source.is_load_bearing(source.facts_of(record), if_invalid=True):
            del retired[key]
    return retired
