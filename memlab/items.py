"""The domain: kinds of memory, an item and where it came from, and what may never be pruned."""

import json
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any, Final, NamedTuple, NewType, assert_never

from memlab.arguments import expect, texts
from memlab.clock import now_utc
from memlab.text import shortened

EventId = NewType("EventId", str)

REJECTED_PATH_TAG: Final = "rejected-path"
"""Marks an item that records an approach already tried and turned down."""
RESEARCH_TAG: Final = "research"
ZONE_UNSAID: Final = timezone(timedelta(0), "UTC, no zone given")
"""The zone of a moment that was given without one: UTC, and left out again where it is written.

It goes by its name, which copies keep.
"""


def resembles(tag: str, wanted: str) -> bool:
    """Return whether `tag` looks like the tag that is `wanted` and is another one.

    >>> [resembles(tag, "rejected-path") for tag in ("Rejected_Path", "rejected paths ", "failed")]
    [True, True, False]
    """
    return tag != wanted and _letters(tag) == _letters(wanted)


class Size(NamedTuple):
    """So many memories, so many tokens."""

    memories: int
    tokens: int

    def to_dict(self) -> dict[str, int]:
        """Return both by name."""
        return self._asdict()


class MemoryKind(StrEnum):
    """The closed set of kinds an agent writes."""

    SEMANTIC = "semantic"
    """A decision."""
    EPISODIC = "episodic"
    """The outcome of one issue."""
    PROCEDURAL = "procedural"
    """A validated skill."""


@dataclass(frozen=True, slots=True)
class EventRef:
    """An event in the agent's log: its id and its place in the sequence."""

    event_id: EventId
    sequence: int


