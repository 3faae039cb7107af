"""Checks of arguments; an error names what is expected, what was given, and the likely call."""

import sys
from collections.abc import Iterable
from functools import partial
from math import inf
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final

from memlab.errors import WrongArgumentError

DESCRIPTIONS: Final = {
    "DataFrame": "a frame, as memlab.load returns it",
    "MemoryItem": "a memlab.MemoryItem",
    "MemoryProvenance": "a memlab.MemoryProvenance",
    "Plan": "a plan, as memlab.plan returns it",
    "Policy": "a policy, such as memlab.KeepRecent(200)",
    "PathLike": "a path",
    "Receipt": "a receipt, as memlab.apply returns it",
    "Sizing": "what memlab.sizing.prepare_sizing returns",
    "datetime": "a moment with a time zone, such as datetime.now(UTC)",
    "log": "a log, as memlab.read_access_log returns it",
    "policies": "a list of policies, such as [memlab.KeepRecent(200), memlab.KeepRecent(500)]",
    "references": "references, as memlab.find_references returns them",
    "store": "a store: its path, its URL or an open SqliteMemoryStore",
    "texts": "a list of texts",
    "timedelta": "an age, such as timedelta(days=30) or '30d'",
    "ValueCap": "a cap for each scope, such as memlab.policies.ValueCap(100)",
    "Callable": "a function that returns the time, such as lambda: datetime.now(UTC)",
    "bool": "True or False",
    "Mapping": "a mapping with memory_id and at",
    "NearDuplicate": "a rule such as memlab.NearDuplicate(0.92)",
    "entries": "mappings with memory_id and at",
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "tuple": 'a tuple, such as ("agent_id",)',
}
"""How a message describes each kind of argument.

A key is the name of a class, or, for what no class expresses, a word of this module such as "log".
"""

HINTS: Final = {
    ("DataFrame", "path"): "load it first: memlab.load({given})",
    ("DataFrame", "store"): "load it first: memlab.load(store)",
    ("MemoryItem", "dict"): "fields go by name: memlab.MemoryItem(memory_id=..., kind=..., ...)",
    ("Plan", "path"): (
        "make one first: memlab.plan({given}, memlab.KeepRecent(200)), "
        "or read one: memlab.Plan.from_json(text)"
    ),
    ("Plan", "Policy"): "say of which store: memlab.plan(path, {given})",
    ("Policy", "number"): "say what the number means, as in memlab.KeepRecent({given})",
    ("Policy", "class"): "make one of it, as in {name}(...)",
    ("Policy", "timedelta"): "say what it means, as in memlab.TimeToLive({given})",
    ("Receipt", "Plan"): "apply it first: memlab.restore(memlab.apply(plan))",
    ("Receipt", "path"): "name the plan too: memlab.restore(DIGEST, store={given})",
    ("PathLike", "DataFrame"): "name the store that the frame was loaded from",
    ("PathLike", "Plan"): "the store that the plan was made from is plan.store",
    ("PathLike", "store"): "name its file: store.path",
    ("texts", "text"): "put it into a list: [{given}]",
    ("log", "path"): "read it first: memlab.read_access_log({given})",
    ("references", "Policy"): "find them first: memlab.find_references(frame)",
    ("references", "list"): "find them first: memlab.find_references(frame)",
    ("references", "path"): "find them first: memlab.find_references({given})",
    ("store", "DataFrame"): "name the store that the frame was loaded from",
    ("store", "Plan"): "the store that the plan was made from is plan.store",
    ("store", "Receipt"): "the store that was changed is receipt.store",
    ("datetime", "text"): "read it first: datetime.fromisoformat({given})",
    ("timedelta", "number"): "say of what: timedelta(days={given})",
}
"""The call that was probably meant, by the expected kind and the given kind."""

_TYPES_OF_KIND: Final = {"class": type, "number": int | float, "path": str | PathLike, "text": str}
"""Types of the given kinds in `HINTS` that are not named after a class."""

MAX_QUOTED_CHARS: Final = 160
"""Maximum number of characters of a value that a message quotes."""


def expect(value: object, *kinds: type, call: str, name: str, optional: bool = False) -> None:
    """Raise WrongArgumentError unless an argument is of one of the `kinds`.

    ``True`` and ``False`` are not accepted as numbers.

    >>> from datetime import timedelta
    >>> expect(30, timedelta, call="TimeToLive", name="ttl")
    Traceback (most recent call last):
        ...
    memlab.errors.WrongArgumentError: TimeToLive takes as ttl an age, such as \
timedelta(days=30) or '30d', not 30; say of what: timedelta(days=30)
    """
    if optional and value is None:
        return
    # bool is a subclass of int, so isinstance alone would accept True as a number.
    accepts_bool = bool in kinds or object in kinds
    is_accepted = accepts_bool if isinstance(value, bool) else isinstance(value, kinds)
    if is_accepted:
        return
    raise refusal(value, *(kind.__name__ for kind in kinds), call=call, name=name)


