"""Fixtures of the proofs."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.scenes import FOLDER_SCENES, ROW_SCENES, RowScene, Scene
from tests.support.programs import Children, forked

SOURCES = tuple(
    f"memlab.systems.{name}"
    for name in ("memory_items.source", "claude_code.source", "odek", "openclaw")
)
"""Modules that the parent of the children imports once."""


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    with forked("tests.proof.tasks", *SOURCES) as processes:
        yield processes


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
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
    """Build the library that records file operations and makes them fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler to build the recorder of a process's writes with")
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
