"""Charts of reads: whether age or use says what is read next, and what loading by each serves."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from memlab import columns as c
from memlab.charts.figure import on_its_own
from memlab.charts.parts import PERCENT, STEPS, Names, Plot, share
from memlab.evidence.usage import SIZES, TIMES, AgeOrUse, other_stores
from memlab.text import counted

_NO_READS: Final = "No read of a memory of an earlier day is known"
_LEAST: Final = 0.05
"""The smallest chance that an axis goes to; none has no dot, only its limit."""


@on_its_own
def plot_age_or_use(found: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw how likely memories are to be read next, by how often they were read and by age.

    A row for each of the ``chances`` that :func:`memlab.evidence.age_or_use` found: dots ``by use``
    and ``by age`` with their limits as bars, and lines ``other stores``.
    """
    plot = Plot(ax, found.chances, height=4.6)
    if not found.reads:
        return plot.empty("Whether age or use says what is read next", _NO_READS)
    ax, paint = plot.ax, plot.paint
    places = np.arange(len(found.chances)) + (np.arange(len(found.chances)) >= len(TIMES))
    table = found.chances.assign(row=places)
    shown = table[["chance", "other_stores"]].to_numpy()
    least = 0.7 * max(shown[shown > 0].min(), _LEAST)
    ax.set_xscale("log")
    ax.set_xlim(least, 1.6 * np.nanmax(shown))
    use, age = table.iloc[: len(TIMES)], table.iloc[len(TIMES) :]
    key: list[Any] = []
    for rows, name, colour in (use, "by use", paint.by_use), (age, "by age", paint.by_age):
        beside: dict[str, Any] = {"marker": "|", "markersize": 9, "markeredgewidth": 1.6}
        ax.plot(rows["other_stores"], rows["row"], color=paint.grey, label="other stores", **beside)
        known = rows[rows["expected"] > 0]
        limits = known["row"], known["low"].clip(lower=least), known["high"]
        ax.hlines(*limits, color=colour, linewidth=4, alpha=0.4, label=f"_limits {name}")
        key += ax.plot(known["chance"], known["row"], "o", color=colour, markersize=7, label=name)
    names = [f"read {name}" if name != "never" else "never read" for name in use.index]
    plot.name_rows(places.tolist(), [*names, *map(str, age.index)])
    ax.set_ylim(places[-1] + 0.6, -0.6)
    ax.axvline(1, color=paint.ink, linewidth=1, linestyle=":", label="_mean")
    plot.write("mean", (1, len(TIMES)), va="center", ha="center", bbox=plot.on_paper)
    for reads, row in zip(table["reads"], places, strict=True):
        end: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
        plot.write(counted(reads, "reads"), (1, row), (6, 0), va="center", **end)
    plot.log_axis(ax.xaxis, "chance to be read next, in times the mean of what is there")
    stores = counted(other_stores()["stores"], "other stores")
    plot.heading(
        found.answer.partition(":")[0].capitalize(),
        f"{counted(found.reads, 'reads')} on {counted(found.days, 'days')}",
        f"Bars: limits. Grey: {stores}",
        key=key,
    )
    plot.footnote("A memory counts once a day, by what was known when the day began.")
    return ax


@on_its_own
def plot_reads_served(found: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw what share of reads found their memory by the share of the tokens that were loaded.

    Lines ``by age`` and ``by use`` of what :func:`memlab.evidence.age_or_use` found ``served``, and
    ``by chance`` for comparison.
    """
    plot = Plot(ax, found.served, height=4.6)
    if not found.reads:
        return plot.empty("What loading by age or by use serves", _NO_READS)
    ax, paint = plot.ax, plot.paint
    served = found.served[c.TOKENS]
    key: list[Any] = ax.plot([0, 1], [0, 1], ":", color=paint.grey, linewidth=1, label="by chance")
    ax.set(xlim=(0, 1), ylim=(0, 1.03))
    names = Names(plot)
    for name, column, colour in (
        ("by age", "newest", paint.by_age),
        ("by use", "most used", paint.by_use),
    ):
        line = served[column]
        key += ax.step(line.index, line, where="post", color=colour, linewidth=2, label=name)
        for at in line.items():
            names.keep_clear(*at)
        for size, part in line.loc[[*SIZES]].items():
            ax.plot(size, part, "o", color=colour, markersize=6, label="_size", clip_on=False)
            is_best = part == served.loc[size].max()
            names.name(size, part, share(part), paint.muted, above=is_best)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS))
    ax.xaxis.set_major_formatter(PERCENT)
    plot.name_axis(ax.xaxis, "share of the prunable tokens that is loaded")
    plot.percent_axis("share of reads that find their memory there")
    newest, used = (share(served[column].loc[0.25]) for column in ("newest", "most used"))
    plot.heading(
        f"In a quarter of the tokens the most used serve {used} of reads, the newest {newest}",
        f"{counted(found.reads, 'reads')} on {counted(found.days, 'days')}",
        "By age: the newest first. By use: the most used per token first",
        key=key[::-1],
    )
    plot.footnote("Chosen before each day; a read counts half after 14 days.", plot.token_note)
    return ax
