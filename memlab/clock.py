"""The moment of a call: given, or read from the machine's clock here and nowhere else.

The command line reads the clock and hands it down. A library function that was given no moment
takes it from :func:`moment_or_now`.
"""

import time
from datetime import UTC, datetime
from typing import Final

from memlab.arguments import expect

_STEP: Final = 20_000_000
"""Nanoseconds after which a file that is written again has another time for sure."""


def now_utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def moment_or_now(now: datetime | None, *, call: str) -> datetime:
    """Return the moment that a call was given, else the time.

    Raises
    ------
    WrongArgumentError, ValueError
        As :func:`aware`.
    """
    return now_utc() if now is None else aware(now, call=call)


def aware(moment: datetime, *, call: str, name: str = "now") -> datetime:
    """Return a moment that says in which time zone it is.

    Raises
    ------
    WrongArgumentError
        When it is no moment.
    ValueError
        When it has no time zone.
    """
    expect(moment, datetime, call=call, name=name)
    if moment.tzinfo is None:
        raise ValueError(f"{name}={moment!r} has no time zone: pass an aware datetime, such as UTC")
    return moment


def file_clock() -> int:
    """Return nanoseconds as the times of files count them."""
    return time.time_ns()


def wait_out(changed: int) -> None:
    """Wait until a file that is written from now on gets another time than `changed`.

    Times of files move in steps of some milliseconds, so that two looks within a step prove
    nothing.

    Parameters
    ----------
    changed : int
        When the last of some files was written, as :func:`file_clock` counts.
    """
    since = file_clock() - changed
    if 0 <= since < _STEP:
        time.sleep((_STEP - since) / 1e9)
