"""Charts draw the numbers they are given, and stay charts with none or very many."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from frames import START, make_episodes, make_frame, row
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from memlab import columns as c
from memlab.charts import plot_backlog, plot_before_after, plot_boot_context, plot_growth
from memlab.charts._style import EndLabel, footnote, heading, label_ends, spread
from memlab.charts.figure import Chart
from memlab.charts.palette import LIGHT
from memlab.charts.scales import count_axis
from memlab.compaction.preview import survivors
from memlab.growth import boot_context, growth_curve


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


def draw(ax: Axes) -> Figure:
    """Render, so that whatever can go wrong in drawing does."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    FigureCanvasAgg(figure).draw()
    return figure


def line_named(ax: Axes, name: str) -> Line2D:
    (line,) = [line for line in ax.get_lines() if line.get_label() == name]
    return line


def written(ax: Axes) -> list[str]:
    """Every text on the axes but tick labels."""
    texts = [*ax.texts, ax.title, ax._left_title]  # type: ignore[attr-defined]
    return [text.get_text() for text in texts if text.get_text()]


def widths_by_row(ax: Axes) -> list[list[float]]:
    """Widths of the bars at each height, from the top of the picture down."""
    rows: dict[float, list[float]] = {}
    for bar in ax.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2, 3), []).append(bar.get_width())
    return [rows[y] for y in sorted(rows)]


def every_chart(frame: pd.DataFrame) -> list[Axes]:
    curve, context = growth_curve(frame), boot_context(frame)
    return [
        plot_growth(curve),
        plot_growth(curve, measure="tokens"),
        plot_backlog(curve),
        plot_backlog(curve, cap=20),
        plot_boot_context(context),
        plot_before_after(context, boot_context(survivors(frame, 5))),
    ]


@pytest.mark.parametrize(
    ("measure", "suffix"), [("memories", ""), ("tokens", "_tokens")], ids=["memories", "tokens"]
)
def test_growth_draws_each_column_of_the_curve(measure: str, suffix: str) -> None:
    curve = growth_curve(work())
    ax = plot_growth(curve, measure=measure)  # type: ignore[arg-type]
    for name in (c.PRUNABLE, c.LOAD_BEARING, c.SUPERSEDED):
        line = line_named(ax, name)
        assert line.get_ydata().tolist() == curve[name + suffix].tolist()
        assert line.get_xdata()[-1] == curve.index[-1].tz_localize(None).to_numpy()


def test_growth_names_its_lines_with_the_last_values() -> None:
    texts = written(plot_growth(growth_curve(work())))
    assert {"40 prunable", "2 load-bearing", "1 superseded"} <= set(texts)
    assert "40 prunable beside 2 load-bearing memories" in texts
    assert any("95.2 % of that is noise" in text for text in texts)


def test_growth_leaves_out_a_superseded_line_that_is_nothing() -> None:
    ax = plot_growth(growth_curve(make_episodes(5)))
    assert {line.get_label() for line in ax.get_lines()} == {c.PRUNABLE, c.LOAD_BEARING, "_now"}
    assert not any("superseded" in text for text in written(ax))


def test_growth_says_what_was_deleted_without_a_trace_and_only_then() -> None:
    whole = work()
    for frame, said in ((whole, False), (whole.drop(index=3), True)):
        curve = growth_curve(frame)
        for ax in (plot_growth(curve), plot_backlog(curve)):
            assert said == any("was deleted earlier" in text for text in written(ax))


def test_charts_of_tokens_say_how_they_were_counted() -> None:
    frame = work()
    context = boot_context(frame)
    for ax in (
        plot_growth(growth_curve(frame), measure="tokens"),
        plot_boot_context(context),
        plot_before_after(context, context),
    ):
        notes = " ".join(written(ax)).replace("\n", " ")
        assert "Tokens: characters / 4, an estimate." in notes


def test_growth_mentions_rows_without_a_time() -> None:
    frame = work()
    frame.loc[3, c.CREATED_AT] = pd.NaT
    notes = " ".join(written(plot_growth(growth_curve(frame)))).replace("\n", " ")
    assert "1 memory without a usable time stands where it was inserted" in notes


