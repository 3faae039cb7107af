"""Charts of growth, of what is loaded and of the law draw the numbers of their frames."""

import re
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from frames import START, make_episodes, make_frame, row
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.text import Text
from reading import drawn, line_named, note, points_of, title, written

from memlab import columns as c
from memlab.charts import (
    plot_before_after,
    plot_boot_context,
    plot_boot_over_time,
    plot_growth,
    plot_law,
)
from memlab.compaction.effects import survivors
from memlab.evidence.posterior import law_lines
from memlab.growth import boot_context, growth_curve
from memlab.sizing import boot_over_time


def work(episodes: int = 40) -> pd.DataFrame:
    """Episodes of 10 tokens, one a day; two decisions of 30 and one superseded failure of 5."""
    decision = {c.KIND: "semantic", c.TOKENS: 30}
    return make_frame(
        row("d1", **decision),
        row("f", **{c.SUPERSEDED_BY: "e0", c.TOKENS: 5}),
        *(f"e{n}" for n in range(episodes)),
        row("d2", **decision),
        minutes=24 * 60,
    )


def widths_by_row(ax: Axes) -> list[list[float]]:
    """Widths of the bars at each height, from the top of the picture down."""
    rows: dict[float, list[float]] = {}
    for bar in ax.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2, 3), []).append(bar.get_width())
    return [rows[y] for y in sorted(rows)]


@pytest.mark.parametrize(("measure", "suffix"), [("memories", ""), ("tokens", "_tokens")])
def test_growth_draws_each_column_of_the_curve(
    measure: Literal["memories", "tokens"], suffix: str
) -> None:
    curve = growth_curve(work())
    ax = plot_growth(curve, measure=measure)
    for name in (c.PRUNABLE, c.LOAD_BEARING, c.SUPERSEDED):
        line = line_named(ax, name)
        assert line.get_ydata().tolist() == curve[name + suffix].tolist()
        assert line.get_xdata()[-1] == curve.index[-1].tz_localize(None).to_numpy()


def test_growth_names_its_lines_with_the_last_values_and_draws_none_that_is_nothing() -> None:
    texts = written(plot_growth(growth_curve(work())))
    assert {"40 prunable", "2 load-bearing", "1 superseded"} <= set(texts)
    assert "40 prunable beside 2 load-bearing memories" in texts
    assert any("95.2% of that is prunable" in text for text in texts)
    alone = plot_growth(growth_curve(make_episodes(5)))
    assert {line.get_label() for line in alone.get_lines()} == {c.PRUNABLE, c.LOAD_BEARING, "_now"}


def test_growth_says_what_was_deleted_without_a_trace_and_only_then() -> None:
    whole = work()
    for frame, said in ((whole, False), (whole.drop(index=3), True)):
        curve = growth_curve(frame)
        assert said == any("was deleted earlier" in text for text in written(plot_growth(curve)))


def test_charts_of_tokens_say_how_they_were_counted() -> None:
    frame = work()
    context = boot_context(frame)
    for ax in (
        plot_growth(growth_curve(frame), measure="tokens"),
        plot_boot_context(context),
        plot_before_after(context, context),
    ):
        assert "Tokens: characters / 4, an estimate." in note(ax)


def test_growth_mentions_rows_without_a_time() -> None:
    frame = work()
    frame.loc[3, c.CREATED_AT] = pd.NaT
    said = note(plot_growth(growth_curve(frame)))
    assert "1 memory without a usable time stands where it was inserted" in said


def test_counts_start_at_zero_and_the_top_is_in_view() -> None:
    curve = growth_curve(work())
    for ax in (plot_growth(curve, cap=cap) for cap in (None, 15, 900)):
        low, high = ax.get_ylim()
        assert low == 0
        assert high >= max(np.max(line.get_ydata()) for line in ax.get_lines())


@pytest.mark.parametrize(("cap", "deletes"), [(0, 40), (15, 25), (500, 0)])
def test_growth_draws_a_cap_and_shades_and_says_what_lies_beyond(cap: int, deletes: int) -> None:
    ax = plot_growth(growth_curve(work()), cap=cap)
    (shade,) = ax.collections
    heights = shade.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (cap, cap + deletes)
    assert set(line_named(ax, "_cap").get_ydata()) == {cap}
    assert f"keep_recent = {cap}" in written(ax)
    assert title(ax) == f"keep_recent = {cap} would delete {deletes} of 40 prunable memories"


