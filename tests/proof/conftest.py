"""Fixtures of the proofs."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Children, forked

from proof.folders import FOLDER_SCENES
from proof.recording import built_recorder
from proof.scenes import ROW_SCENES, RowScene, Scene

MEMORY = Path("/dev/shm")
"""A file system on which syncing costs nothing."""
SOURCES = tuple(
    f"memlab.systems.{name}"
    for name in ("memory_items.source", "claude_code.source", "odek", "openclaw")
)
"""What children need and would import each for itself."""


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    with forked("proof.tasks", *SOURCES) as made:
        yield made


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every user can enter, in memory where there is some."""
    fast = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(params=ROW_SCENES)
def row_scene(request: pytest.FixtureRequest, scratch: Path) -> RowScene:
    return ROW_SCENES[request.param](scratch / "whole")


@pytest.fixture(params=[*ROW_SCENES, *FOLDER_SCENES])
def scene(request: pytest.FixtureRequest, scratch: Path) -> Scene:
    return (ROW_SCENES | FOLDER_SCENES)[request.param](scratch / "whole")


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that writes down what a process does to files, and lets it fail."""
    return built_recorder(tmp_path_factory.mktemp("recorder"))
