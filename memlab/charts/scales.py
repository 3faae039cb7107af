"""Axes that a person can read: counts, shares, logarithms, and time that says which day it is."""

from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import MONTHLY, AutoDateLocator, date2num, num2date
from matplotlib.ticker import FixedLocator, Formatter, FuncFormatter, MaxNLocator, NullLocator

from memlab.charts._style import PERCENT, name_across, short
from memlab.charts.figure import figure_of

Times = npt.NDArray[np.datetime64]

SIDE_BY_SIDE: Final = 5.0
"""Inches from which six numbers stand side by side below a chart."""

_DAY: Final = 1.0  # matplotlib counts days


def count_axis(axis: Axis, name: str = "") -> None:
    """Label `axis` with whole numbers a person can read, in one unit: 1,200 or 45 k or 1.5 M."""

    def label(value: float, _: int) -> str:
        largest = max(abs(limit) for limit in axis.get_view_interval())
        if largest < 1e4 or not value:
            return f"{value:,.0f}"
        return f"{value / 1e6:,.4g} M" if largest >= 1e6 else f"{value / 1e3:,.4g} k"

    most = 3 if axis is axis.axes.xaxis and is_narrow(axis) else 6
    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.set_major_formatter(FuncFormatter(label))
    _name(axis, name)


def is_narrow(axis: Axis) -> bool:
    """Whether a figure is for a narrow column, where six numbers would run together."""
    return bool(figure_of(axis.axes).get_size_inches()[0] < SIDE_BY_SIDE)


def percent_axis(axis: Axis, name: str = "") -> None:
    """Label `axis`, which holds shares between 0 and 1, in percent."""
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(PERCENT)
    _name(axis, name)


def log_axis(axis: Axis, name: str = "", *, most: int = 7) -> None:
    """Make `axis` logarithmic, its ticks numbers people count by, at most so many.

    Call it once the limits are final.
    """
    getattr(axis.axes, "set_xscale" if axis is axis.axes.xaxis else "set_yscale")("log")
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(FixedLocator(_round_numbers(low, high, most)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    _name(axis, name)


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    """Return numbers between two limits: powers of ten, with 2 and 5, with all digits, or even."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    found: list[float] = []
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [
            d * 10.0**power for power in powers for d in digits if low <= d * 10**power <= high
        ]
        if len(found) <= most:
            break
    if len(found) > most:
        found = found[:: -(-len(found) // most)]
    if len(found) < 3:
        even = MaxNLocator(nbins=max(3, most - 2), steps=[1, 2, 2.5, 5, 10])
        found = [float(tick) for tick in even.tick_values(low, high) if low <= tick <= high]
    return found


def time_axis(ax: Axes, times: Times) -> None:
    """Give the x axis dates that say which day and which year it is, from the first tick on."""
    low, high = ax.get_xlim()
    wide = figure_of(ax).get_size_inches()[0] > 5
    few, many = (4, 9) if wide else (2, 5)
    locator = AutoDateLocator(minticks=few, maxticks=many)  # type: ignore[no-untyped-call]
    locator.intervald[MONTHLY] = [1, 2, 3, 6, 12]
    shown = locator.tick_values(*num2date((low, high)))  # type: ignore[no-untyped-call]
    inside = [float(tick) for tick in shown if low <= tick <= high]
    if len(inside) < 2:
        inside = [float(tick) for tick in date2num(times[[0, -1]])]  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(FixedLocator(inside))
    ax.xaxis.set_major_formatter(_Dates(inside))


def _name(axis: Axis, name: str) -> None:
    if axis is axis.axes.xaxis:
        name_across(axis.axes, name)
    else:
        axis.set_label_text(name)


class _Dates(Formatter):
    """Dates as short as can be told apart; the first, and where it changes, with what contains it.

    Hours say their day, days and months their year.
    """

    def __init__(self, ticks: list[float]) -> None:
        step = min(np.diff(ticks)) if len(ticks) > 1 else _DAY
        if step < 0.9 / 86_400 * 60:
            self._near, self._far = "{0:%H:%M:%S}", "{0.day} {0:%b %Y}"
        elif step < 0.9 * _DAY:
            self._near, self._far = "{0:%H:%M}", "{0.day} {0:%b %Y}"
        elif step < 27 * _DAY:
            self._near, self._far = "{0.day} {0:%b}", "{0.year}"
        elif step < 360 * _DAY:
            self._near, self._far = "{0:%b}", "{0.year}"
        else:
            self._near, self._far = "{0.year}", ""
        self._before = dict(zip(ticks[1:], ticks, strict=False))

    def __call__(self, x: float, pos: int | None = None) -> str:  # noqa: ARG002
        """Return the label of a tick."""
        near, far = self._words(x)
        before = self._before.get(x)
        if before is not None and self._words(before)[1] == far:
            return near
        return f"{near}\n{far}" if far else near

    def _words(self, x: float) -> tuple[str, str]:
        moment = num2date(x)  # type: ignore[no-untyped-call]
        return self._near.format(moment), self._far.format(moment)
