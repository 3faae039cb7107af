"""Systems of installed packages; one package is built, tested and shipped with its record."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

import memlab
from memlab.errors import MemlabError, PluginWarning, UnsafeDeletionError
from memlab.sources.conformance_record import SUFFIX
from memlab.sources.opening import open_source, recognise
from tests.sources.json_lines_lab import JsonLinesLab
from tests.support.packages import LINES_MODULE, package_of_lines
from tests.support.shell import output_of


def pip(*arguments: object) -> None:
    texts = [str(argument) for argument in arguments]
    command = [sys.executable, "-m", "pip", "--quiet", *texts]
    subprocess.run(command, check=True, capture_output=True)


def built(folder: Path) -> Path:
    """Build the wheel of a package as its author does, and return its path."""
    wheels = folder.parent / "wheels"
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, folder)
    (wheel,) = wheels.iterdir()
    return wheel


def install(site: Path, wheel: Path) -> None:
    pip("install", "--no-index", "--no-deps", "--upgrade", "--target", site, wheel)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put an empty folder for packages on Python's path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("memlab_lines", "other_lines"):
        sys.modules.pop(name, None)


def offer(site: Path, package: str, code: str, **points: str) -> None:
    """Install a package of one module by hand."""
    module = package.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[memlab.systems]\n{lines}")


def offer_lines(site: Path) -> None:
    offer(site, "memlab-lines", LINES_MODULE.read_text(), lines="memlab_lines:LINES")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    lab = JsonLinesLab(folder)
    lab.fill(12)
    return lab.path


def test_path_of_an_installed_system_is_recognised(site: Path, store: Path) -> None:
    offer_lines(site)
    assert open_source(store).name == f"lines:{store}"
    assert "12 memories" in output_of("show", store)
    stores = json.loads(output_of("find", "--json", store.parent))["stores"]
    assert [(row["system"], row["memories"]) for row in stores] == [("JSON lines", 12)]


def test_adapter_without_conformance_record_only_reads(site: Path, store: Path) -> None:
    offer_lines(site)
    before = store.read_bytes()
    plan = memlab.plan(store, memlab.KeepRecent(3))
    message = r"memlab-lines has not shown .* no memlab_lines\.conformance\.json .* memlab\.testing"
    with pytest.raises(UnsafeDeletionError, match=message):
        memlab.apply(plan)
    refusal = output_of("compact", store, "--keep-recent", "3", "--apply", code=2)
    assert "memlab only reads" in refusal
    assert store.read_bytes() == before
    assert [path.name for path in store.parent.iterdir()] == [store.name]


RECORDS = {
    "other code": ({"code": "0" * 64}, "was made for another version of the code"),
    "another suite": ({"suite": 0}, "is of suite 0, and this memlab has suite 1"),
    "another class": ({"adapter": "x:Y"}, "was made for another class"),
}


@pytest.mark.parametrize(("changed", "message"), RECORDS.values(), ids=RECORDS.keys())
def test_invalid_conformance_record_is_named(
    site: Path, store: Path, changed: dict[str, object], message: str
) -> None:
    from memlab.sources.conformance_record import write_record

    offer_lines(site)
    path = write_record(type(open_source(store)), passed=1, version="0")
    assert open_source(store).read_only_reason == ""
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | changed))
    assert message in open_source(store).read_only_reason


CLAIMS = """
    @classmethod
    def recognise(cls, path, tables):
        return path
"""
"""A source that claims every file."""


def test_built_in_system_takes_precedence(site: Path, tmp_path: Path) -> None:
    code = LINES_MODULE.read_text() + CLAIMS
    offer(site, "memlab-lines", code, file="memlab_lines:LINES", lines="memlab_lines:LINES")
    memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    assert open_source(tmp_path / "memory.db").scheme == "file"
    assert open_source(f"file:{tmp_path / 'memory.db'}").scheme == "file"


BROKEN = {
    "a missing module": (
        "nowhere:LINES",
        "package memlab-lines cannot be imported: ModuleNotFound",
    ),
    "no system": ("memlab_lines:MEMORY", r"memlab-lines offers as 'lines', is not a system"),
}


@pytest.mark.parametrize(("value", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_package_is_named_and_other_stores_work(
    site: Path, store: Path, tmp_path: Path, value: str, message: str
) -> None:
    offer(site, "memlab-lines", LINES_MODULE.read_text(), lines=value)
    with pytest.raises(MemlabError, match=message):
        open_source(f"lines:{store}")
    with pytest.warns(PluginWarning, match=message):
        assert recognise(store) is None
    memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    with warnings.catch_warnings(action="error"):
        assert len(memlab.load(tmp_path / "memory.db")) > 0
    output = output_of("find", tmp_path)
    assert "memory.db" in output


def test_package_that_fails_on_a_path_is_named(site: Path, store: Path) -> None:
    code = LINES_MODULE.read_text() + CLAIMS.replace("return path", "1 / 0")
    offer(site, "memlab-lines", code, lines="memlab_lines:LINES")
    message = "'lines' of the package memlab-lines fails at .* with ZeroDivisionError"
    with pytest.warns(PluginWarning, match=message):
        assert recognise(store) is None


def test_scheme_offered_twice_is_rejected(site: Path, store: Path) -> None:
    offer_lines(site)
    code = LINES_MODULE.read_text()
    offer(site, "other-lines", code, lines="other_lines:LINES")
    message = "the packages memlab-lines and other-lines both offer a system 'lines'"
    with pytest.raises(MemlabError, match=message):
        open_source(f"lines:{store}")
    with pytest.warns(PluginWarning, match=message):
        assert recognise(store) is None


@pytest.mark.long
def test_package_is_built_tested_and_shipped(site: Path, store: Path, tmp_path: Path) -> None:
    package = package_of_lines(tmp_path / "package")
    install(site, built(package))
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*arguments: object, cwd: Path = package) -> str:
        texts = [str(argument) for argument in arguments]
        command = [sys.executable, "-m", *texts]
        result = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        return result.stdout + result.stderr

    assert "JSON lines" in run("memlab", "find", store.parent)
    assert "12 memories" in run("memlab", "show", store)
    compact = ("memlab", "compact", store, "--keep-recent", 3, "--apply")
    assert "memlab-lines has not shown that its code deletes safely" in run(*compact)

    output_of_some_tests = run("memlab.testing", "test_lines.py", "-k", "order", "-q")
    assert "TestJsonLines: no record, because" in output_of_some_tests
    output_of_all_tests = run("memlab.testing", "test_lines.py", "-q")
    record = f"memlab_lines{SUFFIX}"
    assert f"wrote {package / record}: ship it with the package" in output_of_all_tests

    before = store.read_bytes()
    wheel = built(package)
    with ZipFile(wheel) as content:
        assert record in content.namelist()
    install(site, wheel)
    assert "deleted" in run(*compact, cwd=tmp_path)
    assert len(store.read_bytes()) < len(before)
    digest = json.loads(run("memlab", "archive", store, "--json", cwd=tmp_path))[0]["digest"]
    run("memlab", "restore", store, digest, cwd=tmp_path)
    assert store.read_bytes() == before
    with (site / "memlab_lines.py").open("a") as file:
        file.write("# a later version\n")
    assert f"{record} was made for another version of the code" in run(*compact, cwd=tmp_path)
