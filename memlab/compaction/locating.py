"""What has become of archived memories in their store, and of any by their fingerprints."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from memlab.compaction.planned import KeptMemory, PlannedMemory
from memlab.sources.abilities import Printing
from memlab.sources.base import Key, Reader, Source
from memlab.store.archive import Archive
from memlab.store.archive_entries import Copy, Entry
from memlab.store.records import fingerprint_of

Named = TypeVar("Named", PlannedMemory, KeptMemory)
Found = TypeVar("Found")


class Located(NamedTuple):
    """Keys of archived memories, by what the store has there."""

    same: set[Key]
    """The memory, byte for byte."""
    changed: set[Key]
    """A memory with its id."""
    taken: set[Key]
    """Another memory."""
    absent: set[Key]
    """Nothing."""

    @property
    def gone(self) -> bool:
        """Whether not one of the memories is where it was."""
        return not self.same and not self.changed


def locate(
    reader: Reader, source: Source, archive: Archive, entry: Entry, copies: Iterable[Copy]
) -> Located:
    """Say which copies of an entry are in the store, byte for byte or changed, and which are not.

    Parameters
    ----------
    reader : Reader
        Of the store.
    source : Source
        Tells what a record is of.
    archive : Archive
        Which has the copies.
    entry : Entry
        Theirs.
    copies : iterable of Copy
        Those of the entry that are asked for.
    """
    wanted = {copy.key: copy.fingerprint for copy in copies}
    same: set[Key] = set()
    others: dict[Key, str | None] = {}
    for key, record in reader.records(wanted):
        if fingerprint_of(record) == wanted[key]:
            same.add(key)
        else:
            others[key] = source.facts_of(record).memory_id
    archived = archive.records(entry, others) if others else ()
    changed = {k for k, record in archived if source.facts_of(record).memory_id == others[k]}
    return Located(same, changed, others.keys() - changed, wanted.keys() - same - others.keys())


def prints_of(
    reader: Reader, source: Source, keys: Iterable[Key], *, lasting: bool = False
) -> Iterator[tuple[Key, str]]:
    """Yield the fingerprints of those of `keys` that are there, in the order given.

    Parameters
    ----------
    reader : Reader
        Of the store.
    source : Source
        Which it reads.
    keys : iterable of Key
        Addresses of memories.
    lasting : bool
        Of what of a record mere use does not change.
    """
    if isinstance(reader, Printing):
        yield from reader.prints(keys, lasting=lasting)
        return
    for key, record in reader.records(keys):
        yield key, fingerprint_of(source.lasting(record) if lasting else record)


def beside(
    memories: Iterable[Named], found: Iterable[tuple[Key, Found]]
) -> Iterator[tuple[Named, Found | None]]:
    """Pair memories with what was found at their keys, in the same order; None where nothing was.

    Parameters
    ----------
    memories : iterable of PlannedMemory or KeptMemory
        Each with its key.
    found : iterable of (Key, object)
        Of those that are there, what was found.
    """
    remaining = iter(found)
    ahead = next(remaining, None)
    for memory in memories:
        if ahead is None or ahead[0] != memory.key:
            yield memory, None
        else:
            yield memory, ahead[1]
            ahead = next(remaining, None)


def some_of(names: Sequence[object]) -> str:
    """Return the first five names, each cut when it is long, and how many more there are."""
    texts = [str(name) for name in names[:5]]
    shown = ", ".join(text if len(text) <= 80 else f"{text[:77]}..." for text in texts)
    return f"{shown} and {len(names) - 5:,} more" if len(names) > 5 else shown
