"""Run every notebook and store its outputs, the same on every machine; draw the README's picture.

python .ci/refresh_notebooks.py [NAME ...]
"""

import json
import re
import sys
from configparser import RawConfigParser
from pathlib import Path

import nbformat
from nbclient import NotebookClient

import memlab
from memlab import charts
from memlab.files import write_whole

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
Outputs = list[list[nbformat.NotebookNode]]
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Run one notebook and store what it shows."""
    notebook = nbformat.read(path, as_version=4)
    before = [cell.get("outputs", []) for cell in notebook.cells]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{path.stem.partition('_')[0]}-{number:02}"
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
    after = [cell.get("outputs", []) for cell in notebook.cells]
    if without(after, "place", "plan") == without(before, "place", "plan"):
        after = before
    for cell, outputs in zip(notebook.cells, without(after, "place"), strict=True):
        if "outputs" in cell:
            cell["outputs"] = outputs
    write_whole(path, nbformat.writes(notebook).encode() + b"\n")


def without(outputs: Outputs, *kinds: str) -> Outputs:
    """Replace what is another on every run as the tests do when they compare, of some kinds.

    What is stored names no place of this machine; a plan keeps its name as long as nothing else
    changes.
    """
    rules = RawConfigParser()
    rules.read(NOTEBOOKS / "sanitize.cfg")
    text = json.dumps(outputs)
    for name in [name for name in rules.sections() if name.partition(":")[0] in kinds]:
        text = re.sub(rules[name]["regex"], rules[name]["replace"], text)
    return nbformat.from_dict(json.loads(text))


def draw_picture() -> None:
    """Draw the README's picture."""
    frame = memlab.load(memlab.store_path("two_years"))
    chart = charts.plot_growth(memlab.growth_curve(frame)).figure
    write_whole(NOTEBOOKS / "growth.svg", chart.svg().encode())


for notebook_path in sorted(NOTEBOOKS.glob("*.ipynb")):
    if len(sys.argv) == 1 or notebook_path.stem in sys.argv[1:]:
        refresh(notebook_path)
        print(notebook_path.name)
draw_picture()
