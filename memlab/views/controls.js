// Controls of the sizing panel, as native inputs with labels for screen readers.

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

const controls = { slider, numberBox, copyButton };

export default { render: (shown) => controls[shown.model.get("kind")](shown) };
