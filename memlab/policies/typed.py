"""The settings of a policy by their types: what is accepted, and what a text means."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from memlab.arguments import refusal, whole_number
from memlab.moments import age_of

REQUIRED: Final = inspect.Parameter.empty
"""Stands for the default of a setting that has none."""

_NOTHING: Final = "none"
_FLAGS: Final = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True)
class Setting:
    """One setting of a policy.

    Attributes
    ----------
    owner, name : str
        The class or function it belongs to, and the name of the field or argument.
    type : type
        What it takes: int, float, bool, str, timedelta, a Literal, a tuple of one of these, or None
        beside one. Anything else is taken as it is, and cannot be given as text.
    default : object
        `REQUIRED` where there is none.
    help : str
        What it means.
    option : str
        What it is called on a command line.
    least : int, optional
        The least whole number it takes.
    size : str
        ``"count"``, ``"age"`` or ``"tokens"`` where it puts settings of one policy in order.
    """

    owner: str
    name: str
    type: Any
    default: Any = REQUIRED
    help: str = ""
    option: str = ""
    least: int | None = None
    size: str = ""

    def checked(self, value: Any) -> Any:
        """Return `value` as its type has it; numpy's numbers become Python's.

        Raises
        ------
        WrongArgumentError, ValueError
            Naming the setting, when it is of another type.
        """
        return self._checked(self.type, value)

    def parsed(self, text: str) -> Any:
        """Return what a text means: ``50``, ``0.5``, ``yes``, ``30d``, ``none``, ``a,b``.

        Raises
        ------
        WrongArgumentError, ValueError
            Naming the setting, when it means nothing of its type.
        """
        return self.checked(self._parsed(self.type, text.strip()))

    def _checked(self, kind: Any, value: Any) -> Any:
        first, *others = _alternatives(kind)
        if value is None and NoneType in others:
            return None
        if get_origin(first) is Literal:
            # The type first: a frame answers a comparison with a frame.
            if not any(isinstance(value, type(one)) and value == one for one in get_args(first)):
                either = " or ".join(map(repr, get_args(first)))
                raise ValueError(f"{self.name}={value!r} is not {either}")
            return value
        if get_origin(first) is tuple:
            if not isinstance(value, (tuple, list)):
                raise refusal(value, "tuple", call=self.owner, name=self.name)
            return tuple(self._checked(get_args(first)[0], one) for one in value)
        if first is int:
            return whole_number(self.name, value, least=self.least)
        if (known := _KINDS.get(first)) is None:
            return value
        if not known.accepts(value):
            raise refusal(value, first.__name__, call=self.owner, name=self.name)
        return known.as_python(value)

    def _parsed(self, kind: Any, text: str) -> Any:
        first, *others = _alternatives(kind)
        if NoneType in others and text.lower() == _NOTHING:
            return None
        if get_origin(first) is Literal:
            return next((one for one in get_args(first) if str(one) == text), text)
        if get_origin(first) is tuple:
            parts = [] if text.lower() in {"", _NOTHING} else text.split(",")
            return tuple(self._parsed(get_args(first)[0], part.strip()) for part in parts)
        if (known := _KINDS.get(first)) is None:
            raise ValueError(f"{self.name} cannot be given as text: make the policy in Python")
        try:
            return known.read(text)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{self.name}={text!r} is not {known.written}") from error
        except OverflowError as error:
            raise ValueError(f"{self.name}={text!r} is more than the calendar holds") from error


def check_settings(policy: Any) -> None:
    """Hold the fields of a policy to their types; numpy's numbers become Python's.

    Raises
    ------
    WrongArgumentError, ValueError
        Naming the first field that is of another type.
    """
    kind: Callable[..., Any] = type(policy)
    for name, setting in settings_of(kind).items():
        object.__setattr__(policy, name, setting.checked(getattr(policy, name)))


@cache
def settings_of(policy: Callable[..., Any]) -> Mapping[str, Setting]:
    """Return the settings of a policy's class, or of a function that makes one, by name."""
    owner = policy.__qualname__
    try:
        hints = get_type_hints(policy)
    except NameError:  # a type that only its own module knows
        hints = {}
    if isinstance(policy, type):
        return {f.name: _of_field(owner, f, hints.get(f.name)) for f in fields(policy) if f.init}
    return {
        name: Setting(owner, name, hints.get(name), argument.default, option=_option(name))
        for name, argument in inspect.signature(policy).parameters.items()
    }


def _of_field(owner: str, field: "Field[Any]", kind: Any) -> Setting:
    default = field.default
    if default is MISSING:
        default = REQUIRED if field.default_factory is MISSING else field.default_factory()
    said = field.metadata
    return Setting(
        owner,
        field.name,
        kind,
        default,
        help=str(said.get("help", "")),
        option=said.get("option", _option(field.name)),
        least=said.get("least"),
        size=_size(said.get("size"), kind),
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _size(said: Any, kind: Any) -> str:
    """Return the unit of a size, by its type where the field says only that it is one."""
    if not said:
        return ""
    return said if isinstance(said, str) else "age" if timedelta in _alternatives(kind) else "count"


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types that a type stands for, None last."""
    if get_origin(kind) in {Union, UnionType}:
        return tuple(sorted(get_args(kind), key=lambda one: one is NoneType))
    return (kind,)


class _Kind(NamedTuple):
    """What one type accepts, and how it is read from a text that is written so."""

    accepts: Callable[[Any], bool]
    as_python: Callable[[Any], Any]
    read: Callable[[str], Any]
    written: str


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


_KINDS: Final[dict[Any, _Kind]] = {
    int: _Kind(_is_number, int, int, "a whole number"),
    float: _Kind(_is_number, float, float, "a number"),
    bool: _Kind(
        lambda value: type(value).__name__ in {"bool", "bool_"},
        bool,
        lambda text: _FLAGS[text.lower()],
        "yes or no",
    ),
    str: _Kind(lambda value: isinstance(value, str), str, str, "text"),
    timedelta: _Kind(
        lambda value: isinstance(value, timedelta),
        lambda value: value,
        age_of,
        "an age; write one like 30d, 12h or 2w",
    ),
}
