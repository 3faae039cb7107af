"""Memory items, their kinds and their provenance, and the rule that makes an item load-bearing."""

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
"""Tag of an item that records an approach which was tried and rejected."""
RESEARCH_TAG: Final = "research"
"""Tag of an item that records research."""
UTC_BY_DEFAULT: Final = timezone(timedelta(0), "UTC, no zone given")
"""Time zone of a time that was given without one.

It is UTC. A time with this zone is written to a store without a zone. The zone is recognized by its
name, which survives copying."""


def resembles(tag: str, expected: str) -> bool:
    """Return whether `tag` looks like a misspelling of the tag `expected`: alike, but not equal.

    >>> [resembles(tag, "rejected-path") for tag in ("Rejected_Path", "rejected paths ", "failed")]
    [True, True, False]
    """
    return tag != expected and _normalized(tag) == _normalized(expected)


CHARS_PER_TOKEN: Final = 4
"""Number of characters per token in the estimate of tokens."""


class Size(NamedTuple):
    """Number of some memories and of their tokens."""

    memories: int
    tokens: int

    def to_dict(self) -> dict[str, int]:
        """Return both numbers by name."""
        return self._asdict()


class MemoryKind(StrEnum):
    """Kinds of memory that an agent writes.

    Examples
    --------
    >>> MemoryKind("episodic") is MemoryKind.EPISODIC
    True
    """

    SEMANTIC = "semantic"
    """A decision."""
    EPISODIC = "episodic"
    """The outcome of one issue."""
    PROCEDURAL = "procedural"
    """A validated skill."""


@dataclass(frozen=True, slots=True)
class EventRef:
    """Reference to an event in the agent's log.

    Parameters
    ----------
    event_id : str
        The id of the event.
    sequence : int
        Its number in the log.
    """

    event_id: EventId
    sequence: int


