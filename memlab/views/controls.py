"""Controls of the panel and the browser: Jupyter widgets that ``controls.js`` draws."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets


class Control(anywidget.AnyWidget):
    """A widget that ``controls.js`` draws; `kind` selects its drawing function."""

    _esm = Path(__file__).with_name("controls.js")
    _css = Path(__file__).with_name("panel.css")
    kind = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)


class Slider(Control):
    """A slider over a list of values, which shows the selected one."""

    kind = traitlets.Unicode("slider").tag(sync=True)
    values: Any = traitlets.List().tag(sync=True)
    texts: Any = traitlets.List().tag(sync=True)
    value = traitlets.Any().tag(sync=True)

    def select(self, number: int) -> None:
        """Select a number, and add it to the values if it is not among them."""
        with self.hold_sync():  # the web page gets all changes together
            if number not in self.values:
                values = sorted([*self.values, number])
                self.values = values
                self.texts = [f"{value:,}" for value in values]
            self.value = number

    @traitlets.validate("value")
    def _nearest(self, proposal: Any) -> Any:
        """Return the value that is nearest to the proposed one."""
        return min(self.values, key=lambda value: abs(value - proposal["value"]))


class NumberBox(Control):
    """A box for a whole number between `minimum` and `maximum`.

    The web page reports a bad input. An empty box has the value None, and shows the text `nothing`.
    """

    kind = traitlets.Unicode("numberBox").tag(sync=True)
    nothing = traitlets.Unicode().tag(sync=True)
    minimum = traitlets.Int(0).tag(sync=True)
    maximum = traitlets.Int(10**9).tag(sync=True)
    value = traitlets.Int(allow_none=True).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> int | None:
        """Return the proposed number, moved into the limits; None stays None."""
        value: int | None = proposal["value"]
        if value is None:
            return None
        return min(max(value, self.minimum), self.maximum)


class CopyButton(Control):
    """A button that copies a text to the clipboard, and shows whether it succeeded."""

    kind = traitlets.Unicode("copyButton").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)


class RangeSlider(Control):
    """Two sliders over a list of texts: they select the first and the last text of a range."""

    kind = traitlets.Unicode("rangeSlider").tag(sync=True)
    texts: Any = traitlets.List().tag(sync=True)
    limits: Any = traitlets.List().tag(sync=True)

    @traitlets.validate("limits")
    def _ordered(self, proposal: Any) -> list[int]:
        """Return the proposed limits in ascending order, moved into the list of texts."""
        last = max(len(self.texts) - 1, 0)
        return sorted(min(max(int(limit), 0), last) for limit in proposal["value"])


class Brush(Control):
    """A chart on which a span along the x axis is selected, or rows by their names.

    Attributes
    ----------
    html
        The chart.
    layouts
        The boxes of the narrow and of the wide drawing, by name. The box of the axes is named
        "axes", and the box of a row has the name of the row. A box is a list of left, top, width
        and height in fractions of the drawing.
    marks, selected
        The names of all rows, and of the selected rows.
    span
        The selected span in fractions of the axes; empty for none.
    """

    kind = traitlets.Unicode("brush").tag(sync=True)
    html = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    layouts: Any = traitlets.Dict().tag(sync=True)
    marks: Any = traitlets.List().tag(sync=True)
    selected: Any = traitlets.List().tag(sync=True)
    span: Any = traitlets.List().tag(sync=True)
