"""The store that most tests of compaction use."""

from pathlib import Path

import pytest

from tests.support.stores import episodes, row, write_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store of two load-bearing rows, a superseded one, and ten episodes."""
    floor = [row("d1", "semantic"), row("s1", "procedural"), row("old", superseded_by="e1")]
    return write_rows(tmp_path / "memory.db", [*floor, *episodes(10)])