@dataclass(frozen=True, slots=True)
class MemoryProvenance:
    """Origin of an item: its event or task, its author, and the evidence for it.

    Parameters
    ----------
    source_event : EventRef or None
        The event from which the item was made. Without it, `source_task_ref` is required.
    authored_by : str
        The author of the item; not blank.
    source_task_ref : str, optional
        The task of the item, such as ``"issue:#12"``.
    confidence : float
        A number in [0, 1].
    created_at : datetime
        The time of creation; now, in UTC, by default. A time without a time zone is in UTC, and is
        written without one.
    supersedes : tuple of str
        Ids of the items that this one replaces.
    evidence_refs : tuple of str
        Memory ids or task references on which this item rests.

    Raises
    ------
    ValueError
        If a value is invalid; the message names the field.

    Examples
    --------
    >>> MemoryProvenance(None, "agent", source_task_ref="issue:#12").confidence
    1.0
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
            object.__setattr__(self, "created_at", self.created_at.replace(tzinfo=UTC_BY_DEFAULT))
        _freeze_strings(self, "supersedes", "evidence_refs")


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A memory as an agent reads and writes it.

    Parameters
    ----------
    memory_id : str
        The id, unique in a store.
    kind : MemoryKind
        A member, or its value as text.
    title, body : str
        The text that the agent reads.
    provenance : MemoryProvenance
        The origin of the item.
    tags : tuple of str
        Labels in the order in which they were written.
    superseded_by : str, optional
        Id of the item that replaced this one.

    Examples
    --------
    >>> provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#12")
    >>> item = MemoryItem("m1", "episodic", "Merged the fix", "Tests pass.", provenance)
    >>> item.kind, item.is_active
    (<MemoryKind.EPISODIC: 'episodic'>, True)
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
        """Whether the item is not superseded."""
        return self.superseded_by is None


def is_load_bearing_memory(item: MemoryItem, *, protected: Collection[str] = frozenset()) -> bool:
    """Return whether `item` is load-bearing, which means that it is never pruned.

    This function is the single source of truth: labels, plans and the deleting statement all use
    it, and nothing else decides. Decisions and skills are load-bearing, and so is any item tagged
    ``rejected-path``. The verdict depends on kind and tags alone.

    Parameters
    ----------
    item : MemoryItem
        A memory.
    protected : collection of str
        Further tags that make a memory load-bearing.

    Returns
    -------
    bool
        Whether the item is load-bearing.

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

    Raise ValueError if the text is not such a list.

    >>> strings_of('["merged","area:docs"]')
    ('merged', 'area:docs')
    """
    text = stored.strip(_JSON_SPACE)
    try:
        values, end = _DECODER.raw_decode(text)  # twice as fast as json.loads
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shortened(stored)} is not JSON") from error
    if end != len(text):
        raise ValueError(f"{shortened(stored)} is not JSON")
    if not isinstance(values, list) or not all(type(value) is str for value in values):
        raise ValueError(f"{shortened(stored)} is not a JSON list of strings")
    return tuple(values)


def readable_strings_of(stored: str) -> tuple[str, ...]:
    r"""Return the strings of a stored JSON list, with lone surrogates replaced.

    JSON can contain lone surrogates, which cannot be encoded. Each of the three bytes of a
    surrogate is replaced. No memory has a name with a surrogate.

    >>> readable_strings_of('["m1", "\\ud800"]') == ("m1", "\N{REPLACEMENT CHARACTER}" * 3)
    True
    """
    strings = strings_of(stored)
    if "\\ud" not in stored.lower():
        return strings
    return tuple(
        string.encode("utf-8", "surrogatepass").decode(errors="replace") for string in strings
    )


def tags_as_text(tags_json: Any) -> Any:
    """Return stored tags as text, one on each line, without JSON escapes."""
    try:
        return "\n".join(readable_strings_of(tags_json))
    except (TypeError, ValueError):
        return tags_json


def is_load_bearing_stored(
    kind: str, tags_json: str, protected: Collection[str] = frozenset()
) -> bool:
    """Return whether items that are stored with this kind and these tags are load-bearing.

    :func:`is_load_bearing_memory` decides. Raise ValueError if the kind or the tags are not valid.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind {shortened(kind)} is not one of {', '.join(_KINDS)}")
    try:
        tags = strings_of(tags_json)
    except ValueError as error:
        raise ValueError(f"tags_json {error}") from error
    item = MemoryItem(
        memory_id="",
        kind=MemoryKind(kind),
        title="",
        body="",
        provenance=_ANY_PROVENANCE,
        tags=tags,
    )
    return is_load_bearing_memory(item, protected=protected)


def _normalized(tag: str) -> str:
    """Return the letters and digits of a tag in lower case, without a plural ending."""
    folded = unicodedata.normalize("NFKC", tag).casefold()
    return "".join(filter(str.isalnum, folded)).removesuffix("s")


def _kind_of(value: object) -> MemoryKind:
    """Return a kind from a member or its value; raise ValueError for another value."""
    if isinstance(value, str) and value in _KINDS:
        return MemoryKind(value)
    raise ValueError(f"kind must be one of {', '.join(_KINDS)}, not {value!r:.80}")


def _check_texts(instance: object, *names: str, optional: bool = False) -> None:
    """Raise ValueError unless the named fields are texts."""
    for name in names:
        value = getattr(instance, name)
        if not isinstance(value, str) and not (optional and value is None):
            raise ValueError(f"{name} must be text, not {value!r:.80}")


def _freeze_strings(instance: object, *names: str) -> None:
    """Convert the named fields to tuples; raise ValueError unless they are sequences of strings."""
    for name in names:
        values = getattr(instance, name)
        is_sequence = isinstance(values, Iterable) and not isinstance(values, str)
        if not is_sequence or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name} must be a sequence of strings, not {values!r}")
        object.__setattr__(instance, name, tuple(values))


_DECODER: Final = json.JSONDecoder()
_JSON_SPACE: Final = " \t\n\r"
_KINDS: Final = tuple(kind.value for kind in MemoryKind)
_ANY_PROVENANCE: Final = MemoryProvenance(
    None, "anybody", source_task_ref="any", created_at=datetime.min.replace(tzinfo=UTC)
)
"""A valid provenance. Whether an item is load-bearing does not depend on it."""
