"""Run every notebook and store its outputs, the same on every machine; draw the README's picture.

python .ci/refresh_notebooks.py [NAME ...]
"""

import json
import re
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient

import memlab
from memlab import charts
from memlab.charts.figure import Chart
from memlab.files import write_whole

NOTEBOOKS: Final = Path(__file__).resolve().parent.parent / "notebooks"
Outputs = list[list[nbformat.NotebookNode]]
"""The outputs of each cell; none for a cell without code."""
WIDGET: Final = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Run one notebook and store its outputs.

    If they differ only in places and names of plans, the stored outputs are kept.
    """
    notebook = nbformat.read(path, as_version=4)
    before = outputs_of(notebook)
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
    after = outputs_of(notebook)
    if sanitize(after, "place", "plan") == sanitize(before, "place", "plan"):
        after = before
    for cell, outputs in zip(notebook.cells, sanitize(after, "place"), strict=True):
        if "outputs" in cell:
            cell["outputs"] = outputs
    write_whole(path, nbformat.writes(notebook).encode() + b"\n")


def outputs_of(notebook: nbformat.NotebookNode) -> Outputs:
    """List the outputs of every cell."""
    return [cell.get("outputs", []) for cell in notebook.cells]


def sanitize(outputs: Outputs, *kinds: str) -> Outputs:
    """Replace text that differs from run to run, by the rules of some kinds in ``sanitize.cfg``.

    A rule's kind is the part of its name before the colon. The tests compare outputs by all rules.
    """
    rules = RawConfigParser()
    rules.read(NOTEBOOKS / "sanitize.cfg")
    text = json.dumps(outputs)
    for name in rules.sections():
        kind = name.partition(":")[0]
        if kind in kinds:
            text = re.sub(rules[name]["regex"], rules[name]["replace"], text)
    sanitized: Outputs = nbformat.from_dict(json.loads(text))
    return sanitized


def draw_picture() -> None:
    """Draw the README's picture."""
    frame = memlab.load(memlab.store_path("two_years"))
    chart = charts.plot_growth(memlab.growth_curve(frame)).figure
    assert isinstance(chart, Chart)
    write_whole(NOTEBOOKS / "growth.svg", chart.svg().encode())


def main() -> None:
    """Refresh the named notebooks, all if none is named, and the picture."""
    names = sys.argv[1:]
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            refresh(path)
            print(path.name)
    draw_picture()


if __name__ == "__main__":
    main()
