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
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Run one notebook and store what it shows."""
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{path.stem.partition('_')[0]}-{number:02}"
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
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
        if "outputs" in cell:
            cell["outputs"] = [anywhere(output) for output in cell["outputs"]]
    write_whole(path, nbformat.writes(notebook).encode() + b"\n")


def anywhere(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Name what is another on every run as the tests do when they compare; keep the drawings."""
    rules = RawConfigParser()
    rules.read(NOTEBOOKS / "sanitize.cfg")
    text = json.dumps(output)
    for name in [name for name in rules.sections() if not name.startswith("drawing")]:
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
