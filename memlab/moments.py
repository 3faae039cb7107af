"""Moments and lengths of time, as texts name them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from memlab.items import shortened

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LEAP: Final = re.compile(r"(.*T\d\d:\d\d):60((?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)")


def age_of(text: str) -> timedelta:
    """Return the length of time that a text like ``30d`` names.

    Raises
    ------
    ValueError
        When it names none.
    OverflowError
        When it is more than the calendar holds.

    Examples
    --------
    >>> age_of("1.5h")
    datetime.timedelta(seconds=5400)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text)
    if found is None:
        raise ValueError(f"{shortened(text)} is not an age like 30d")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def age_text(age: timedelta) -> str:
    """Return a length of time as :func:`age_of` reads it, in the largest unit that is whole.

    Examples
    --------
    >>> age_text(timedelta(days=30)), age_text(timedelta(minutes=90))
    ('30d', '90m')
    """
    for unit in ("d", "h", "m"):
        count = age / timedelta(**{_UNITS[unit]: 1})
        if count == int(count):
            return f"{int(count)}{unit}"
    return f"{age.total_seconds():f}s"


def moment_of(text: str) -> datetime:
    """Return the moment an ISO 8601 text with a time zone names, in UTC.

    A second 60, which some clocks show for a leap second, is the first of the next minute.

    Raises
    ------
    ValueError
        When `text` is not a timestamp or has no time zone.

    Examples
    --------
    >>> moment_of("2026-03-01T13:00:00+01:00").isoformat()
    '2026-03-01T12:00:00+00:00'
    >>> moment_of("2016-12-31T23:59:60Z").isoformat()
    '2017-01-01T00:00:00+00:00'
    """
    leap = _LEAP.fullmatch(text)
    try:
        moment = datetime.fromisoformat(f"{leap[1]}:59{leap[2]}" if leap else text)
        moment += timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{shortened(text)} is not a timestamp") from error
    if moment.tzinfo is None:
        raise ValueError(f"{shortened(text)} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{shortened(text)} is not in the years 1 to 9999") from error
