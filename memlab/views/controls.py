"""Controls of the panel: a browser's own, so that a screen reader hears name and value of each."""

from typing import Any

import anywidget
import traitlets

_STYLE = """
.memlab-control { display: flex; align-items: center; gap: 0.6em; margin: 0.15em 1.2em 0.15em 0; }
.memlab-control label { white-space: nowrap; }
.memlab-control input[type="range"] { width: 14em; max-width: 45vw; }
.memlab-control output { min-width: 3.5em; font-variant-numeric: tabular-nums; }
.memlab-control input[type="number"] {
  width: 8em; padding: 0.15em 0.4em; text-align: right; font: inherit;
  color: inherit; background: transparent; border: 1px solid #8a8d91;
}
.memlab-control [role="alert"] { color: var(--jp-error-color1, #b3261e); }
"""

_NAMED = """
function named(el, model, kind) {
  const id = `memlab-control-${Math.random().toString(36).slice(2)}`;
  const label = document.createElement("label");
  const input = document.createElement("input");
  label.htmlFor = input.id = id;
  label.textContent = model.get("name");
  input.type = kind;
  input.dataset.lmSuppressShortcuts = "true";  // JupyterLab would take the arrow keys
  el.classList.add("memlab-control");
  el.append(label, input);
  return input;
}
"""


class Slider(anywidget.AnyWidget):
    """A slider over values that people ask for; it says the one it stands at."""

    _esm = (
        _NAMED
        + """
export default { render({ model, el }) {
  const input = named(el, model, "range");
  const output = document.createElement("output");
  output.htmlFor = input.id;
  el.append(output);
  input.min = 0;
  input.step = 1;
  function say(place) {
    const text = model.get("texts")[place];
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  function show() {
    input.max = model.get("values").length - 1;
    input.value = model.get("values").indexOf(model.get("value"));
    say(input.value);
  }
  input.addEventListener("input", () => {
    say(input.value);
    model.set("value", model.get("values")[input.value]);
    model.save_changes();
  });
  model.on("change:value change:values", show);
  show();
} };
"""
    )
    _css = _STYLE
    name = traitlets.Unicode().tag(sync=True)
    values: Any = traitlets.List().tag(sync=True)
    texts: Any = traitlets.List().tag(sync=True)
    value = traitlets.Any().tag(sync=True)

    def stand_at(self, number: int) -> None:
        """Stand at a number, which becomes one of the values where it was none."""
        if number not in self.values:
            values = sorted([*self.values, number])
            with self.hold_sync():
                self.values, self.texts = values, [f"{each:,}" for each in values]
                self.value = number
        self.value = number

    @traitlets.validate("value")
    def _one_of_them(self, proposal: Any) -> Any:
        return min(self.values, key=lambda each: abs(each - proposal["value"]))


class NumberBox(anywidget.AnyWidget):
    """A box for a whole number; the browser says what it does not take."""

    _esm = (
        _NAMED
        + """
export default { render({ model, el }) {
  const input = named(el, model, "number");
  const wrong = document.createElement("span");
  wrong.setAttribute("role", "alert");
  el.append(wrong);
  input.placeholder = model.get("nothing");
  input.required = !model.get("nothing");
  input.min = model.get("least");
  input.max = model.get("most");
  function show() {
    input.value = model.get("value") ?? "";
    wrong.textContent = "";
  }
  function take() {
    wrong.textContent = input.validationMessage;
    if (!input.validity.valid) return;
    model.set("value", input.value === "" ? null : Number(input.value));
    model.save_changes();
  }
  let waiting;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(take, 300);
  });
  model.on("change:value", show);
  show();
} };
"""
    )
    _css = _STYLE
    name = traitlets.Unicode().tag(sync=True)
    nothing = traitlets.Unicode().tag(sync=True)
    least = traitlets.Int(0).tag(sync=True)
    most = traitlets.Int(10**9).tag(sync=True)
    value = traitlets.Int(allow_none=True).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> int | None:
        value = proposal["value"]
        return None if value is None else min(max(value, self.least), self.most)


class CopyButton(anywidget.AnyWidget):
    """A button that copies a text, and says whether it did."""

    _esm = """
export default { render({ model, el }) {
  const button = document.createElement("button");
  button.className = "jupyter-button";
  function show() {
    button.textContent = "Copy the command";
    button.disabled = !model.get("text");
  }
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(model.get("text"));
      button.textContent = "Copied";
    } catch {  // a page that is not served securely may not
      button.textContent = "This browser does not let a page copy: select the command";
    }
  });
  model.on("change:text", show);
  el.append(button);
  show();
} };
"""
    text = traitlets.Unicode().tag(sync=True)
