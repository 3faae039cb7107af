"""Settings of a policy, checked against their types and parsed from text."""

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

from memlab.arguments import number_of, whole_number, wrong_argument_error
from memlab.clock import age_of

REQUIRED: Final = inspect.Parameter.empty
"""Stands for the default of a setting that has none."""

_NONE_TEXT: Final = "none"
"""Text that stands for None and for an empty tuple."""
_FLAG_TEXTS: Final = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True)
class Setting:
    """One setting of a policy.

    Attributes
    ----------
    owner : str
        Name of the policy class, or of the function that makes a policy.
    name : str
        Name of the setting.
    type : type
        Type of its value.
    default : object
        Its default value, or `REQUIRED`.
    help : str
        Its description.
    option : str
        Its option on the command line.
    least : int or None
        Its minimum; of an age, in days.
    size_unit : {"", "count", "age", "tokens"}
        Its unit, if it is a size of the policy, which a comparison varies.
    """

    owner: str
    name: str
    type: Any
    default: Any = REQUIRED
    help: str = ""
    option: str = ""
    least: int | None = None
    size_unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "option", self.option or f"--{self.name.replace('_', '-')}")

    @property
    def metavar(self) -> str:
        """Placeholder of the value in help texts; empty if the value cannot be given as text."""
        first, *_ = _alternatives(self.type)
        if get_origin(first) is Literal:
            return "|".join(map(str, get_args(first)))
        if get_origin(first) is tuple:
            return "NAMES"
        if first not in _RULE_OF_TYPE:
            return ""
        return _RULE_OF_TYPE[first].metavar

    def checked(self, value: Any) -> Any:
        """Return `value` converted to the setting's type.

        A NumPy number becomes a Python number, for example.
        """
        return self._converted(self.type, value)

    def parsed(self, text: str) -> Any:
        """Return the value of a text such as ``0.5``, ``50%``, ``yes``, ``30d`` or ``none``."""
        return self._converted(self.type, text.strip(), is_text=True)

    def _converted(self, kind: Any, value: Any, *, is_text: bool = False) -> Any:
        """Return a value, or the value of a text, converted to a type."""
        first, *others = _alternatives(kind)
        if NoneType in others and (value is None or (is_text and value.lower() == _NONE_TEXT)):
            return None
        if get_origin(first) is Literal:
            return self._matching_choice(get_args(first), value, is_text=is_text)
        if get_origin(first) is tuple:
            return self._converted_items(get_args(first)[0], value, is_text=is_text)
        rule = _RULE_OF_TYPE.get(first)
        if is_text or (first is timedelta and isinstance(value, str)):
            value = self._parsed_text(rule, value)
        if rule is None:
            return value
        if first is int:
            return whole_number(self.name, value, least=self.least)
        # A truth value would be accepted as a number, because bool is a subclass of int.
        is_misplaced_flag = isinstance(value, bool) and first is not bool
        if not isinstance(value, rule.accepts) or is_misplaced_flag:
            raise wrong_argument_error(value, first.__name__, call=self.owner, name=self.name)
        converted = value if first is timedelta else first(value)
        return self._within_bounds(converted)

    def _matching_choice(self, choices: tuple[Any, ...], value: Any, *, is_text: bool) -> Any:
        """Return the choice that a value, or a text, equals."""
        for choice in choices:
            if is_text and str(choice) == value:
                return choice
            # The type is compared first, because comparing a frame with a text returns a frame.
            if isinstance(value, type(choice)) and value == choice:
                return value
        alternatives = " or ".join(map(repr, choices))
        raise ValueError(f"{self.name}={value!r} is not {alternatives}")

    def _converted_items(self, kind: Any, value: Any, *, is_text: bool) -> tuple[Any, ...]:
        """Return the items of a tuple, or of a text with commas, each converted to a type."""
        if is_text and value.lower() in {"", _NONE_TEXT}:
            return ()
        if is_text:
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, (tuple, list)):
            raise wrong_argument_error(value, "tuple", call=self.owner, name=self.name)
        return tuple(self._converted(kind, item, is_text=is_text) for item in value)

    def _within_bounds(self, value: Any) -> Any:
        """Return a value after checking that it is finite and not below the minimum."""
        number = value / timedelta(days=1) if isinstance(value, timedelta) else value
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"{self.name}={value!r} is not a finite number")
        if self.least is not None and number < self.least:
            raise ValueError(f"{self.name}={value!r} is less than {self.least}")
        return value

    def _parsed_text(self, rule: "_TypeRule | None", text: str) -> Any:
        """Return the value of a text by the rule of its type."""
        if rule is None:
            raise ValueError(f"{self.name} cannot be given as text: make the policy in Python")
        try:
            return rule.read(text)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{self.name}={text!r} is not {rule.expected}") from error
        except OverflowError as error:
            raise ValueError(f"{self.name}={text!r} is more than the calendar holds") from error


