"""Checks of values that come from a file or a server; a wrong value raises ValueError.

A shape is a function that checks one value.
"""

import math
from collections.abc import Callable, Collection, Mapping
from reprlib import repr as _repr
from typing import Any, Final

Shape = Callable[[Any], None]

_INT64_END: Final = 2**63
"""First whole number that SQLite cannot store."""


def text(value: Any, errors: str = "strict") -> None:
    """Check for a text that can be encoded as UTF-8."""
    check_type(value, str, "text")
    try:
        value.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise ValueError(f"{abbreviated(value)} has half a character in it") from None


def raw_text(value: Any) -> None:
    """Check for a text with the bytes of a file, decoded with ``surrogateescape``."""
    text(value, "surrogateescape")


def integer(least: int = -_INT64_END, most: int = _INT64_END - 1) -> Shape:
    """Return the shape of a whole number in a range; 64 bits by default."""

    def check(value: Any) -> None:
        check_integer(value, least, most)

    return check


def check_integer(value: Any, least: int = -_INT64_END, most: int = _INT64_END - 1) -> None:
    """Check for a whole number in a range; 64 bits by default."""
    check_type(value, int, "a whole number")
    if not least <= value <= most:
        raise ValueError(f"{abbreviated(value)} is out of range")


def boolean(value: Any) -> None:
    """Check for true or false."""
    check_type(value, bool, "true or false")


def digits(value: Any) -> None:
    """Check for bytes in hexadecimal digits."""
    check_type(value, str, "text")
    try:
        bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"{abbreviated(value)} is not bytes in hexadecimal digits") from None


def sqlite_value(value: Any) -> None:
    """Check for a value of SQLite as it is in a record; see :mod:`memlab.store.records`."""
    kind = type(value)
    if kind is str:
        text(value)
    elif kind is int:
        check_integer(value)
    elif kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number")
    elif kind is dict and value.keys() in ({"blob"}, {"text"}):
        (hexadecimal,) = value.values()
        digits(hexadecimal)
    elif value is not None and value not in ({"real": "inf"}, {"real": "-inf"}):
        raise ValueError(f"{abbreviated(value)} is not a value of SQLite")


def text_or(text_shape: Shape, other_shape: Shape) -> Shape:
    """Return a shape that checks texts with one shape and other values with another."""

    def check(value: Any) -> None:
        if type(value) is str:
            text_shape(value)
        else:
            other_shape(value)

    return check


def non_empty(shape: Shape) -> Shape:
    """Return the shape of a value that has a shape and is not empty."""

    def check(value: Any) -> None:
        shape(value)
        if not value:
            raise ValueError("it is empty")

    return check


def optional(shape: Shape) -> Shape:
    """Return the shape of a value that has a shape or is None."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def list_of(shape: Shape, *, least: int = 0, most: int | None = None) -> Shape:
    """Return the shape of a list whose values have a shape."""

    def check(value: Any) -> None:
        check_type(value, list, "a list")
        if len(value) < least or (most is not None and len(value) > most):
            raise ValueError(f"a list of {len(value):,} where there are others")
        for element in value:
            shape(element)

    return check


def pair(first: Shape, second: Shape) -> Shape:
    """Return the shape of a list of two values."""

    def check(value: Any) -> None:
        list_of(anything, least=2, most=2)(value)
        first(value[0])
        second(value[1])

    return check


def mapping_of(shape: Shape) -> Shape:
    """Return the shape of an object whose values have a shape."""
    return fields({}, others=shape)


def fields(
    shapes: Mapping[str, Shape], *, may_be_absent: Collection[str] = (), others: Shape | None = None
) -> Shape:
    """Return the shape of an object with named fields.

    Parameters
    ----------
    shapes : mapping of str to shape
        The shape of each field.
    may_be_absent : collection of str
        Fields that may be missing.
    others : shape, optional
        The shape of fields with other names; by default there must be none.
    """
    required = shapes.keys() - set(may_be_absent)

    def check(value: Any) -> None:
        check_type(value, dict, "an object")
        missing = required - value.keys()
        if missing:
            raise ValueError(f"{min(missing)} is missing")
        for name, field_value in value.items():
            shape = shapes.get(name, others)
            if shape is None:
                raise ValueError(f"{abbreviated(name)} does not belong there")
            try:
                text(name)
                shape(field_value)
            except ValueError as error:
                raise ValueError(f"{abbreviated(name)[1:-1]}: {error}") from None

    return check


def check_type(value: Any, kind: type, word: str) -> None:
    """Check that the type of a value is exactly this one, not a subclass."""
    if type(value) is not kind:
        raise ValueError(f"{abbreviated(value)} is not {word}")


def abbreviated(value: object) -> str:
    """Return a shortened text of a value for a message."""
    return _repr(value)


def anything(value: Any) -> None:
    """Accept any value."""
