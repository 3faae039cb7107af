"""What is a whole number, and what is said of anything else."""

import numpy as np
import pytest

from memlab.arguments import whole_number


@pytest.mark.parametrize("value", [0, 7, np.int64(7), np.uint8(7), 10**30])
def test_a_whole_number_comes_back_as_an_int(value: int) -> None:
    assert whole_number("keep", value) == value
    assert type(whole_number("keep", value)) is int


@pytest.mark.parametrize("value", [-1, True, np.True_, 2.0, np.float64(2), "2", None, b"2"])
def test_anything_else_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"keep=.* is not a whole number of 0 or more"):
        whole_number("keep", value)


def test_the_least_may_be_another_or_none() -> None:
    assert whole_number("items", -5, least=None) == -5
    with pytest.raises(ValueError, match="workers=0 is not a whole number of 1 or more"):
        whole_number("workers", 0, least=1)
