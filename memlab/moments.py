"""Moments, as texts name them."""

from datetime import UTC, datetime

from memlab.items import shortened


def moment_of(text: str) -> datetime:
    """Return the moment an ISO 8601 text with a time zone names, in UTC.

    Raises
    ------
    ValueError
        When `text` is not a timestamp or has no time zone.

    Examples
    --------
    >>> moment_of("2026-03-01T13:00:00+01:00").isoformat()
    '2026-03-01T12:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{shortened(text)} is not a timestamp") from error
    if moment.tzinfo is None:
        raise ValueError(f"{shortened(text)} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{shortened(text)} is not in the years 1 to 9999") from error
