// A button beside each command copies it; without scripts the command can be selected.
for (const command of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.firstElementChild.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command.firstElementChild);
      button.textContent = "Selected";
    }
  });
  command.append(button);
}