def test_growth_refuses_another_measure() -> None:
    with pytest.raises(ValueError, match="measure must be 'memories' or 'tokens', not 'bytes'"):
        plot_growth(growth_curve(work()), measure="bytes")  # type: ignore[arg-type]


def test_counts_start_at_zero_and_the_top_is_in_view() -> None:
    curve = growth_curve(work())
    for ax in (plot_growth(curve), plot_backlog(curve, cap=15), plot_backlog(curve, cap=900)):
        low, high = ax.get_ylim()
        assert low == 0
        assert high >= max(np.max(line.get_ydata()) for line in ax.get_lines())


def test_backlog_draws_the_cap_and_shades_what_lies_beyond() -> None:
    ax = plot_backlog(growth_curve(work()), cap=15)
    (shade,) = ax.collections
    cap = line_named(ax, "_cap")
    assert set(cap.get_ydata()) == {15}
    heights = shade.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (15, 40)
    assert "keep_recent = 15" in written(ax)
    assert "keep_recent = 15 would delete 25 of 40 memories" in written(ax)


def test_backlog_below_its_cap_would_delete_nothing() -> None:
    ax = plot_backlog(growth_curve(work()), cap=500)
    assert "keep_recent = 500 would delete 0 of 40 memories" in written(ax)
    assert np.ptp(ax.collections[0].get_paths()[0].vertices[:, 1]) == 0


def test_a_cap_of_zero_is_drawn_too() -> None:
    ax = plot_backlog(growth_curve(work()), cap=0)
    assert "keep_recent = 0 would delete 40 of 40 memories" in written(ax)
    draw(ax)


def test_boot_context_bars_are_shares_of_items_and_tokens() -> None:
    ax = plot_boot_context(boot_context(work()))
    bars = [width for widths in widths_by_row(ax) for width in widths]
    assert bars == pytest.approx([2 / 42, 60 / 460, 40 / 42, 400 / 460])
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "decisions\nload-bearing",
        "episodes\nprunable",
    ]
    assert any("There are no skills, no rejected paths." in text for text in written(ax))
    assert "40 memories · 95.2 %" in written(ax)
    assert "60 tokens · 13 %" in written(ax)
    assert ax.get_xlim() == (0, 1)


def test_before_and_after_are_stacked_shares_of_before() -> None:
    frame = work()
    after = boot_context(survivors(frame, 5))
    ax = plot_before_after(boot_context(frame), after)
    assert widths_by_row(ax) == [
        pytest.approx(pair)
        for pair in (
            [2 / 42, 40 / 42],
            [2 / 42, 5 / 42],
            [60 / 460, 400 / 460],
            [60 / 460, 50 / 460],
        )
    ]
    assert "42 → 7 memories, 460 → 110 tokens" in written(ax)
    assert {"2 load-bearing", "5 prunable"} <= set(written(ax))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_charts_of_hardly_any_rows_are_charts(count: int) -> None:
    for ax in every_chart(make_episodes(3).iloc[:count]):
        draw(ax)
        assert written(ax)


def test_an_empty_chart_says_that_it_is_empty_and_shows_no_numbers() -> None:
    empty = make_episodes(0)
    for ax in every_chart(empty):
        assert any(text.startswith("No ") for text in written(ax))
        assert not ax.get_lines()
        assert len(ax.get_xticks()) == 0


def test_rows_without_tokens_have_no_share_of_them() -> None:
    frame = make_episodes(3, tokens=[0, 0, 0])
    for ax in every_chart(frame):
        draw(ax)
    assert "0 tokens · 0 %" in written(plot_boot_context(boot_context(frame)))


def test_a_million_rows_are_a_chart() -> None:
    frame = make_episodes(1_000_000)
    ax = plot_growth(growth_curve(frame))
    draw(ax)
    assert "1,000,000 prunable" in written(ax)
    assert any(label.get_text().endswith(" M") for label in ax.get_yticklabels())


def test_rows_with_clocks_far_off_are_a_chart() -> None:
    for clock in ("0001-01-01", "9999-12-31T23:59:59"):
        frame = make_frame("a", row("b", **{c.CREATED_AT: pd.Timestamp(clock, tz="UTC")}))
        draw(plot_growth(growth_curve(frame)))


