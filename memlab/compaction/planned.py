"""What a plan says of each memory, and of groups of them."""

from typing import Final, NamedTuple

TITLE: Final = 80
"""Characters of a title that a plan keeps for its reader."""

LOAD_BEARING: Final = "load-bearing"
PRUNABLE: Final = "prunable"
SUPERSEDED: Final = "superseded"


class PlannedMemory(NamedTuple):
    """A memory that a plan deletes.

    Attributes
    ----------
    key : int or str
        The store's own address of it; in a file of ``memory_items`` the position.
    position : int
        Its place in the order of insertion.
    memory_id, kind, title : str
        As stored; the title is cut to its first 80 characters.
    reason : str
        Why the policy does not keep it.
    tokens : int
        Of title and body.
    created_at : str
        ISO 8601 with zone; empty where it is not known.
    fingerprint : str
        Of its record: every byte that deleting it takes away.
    """

    key: int | str
    position: int
    memory_id: str
    kind: str
    title: str
    reason: str
    tokens: int
    created_at: str
    fingerprint: str


class KeptMemory(NamedTuple):
    """A prunable memory that a plan keeps, and on which it rests.

    Attributes
    ----------
    key : int or str
        The store's own address of it.
    memory_id : str
        As stored.
    fingerprint : str
        Of what of its record mere use does not change.
    """

    key: int | str
    memory_id: str
    fingerprint: str


class PlannedLink(NamedTuple):
    """A load-bearing memory for which a plan lets another stand; it stays in the store.

    Attributes
    ----------
    key, position, memory_id, kind, title, reason, tokens, fingerprint
        As for `PlannedMemory`.
    by_key : int or str
        The store's own address of the memory that will stand for it.
    by_memory_id : str
        Its id.
    by_fingerprint : str
        Of its record.
    """

    key: int | str
    position: int
    memory_id: str
    kind: str
    title: str
    reason: str
    tokens: int
    fingerprint: str
    by_key: int | str
    by_memory_id: str
    by_fingerprint: str


class Group(NamedTuple):
    """Memories that share what happens to them and why.

    Attributes
    ----------
    deleted : bool
        Whether the plan deletes them.
    label : {"load-bearing", "prunable", "superseded"}
        What they are. A superseded memory is that, load-bearing or not: no agent loads it.
    kind, reason : str
        The kind of memory, and the policy's reason.
    memories, tokens : int
        How many, and how large together.
    """

    deleted: bool
    label: str
    kind: str
    reason: str
    memories: int
    tokens: int
