"""Run the conformance suite over the adapters of a package, and record which of them passed it."""

from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest

import memlab
from memlab.sources.base import Source
from memlab.sources.conformance_record import TESTED, write_record

if TYPE_CHECKING:
    from memlab.testing.conformance import ReadingSuite

_SUITE_FILE: Final = "conformance.py"


def run_suite(arguments: Sequence[str]) -> int:
    """Run tests with pytest and write the record of each adapter that passed the whole suite.

    The shell command is ``python -m memlab.testing test_lines.py``.

    The suite is the class of memlab.testing from which the tests of the adapter inherit:
    :class:`DeletingSuite`, or :class:`ReadingSuite`. An adapter passed the whole suite if every
    test of this class passed, and no test was replaced, deselected or skipped. Tests that the suite
    itself skips count as passed.

    The record is a JSON file beside the module of the adapter. It is valid for one version of the
    suite and for the present code of the module. For a module in a package, this includes all
    modules in the same folder and below. Other code, such as that of dependencies, may change. An
    adapter that only reads needs no record, and gets none.

    Parameters
    ----------
    arguments : sequence of str
        Files of tests, and options of pytest. All other tests in the files are run too.

    Returns
    -------
    int
        The exit code: 0 if all tests passed and at least one adapter passed the whole suite; 1 if
        no adapter did; 2 if Python runs without assertions; else that of pytest. A record that
        cannot be written is reported and does not change the exit code.

    Raises
    ------
    MissingExtraError
        If this function is imported from :mod:`memlab.testing` and pytest is not installed.
    """
    if not __debug__:
        click.echo("python -O leaves assertions out; run python -m memlab.testing without it")
        return 2
    recorder = _Recorder()
    options = ["-p", "no:cacheprovider"]
    if find_spec("xdist"):
        options.append("-n0")
    code = int(pytest.main([*options, *arguments], plugins=[recorder]))
    lines = recorder.conclude(all_passed=code == 0)
    click.echo("\n".join(lines))
    if code == 0 and not recorder.passed_adapters:
        return 1
    return code


class _Recorder:
    """The pytest plugin that notes the outcome of each test of the suite.

    It imports the suite only after pytest is set up, so that failed assertions show their values.
    """

    def __init__(self) -> None:
        self.passed_adapters: list[str] = []
        # All of these have the id of a test class as key; see `_class_id`.
        self._suites: dict[str, type[ReadingSuite]] = {}
        self._adapter_addresses: dict[str, str] = {}  # "module:Class" of the adapter under test
        self._passed_tests: defaultdict[str, set[str]] = defaultdict(set)  # without parameters
        self._passed_counts: defaultdict[str, int] = defaultdict(int)
        self._faults: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "long: takes many seconds, or kills a process")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        from memlab.testing import ReadingSuite

        for item in items:
            suite = getattr(item, "cls", None)
            if isinstance(suite, type) and issubclass(suite, ReadingSuite):
                self._suites[_class_id(item.nodeid)] = suite

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            self._faults[_class_id(item.nodeid)].append(f"{item.name} was left out")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        class_id = _class_id(report.nodeid)
        if class_id not in self._suites:
            return
        for name, value in report.user_properties:
            if name == TESTED:
                self._note_adapter(class_id, str(value))
        test = report.nodeid.rpartition("::")[2]
        if report.failed:
            self._faults[class_id].append(f"{test} failed")
        elif report.skipped and not _is_skipped_by_suite(report):
            self._faults[class_id].append(f"{test} was skipped")
        elif report.when == "call":
            # A test that the suite itself skipped counts as passed.
            self._passed_tests[class_id].add(test.partition("[")[0])
            self._passed_counts[class_id] += 1

    def _note_adapter(self, class_id: str, address: str) -> None:
        first_address = self._adapter_addresses.setdefault(class_id, address)
        if first_address != address:
            self._faults[class_id].append(f"it made stores of {first_address} and of {address}")

    def conclude(self, *, all_passed: bool) -> list[str]:
        """Write the records, and return a line on each class of tests."""
        if not self._suites:
            return ["no class in these files inherits from a suite of memlab.testing"]
        lines = []
        for class_id, suite in self._suites.items():
            faults = [*self._faults[class_id], *self._missing(class_id, suite)]
            address = self._adapter_addresses.get(class_id, "")
            if faults or not address:
                summary = "; ".join(faults[:3]) or "no test of it ran"
                lines.append(f"{suite.__name__}: no record, because {summary}")
                continue
            self.passed_adapters.append(address)
            lines.append(f"{suite.__name__}: {self._record(address, suite, class_id)}")
        if not all_passed:
            lines.append("some tests failed")
        return lines

    def _missing(self, class_id: str, suite: "type[ReadingSuite]") -> list[str]:
        """Describe the tests of the suite that did not run, or that the class replaced."""
        from memlab.testing import DeletingSuite, ReadingSuite

        base = DeletingSuite if issubclass(suite, DeletingSuite) else ReadingSuite
        missing = []
        for name in dir(base):
            if not name.startswith("test_"):
                continue
            if getattr(suite, name) is not getattr(base, name):
                missing.append(f"{name} is replaced")
            elif name not in self._passed_tests[class_id]:
                missing.append(f"{name} did not run")
        return missing

    def _record(self, address: str, suite: "type[ReadingSuite]", class_id: str) -> str:
        """Write the record of an adapter that deletes; return the line on it."""
        from memlab.testing import DeletingSuite

        count = self._passed_counts[class_id]
        if not issubclass(suite, DeletingSuite):
            return f"{address} passed {count} tests; it only reads, so it needs no record"
        module, _, name = address.partition(":")
        adapter: type[Source] = getattr(import_module(module), name)
        try:
            path = write_record(adapter, passed=count, version=memlab.__version__)
        except OSError as error:
            return f"{address} passed {count} tests; the record cannot be written ({error})"
        return f"{address} passed {count} tests; wrote {path}: ship it with the package"


def _class_id(node_id: str) -> str:
    """Return the part of a test's name that names its class."""
    return node_id.partition("[")[0].rpartition("::")[0]


def _is_skipped_by_suite(report: pytest.TestReport) -> bool:
    """Return whether the suite itself skipped a test that does not apply to the store."""
    if report.when != "call" or hasattr(report, "wasxfail"):
        return False
    return isinstance(report.longrepr, tuple) and Path(report.longrepr[0]).name == _SUITE_FILE