def test_dates_are_drawn_where_they_are_in_utc() -> None:
    ax = plot_growth(growth_curve(make_episodes(50), freq="h"))
    first = date2num((START - pd.Timedelta(hours=1)).to_pydatetime())
    assert ax.get_xlim()[0] == pytest.approx(first)


def test_boot_context_bars_are_shares_of_items_and_tokens() -> None:
    ax = plot_boot_context(boot_context(work()))
    bars = [width for widths in widths_by_row(ax) for width in widths]
    assert bars == pytest.approx([2 / 42, 60 / 460, 40 / 42, 400 / 460])
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["decisions\nload-bearing", "episodes\nprunable"]
    assert {"40 memories · 95.2%", "60 tokens · 13%"} <= set(written(ax))
    assert "There are no skills, no rejected paths." in note(ax)
    assert ax.get_xlim() == (0, 1)


def test_before_and_after_are_stacked_shares_of_before() -> None:
    frame = work()
    ax = plot_before_after(boot_context(frame), boot_context(survivors(frame, 5)))
    shares = [(2, 40, 42), (2, 5, 42), (60, 400, 460), (60, 50, 460)]
    assert widths_by_row(ax) == [
        pytest.approx([bearing / of, prunable / of]) for bearing, prunable, of in shares
    ]
    assert "42 → 7 memories, 460 → 110 tokens" in written(ax)
    assert {"2 load-bearing", "5 prunable"} <= set(written(ax))


def test_starts_are_drawn_for_each_cap_and_for_none_and_named_by_their_end() -> None:
    timeline = boot_over_time(work(200), [50, 1_000])
    ax = plot_boot_over_time(timeline, budget=400_000)
    named = {"keep 50": 50, "keep 1,000": 1_000, "no cap": pd.NA}
    for name, cap in named.items():
        kept = timeline["keep_recent"]
        held = timeline[kept.isna() if pd.isna(cap) else kept.eq(cap).fillna(value=False)]
        across, up = points_of(ax, name)
        assert up == held["tokens"].tolist()
        assert across[0] == held["at"].dt.tz_localize(None).iloc[0].to_numpy()
    assert "budget: 400 k" in written(ax)
    assert ax.get_ylim()[1] > 400_000
    texts = written(plot_boot_over_time(timeline, measure="memories"))
    assert {"keep 50: 52", "no cap: 202"} <= set(texts)


@pytest.fixture(scope="module")
def lines() -> pd.DataFrame:
    return law_lines(0.9)


def test_the_law_is_drawn_with_its_limits_and_every_project(lines: pd.DataFrame) -> None:
    ax = drawn(plot_law(lines))
    found = {str(line.get_label()): line.get_xydata() for line in ax.get_lines()}
    law = lines[lines["project"].isna()]
    for name, column in (("law", "cap"), ("safe", "high")):
        assert np.array_equal(found.pop(name), law[["memories", column]].to_numpy(dtype=float))
    for name, course in lines.dropna(subset="project").groupby("project"):
        assert np.array_equal(found.pop(str(name)), course[["memories", "cap"]].to_numpy())
    assert not found
    (shade,) = ax.collections
    corners = shade.get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == (law["low"].min(), law["high"].max())


def test_a_store_is_a_line_beside_the_law_with_a_dot_that_says_its_cap(lines: pd.DataFrame) -> None:
    store = pd.DataFrame({"memories": [600, 40_000], "cap": [150, 9_000]})
    ax = drawn(plot_law(lines, store=store))
    assert np.array_equal(line_named(ax, "this store").get_xydata(), store.to_numpy(dtype=float))
    assert "this store: 9,000" in written(ax)
    assert ax.get_xlim()[1] > 40_000
    assert ax.get_ylim()[1] > 9_000


def test_the_title_of_the_law_says_the_share_and_what_doubling_takes() -> None:
    lines = pd.DataFrame({"memories": [100, 400], "cap": [10.0, 90.0], "project": None})
    lines = lines.assign(low=lines["cap"] / 2, high=lines["cap"] * 2, share=0.975)
    lines["evidence"] = "references"
    assert title(plot_law(lines)) == (
        "For 97.5%, a store twice as large takes a cap 3 times as large"
    )


def test_the_law_of_reads_speaks_of_stores_and_searches_and_names_none() -> None:
    ax = drawn(plot_law(law_lines(0.9, evidence="reads")))
    assert ax.get_ylabel() == "cap that serves 90% of reads"
    said = " ".join(written(ax))
    assert not re.search(r"\br\d\d\b", said)
    page = " ".join(text.get_text() for text in ax.figure.findobj(Text))
    assert "public stores" in page
    assert "Notes that agents found by searching" in page
