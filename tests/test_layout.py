"""Import order, light imports, and responsibilities of single packages."""

import ast
import doctest
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import memlab
from tests.support.properties import all_but
from tests.support.stores import episodes, row, write_rows

PACKAGE = Path(__file__).resolve().parent.parent / "memlab"

ORDER = [
    "errors",
    "versions",
    "lazy",
    "text",
    "plugins",
    "arguments",
    "clock",
    "items",
    "columns",
    "files",
    "base_activation",
    "settings",
    "store",
    "settings_file",
    "sources",
    "systems",
    "frame",
    "evidence",
    ("growth", "policies"),
    "sizing",
    ("replay", "compaction", "lifecycle"),
    "charts",
    "views",
    "upkeep",
    "fleet",
    "cli",
    "testing",
    "__main__",
]
"""Layers from the lowest up; packages of one layer do not import each other."""

LAYERS = [(parts,) if isinstance(parts, str) else parts for parts in ORDER]
LAYER_OF = {part: number for number, parts in enumerate(LAYERS) for part in parts}
STANDARD_LIBRARY_ONLY = {part for part, number in LAYER_OF.items() if number <= LAYER_OF["store"]}
NOTHING_OF_SQL = {"growth", "sizing", "policies", "replay", "charts"}
LAZY = sorted(
    ".".join(stub.relative_to(PACKAGE.parent).parts[:-1]) for stub in PACKAGE.rglob("*.pyi")
)
"""Packages whose public names are listed in their stub."""
LIGHT = (*LAZY, "memlab.cli")
"""Packages whose ``__init__`` must import nothing heavy."""

HEAVY = {"pandas", "numpy", "matplotlib", "IPython", "nbformat", "pyarrow", "numba", "scipy"}
CLOCKS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    """Return the module or package directly below memlab that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported_names(path: Path) -> set[str]:
    """Return every module that a file imports anywhere."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def called_names(path: Path) -> set[str]:
    """Return every dotted name that a file calls or passes on."""
    return {
        ast.unparse(node)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name | ast.Attribute)
    }


def test_every_package_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} == set(LAYER_OF)


def test_layer_picture_of_the_docs_is_current() -> None:
    page = (PACKAGE.parent / "docs" / "how" / "operations.md").read_text()
    (picture,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    highest_first = [" | ".join(parts) for parts in reversed(LAYERS)]
    lines = [re.split(" {2,}", line)[0] for line in picture.splitlines()]
    assert lines == highest_first


def test_modules_import_only_lower_layers() -> None:
    wrong = []
    for path in MODULES:
        own_part = part_of(path)
        for name in imported_names(path):
            package, _, rest = name.partition(".")
            part = rest.partition(".")[0]
            if package != "memlab" or part not in LAYER_OF or part == own_part:
                continue
            if LAYER_OF[part] >= LAYER_OF[own_part]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_no_system_imports_another_system() -> None:
    systems = {path.stem for path in (PACKAGE / "systems").iterdir()} - {"__init__", "__pycache__"}
    wrong = []
    for path in MODULES:
        part, *below = path.relative_to(PACKAGE).with_suffix("").parts
        if part not in ("systems", "sources"):
            continue
        imported = {name.split(".")[2] for name in imported_names(path) if name.count(".") > 1}
        other_systems = systems - set(below) if part == "systems" else systems
        if imported & other_systems:
            wrong.append(f"{path.relative_to(PACKAGE)} names {sorted(imported & other_systems)}")
    assert wrong == []


def test_sources_do_not_name_the_package_of_systems() -> None:
    allowed = PACKAGE / "sources" / "system.py"
    wrong = [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if part_of(path) == "sources" and path != allowed and "memlab.systems" in path.read_text()
    ]
    assert wrong == []


def test_imports_have_no_cycle() -> None:
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in MODULES
        if path.name != "__init__.py"
    }
    needs = {name: imported_names(path) & modules.keys() for name, path in modules.items()}
    assert len(list(TopologicalSorter(needs).static_order())) == len(modules)


def parts_importing(*prefixes: str) -> set[str]:
    """Return the packages of which a module imports a name with one of these beginnings."""
    return {
        part_of(path)
        for path in MODULES
        if any(name.startswith(prefixes) for name in imported_names(path))
    }


def parts_calling(*names: str) -> set[str]:
    """Return the packages of which a module calls or passes on one of these names."""
    return {part_of(path) for path in MODULES if called_names(path) & set(names)}


def test_runtime_half_imports_only_the_standard_library() -> None:
    """A runtime uses the store and the access log without any dependency."""
    log = {PACKAGE / "evidence" / name for name in ("__init__.py", "access_log.py")}
    light = [path for path in MODULES if path in log or part_of(path) in STANDARD_LIBRARY_ONLY]
    tops = {name.partition(".")[0] for path in light for name in imported_names(path)}
    assert tops - sys.stdlib_module_names == {"memlab"}


