"""Moments and ages: as texts name them, given with a call, or read from the clock, here alone."""

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Final

from memlab.arguments import expect
from memlab.text import shortened

_STEP: Final = 20_000_000
"""Nanoseconds after which a file that is written again has another time for sure."""
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
"""The zero time of Go and .NET."""
LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""What stands for no end in Python and .NET."""
Age = timedelta | str
"""A length of time, or a text that names one."""
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now_utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def today() -> date:
    """Return the day where this machine is, as the agents on it name their notes."""
    return now_utc().astimezone().date()


def moment_or_now(now: datetime | None, *, call: str) -> datetime:
    """Return the moment that a call was given, else the time."""
    return now_utc() if now is None else aware(now, call=call)


def aware(moment: datetime, *, call: str, name: str = "now") -> datetime:
    """Return a moment that says in which time zone it is."""
    expect(moment, datetime, call=call, name=name)
    if moment.tzinfo is None:
        raise ValueError(f"{name}={moment!r} has no time zone: pass an aware datetime, such as UTC")
    return moment


def file_clock() -> int:
    """Return nanoseconds as the times of files count them."""
    return time.time_ns()


def wait_for_clock_tick(changed: int) -> None:
    """Wait until a file that is written from now on gets another time than `changed`."""
    since = file_clock() - changed
    if 0 <= since < _STEP:
        time.sleep((_STEP - since) / 1e9)


def age_of(text: str) -> timedelta:
    """Return the length of time that a text like ``30d`` names.

    >>> age_of("1.5h")
    datetime.timedelta(seconds=5400)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text)
    if found is None:
        raise ValueError(f"{shortened(text)} is not an age like 30d, 12h or 2w")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def as_age(age: Age) -> timedelta:
    """Return a length of time that may be given as a text."""
    return age_of(age) if isinstance(age, str) else age


def age_text(age: timedelta) -> str:
    """Return a length of time as :func:`age_of` reads it, in the largest unit that is whole.

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

    >>> moment_of("2026-03-01T13:00:00+01:00").isoformat()
    '2026-03-01T12:00:00+00:00'
    """
    moment, has_zone = moment_and_zone(text)
    if not has_zone:
        raise ValueError(f"{shortened(text)} has no time zone")
    return moment


def moment_and_zone(text: str) -> tuple[datetime, bool]:
    """Return the moment an ISO 8601 text names, in UTC, and whether the text has a time zone.

    One without a zone is in UTC, as SQLite's ``datetime('now')`` is.

    >>> moment, has_zone = moment_and_zone("2026-03-01 12:00:00")
    >>> moment.isoformat(), has_zone
    ('2026-03-01T12:00:00+00:00', False)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{shortened(text)} is not a timestamp") from error
    if moment.tzinfo is None:
        if text[4:5] != "-":  # thirteen digits are milliseconds, and no day of the year 1712
            raise ValueError(f"{shortened(text)} is not a timestamp")
        return moment.replace(tzinfo=UTC), False
    try:
        return moment.astimezone(UTC), True
    except OverflowError:  # by its zone it is hours before the year 1, or after 9999
        return (LATEST if moment.year > 1 else EARLIEST), True


def shifted(moment: datetime, by: timedelta) -> datetime:
    """Return the moment that is so much later, or the last or first one that there is.

    >>> shifted(EARLIEST, timedelta(days=-1)) == EARLIEST
    True
    """
    try:
        return moment + by
    except OverflowError:
        return LATEST if by > timedelta(0) else EARLIEST
