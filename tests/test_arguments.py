"""What a call takes, and what is said of anything else."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memlab.arguments import confidence, expect, expect_frame, share, whole_number
from memlab.clock import aware, moment_or_now
from memlab.errors import WrongArgumentError
from memlab.policies import Policy


@pytest.mark.parametrize("value", [0, 7, np.int64(7), np.uint8(7), 10**30])
def test_a_whole_number_comes_back_as_an_int(value: int) -> None:
    assert whole_number("keep", value) == value
    assert type(whole_number("keep", value)) is int


@pytest.mark.parametrize("value", [-1, True, np.True_, 2.0, np.float64(2), "2", None, b"2"])
def test_anything_else_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"keep=.* is not a whole number of 0 or more"):
        whole_number("keep", value)
    with pytest.raises(ValueError, match="workers=0 is not a whole number of 1 or more"):
        whole_number("workers", 0, least=1)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (True, int, "a whole number, not True$"),
        (None, str, "text, not None$"),
        ("x" * 300, int, "a whole number, not a str$"),
        ({"a": 1}, Policy, r"memlab.KeepRecent\(200\), not a dict$"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_right_call(
    value: object, kind: type, words: str
) -> None:
    with pytest.raises(WrongArgumentError, match=words):
        expect(value, kind, call="memlab.call", name="policy")


def test_a_frame_is_asked_for_its_columns() -> None:
    expect_frame(pd.DataFrame({"kind": []}), "kind", call="memlab.show")
    with pytest.raises(WrongArgumentError, match=r"no column 'title' and no column 'tags'$"):
        expect_frame(pd.DataFrame({"kind": []}), "kind", "title", "tags", call="memlab.show")
    with pytest.raises(WrongArgumentError, match=r"load it first: memlab.load\('memory.db'\)"):
        expect_frame(Path("memory.db"), call="memlab.show")


def test_a_moment_has_a_zone_and_is_now_where_none_is_given() -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    assert moment_or_now(moment, call="memlab.plan") == moment
    before = datetime.now(UTC)
    assert before <= moment_or_now(None, call="memlab.plan") <= datetime.now(UTC)
    with pytest.raises(ValueError, match=r"now=.* has no time zone"):
        aware(datetime(2026, 3, 1), call="memlab.plan")  # noqa: DTZ001 - that is the point
    with pytest.raises(WrongArgumentError, match=r"datetime.fromisoformat\('2026-03-01'\)"):
        aware("2026-03-01", call="memlab.plan")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1, -0.1, True, "0.9", None, float("nan"), 1e9])
def test_what_is_no_share_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"target=.* is not between 0 and 1$"):
        share("target", value)
    with pytest.raises(ValueError, match=r"confidence=.* is not between 0.5 and 1"):
        confidence("confidence", value)
    with pytest.raises(ValueError, match=r"is not between 0 and 1; is 0.975 meant?"):
        share("target", 97.5)
    assert type(share("target", np.float32(0.5))) is float
