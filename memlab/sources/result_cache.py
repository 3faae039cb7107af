"""Compute results once for several stores, within a block of code.

Stores of one system may share data, such as the transcripts of all projects. A program that reads
one store after another would read that data anew for each.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

_Result = TypeVar("_Result")

_RESULTS: Final[ContextVar[dict[Hashable, Any] | None]] = ContextVar("_RESULTS", default=None)
"""The results of the innermost block by key; None outside of a block."""


@contextmanager
def shared_results() -> Iterator[None]:
    """Within the block, compute each result of :func:`computed_once` once.

    What other programs write to shared data during the block may be missed.
    """
    token = _RESULTS.set({})
    try:
        yield
    finally:
        _RESULTS.reset(token)


def computed_once(key: Hashable, compute: Callable[[], _Result]) -> _Result:
    """Return the result for a key; compute it if this block has not computed it yet.

    >>> with shared_results():
    ...     computed_once("key", lambda: 1), computed_once("key", lambda: 2)
    (1, 1)
    >>> computed_once("key", lambda: 2)
    2
    """
    results = _RESULTS.get()
    if results is None:
        return compute()
    if key not in results:
        results[key] = compute()
    return cast("_Result", results[key])
