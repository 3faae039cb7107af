"""Check arguments. An error names the expected kind, the given value, and the likely call."""

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
"""Description of each kind of argument for a message.

A kind is the name of a class, such as "Plan". Some kinds have no class of their own: "log",
"policies", "references", "store", "texts" and "entries".
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
"""Advice on the call that was probably meant, by the expected kind and the given kind.

The advice has the given value as ``{given}`` and the name of a given class as ``{name}``.
"""

_TYPES_OF_KIND: Final = {"class": type, "number": int | float, "path": str | PathLike, "text": str}
"""Types of the given kinds in :data:`HINTS` that are not names of a class."""

MAX_QUOTED_CHARS: Final = 160
"""Maximum number of characters of a value that a message quotes."""


def expect(value: object, *kinds: type, call: str, name: str, optional: bool = False) -> None:
    """Raise WrongArgumentError unless an argument is of one of the `kinds`.

    ``True`` and ``False`` are not accepted as numbers.

    Parameters
    ----------
    value : object
        The argument.
    *kinds : type
        The types that are accepted.
    call, name : str
        The call and the name of the argument, for the message.
    optional : bool
        Whether None is accepted, too.

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
    raise wrong_argument_error(value, *(kind.__name__ for kind in kinds), call=call, name=name)


def expect_frame(
    value: object, *columns: str, call: str, name: str = "frame", optional: bool = False
) -> None:
    """Raise WrongArgumentError unless an argument is a frame that has all of the `columns`."""
    if optional and value is None:
        return
    # If pandas is not imported yet, the value is no frame.
    pandas: Any = sys.modules.get("pandas")
    # An argument such as "log" has its own description under its name.
    kind = "DataFrame" if name == "frame" else name
    if pandas is None or not isinstance(value, pandas.DataFrame):
        raise wrong_argument_error(value, kind, call=call, name=name)
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
        raise wrong_argument_error(value, "texts", call=call, name=name)
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
    bound_words = "" if least is None else f" of {least} or more"
    raise ValueError(f"{name}={value!r} is not a whole number{bound_words}")


def number_of(text: str) -> float:
    """Return the number in a text, which may be a percentage.

    >>> number_of("90%"), number_of("0.5")
    (0.9, 0.5)
    """
    if text.endswith("%"):
        return float(text.removesuffix("%")) / 100
    return float(text)


def share(name: str, value: object, *, least: float = 0) -> float:
    """Return `value` as a share, or raise a ValueError that names the argument.

    A share is above `least` and below 1.

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

    A horizon is the number of memories until which a recommendation stays valid, divided by the
    number that is written so far. It is above 1.
    """
    number = _number(value)
    if number is None or not 1 < number < inf:
        raise ValueError(
            f"{name}={value!r} is not a horizon: give the number of memories until which a cap "
            "stays valid, as a multiple of the present number, such as 1.2"
        )
    return number


def wrong_argument_error(
    value: object, *expected_kinds: str, call: str, name: str
) -> WrongArgumentError:
    """Return the error for a `value` of the wrong kind.

    Parameters
    ----------
    value : object
        The argument.
    *expected_kinds : str
        The kinds that the call takes: keys of :data:`DESCRIPTIONS`, or names of other classes.
    call, name : str
        The call and the name of the argument, for the message.
    """
    descriptions = [DESCRIPTIONS.get(kind, _with_article(kind)) for kind in expected_kinds]
    expected = " or ".join(dict.fromkeys(descriptions))
    message = f"{call} takes as {name} {expected}, not {_quoted(value)}"
    hint = _hint(value, expected_kinds)
    if hint:
        message = f"{message}; {hint}"
    return WrongArgumentError(message)


def _with_article(name: str) -> str:
    """Return the name of a class after its indefinite article.

    >>> _with_article("IndexPlan"), _with_article("Plan")
    ('an IndexPlan', 'a Plan')
    """
    article = "an" if name[:1] in "AEIO" else "a"
    return f"{article} {name}"


def _hint(value: object, expected_kinds: Iterable[str]) -> str:
    """Return advice on the call that was probably meant; empty if that is unknown."""
    given_kinds = _kinds_of(value)
    for expected_kind in expected_kinds:
        for given_kind in given_kinds:
            if (expected_kind, given_kind) in HINTS:
                hint = HINTS[expected_kind, given_kind]
                return hint.format(given=_quoted(value), name=getattr(value, "__name__", ""))
    return ""


def _number(value: object) -> float | None:
    """Return a real number as a float; None for any other value, True and False among them."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    return None


def _kinds_of(value: object) -> list[str]:
    """Return the given kinds in :data:`HINTS` that may fit a value, the most special ones first."""
    kinds = [base.__name__ for base in type(value).__mro__]
    # A truth value is an int for Python, but no hint on numbers fits it.
    if not isinstance(value, bool):
        kinds += [kind for kind, types in _TYPES_OF_KIND.items() if isinstance(value, types)]
    return ["store" if kind == "SqliteMemoryStore" else kind for kind in kinds]


_QUOTED_TYPES: Final = (str, int, float, bool, bytes, type(None))
"""Types of values that a message quotes, besides paths and time differences."""


def _quoted(value: object) -> str:
    """Return the value as a message quotes it, or the name of its class if it is not quoted."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, PathLike):
        value = str(value)
    type_name = type(value).__name__
    # pandas has a type of time differences of its own.
    if isinstance(value, _QUOTED_TYPES) or "timedelta" in type_name:
        text = repr(value)
        if len(text) <= MAX_QUOTED_CHARS:
            return text
    return f"a {type_name}"