def expect_frame(
    value: object, *columns: str, call: str, name: str = "frame", optional: bool = False
) -> None:
    """Raise WrongArgumentError unless an argument is a frame that has all of the `columns`."""
    if optional and value is None:
        return
    pandas: Any = sys.modules.get("pandas")
    # Frames of another kind, such as a log, have a description of their own under that name.
    kind = "DataFrame" if name == "frame" else name
    if pandas is None or not isinstance(value, pandas.DataFrame):
        raise refusal(value, kind, call=call, name=name)
    missing = [column for column in columns if column not in value]
    if missing:
        raise WrongArgumentError(
            f"{call} takes as {name} {DESCRIPTIONS[kind]}; this one has no column "
            f"{' and no column '.join(map(repr, missing))}"
        )


def texts(value: object, *, call: str, name: str) -> list[str]:
    """Return an iterable of texts as a list; raise WrongArgumentError for anything else.

    A single text is not accepted.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refusal(value, "texts", call=call, name=name)
    items = list(value)
    for item in items:
        expect(item, str, call=call, name=f"one of {name}")
    return items


def whole_number(name: str, value: object, *, least: int | None = 0) -> int:
    """Return `value` as an int, or raise a ValueError that names the argument.

    >>> whole_number("keep_recent", -1)
    Traceback (most recent call last):
      ...
    ValueError: keep_recent=-1 is not a whole number of 0 or more
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if least is None or number >= least:
            return number
    bound = "" if least is None else f" of {least} or more"
    raise ValueError(f"{name}={value!r} is not a whole number{bound}")


def number_of(text: str) -> float:
    """Return the number in a text.

    >>> number_of("90%"), number_of("0.5")
    (0.9, 0.5)
    """
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def share(name: str, value: object, *, least: float = 0) -> float:
    """Return `value` as a share between two bounds, or raise a ValueError that names the argument.

    >>> share("target", 90)
    Traceback (most recent call last):
      ...
    ValueError: target=90 is not between 0 and 1; is 0.9 meant?
    """
    number = _number(value)
    if number is not None and least < number < 1:
        return number
    hint = ""
    if number is not None and number > 1 and least < number / 100 < 1:
        hint = f"; is {number / 100:g} meant?"
    raise ValueError(f"{name}={value!r} is not between {least:g} and 1{hint}")


confidence: Final = partial(share, least=0.5)
"""Like :func:`share`, for the confidence of a limit, which is above 0.5."""


def until(name: str, value: object) -> float:
    """Return `value` as a horizon, or raise a ValueError that names the argument.

    A horizon is a multiple of the memories written so far, above 1.
    """
    number = _number(value)
    if number is None or not 1 < number < inf:
        raise ValueError(
            f"{name}={value!r} is not a horizon: give the number of memories until which a "
            "cap stays valid, in times the present number, such as 1.2"
        )
    return number


def refusal(value: object, *wanted: str, call: str, name: str) -> WrongArgumentError:
    """Return the error for a `value` of the wrong kind.

    `wanted` are the kinds that the call takes: keys of `DESCRIPTIONS`.
    """
    descriptions = [DESCRIPTIONS.get(kind, f"a {kind}") for kind in wanted]
    expected = " or ".join(dict.fromkeys(descriptions))
    message = f"{call} takes as {name} {expected}, not {_shown(value)}"
    hint = _hint(value, wanted)
    return WrongArgumentError(f"{message}; {hint}" if hint else message)


def _hint(value: object, wanted: Iterable[str]) -> str:
    """Return the call that was probably meant; empty if that is unknown."""
    given_kinds = _kinds_of(value)
    for kind in wanted:
        for given_kind in given_kinds:
            if (kind, given_kind) in HINTS:
                name = getattr(value, "__name__", "")
                return HINTS[kind, given_kind].format(given=_shown(value), name=name)
    return ""


def _number(value: object) -> float | None:
    """Return a real number as a float; None for any other value, True and False among them."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _kinds_of(value: object) -> list[str]:
    """Return the names by which the hints may refer to a value."""
    names = [kind.__name__ for kind in type(value).__mro__]
    if not isinstance(value, bool):
        names += [name for name, kinds in _TYPES_OF_KIND.items() if isinstance(value, kinds)]
    return ["store" if name == "SqliteMemoryStore" else name for name in names]


def _shown(value: object) -> str:
    """Return the value as a message quotes it; the name of its class if it is too long."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, PathLike):
        value = str(value)
    quoted_types = (str, int, float, bool, bytes, type(None))
    text = (
        repr(value)
        if isinstance(value, quoted_types) or "timedelta" in type(value).__name__
        else ""
    )
    return text if 0 < len(text) <= MAX_QUOTED_CHARS else f"a {type(value).__name__}"
