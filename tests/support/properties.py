"""With how many examples a property is tried, and of how many cases one is."""

from hypothesis import settings

USUAL = 25
"""Usual number of examples of a property; a default run tries fewer."""


def examples(count: int) -> int:
    """Return the number of examples of a test that has `count` of them at the usual number.

    ``pytest`` by itself tries a quarter, and ``MEMLAB_EXAMPLES`` multiplies.
    """
    return max(count * settings().max_examples // USUAL, 1)


def one_in(count: int) -> int:
    """Return the step between tried cases: `count` by default, 1 with ``--all``."""
    return 1 if settings().max_examples >= USUAL else count
