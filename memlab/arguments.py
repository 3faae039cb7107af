"""What a caller passes, checked in one place each, with one message."""

from numbers import Integral


def whole_number(name: str, value: object, *, least: int | None = 0) -> int:
    """Return `value` as an int, or raise a ValueError that names the argument.

    Examples
    --------
    >>> whole_number("keep_recent", -1)
    Traceback (most recent call last):
      ...
    ValueError: keep_recent=-1 is not a whole number of 0 or more
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        whole = int(value)
        if least is None or whole >= least:
            return whole
    bound = "" if least is None else f" of {least} or more"
    raise ValueError(f"{name}={value!r} is not a whole number{bound}")
