"""The store that most tests of stores use."""

from pathlib import Path

import pytest

from tests.support.stores import episodes, row, write_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
