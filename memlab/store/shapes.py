"""What a value must be that comes out of a file or from a server; else a ValueError."""

import math
from collections.abc import Callable, Collection, Mapping
from reprlib import repr as _repr
from typing import Any, Final

Shape = Callable[[Any], None]

_BEYOND: Final = 2**63


def text(value: Any, errors: str = "strict") -> None:
    """Text that any file takes: no half of a character."""
    check_type(value, str, "text")
    try:
        value.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise ValueError(f"{shown(value)} has half a character in it") from None


def raw_text(value: Any) -> None:
    """Text that stands for the bytes of a file, as ``surrogateescape`` reads them."""
    text(value, "surrogateescape")


def integer(least: int = -_BEYOND, most: int = _BEYOND - 1) -> Shape:
    """Return the shape of a whole number in a range, by default of 64 bits."""

    def check(value: Any) -> None:
        check_type(value, int, "a whole number")
        if not least <= value <= most:
            raise ValueError(f"{shown(value)} is out of range")

    return check


def boolean(value: Any) -> None:
    """Check for true or false."""
    check_type(value, bool, "true or false")


def digits(value: Any) -> None:
    """Hexadecimal digits, two a byte."""
    check_type(value, str, "text")
    try:
        bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is no bytes in hexadecimal digits") from None


def stored(value: Any) -> None:
    """Check a value of SQLite's as a record has it, see :mod:`memlab.store.records`."""
    kind = type(value)
    if kind is str:
        text(value)
    elif kind is int:
        _IN_64_BITS(value)
    elif kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    elif kind is dict and value.keys() in ({"blob"}, {"text"}):
        digits(*value.values())
    elif value is not None and value not in ({"real": "inf"}, {"real": "-inf"}):
        raise ValueError(f"{shown(value)} is no value of SQLite's")


def text_or(plain: Shape, other: Shape) -> Shape:
    """Return the shape of a text of one shape, or of what is no text of another."""

    def check(value: Any) -> None:
        (plain if type(value) is str else other)(value)

    return check


def non_empty(shape: Shape) -> Shape:
    """Return a shape of what is not empty."""

    def check(value: Any) -> None:
        shape(value)
        if not value:
            raise ValueError("it is empty")

    return check


def optional(shape: Shape) -> Shape:
    """Return a shape that None has too."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def list_of(shape: Shape, *, least: int = 0, most: int | None = None) -> Shape:
    """Return the shape of a list of values of a shape."""

    def check(value: Any) -> None:
        check_type(value, list, "a list")
        if len(value) < least or (most is not None and len(value) > most):
            raise ValueError(f"a list of {len(value):,} where there are others")
        for each in value:
            shape(each)

    return check


def pair(first: Shape, second: Shape) -> Shape:
    """Return the shape of a list of two."""

    def check(value: Any) -> None:
        list_of(anything, least=2, most=2)(value)
        first(value[0])
        second(value[1])

    return check


def mapping_of(shape: Shape) -> Shape:
    """Return the shape of an object all of whose values have a shape."""
    return fields({}, others=shape)


def fields(
    known: Mapping[str, Shape], *, absent: Collection[str] = (), others: Shape | None = None
) -> Shape:
    """Return the shape of an object."""
    needed = known.keys() - set(absent)

    def check(value: Any) -> None:
        check_type(value, dict, "an object")
        if missing := needed - value.keys():
            raise ValueError(f"{min(missing)} is missing")
        for name, each in value.items():
            shape = known.get(name, others)
            if shape is None:
                raise ValueError(f"{shown(name)} does not belong there")
            try:
                text(name)
                shape(each)
            except ValueError as error:
                raise ValueError(f"{shown(name)[1:-1]}: {error}") from None

    return check


def check_type(value: Any, kind: type, word: str) -> None:
    """Check a value's type, which is no other that inherits from it."""
    if type(value) is not kind:
        raise ValueError(f"{shown(value)} is not {word}")


def shown(value: object) -> str:
    """Return some characters of a value, however large it is."""
    return _repr(value)


def anything(value: Any) -> None:
    """Check nothing."""


_IN_64_BITS: Final = integer()
