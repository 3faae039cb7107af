"""Selection of the lowest ranked rows, checked against sorting."""

import numpy as np
import numpy.typing as npt
import pytest

from memlab.policies.base import select_victims


def by_sorting(
    keys: list[npt.NDArray[np.float64]], size: npt.NDArray[np.int64], surplus: int, *, fill: bool
) -> set[int]:
    """Return the lowest rows that cover the surplus, by sorting all rows."""
    order = np.lexsort(tuple(np.where(np.isnan(key), np.inf, key) for key in reversed(keys)))
    evicted = []
    taken = 0
    for row in order.tolist():
        if taken >= surplus:
            break
        evicted.append(row)
        taken += int(size[row])
    room = taken - surplus
    spared = set()
    for row in reversed(evicted):
        if fill and size[row] <= room:
            spared.add(row)
            room -= int(size[row])
    return set(evicted) - spared


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("values", ["all differ", "few values", "some not a number", "two keys"])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.7, 0.95, 0.999, 1.1])
@pytest.mark.parametrize("rows", [1, 7, 300, 3_000])
def test_select_victims_equals_sorting(rows: int, share: float, values: str, *, fill: bool) -> None:
    chance = np.random.default_rng(rows)
    key = chance.random(rows)
    if values == "few values":
        key = chance.integers(0, 5, rows).astype(np.float64)
    if values == "some not a number":
        key[chance.random(rows) < 0.1] = np.nan
    keys = [key]
    if values == "two keys":
        keys = [np.round(key, 1), chance.random(rows)]
    for size in (np.ones(rows, dtype=np.int64), chance.integers(0, 60, rows)):
        surplus = max(1, int(share * size.sum()))
        victims = select_victims(keys, size, surplus, fill=fill)
        assert len(set(victims.tolist())) == len(victims)
        assert set(victims.tolist()) == by_sorting(keys, size, surplus, fill=fill)