def test_everything_written_lies_within_the_figure() -> None:
    for frame in (work(), make_frame(row("d", **{c.KIND: "semantic"}), "e", "f")):
        for ax in every_chart(frame):
            figure = draw(ax)
            drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
            assert min(drawn.x0, drawn.y0) >= -0.02, written(ax)
            assert drawn.x1 <= width + 0.02, written(ax)
            assert drawn.y1 <= height + 0.02, written(ax)


def test_labels_at_line_ends_do_not_overlap() -> None:
    ax = Chart().add_subplot()
    ax.set(xlim=(0, 1), ylim=(0, 1000))
    notes = label_ends(ax, [EndLabel(y, f"{y} things", LIGHT.ink) for y in (3, 0, 5, 1)])
    draw(ax)
    boxes = sorted((note.get_window_extent().y0, note.get_window_extent().y1) for note in notes)
    assert all(top <= bottom for (_, top), (bottom, _) in pairwise(boxes))
    order = sorted(range(4), key=lambda n: notes[n].get_window_extent().y0)
    assert [notes[n].get_text() for n in order] == ["0 things", "1 things", "3 things", "5 things"]


@given(places=st.lists(st.floats(0, 1), max_size=8), gap=st.floats(0.001, 0.3))
def test_spread_keeps_order_gap_and_centre(places: list[float], gap: float) -> None:
    given_places = np.array(places)
    moved = spread(given_places, [gap] * len(places))
    order = np.argsort(given_places, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    if places:
        assert moved.mean() == pytest.approx(given_places.mean())


@given(steps=st.lists(st.floats(0.1, 1), min_size=1, max_size=6))
def test_spread_leaves_alone_what_is_far_enough_apart(steps: list[float]) -> None:
    places = np.cumsum(steps)
    assert spread(places, [0.1 - 1e-9] * len(places)) == pytest.approx(places)


def test_spread_gives_a_label_of_two_lines_the_room_of_two() -> None:
    assert np.diff(spread(np.array([0.5, 0.5, 0.5]), [0.1, 0.2, 0.1])).tolist() == pytest.approx(
        [0.15, 0.15]
    )


def test_a_chart_draws_on_the_axes_it_is_given() -> None:
    figure = Figure(figsize=(8, 9), layout="constrained")
    upper, lower = figure.subplots(2)
    assert plot_growth(growth_curve(work()), ax=upper) is upper
    assert plot_boot_context(boot_context(work()), ax=lower) is lower
    FigureCanvasAgg(figure).draw()
    assert len(figure.axes) == 2


def test_a_chart_leaves_its_frame_alone() -> None:
    curve, context = growth_curve(work()), boot_context(work())
    plot_growth(curve)
    plot_backlog(curve, cap=3)
    plot_boot_context(context)
    plot_before_after(context, context)
    pd.testing.assert_frame_equal(curve, growth_curve(work()))
    pd.testing.assert_frame_equal(context, boot_context(work()))


def test_dates_are_drawn_where_they_are_in_utc() -> None:
    ax = plot_growth(growth_curve(make_episodes(50), freq="h"))
    first = ax.get_xlim()[0]
    assert first == pytest.approx(date2num((START - pd.Timedelta(hours=1)).to_pydatetime()))


@pytest.mark.parametrize(
    ("top", "labels"),
    [
        (9, {"0", "2", "4"}),
        (4_000, {"0", "1,000", "4,000"}),
        (40_000, {"0", "10 k", "40 k"}),
        (4_000_000, {"0", "1 M", "4 M"}),
    ],
)
def test_a_count_axis_reads_in_one_unit(top: int, labels: set[str]) -> None:
    ax = Chart().add_subplot()
    ax.set_ylim(0, top)
    count_axis(ax.yaxis)
    draw(ax)
    assert labels <= {label.get_text() for label in ax.get_yticklabels()}


def test_text_is_never_read_as_mathematics() -> None:
    ax = Chart().add_subplot()
    heading(ax, "costs $x_{$ and $5", "from $1 to $y^{$")
    footnote(ax, "$\\frac{$")
    label_ends(ax, [EndLabel(0.5, "$z^{$", LIGHT.prunable)])
    draw(ax)
    assert "costs $x_{$ and $5" in written(ax)


def test_charts_use_no_pyplot() -> None:
    program = "import sys, memlab.charts; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert run.stdout.strip() == "False"
