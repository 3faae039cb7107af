"""The chart of the law draws the numbers it is given."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from reading import drawn

from memlab.charts import plot_law
from memlab.evidence.posterior import law_lines


@pytest.fixture(scope="module")
def lines() -> pd.DataFrame:
    return law_lines(0.9)


def by_name(ax: Axes) -> dict[str, np.ndarray]:
    return {str(line.get_label()): line.get_xydata() for line in ax.get_lines()}


def test_every_line_is_there_with_its_numbers(lines: pd.DataFrame) -> None:
    found = by_name(drawn(plot_law(lines)))
    law = lines[lines["project"].isna()]
    for name, column in (("law", "cap"), ("safe", "high")):
        assert np.array_equal(found.pop(name), law[["memories", column]].to_numpy(dtype=float))
    for name, course in lines.dropna(subset="project").groupby("project"):
        assert np.array_equal(found.pop(str(name)), course[["memories", "cap"]].to_numpy())
    assert not found


def test_the_shade_is_the_limits(lines: pd.DataFrame) -> None:
    ax = drawn(plot_law(lines))
    (shade,) = ax.collections
    corners = shade.get_paths()[0].vertices
    law = lines[lines["project"].isna()]
    assert corners[:, 1].max() == law["high"].max()
    assert corners[:, 1].min() == law["low"].min()


def test_a_store_is_a_line_with_a_dot_that_says_its_cap(lines: pd.DataFrame) -> None:
    store = pd.DataFrame({"memories": [600, 40_000], "cap": [150, 9_000]})
    ax = drawn(plot_law(lines, store=store))
    assert np.array_equal(by_name(ax)["this store"], store.to_numpy(dtype=float))
    assert "this store: 9,000" in {text.get_text() for text in ax.texts}
    assert ax.get_xlim()[1] > 40_000
    assert ax.get_ylim()[1] > 9_000


def test_the_title_names_the_share(lines: pd.DataFrame) -> None:
    assert "90%" in plot_law(lines).get_title(loc="left")
    assert "97.5%" in plot_law(law_lines(0.975)).get_title(loc="left")


def test_the_title_says_by_how_much_a_cap_grows_when_a_store_doubles() -> None:
    lines = pd.DataFrame(
        {"memories": [100, 400], "cap": [10.0, 90.0], "project": None, "share": 0.9}
    )
    lines = lines.assign(low=lines["cap"] / 2, high=lines["cap"] * 2)
    assert "a cap 3 times as large" in plot_law(lines).get_title(loc="left")


def test_names_of_projects_that_end_together_do_not_lie_on_each_other(lines: pd.DataFrame) -> None:
    ax = drawn(plot_law(lines))
    names = set(lines["project"].dropna())
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text() in names]
    assert len(boxes) == len(names)
    tops = sorted((round(box.x0), box.y0) for box in boxes)
    apart = [b[1] - a[1] for a, b in pairwise(tops) if a[0] == b[0]]
    assert min(apart) > 6
