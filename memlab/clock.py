"""Parse, format and check times and ages, and read the clock. No other module reads it."""

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Final

from memlab.arguments import expect
from memlab.text import shortened

_STEP: Final = 20_000_000
"""Time in nanoseconds after which another write of a file certainly gets another time."""
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
"""First time that Python can hold; also the zero time of Go and .NET."""
LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""Last time that Python can hold; programs in Python and .NET use it for "no end"."""
Age = timedelta | str
"""A duration, or a text such as ``30d``."""
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now_utc() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def today() -> date:
    """Return the current date in local time, which agents use in the names of their notes."""
    return now_utc().astimezone().date()


def moment_or_now(now: datetime | None, *, call: str) -> datetime:
    """Return the time that was passed to a call, or the current time for None."""
    return now_utc() if now is None else aware(now, call=call)


def aware(moment: datetime, *, call: str, name: str = "now") -> datetime:
    """Return a time, or raise ValueError if it has no time zone."""
    expect(moment, datetime, call=call, name=name)
    if moment.tzinfo is None:
        raise ValueError(f"{name}={moment!r} has no time zone: pass an aware datetime, such as UTC")
    return moment


def file_clock() -> int:
    """Return the current time in nanoseconds since 1970, the unit of file times."""
    return time.time_ns()


def wait_for_clock_tick(changed: int) -> None:
    """Wait until a write gets another file time than `changed`, in nanoseconds."""
    elapsed = file_clock() - changed
    if 0 <= elapsed < _STEP:
        time.sleep((_STEP - elapsed) / 1e9)


def age_of(text: str) -> timedelta:
    """Return the duration of a text like ``30d``; the units are s, m, h, d and w.

    >>> age_of("1.5h")
    datetime.timedelta(seconds=5400)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text)
    if match is None:
        raise ValueError(f"{shortened(text)} is not an age like 30d, 12h or 2w")
    count = float(match[1])
    unit = _UNITS[match[2]]
    return timedelta(**{unit: count})


def as_age(age: Age) -> timedelta:
    """Return a duration that may be given as a text."""
    return age_of(age) if isinstance(age, str) else age


def age_text(age: timedelta) -> str:
    """Return the text of a duration for :func:`age_of`, in the largest unit with a whole number.

    >>> age_text(timedelta(days=30)), age_text(timedelta(minutes=90))
    ('30d', '90m')
    """
    for unit in ("d", "h", "m"):
        count = age / timedelta(**{_UNITS[unit]: 1})
        if count == int(count):
            return f"{int(count)}{unit}"
    return f"{age.total_seconds():f}s"


def moment_of(text: str) -> datetime:
    """Return the time of an ISO 8601 text with a time zone, in UTC.

    >>> moment_of("2026-03-01T13:00:00+01:00").isoformat()
    '2026-03-01T12:00:00+00:00'
    """
    moment, has_zone = moment_and_zone(text)
    if not has_zone:
        raise ValueError(f"{shortened(text)} has no time zone")
    return moment


def moment_and_zone(text: str) -> tuple[datetime, bool]:
    """Return the time of an ISO 8601 text in UTC, and whether the text has a time zone.

    A text without a zone is read as UTC, which SQLite's ``datetime('now')`` uses.

    >>> moment, has_zone = moment_and_zone("2026-03-01 12:00:00")
    >>> moment.isoformat(), has_zone
    ('2026-03-01T12:00:00+00:00', False)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{shortened(text)} is not a timestamp") from error
    if moment.tzinfo is None:
        # Only a date with a "-" after the year is accepted: a text of thirteen digits is a number
        # of milliseconds since 1970, and fromisoformat may read it as a date in the year 1712.
        if text[4:5] != "-":
            raise ValueError(f"{shortened(text)} is not a timestamp")
        return moment.replace(tzinfo=UTC), False
    try:
        return moment.astimezone(UTC), True
    except OverflowError:  # in UTC it is before the year 1 or after 9999
        nearest = EARLIEST if moment.year == 1 else LATEST
        return nearest, True


def shifted(moment: datetime, by: timedelta) -> datetime:
    """Return a time plus a duration, clipped to the range of datetime.

    >>> shifted(EARLIEST, timedelta(days=-1)) == EARLIEST
    True
    """
    try:
        return moment + by
    except OverflowError:
        return LATEST if by > timedelta(0) else EARLIEST
