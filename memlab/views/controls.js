// Controls of the panel and the browser, as native inputs with labels for screen readers.

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

function slider({ model, el }) {
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
}

function numberBox({ model, el }) {
  const input = named(el, model, "number");
  const wrong = document.createElement("span");
  wrong.setAttribute("role", "alert");
  el.append(wrong);
  input.placeholder = model.get("nothing");
  input.required = !model.get("nothing");
  input.min = model.get("minimum");
  input.max = model.get("maximum");
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
}

function copyButton({ model, el }) {
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
}

// Two sliders for the first and the last of a list; neither passes the other.
function rangeSlider({ model, el }) {
  const inputs = ["from", "to"].map((end) => {
    const part = document.createElement("div");
    el.append(part);
    const input = named(part, model, "range");
    part.querySelector("label").textContent = `${model.get("name")} ${end}`;
    const output = document.createElement("output");
    output.htmlFor = input.id;
    part.append(output);
    input.min = 0;
    input.step = 1;
    return input;
  });
  function say(input) {
    const text = model.get("texts")[input.value];
    input.nextElementSibling.textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  function show() {
    inputs.forEach((input, end) => {
      input.max = model.get("texts").length - 1;
      input.value = model.get("limits")[end];
      say(input);
    });
  }
  inputs.forEach((input, end) => input.addEventListener("input", () => {
    const limits = inputs.map((one) => Number(one.value));
    if (limits[0] > limits[1]) limits[end] = limits[1 - end];
    input.value = limits[end];
    say(input);
    model.set("limits", limits);
    model.save_changes();
  }));
  model.on("change:limits", show);
  show();
}

// A chart with a layer on top: buttons over its rows, or an area to drag a span on.
function brush({ model, el }) {
  el.classList.add("memlab-brush");
  el.innerHTML = model.get("html");
  const layer = document.createElement("div");
  layer.className = "memlab-layer";
  el.append(layer);
  const boxes = new Map();  // each element over the chart by the name of its box

  function toggle(name) {
    const selected = model.get("selected");
    const rest = selected.filter((one) => one !== name);
    model.set("selected", rest.length < selected.length ? rest : [...selected, name]);
    model.save_changes();
  }
  for (const name of model.get("marks")) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = `show only: ${name}`;
    button.setAttribute("aria-label", `show only: ${name}`);
    button.dataset.lmSuppressShortcuts = "true";
    button.addEventListener("click", () => toggle(name));
    layer.append(button);
    boxes.set(name, button);
  }

  const band = document.createElement("div");
  if (!model.get("marks").length) {
    const area = document.createElement("div");
    area.className = "memlab-area";
    area.title = "drag over a span to show only its memories; a click shows all";
    band.className = "memlab-band";
    area.append(band);
    layer.append(area);
    boxes.set("axes", area);
    let start = null;
    const at = (event) => {
      const box = area.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    };
    area.addEventListener("pointerdown", (event) => {
      start = at(event);
      area.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    area.addEventListener("pointermove", (event) => {
      if (start !== null) draw([start, at(event)].sort((a, b) => a - b));
    });
    area.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const span = [start, at(event)].sort((a, b) => a - b);
      start = null;
      model.set("span", span[1] - span[0] < 0.004 ? [] : span);
      model.save_changes();
      show();
    });
  }

  function draw(span) {
    band.hidden = !span.length;
    if (!span.length) return;
    band.style.left = `${100 * span[0]}%`;
    band.style.width = `${100 * (span[1] - span[0])}%`;
  }
  function show() {
    draw(model.get("span"));
    for (const name of model.get("marks")) {
      boxes.get(name).setAttribute("aria-pressed", model.get("selected").includes(name));
    }
  }
  function place() {
    const drawings = [...el.querySelectorAll("svg")];
    const drawing = drawings.find((one) => one.getBoundingClientRect().width);
    if (!drawing) return;  // in a tab that is not open
    const box = drawing.getBoundingClientRect();
    const host = el.getBoundingClientRect();
    layer.style.left = `${box.left - host.left}px`;
    layer.style.top = `${box.top - host.top}px`;
    layer.style.width = `${box.width}px`;
    layer.style.height = `${box.height}px`;
    const kind = drawing.classList.contains("narrow") ? "narrow" : "wide";
    const layout = model.get("layouts")[kind];
    for (const [name, part] of boxes) {
      const [left, top, width, height] = layout[name].map((edge) => `${100 * edge}%`);
      Object.assign(part.style, { left, top, width, height });
    }
  }
  model.on("change:span change:selected", show);
  const watched = new ResizeObserver(place);
  watched.observe(el);
  show();
  return () => watched.disconnect();
}

const controls = { slider, numberBox, copyButton, rangeSlider, brush };

export default { render: (shown) => controls[shown.model.get("kind")](shown) };
