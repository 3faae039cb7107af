"""Copies of the golden files: what the memlab of each format wrote, see golden/make_golden.py."""

import runpy
import shutil
from pathlib import Path
from typing import Any, Final

GOLDEN: Final = Path(__file__).resolve().parent / "golden"
FORMATS: Final = tuple(sorted(path.name for path in GOLDEN.glob("format_*")))
"""One folder for each format of archives."""

CLAUDE: Final = ".claude/projects/-home-u-work/memory"
"""Where in a golden folder the memory folder of a Claude Code project lies."""


def copy_golden(name: str, part: str, to: Path) -> Path:
    """Copy a part of a golden folder; git keeps no permissions, which memlab goes by."""
    copied = Path(shutil.copytree(GOLDEN / name / part, to / part))
    for path in [copied, *copied.rglob("*")]:
        is_private = ".memlab" in path.parts or path.suffix == ".json"
        if path.is_dir():
            path.chmod(0o700 if is_private else 0o755)
        else:
            path.chmod(0o600 if is_private else 0o644)
    return copied


def script() -> dict[str, Any]:
    """Return the functions of the script that wrote the golden files."""
    return runpy.run_path(str(GOLDEN / "make_golden.py"))


def write_first_rows(path: Path) -> Path:
    """Write the store of the golden files as it was before memlab did anything to it."""
    write_items = script()["write_items"]
    write_items(path, "semantic", ["d1", "d2"])
    write_items(path, "procedural", ["s1"])
    write_items(path, "episodic", [f"e{number}" for number in range(1, 31)])
    return path
