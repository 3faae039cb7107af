"""With how many examples a property is tried."""

from hypothesis import settings

USUAL = 25
"""Examples of a property whose test says nothing else; a default run tries fewer of all."""


def examples(count: int) -> int:
    """Return the number of examples of a test that has `count` of them at the usual number.

    ``pytest`` by itself tries two fifths, and ``MEMLAB_EXAMPLES`` multiplies.
    """
    return max(count * settings().max_examples // USUAL, 1)