@dataclass(frozen=True, slots=True)
class MemoryProvenance:
    """Where an item came from, who wrote it, and what it stands on.

    Parameters
    ----------
    source_event : EventRef or None
        The event the item was made from. Without one, `source_task_ref` is required.
    authored_by : str
        Who wrote the item; not blank.
    source_task_ref : str, optional
        The task the item belongs to, such as ``"issue:#12"``.
    confidence : float
        In [0, 1].
    created_at : datetime
        Now, in UTC, by default. One without a time zone is in UTC, and is written without one.
    supersedes : tuple of str
        Ids of the items this one replaces.
    evidence_refs : tuple of str
        Memory ids or task references this item stands on.

    Raises
    ------
    ValueError
        Naming the field, when one of these rules is broken.
    """

    source_event: EventRef | None
    authored_by: str
    source_task_ref: str | None = None
    confidence: float = 1.0
    created_at: datetime = field(default_factory=now_utc)
    supersedes: tuple[str, ...] = ()
    evidence_refs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_texts(self, "authored_by")
        _check_texts(self, "source_task_ref", optional=True)
        expect(self.created_at, datetime, call="MemoryProvenance", name="created_at")
        expect(self.confidence, float, int, call="MemoryProvenance", name="confidence")
        if self.source_event is not None:
            expect(self.source_event, EventRef, call="MemoryProvenance", name="source_event")
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must lie in [0, 1], not {self.confidence!r}")
        if not self.authored_by.strip():
            raise ValueError("the authored_by of a provenance must not be blank")
        if self.source_event is None and not (self.source_task_ref or "").strip():
            raise ValueError(
                "a provenance needs a source event or source task: give a source_event, or a "
                "source_task_ref that is not blank"
            )
        if self.created_at.tzinfo is None:
            object.__setattr__(self, "created_at", self.created_at.replace(tzinfo=ZONE_UNSAID))
        _freeze_strings(self, "supersedes", "evidence_refs")


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One memory, as an agent reads and writes it.

    Parameters
    ----------
    memory_id : str
        Unique in a store.
    kind : MemoryKind
        A member, or its value as text.
    title, body : str
        What the agent reads.
    provenance : MemoryProvenance
        Where the item came from.
    tags : tuple of str
        Labels in the order they were written.
    superseded_by : str, optional
        Id of the item that replaced this one.
    """

    memory_id: str
    kind: MemoryKind
    title: str
    body: str
    provenance: MemoryProvenance
    tags: tuple[str, ...] = ()
    superseded_by: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _kind_of(self.kind))
        _check_texts(self, "memory_id", "title", "body")
        _check_texts(self, "superseded_by", optional=True)
        expect(self.provenance, MemoryProvenance, call="MemoryItem", name="provenance")
        _freeze_strings(self, "tags")

    @property
    def is_active(self) -> bool:
        """Whether no other item has replaced this one."""
        return self.superseded_by is None


def is_load_bearing_memory(item: MemoryItem, *, protected: Collection[str] = frozenset()) -> bool:
    """Return whether `item` may never be pruned: the single source of truth for that.

    Labels, plans and the statement that deletes all ask this predicate; nothing else decides it.
    Decisions and skills are load-bearing, and so is anything tagged ``rejected-path`` whatever its
    kind. The verdict depends on kind and tags alone.

    Parameters
    ----------
    item : MemoryItem
        A memory.
    protected : collection of str
        Tags of a person's own that make a memory load-bearing, too.

    Examples
    --------
    >>> provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#7")
    >>> outcome = MemoryItem("m1", MemoryKind.EPISODIC, "a cache", "", provenance, ("failed",))
    >>> is_load_bearing_memory(outcome)
    False
    >>> from dataclasses import replace
    >>> is_load_bearing_memory(replace(outcome, tags=("failed", "rejected-path")))
    True
    """
    expect(item, MemoryItem, call="memlab.is_load_bearing_memory", name="item")
    if not isinstance(protected, frozenset):
        protected = texts(protected, call="memlab.is_load_bearing_memory", name="protected")
    if REJECTED_PATH_TAG in item.tags or not set(protected).isdisjoint(item.tags):
        return True
    match item.kind:
        case MemoryKind.SEMANTIC | MemoryKind.PROCEDURAL:
            return True
        case MemoryKind.EPISODIC:
            return False
    assert_never(item.kind)


def strings_of(stored: str) -> tuple[str, ...]:
    """Return the strings of a stored JSON list, as in ``tags_json``.

    >>> strings_of('["merged","area:docs"]')
    ('merged', 'area:docs')
    """
    text = stored.strip(_JSON_SPACE)
    try:
        values, end = _DECODER.raw_decode(text)  # json.loads takes twice as long
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shortened(stored)} is not JSON") from error
    if end != len(text):
        raise ValueError(f"{shortened(stored)} is not JSON")
    if not isinstance(values, list) or not set(map(type, values)) <= {str}:
        raise ValueError(f"{shortened(stored)} is not a JSON list of strings")
    return tuple(values)


def readable_strings_of(stored: str) -> tuple[str, ...]:
    r"""Return what :func:`strings_of` does, as texts that can be searched, compared and written.

    JSON can say half a character, which nothing else takes; such a name is nobody's.

    >>> readable_strings_of('["m1", "\\ud800"]') == ("m1", "\N{REPLACEMENT CHARACTER}" * 3)
    True
    """
    found = strings_of(stored)
    if "\\ud" not in stored.lower():
        return found
    return tuple(each.encode("utf-8", "surrogatepass").decode(errors="replace") for each in found)


def tags_as_text(tags_json: Any) -> Any:
    """Return stored tags as they read, one a line, whatever JSON has escaped in them."""
    try:
        return "\n".join(readable_strings_of(tags_json))
    except (TypeError, ValueError):
        return tags_json


def is_load_bearing_stored(
    kind: str, tags_json: str, protected: Collection[str] = frozenset()
) -> bool:
    """Return :func:`is_load_bearing_memory` of all items stored with this kind and tags."""
    if kind not in _KINDS:
        raise ValueError(f"kind {shortened(kind)} is not one of {', '.join(_KINDS)}")
    try:
        tags = strings_of(tags_json)
    except ValueError as error:
        raise ValueError(f"tags_json {error}") from error
    item = MemoryItem("", MemoryKind(kind), "", "", _ANYBODY, tags)
    return is_load_bearing_memory(item, protected=protected)


def _letters(tag: str) -> str:
    """Return what is left of a tag without case, signs, spaces and a plural's ending."""
    plain = unicodedata.normalize("NFKC", tag).casefold()
    return "".join(filter(str.isalnum, plain)).removesuffix("s")


def _kind_of(value: object) -> MemoryKind:
    if isinstance(value, str) and value in _KINDS:
        return MemoryKind(value)
    raise ValueError(f"kind must be one of {', '.join(_KINDS)}, not {value!r:.80}")


def _check_texts(instance: object, *names: str, optional: bool = False) -> None:
    for name in names:
        value = getattr(instance, name)
        if not isinstance(value, str) and not (optional and value is None):
            raise ValueError(f"{name} must be text, not {value!r:.80}")


def _freeze_strings(instance: object, *names: str) -> None:
    """Turn the named fields into tuples, refusing a bare string or anything else in them."""
    for name in names:
        values = getattr(instance, name)
        listed = isinstance(values, Iterable) and not isinstance(values, str)
        if not listed or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name} must be a sequence of strings, not {values!r}")
        object.__setattr__(instance, name, tuple(values))


_DECODER: Final = json.JSONDecoder()
_JSON_SPACE: Final = " \t\n\r"
_KINDS: Final = tuple(kind.value for kind in MemoryKind)
_ANYBODY: Final = MemoryProvenance(
    None, "anybody", source_task_ref="any", created_at=datetime.min.replace(tzinfo=UTC)
)
