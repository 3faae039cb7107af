"""Install the wheel with each extra alone, and run what the README and the docs promise of it.

python .ci/extras.py ALONE WHEEL [EXTRA ...]: ALONE is an environment with the WHEEL and no extra; a
copy of it, made of hard links, gets one. Servers and other systems' stores come from the tests'
helpers, and so from the environment that runs this.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

import pytest  # noqa: E402 - what the tests' helpers say where something is not installed

import memlab  # noqa: E402
from tests.sources.json_lines_lab import JsonLinesLab  # noqa: E402
from tests.support.betterdb_store import Betterdb  # noqa: E402
from tests.support.fleets import dask_cluster  # noqa: E402
from tests.support.memforge_store import add_memory, create_tables  # noqa: E402
from tests.support.owners import MCP_PYTHON, mcp_memory  # noqa: E402
from tests.support.packages import package_of_lines  # noqa: E402
from tests.support.servers import postgres_server, redis_server  # noqa: E402


class Extra:
    """An environment with one extra, and a folder with a store to try it on."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.folder = folder
        self.store = memlab.copy_store(memlab.store_path("three_hundred_issues"), folder / "m.db")

    def run(self, *words: object, at: Path | None = None) -> str:
        """Run Python with these words; return what it printed, or end where it fails."""
        command = [str(self.python), *map(str, words)]
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            command, cwd=at or self.folder, env=own, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def memlab(self, *words: object) -> str:
        """Run a command."""
        return self.run("-m", "memlab", *words)

    def everything(self, store: object) -> None:
        """All that is done to a store, and undone."""
        for command in ("show", "size", "doctor"):
            self.memlab(command, store)
        done = json.loads(self.memlab("compact", store, "--keep-recent", 5, "--apply", "--json"))
        assert done["deleted"] > 0
        self.memlab("restore", store, done["digest"])


def report(extra: Extra) -> None:
    """Write a report, a record and a chart."""
    extra.memlab("report", "-o", "report.html", "--record", "record.md")
    extra.memlab("report", extra.store, "--chart", "cap-curve", "-o", "curve.png")


def lab(extra: Extra) -> None:
    """Run every notebook."""
    for name in ("notebooks", "data"):
        shutil.copytree(CHECKOUT / name, extra.folder / name)
    notebooks = sorted((extra.folder / "notebooks").glob("*.ipynb"))
    extra.run("-m", "jupyter", "execute", *notebooks, at=extra.folder / "notebooks")


def models(extra: Extra) -> None:
    """Find near-duplicates."""
    extra.memlab("floor", extra.store)
    extra.memlab("compact", extra.store, "--policy", "dedup")


def tokens(extra: Extra) -> None:
    """Count tokens exactly."""
    code = "import memlab, sys; print(memlab.load(sys.argv[1], count_tokens='o200k_base').tokens)"
    assert "tokens" in extra.run("-c", code, extra.store)


def valkey(extra: Extra) -> None:
    """Change BetterDB's memories on a Redis."""
    with redis_server(extra.folder) as server, server.client() as client:
        theirs = Betterdb(client)
        for number in range(20):
            theirs.remember(f"memory {number}")
        extra.everything(server.url)


def postgresql(extra: Extra) -> None:
    """Change MemForge's memories."""
    with postgres_server() as server, server.connect() as connection:
        create_tables(connection)
        for number in range(20):
            add_memory(connection, content=f"memory {number}")
        extra.everything(server.url("postgres"))


def fleet(extra: Extra) -> None:
    """Have a Dask cluster of this environment alone do the work."""
    with dask_cluster(extra.folder, python=str(extra.python)) as file:
        extra.memlab("fleet", "show", extra.store, "--scheduler-file", file)


def mcp_memory_(extra: Extra) -> None:
    """Change a database that the service wrote, with its vectors."""
    if not MCP_PYTHON.exists():
        pytest.skip("mcp-memory-service is not installed: .ci/owners.sh FOLDER")
    file = extra.folder / "service" / "sqlite_vec.db"
    stored = {"created_at": 1_780_000_000, "tags": [], "memory_type": "note", "metadata": {}}
    mcp_memory(file, *(["store", f"memory {number}", stored] for number in range(20)))
    extra.everything(file)


def testing(extra: Extra) -> None:
    """Let the adapter of another package pass the conformance suite."""
    package = package_of_lines(extra.folder / "lines")
    extra.run("-m", "pip", "install", "-q", "-e", package)
    extra.run("-m", "memlab.testing", "test_lines.py", at=package)
    file = extra.folder / "memory.jsonl"
    JsonLinesLab(extra.folder).fill(20)
    extra.everything(file)


def docs(extra: Extra) -> None:
    """Build the site."""
    site = extra.folder / "site"
    extra.run("-m", "mkdocs", "build", "-q", "-f", ".ci/mkdocs.yml", "-d", site, at=CHECKOUT)
    assert (site / "notebooks" / "06_fleet.html").exists()


EXTRAS: Final[dict[str, Callable[[Extra], None]]] = {
    "report": report,
    "lab": lab,
    "models": models,
    "tokens": tokens,
    "valkey": valkey,
    "postgresql": postgresql,
    "fleet": fleet,
    "mcp-memory": mcp_memory_,
    "testing": testing,
    "docs": docs,
}


def tried(name: str, alone: Path, wheel: Path) -> str:
    """Install one extra and run what is promised of it; return how that went in a line."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=alone.parent) as folder:
        shutil.copytree(alone, f"{folder}/env", copy_function=os.link, symlinks=True)
        extra = Extra(Path(folder, "env/bin/python"), Path(folder))
        try:
            extra.run("-m", "pip", "install", "-q", f"{wheel}[{name}]")
            EXTRAS[name](extra)
        except pytest.skip.Exception as reason:
            return f"{name}: not tried, {reason}"
    return f"{name}: {time.monotonic() - began:.0f} s"


def main(alone: Path, wheel: Path, *names: str) -> None:
    """Try extras, two at a time."""
    known = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(known["optional-dependencies"]) - {"dev"}
    with ThreadPoolExecutor(2) as threads:
        for line in threads.map(lambda name: tried(name, alone, wheel), names or EXTRAS):
            print(line, flush=True)


main(*map(Path, sys.argv[1:3]), *sys.argv[3:])
