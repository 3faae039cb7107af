"""Growth, backlog and boot context as pictures: what is drawn is what the frames say."""

import numpy as np
import pandas as pd
import pytest
from frames import START, make_episodes, make_frame, row
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from reading import drawn, line_named, note, title, written

from memlab import columns as c
from memlab.charts import plot_backlog, plot_before_after, plot_boot_context, plot_growth
from memlab.compaction.effects import survivors
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


def widths_by_row(ax: Axes) -> list[list[float]]:
    """Widths of the bars at each height, from the top of the picture down."""
    rows: dict[float, list[float]] = {}
    for bar in ax.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2, 3), []).append(bar.get_width())
    return [rows[y] for y in sorted(rows)]


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
    assert any("95.2% of that is prunable" in text for text in texts)


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
        assert "Tokens: characters / 4, an estimate." in note(ax)


def test_growth_mentions_rows_without_a_time() -> None:
    frame = work()
    frame.loc[3, c.CREATED_AT] = pd.NaT
    said = note(plot_growth(growth_curve(frame)))
    assert "1 memory without a usable time stands where it was inserted" in said


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


def test_a_backlog_title_says_what_a_cap_would_delete() -> None:
    none = plot_backlog(growth_curve(work()), cap=0)
    assert title(none) == "keep_recent = 0 would delete 40 of 40 memories"
    ax = plot_backlog(growth_curve(work()), cap=500)
    assert title(ax) == "keep_recent = 500 would delete 0 of 40 memories"
    assert np.ptp(ax.collections[0].get_paths()[0].vertices[:, 1]) == 0


def test_boot_context_bars_are_shares_of_items_and_tokens() -> None:
    ax = plot_boot_context(boot_context(work()))
    bars = [width for widths in widths_by_row(ax) for width in widths]
    assert bars == pytest.approx([2 / 42, 60 / 460, 40 / 42, 400 / 460])
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "decisions\nload-bearing",
        "episodes\nprunable",
    ]
    assert any("There are no skills, no rejected paths." in text for text in written(ax))
    assert "40 memories · 95.2%" in written(ax)
    assert "60 tokens · 13%" in written(ax)
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


def test_a_million_rows_are_a_chart() -> None:
    frame = make_episodes(1_000_000)
    ax = plot_growth(growth_curve(frame))
    drawn(ax)
    assert "1,000,000 prunable" in written(ax)
    assert any(label.get_text().endswith(" M") for label in ax.get_yticklabels())


def test_dates_are_drawn_where_they_are_in_utc() -> None:
    ax = plot_growth(growth_curve(make_episodes(50), freq="h"))
    first = ax.get_xlim()[0]
    assert first == pytest.approx(date2num((START - pd.Timedelta(hours=1)).to_pydatetime()))
