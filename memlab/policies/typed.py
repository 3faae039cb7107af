"""The settings of a policy by their types: what is accepted, and what a text means."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from memlab.arguments import number_of, refusal, whole_number
from memlab.clock import age_of

REQUIRED: Final = inspect.Parameter.empty
"""Stands for the default of a setting that has none."""

_NOTHING: Final = "none"
_FLAGS: Final = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True)
class Setting:
    """One setting of a policy."""

    owner: str
    name: str
    type: Any
    default: Any = REQUIRED
    help: str = ""
    option: str = ""
    least: int | None = None
    size: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "option", self.option or f"--{self.name.replace('_', '-')}")

    @property
    def metavar(self) -> str:
        """What stands for a value in a line of help; nothing where that cannot be a text."""
        first, *_ = _alternatives(self.type)
        if get_origin(first) is Literal:
            return "|".join(map(str, get_args(first)))
        if get_origin(first) is tuple:
            return "NAMES"
        return _KINDS[first].metavar if first in _KINDS else ""

    def checked(self, value: Any) -> Any:
        """Return `value` as its type has it; numpy's numbers become Python's."""
        return self._meant(self.type, value)

    def parsed(self, text: str) -> Any:
        """Return what a text means: ``50``, ``0.5``, ``50%``, ``yes``, ``30d``, ``none``."""
        return self._meant(self.type, text.strip(), is_text=True)

    def _meant(self, kind: Any, value: Any, *, is_text: bool = False) -> Any:
        first, *others = _alternatives(kind)
        if NoneType in others and (value is None or (is_text and value.lower() == _NOTHING)):
            return None
        if get_origin(first) is Literal:
            if is_text:
                value = next((one for one in get_args(first) if str(one) == value), value)
            # The type first: a frame answers a comparison with a frame.
            if not any(isinstance(value, type(one)) and value == one for one in get_args(first)):
                either = " or ".join(map(repr, get_args(first)))
                raise ValueError(f"{self.name}={value!r} is not {either}")
            return value
        if get_origin(first) is tuple:
            if is_text:
                value = [] if value.lower() in {"", _NOTHING} else map(str.strip, value.split(","))
                value = tuple(value)
            if not isinstance(value, (tuple, list)):
                raise refusal(value, "tuple", call=self.owner, name=self.name)
            return tuple(self._meant(get_args(first)[0], one, is_text=is_text) for one in value)
        known = _KINDS.get(first)
        if is_text or (first is timedelta and isinstance(value, str)):
            value = self._read(known, value)
        if known is None:
            return value
        if first is int:
            return whole_number(self.name, value, least=self.least)
        if not isinstance(value, known.accepts) or isinstance(value, bool) > (first is bool):
            raise refusal(value, first.__name__, call=self.owner, name=self.name)
        return self._bounded(value if first is timedelta else first(value))

    def _bounded(self, value: Any) -> Any:
        """Return a value that is no less than it may be, an age in days, and finite."""
        number = value / timedelta(days=1) if isinstance(value, timedelta) else value
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"{self.name}={value!r} is not a finite number")
        if self.least is not None and number < self.least:
            raise ValueError(f"{self.name}={value!r} is less than {self.least}")
        return value

    def _read(self, known: "_Kind | None", text: str) -> Any:
        if known is None:
            raise ValueError(f"{self.name} cannot be given as text: make the policy in Python")
        try:
            return known.read(text)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{self.name}={text!r} is not {known.written}") from error
        except OverflowError as error:
            raise ValueError(f"{self.name}={text!r} is more than the calendar holds") from error


def check_settings(policy: Any) -> None:
    """Hold the fields of a policy to their types; numpy's numbers become Python's."""
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
        name: Setting(owner, name, hints.get(name), argument.default)
        for name, argument in inspect.signature(policy).parameters.items()
    }


def _of_field(owner: str, field: "Field[Any]", kind: Any) -> Setting:
    default = field.default
    if default is MISSING:
        default = REQUIRED if field.default_factory is MISSING else field.default_factory()
    said = dict(field.metadata)
    if said.get("size") is True:  # what unit it has, its type says
        said["size"] = "age" if timedelta in _alternatives(kind) else "count"
    known = {
        key: said[key] for key in ("help", "option", "least", "size") if said.get(key) is not None
    }
    return Setting(owner, field.name, kind, default, **known)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) in {Union, UnionType}:
        return tuple(sorted(get_args(kind), key=lambda one: one is NoneType))
    return (kind,)


class _Kind(NamedTuple):
    """What one type accepts beside itself, how it is read from a text, and what one is called."""

    accepts: Any
    read: Callable[[str], Any]
    metavar: str
    written: str


_KINDS: Final[dict[Any, _Kind]] = {
    int: _Kind(Real, int, "N", "a whole number"),
    float: _Kind(Real, number_of, "X", "a number"),
    bool: _Kind((bool, np.bool_), lambda text: _FLAGS[text.lower()], "yes|no", "yes or no"),
    str: _Kind(str, str, "TEXT", "text"),
    timedelta: _Kind(timedelta, age_of, "AGE", "an age; write one like 30d, 12h or 2w"),
}