def check_settings(policy: Any) -> None:
    """Check the fields of a policy against their types, and set them to the converted values."""
    kind: Callable[..., Any] = type(policy)
    for name, setting in settings_of(kind).items():
        object.__setattr__(policy, name, setting.checked(getattr(policy, name)))


@cache
def settings_of(policy: Callable[..., Any]) -> Mapping[str, Setting]:
    """Return the settings of a policy class, or of a function that makes a policy, by name."""
    owner = policy.__qualname__
    try:
        hints = get_type_hints(policy)
    except NameError:  # a type that is imported for type checkers alone
        hints = {}
    settings = {}
    if isinstance(policy, type):
        for field in fields(policy):
            if field.init:
                settings[field.name] = _setting_of_field(owner, field, hints.get(field.name))
    else:
        for name, argument in inspect.signature(policy).parameters.items():
            settings[name] = Setting(owner, name, hints.get(name), argument.default)
    return settings


def _setting_of_field(owner: str, field: "Field[Any]", kind: Any) -> Setting:
    """Return the setting of a dataclass field."""
    default = field.default
    if default is MISSING:
        default = REQUIRED if field.default_factory is MISSING else field.default_factory()
    # The metadata has a unit such as "tokens", or True for the unit of the declared type.
    size_unit = field.metadata.get("size", "")
    if size_unit is True:
        size_unit = "age" if timedelta in _alternatives(kind) else "count"
    return Setting(
        owner=owner,
        name=field.name,
        type=kind,
        default=default,
        help=field.metadata.get("help", ""),
        option=field.metadata.get("option", ""),
        least=field.metadata.get("least"),
        size_unit=size_unit,
    )


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, None last; for another type, that type alone."""
    if get_origin(kind) in {Union, UnionType}:
        return tuple(sorted(get_args(kind), key=lambda alternative: alternative is NoneType))
    return (kind,)


class _TypeRule(NamedTuple):
    """How settings of one type are checked, parsed and described.

    Attributes
    ----------
    accepts : type or tuple of types
        Types of the values that are accepted.
    read : callable
        Returns the value of a text.
    metavar : str
        Placeholder of a value in help texts.
    expected : str
        Description of a value in messages.
    """

    accepts: Any
    read: Callable[[str], Any]
    metavar: str
    expected: str


_RULE_OF_TYPE: Final[dict[Any, _TypeRule]] = {
    int: _TypeRule(Real, int, "N", "a whole number"),
    float: _TypeRule(Real, number_of, "X", "a number"),
    bool: _TypeRule(
        (bool, np.bool_), lambda text: _FLAG_TEXTS[text.lower()], "yes|no", "yes or no"
    ),
    str: _TypeRule(str, str, "TEXT", "text"),
    timedelta: _TypeRule(timedelta, age_of, "AGE", "an age; write one like 30d, 12h or 2w"),
}