def test_restricted_calls_stay_in_their_packages() -> None:
    assert parts_importing("sqlite3", "memlab.store") & NOTHING_OF_SQL == set()
    assert parts_importing("matplotlib") <= {"charts", "views"}
    assert parts_calling("print") <= {"cli"}
    assert parts_calling(*CLOCKS) == {"clock"}


def test_no_module_has_the_name_of_a_public_function() -> None:
    """Importing a module ``memlab.report`` would replace the function."""
    module_names = {path.parent.name if path.stem == "__init__" else path.stem for path in MODULES}
    assert module_names.isdisjoint(memlab.__all__)
    for path in MODULES:
        if part_of(path) == "cli":
            continue
        functions = [node for node in tree_of(path).body if isinstance(node, ast.FunctionDef)]
        assert path.stem not in {function.name for function in functions}, path


OPENED = "open_source('redis://localhost/0'), open_source('postgresql://localhost/db')"
TYPED = "from memlab.cli import main\ntry: main({})\nexcept SystemExit: pass"
OF_OTHER_COMMANDS = {f"memlab.cli.{name}" for name in ("compact", "fleet", "pages", "questions")}
LOADS = {
    f"import {', '.join(LIGHT)}\ndir(memlab)": HEAVY | {"sqlite3"},
    f"from memlab.sources.opening import open_source\n{OPENED}": {
        "valkey",
        "psycopg",
        "pyarrow",
        "pandas",
    },
    "import memlab.charts": {"matplotlib.pyplot"},
    TYPED.format(["show", "memory.db"]): {"pandas", "matplotlib", "numba", "yaml", "nbformat"},
    TYPED.format(["--help"]): HEAVY,
    TYPED.format(["archive", "--help"]): HEAVY | OF_OTHER_COMMANDS,
}
"""Programs, each with modules that it must not import."""


@pytest.mark.parametrize("program", LOADS)
def test_heavy_modules_are_not_imported_without_need(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "memory.db", [*episodes(60), row("s", "semantic")])
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert LOADS[program].isdisjoint(loaded.split())


SLOW_EXAMPLES = {
    PACKAGE / "charts" / "caps.py",
    PACKAGE / "fleet" / "page.py",
    PACKAGE / "fleet" / "workers.py",
    PACKAGE / "views" / "browser.py",
    PACKAGE / "views" / "page.py",
    PACKAGE / "views" / "panel.py",
}
"""Modules whose examples take more than a second."""


@pytest.mark.parametrize("path", all_but(MODULES, SLOW_EXAMPLES), ids=lambda path: path.stem)
def test_docstring_examples_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each docstring's examples run in an empty folder of their own."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = import_module(name.removesuffix(".__init__"))
    runner = doctest.DocTestRunner()
    for number, examples in enumerate(doctest.DocTestFinder(exclude_empty=True).find(module)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert runner.run(examples).failed == 0, examples.name


@pytest.mark.parametrize("name", LAZY)
def test_lazy_package_resolves_its_public_names(name: str) -> None:
    package = import_module(name)
    assert package.__all__ == sorted(package.__all__)
    assert dir(package) == package.__all__
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - the look-up is tested


@pytest.mark.parametrize("name", LAZY)
def test_lazy_package_agrees_with_its_stub(name: str) -> None:
    """A name is public in a stub if it is imported as itself."""
    stub = tree_of(PACKAGE.joinpath(*name.split(".")[1:], "__init__.pyi"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    public = [alias.asname or "" for line in lines for alias in line.names]
    assert sorted(public) == import_module(name).__all__


def test_contributor_page_names_existing_places() -> None:
    page = (PACKAGE.parent / "docs" / "how" / "extending.md").read_text()
    places = re.findall(r"`([\w_]+)` in `([\w/.]+)`", page)
    assert len(places) > 10
    for name, path in places:
        assert re.search(rf"\b{name}\b", (PACKAGE.parent / path).read_text()), (name, path)
    for path in re.findall(r"`((?:memlab|tests|docs)/[\w/.]+)`", page):
        assert (PACKAGE.parent / path).exists(), path


def test_reference_page_covers_every_public_name() -> None:
    page = (PACKAGE.parent / "docs" / "reference" / "names.md").read_text()
    described: set[str] = set()
    for name in re.findall(r"^::: (memlab[\w.]+)$", page, re.MULTILINE):
        described.add(name.rpartition(".")[2])
        if name in sys.modules:
            described.update(vars(sys.modules[name]))
    assert set(memlab.__all__) <= described


def test_every_documented_name_exists() -> None:
    """Names are taken from docstrings, the README and the notebooks."""
    checkout = PACKAGE.parent
    pages = [*MODULES, checkout / "README.md", *(checkout / "notebooks").glob("*.ipynb")]
    file_endings = {"db", "toml", "service", "timer"}
    wrong = set()
    for path in pages:
        for name in re.findall(r"(?<![\w./-])memlab\.(\w+)\b(?=[.(`])", path.read_text()):
            if name not in file_endings and not hasattr(memlab, name):
                wrong.add(f"{path.name}: memlab.{name}")
    assert wrong == set()
