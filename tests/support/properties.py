"""With how many examples a property is tried, and of how many cases one is."""

from collections.abc import Collection
from itertools import product
from typing import Any

import pytest
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


def crossed(*choices: Collection[Any]) -> list[Any]:
    """Return every combination of choices, for ``parametrize``.

    Combinations are left to ``--all`` except for a few in which every choice occurs.
    """
    lists = [list(some) for some in choices]
    longest = max(map(len, lists))
    shown = {tuple(place % len(some) for some in lists) for place in range(longest)}
    return [
        pytest.param(
            *(some[place] for some, place in zip(lists, places, strict=True)),
            marks=[] if places in shown else pytest.mark.long,
        )
        for places in product(*(range(len(some)) for some in lists))
    ]
