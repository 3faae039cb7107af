"""Install the wheel with one extra at a time, and run the features that need the extra.

    python .ci/extras.py ENVIRONMENT WHEEL [EXTRA ...]

ENVIRONMENT has the WHEEL installed without extras; each extra is installed into a copy of it made
of hard links. Servers and stores of other systems come from helpers of the tests, which run in the
environment of this script.
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
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

import pytest  # noqa: E402 - helpers of the tests skip if something is not installed

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

    def run(self, *arguments: object, cwd: Path | None = None) -> str:
        """Run Python with arguments; return its output, or raise an error if it fails."""
        command = [str(self.python), *(str(argument) for argument in arguments)]
        environment = dict(os.environ)
        environment.pop("PYTHONPATH", None)
        result = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
        return result.stdout

    def run_memlab(self, *arguments: object) -> str:
        """Run a command of memlab, and return its output."""
        return self.run("-m", "memlab", *arguments)

    def compact_and_restore(self, store: object) -> None:
        """Inspect a store, compact it, and restore it."""
        for command in ("show", "size", "doctor"):
            self.run_memlab(command, store)
        output = self.run_memlab("compact", store, "--keep-recent", 5, "--apply", "--json")
        receipt = json.loads(output)
        assert receipt["deleted"] > 0
        self.run_memlab("restore", store, receipt["digest"])


def report(extra: Extra) -> None:
    """Write a report, a record and a chart."""
    extra.run_memlab("report", "-o", "report.html", "--record", "record.md")
    extra.run_memlab("report", extra.store, "--chart", "cap-curve", "-o", "curve.png")


def lab(extra: Extra) -> None:
    """Run every notebook."""
    for name in ("notebooks", "data"):
        shutil.copytree(CHECKOUT / name, extra.folder / name)
    notebooks = sorted((extra.folder / "notebooks").glob("*.ipynb"))
    extra.run("-m", "jupyter", "execute", *notebooks, cwd=extra.folder / "notebooks")


def models(extra: Extra) -> None:
    """Find near-duplicates."""
    extra.run_memlab("floor", extra.store)
    extra.run_memlab("compact", extra.store, "--policy", "dedup")


def tokens(extra: Extra) -> None:
    """Count tokens exactly."""
    code = "import memlab, sys; print(memlab.load(sys.argv[1], count_tokens='o200k_base').tokens)"
    assert "tokens" in extra.run("-c", code, extra.store)


def valkey(extra: Extra) -> None:
    """Change BetterDB's memories on a Redis."""
    with redis_server(extra.folder) as server, server.client() as client:
        agent = Betterdb(client)
        for number in range(20):
            agent.remember(f"memory {number}")
        extra.compact_and_restore(server.url)


def postgresql(extra: Extra) -> None:
    """Change MemForge's memories."""
    with postgres_server() as server, server.connect() as connection:
        create_tables(connection)
        for number in range(20):
            add_memory(connection, content=f"memory {number}")
        extra.compact_and_restore(server.url("postgres"))


def fleet(extra: Extra) -> None:
    """Run a command on a Dask cluster whose workers use this environment alone."""
    with dask_cluster(extra.folder, python=str(extra.python)) as scheduler_file:
        extra.run_memlab("fleet", "show", extra.store, "--scheduler-file", scheduler_file)


def mcp_memory_service(extra: Extra) -> None:
    """Change a database of mcp-memory-service, with its vectors."""
    if not MCP_PYTHON.exists():
        pytest.skip("mcp-memory-service is not installed: .ci/owners.sh FOLDER")
    file = extra.folder / "service" / "sqlite_vec.db"
    fields = {"created_at": 1_780_000_000, "tags": [], "memory_type": "note", "metadata": {}}
    calls: list[list[Any]] = [["store", f"memory {number}", fields] for number in range(20)]
    mcp_memory(file, *calls)
    extra.compact_and_restore(file)


def testing(extra: Extra) -> None:
    """Run the conformance suite on the adapter of another package."""
    package = package_of_lines(extra.folder / "lines")
    extra.run("-m", "pip", "install", "-q", "-e", package)
    extra.run("-m", "memlab.testing", "test_lines.py", cwd=package)
    file = extra.folder / "memory.jsonl"
    JsonLinesLab(extra.folder).fill(20)
    extra.compact_and_restore(file)


def docs(extra: Extra) -> None:
    """Build the site."""
    site = extra.folder / "site"
    extra.run("-m", "mkdocs", "build", "-q", "-f", ".ci/mkdocs.yml", "-d", site, cwd=CHECKOUT)
    assert (site / "notebooks" / "06_fleet.html").exists()


EXTRAS: Final[dict[str, Callable[[Extra], None]]] = {
    "report": report,
    "lab": lab,
    "models": models,
    "tokens": tokens,
    "valkey": valkey,
    "postgresql": postgresql,
    "fleet": fleet,
    "mcp-memory": mcp_memory_service,
    "testing": testing,
    "docs": docs,
}


def try_extra(name: str, environment: Path, wheel: Path) -> str:
    """Install one extra and run the features that need it; return a line about the result."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=environment.parent) as folder:
        shutil.copytree(environment, f"{folder}/env", copy_function=os.link, symlinks=True)
        extra = Extra(Path(folder, "env/bin/python"), Path(folder))
        try:
            extra.run("-m", "pip", "install", "-q", f"{wheel}[{name}]")
            EXTRAS[name](extra)
        except pytest.skip.Exception as reason:
            return f"{name}: not tried, {reason}"
    return f"{name}: {time.monotonic() - started:.0f} s"


def main() -> None:
    """Try the extras, two at a time."""
    environment = Path(sys.argv[1])
    wheel = Path(sys.argv[2])
    names = sys.argv[3:] or list(EXTRAS)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev"}
    with ThreadPoolExecutor(2) as threads:
        for line in threads.map(lambda name: try_extra(name, environment, wheel), names):
            print(line, flush=True)


if __name__ == "__main__":
    main()
