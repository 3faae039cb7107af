"""Build stores from recorded histories, which lie beside the checkout."""

import subprocess
import sys
from pathlib import Path
from typing import Final

SHARED: Final = Path(__file__).resolve().parents[3] / "shared"
TOOL: Final = SHARED / "tools" / "build_store.py"


def recorded_names(pattern: str) -> list[str]:
    """List the recorded histories that match a pattern; none if they are not available."""
    if not TOOL.is_file():
        return []
    suffix = "-memories.csv.gz"
    paths = (SHARED / "data").glob(pattern + suffix)
    return sorted(path.name.removesuffix(suffix) for path in paths)


def build_store(name: str, path: Path) -> Path:
    """Build a recorded history as a store."""
    subprocess.run([sys.executable, TOOL, name, path], check=True, capture_output=True)
    return path
