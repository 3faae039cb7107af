"""Controls of the panel, drawn in a browser by ``controls.js`` with its own inputs."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets


class Control(anywidget.AnyWidget):
    """What `controls.js` draws, by its kind."""

    _esm = Path(__file__).with_name("controls.js")
    _css = Path(__file__).with_name("panel.css")
    kind = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)


class Slider(Control):
    """A slider over values that people ask for; it says the one it stands at."""

    kind = traitlets.Unicode("slider").tag(sync=True)
    values: Any = traitlets.List().tag(sync=True)
    texts: Any = traitlets.List().tag(sync=True)
    value = traitlets.Any().tag(sync=True)

    def stand_at(self, number: int) -> None:
        """Stand at a number, which becomes one of the values where it was none."""
        if number not in self.values:
            values = sorted([*self.values, number])
            with self.hold_sync():
                self.values = values
                self.texts = [f"{each:,}" for each in values]
                self.value = number
        self.value = number

    @traitlets.validate("value")
    def _one_of_them(self, proposal: Any) -> Any:
        return min(self.values, key=lambda each: abs(each - proposal["value"]))


class NumberBox(Control):
    """A box for a whole number; the browser says what it does not take."""

    kind = traitlets.Unicode("numberBox").tag(sync=True)
    nothing = traitlets.Unicode().tag(sync=True)
    least = traitlets.Int(0).tag(sync=True)
    most = traitlets.Int(10**9).tag(sync=True)
    value = traitlets.Int(allow_none=True).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> int | None:
        value = proposal["value"]
        return None if value is None else min(max(value, self.least), self.most)


class CopyButton(Control):
    """A button that copies a text, and says whether it did."""

    kind = traitlets.Unicode("copyButton").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
