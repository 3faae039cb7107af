"""Copies of the golden files, and formats that are newer than those of today.

golden/ has the files that the memlab of each format wrote; make_golden.py writes them.
"""

import runpy
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from memlab import settings
from memlab.compaction import wire
from memlab.fleet import sweep
from memlab.sources.folder import journal
from memlab.store.archive import formats
from memlab.versions import FileFormat

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
FORMATS: Final = tuple(sorted(path.name for path in GOLDEN.glob("format_*")))
"""One folder for each format of archives."""

CLAUDE: Final = ".claude/projects/-home-u-work/memory"
"""Path of the Claude Code memory folder in a golden folder."""


def copy_golden(name: str, part: str, to: Path) -> Path:
    """Copy a part of a golden folder and set the permissions, which git does not keep."""
    copied = Path(shutil.copytree(GOLDEN / name / part, to / part))
    for path in [copied, *copied.rglob("*")]:
        # Copies of memories and index in .memlab have the permissions of the originals.
        is_private = path.suffix == ".json" or path.name == "made"
        if path.is_dir():
            path.chmod(0o700 if ".memlab" in path.parts else 0o755)
        else:
            path.chmod(0o600 if is_private else 0o644)
    return copied


def script() -> dict[str, Any]:
    """Return the functions of the script that wrote the golden files."""
    return runpy.run_path(str(GOLDEN / "make_golden.py"))


def write_first_rows(path: Path) -> Path:
    """Write the store of the golden files in its initial state."""
    write_items = script()["write_items"]
    write_items(path, "semantic", ["d1", "d2"])
    write_items(path, "procedural", ["s1"])
    write_items(path, "episodic", [f"e{number}" for number in range(1, 31)])
    return path


NEWER: Final = 9
"""A format newer than any existing one."""


class NewerFormat(formats.Format3):
    """An archive of a newer format."""

    number = NEWER


def raise_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memlab write a newer format of every kind of file."""
    for module in (settings, wire, sweep, journal, formats):
        current: FileFormat = vars(module)["FORMAT"]
        newer = FileFormat(number=NEWER, readable_from=NEWER, oldest=current.oldest)
        monkeypatch.setattr(module, "FORMAT", newer)
    monkeypatch.setattr(formats, "KNOWN", {**formats.KNOWN, NEWER: NewerFormat})
