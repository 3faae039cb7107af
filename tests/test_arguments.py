"""Checks of arguments and their errors."""

import copy
import pickle
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from memlab import errors
from memlab.arguments import confidence, expect, expect_frame, share, whole_number
from memlab.clock import aware, moment_or_now
from memlab.errors import (
    BadRowError,
    MemlabError,
    MissingExtraError,
    StalePlanError,
    WrongArgumentError,
)


@pytest.mark.parametrize("value", [0, 7, np.int64(7), np.uint8(7), 10**30])
def test_whole_number_returns_a_plain_int(value: int) -> None:
    assert whole_number("keep", value) == value
    assert type(whole_number("keep", value)) is int


@pytest.mark.parametrize("value", [-1, True, np.True_, 2.0, np.float64(2), "2", None, b"2"])
def test_whole_number_rejects_other_values_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"keep=.* is not a whole number of 0 or more"):
        whole_number("keep", value)


@pytest.mark.parametrize(
    ("value", "shown_value"), [(True, "True"), (None, "None"), ("x" * 300, "a str")]
)
def test_expect_names_the_wrong_value_briefly(value: object, shown_value: str) -> None:
    with pytest.raises(
        WrongArgumentError, match=f"takes as keep a whole number, not {shown_value}$"
    ):
        expect(value, int, call="memlab.call", name="keep")


def test_expect_frame_names_missing_columns() -> None:
    with pytest.raises(WrongArgumentError, match=r"no column 'title' and no column 'tags'$"):
        expect_frame(pd.DataFrame({"kind": []}), "kind", "title", "tags", call="memlab.show")


def test_time_argument_needs_a_zone_and_defaults_to_now() -> None:
    before = datetime.now(UTC)
    assert before <= moment_or_now(None, call="memlab.plan") <= datetime.now(UTC)
    assert moment_or_now(before, call="memlab.plan") == before
    with pytest.raises(ValueError, match=r"now=.* has no time zone"):
        aware(datetime(2026, 3, 1), call="memlab.plan")  # noqa: DTZ001 - the missing zone is tested
    with pytest.raises(WrongArgumentError, match=r"datetime.fromisoformat\('2026-03-01'\)"):
        aware("2026-03-01", call="memlab.plan")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1, -0.1, True, "0.9", None, float("nan"), 1e9])
def test_invalid_share_is_rejected_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"target=.* is not between 0 and 1$"):
        share("target", value)
    with pytest.raises(ValueError, match=r"target=.* is not between 0\.5 and 1$"):
        confidence("target", value)


def test_share_is_a_plain_float() -> None:
    assert type(share("target", np.float32(0.5))) is float


CLASSES = [
    error_class
    for error_class in vars(errors).values()
    if isinstance(error_class, type) and issubclass(error_class, MemlabError)
]
EXAMPLES = [
    *[error_class("what happened, where, and what to do") for error_class in CLASSES],
    BadRowError("row 7", position=7, memory_id="m7", column="kind"),
    StalePlanError("stale", memory_ids=("a", "b")),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error: MemlabError) -> None:
    copies = [
        pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for copied in (*copies, copy.deepcopy(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)


def test_missing_extra_error_is_an_import_error() -> None:
    assert issubclass(MissingExtraError, ImportError)
