"""Number of examples of a property, and the share of cases that a default run tries."""

from collections.abc import Collection, Container, Iterable
from itertools import cycle, islice, product
from typing import Any

import pytest
from hypothesis import settings

USUAL = 25
"""Usual number of examples of a property; a default run tries fewer."""


def examples(count: int) -> int:
    """Scale the number of examples of a test: `count` with ``--all``.

    ``pytest`` by itself tries a quarter; ``MEMLAB_EXAMPLES`` scales them in all tests.
    """
    return max(count * settings().max_examples // USUAL, 1)


def one_in(count: int) -> int:
    """Return the step between tried cases: `count` by default, 1 with ``--all``."""
    return 1 if settings().max_examples >= USUAL else count


def all_but(values: Iterable[Any], long: Container[Any]) -> list[Any]:
    """Return values for ``parametrize``; those in `long` are left to ``--all``."""
    parameters = []
    for value in values:
        marks = [pytest.mark.long] if value in long else []
        parameters.append(pytest.param(value, marks=marks))
    return parameters


def crossed(*choices: Collection[Any]) -> list[Any]:
    """Return every combination of choices, for ``parametrize``.

    All but a few combinations are left to ``--all``; every choice occurs in these few.
    """
    longest = max(len(values) for values in choices)
    quick = list(islice(zip(*map(cycle, choices), strict=False), longest))
    parameters = []
    for combination in product(*choices):
        marks = [] if combination in quick else [pytest.mark.long]
        parameters.append(pytest.param(*combination, marks=marks))
    return parameters
