"""Fixtures that several test modules share."""

import gc
import os
import runpy
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from memlab import clock
from tests.support.properties import USUAL

CHECKOUT = Path(__file__).resolve().parent.parent
SHARED = CHECKOUT.parent / "shared"
MEMORY = Path("/dev/shm")
"""A file system on which syncing costs nothing."""
ROOM = 4 * 2**30
"""Bytes that must be free there: several times what the suite holds at once."""


def work_in_memory() -> None:
    """Put temporary folders into memory if there is enough of it and ``TMPDIR`` is not set.

    No test needs a real disk: power cuts are tested on a simulated one
    (``proof/test_power_cut.py``).
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    programs_may_run = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if programs_may_run and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = str(MEMORY)


work_in_memory()


def wait_by_this_kernels_clock() -> None:
    """Let readers wait for two ticks of the clock that stamps this machine's files.

    memlab itself waits for two ticks of the slowest kernel's clock, 20 ms. Nearly every test reads
    what it has just written.
    """
    if sys.platform == "linux":
        two_ticks = int(2e9 * time.clock_getres(5))  # CLOCK_REALTIME_COARSE
        vars(clock)["_STEP"] = min(vars(clock)["_STEP"], two_ticks)


wait_by_this_kernels_clock()

LONGEST = (
    "tests/proof/test_hostile_files.py",
    "tests/sources/test_servers.py",
    "tests/fleet/test_workers.py",
    "tests/sizing/test_never_smaller.py",
    "tests/proof/test_write_errors.py",
    "tests/browser/test_sizing_panel.py",
    "tests/charts/test_every_chart.py",
    "tests/proof/test_power_cut.py",
    "tests/cli/test_commands.py",
    "tests/browser/test_site.py",
    "tests/policies/test_policies.py",
    "tests/replay/test_replay.py",
    "tests/proof/test_killed.py",
    "tests/proof/test_bounded.py",
    "tests/proof/test_racing_servers.py",
    *[f"notebooks/{path.name}" for path in sorted((CHECKOUT / "notebooks").glob("*.ipynb"))],
)
"""Files that take longest, slowest first: if one began last, the other process would be idle."""


LEFT_OUT = {
    "tests/proof": "processes killed, power cut, disks full, files damaged",
    "tests/browser": "a browser",
}
"""Folders that ``pytest`` by itself leaves out, and what needs them; ``pytest --all`` runs them."""
LEFT_OUT_FOLDERS = {CHECKOUT / folder for folder in LEFT_OUT}
NEEDED = {
    "one_redis": "servers",
    "one_postgres": "servers",
    "cluster": "a Dask cluster",
    "real_store": "recorded histories",
}
"""Fixtures, or their parameters, that also take long; tests with one are left out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run everything: kills, servers, browsers")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out slow tests if neither ``--all`` nor the name of a test was given.

    A worker of xdist gets names from its controller even if the user gave none. Therefore the
    controller sends it the decision.
    """
    worker = getattr(config, "workerinput", None)
    if worker:
        leaves_out_slow_tests = worker[WORKER_KEY]
    else:
        names_no_test = config.args_source is config.ArgsSource.TESTPATHS
        leaves_out_slow_tests = names_no_test and not config.option.all
    config.stash[LEAVES_OUT_SLOW_TESTS] = leaves_out_slow_tests
    examples = QUICK if leaves_out_slow_tests else USUAL
    try_properties(int(os.environ.get("MEMLAB_EXAMPLES", examples)))


LEAVES_OUT_SLOW_TESTS = pytest.StashKey[bool]()
WORKER_KEY = "leaves_out_slow_tests"
"""Name under which the controller sends the decision to its workers."""
QUICK = 6
"""Examples of a property in a run that leaves out slow tests."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[WORKER_KEY] = node.config.stash[LEAVES_OUT_SLOW_TESTS]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module of a folder that is left out."""
    if config.stash[LEAVES_OUT_SLOW_TESTS] and collection_path in LEFT_OUT_FOLDERS:
        return True
    return None  # the other hooks decide


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the files that take longest begin first; ``--no-loadscope-reorder`` keeps the order."""
    places = {CHECKOUT / name: place for place, name in enumerate(LONGEST)}
    if missing := [str(path) for path in places if not path.is_file()]:
        raise pytest.UsageError(f"LONGEST in tests/conftest.py names {', '.join(missing)}")
    items.sort(key=lambda item: places.get(item.path, len(places)))
    if config.stash[LEAVES_OUT_SLOW_TESTS]:
        quick = []
        slow = []
        for item in items:
            if _takes_long(item):
                slow.append(item)
            else:
                quick.append(item)
        items[:] = quick
        config.hook.pytest_deselected(items=slow)


def _takes_long(item: pytest.Item) -> bool:
    if item.get_closest_marker("long") is not None:
        return True
    needs = set(getattr(item, "fixturenames", ()))
    if parameters := getattr(item, "callspec", None):
        needs |= {str(value) for value in parameters.params.values()}
    return not needs.isdisjoint(NEEDED)


def pytest_collection_finish() -> None:
    """Exclude all objects that exist by now from garbage collection, which is quicker then."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print each reason of a skip once, and what was left out."""
    skipped = Counter(_skip_reason(report) for report in terminalreporter.getreports("skipped"))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"SKIPPED [{count}] {reason}")
    if config.stash[LEAVES_OUT_SLOW_TESTS]:
        reasons = dict.fromkeys((*LEFT_OUT.values(), *NEEDED.values(), "much time"))
        left_out = "; ".join(reasons)
        terminalreporter.write_line(f"left out: {left_out} (pytest --all runs everything)")


def _skip_reason(report: Any) -> str:
    if not report.longrepr:
        return "no reason"
    _, _, message = report.longrepr
    return str(message.removeprefix("Skipped: "))


def try_properties(count: int) -> None:
    """Set the number of examples of each property whose test sets none.

    No example has a deadline, because a shared machine is slow now and then. In CI every run tries
    the same examples, so that a failure is due to the change.
    """
    settings.register_profile(
        "memlab", deadline=None, max_examples=count, derandomize="CI" in os.environ
    )
    settings.load_profile("memlab")


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no charts in a report, for tests that look at its text alone."""
    monkeypatch.setattr("memlab.views.page.draw_section", lambda *_: ())


@pytest.fixture
def no_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute charts, but let matplotlib write no picture, for tests that look at none."""
    monkeypatch.setattr("memlab.charts.figure._svg_of", lambda _: "<svg></svg>")


@pytest.fixture(scope="session")
def built_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores of recorded facts are kept once one process of a run has built them."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # shared by all workers
    folder = base / "built_stores"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def real_store(tmp_path: Path, built_stores: Path) -> Callable[[str], Path]:
    """A function that makes a store of recorded facts by name; skips where there are none."""
    tool = SHARED / "tools" / "build_store.py"
    if not tool.exists():
        pytest.skip("no recorded histories (shared/data) beside the checkout")

    def copied(name: str) -> Path:
        built = built_stores / f"{name}.db"
        if not built.exists():
            _build(tool, name, tmp_path / f"{name}.draft").replace(built)
        return Path(shutil.copy(built, tmp_path))

    return copied


def _build(tool: Path, name: str, path: Path) -> Path:
    """Build a store of recorded facts with the functions of a script."""
    script = runpy.run_path(str(tool))
    items_of = script["history_items" if name.startswith("history-") else "agent_items"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(script["SCHEMA"])
        with connection:
            marks = ",".join("?" * 14)
            connection.executemany(
                f"INSERT INTO memory_items VALUES ({marks})", items_of(SHARED / "data", name)
            )
    return path
