"""Controls of the sizing panel: Jupyter widgets that ``controls.js`` draws in the browser."""

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

    def stand_at(self, number: int) -> None:
        """Select a number, and add it to the values if it is not among them."""
        if number not in self.values:
            values = sorted([*self.values, number])
            with self.hold_sync():
                self.values = values
                self.texts = [f"{value:,}" for value in values]
                self.value = number
        self.value = number

    @traitlets.validate("value")
    def _nearest(self, proposal: Any) -> Any:
        """Return the value that is nearest to the proposed one."""
        return min(self.values, key=lambda value: abs(value - proposal["value"]))


class NumberBox(Control):
    """A box for a whole number between `least` and `most`; the browser reports a bad input."""

    kind = traitlets.Unicode("numberBox").tag(sync=True)
    nothing = traitlets.Unicode().tag(sync=True)
    least = traitlets.Int(0).tag(sync=True)
    most = traitlets.Int(10**9).tag(sync=True)
    value = traitlets.Int(allow_none=True).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> int | None:
        """Return the proposed number, moved into the limits; None stays None."""
        value: int | None = proposal["value"]
        if value is None:
            return None
        return min(max(value, self.least), self.most)


class CopyButton(Control):
    """A button that copies a text to the clipboard, and shows whether it succeeded."""

    kind = traitlets.Unicode("copyButton").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
