"""The package of the guide on sources, which offers a system to memlab."""

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "sources"
LINES_MODULE = SOURCES / "json_lines.py"
LINES_TESTS = SOURCES / "json_lines_lab.py"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "memlab-lines"
version = "1.0"
dependencies = ["memlab"]

[project.entry-points."memlab.systems"]
lines = "memlab_lines:LINES"

[tool.hatch.build.targets.wheel]
include = ["memlab_lines*"]
"""


def package_of_lines(folder: Path) -> Path:
    """Write the package of the guide into a folder."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "memlab_lines.py").write_text(LINES_MODULE.read_text())
    (folder / "test_lines.py").write_text(LINES_TESTS.read_text())
    return folder
