"""Imports run one way, and importing the package is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "memlab"

ORDER = [
    {"errors"},
    {"arguments"},
    {"items"},
    {"columns"},
    {"extras"},
    {"files"},
    {"text"},
    {"scoring"},
    {"store"},
    {"sources"},
    {"frame"},
    {"evidence"},
    {"growth", "sizing", "policies"},
    {"replay", "compaction", "lifecycle"},
    {"charts"},
    {"report"},
    {"doctor"},
    {"cli"},
    {"__main__"},
]
"""From the ground up; on one floor nobody imports another."""

FLOOR = {part: floor for floor, parts in enumerate(ORDER) for part in parts}

NOTHING_OF_SQL = {"growth", "sizing", "policies", "replay", "charts"}
STANDARD_LIBRARY_ONLY = {
    "errors",
    "arguments",
    "items",
    "columns",
    "extras",
    "files",
    "text",
    "scoring",
    "store",
}


def part_of(path: Path) -> str:
    """The module or package directly below memlab that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> set[str]:
    """Every module a file imports, wherever in it, type checking aside."""
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if part_of(path) != "__init__")


def test_every_module_has_its_place_in_the_order() -> None:
    assert {part_of(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_stands_on_a_lower_floor(path: Path) -> None:
    own = part_of(path)
    for name in imported_names(path):
        package, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if own == "store" and name.startswith("memlab.compaction.plans"):
            continue  # the archive still knows what a plan is
        if package == "memlab" and part in FLOOR and part != own:
            assert FLOOR[part] < FLOOR[own], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_analysis_knows_nothing_of_sqlite(path: Path) -> None:
    if part_of(path) in NOTHING_OF_SQL:
        assert not {n for n in imported_names(path) if n.startswith(("sqlite3", "memlab.store"))}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_a_runtime_imports_is_the_standard_library_alone(path: Path) -> None:
    if part_of(path) in STANDARD_LIBRARY_ONLY:
        tops = {name.partition(".")[0] for name in imported_names(path)}
        assert tops <= sys.stdlib_module_names | {"memlab"}


def test_only_charts_and_what_shows_them_know_matplotlib() -> None:
    users = {part_of(p) for p in MODULES if any("matplotlib" in n for n in imported_names(p))}
    assert users <= {"charts", "report"}


def test_only_the_command_line_prints() -> None:
    for path in MODULES:
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        prints = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
        assert part_of(path) == "cli" or not prints, path


def test_importing_memlab_loads_neither_pandas_nor_anything_heavy() -> None:
    program = "import sys, memlab; dir(memlab); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    heavy = {"pandas", "numpy", "matplotlib", "IPython", "pyarrow", "numba", "sklearn", "sqlite3"}
    assert not heavy & set(run.stdout.split())


def test_every_public_name_resolves() -> None:
    import memlab

    assert memlab.__all__ == sorted(memlab.__all__)
    assert set(memlab.__all__) == set(memlab._HOME)
    for name in memlab.__all__:
        assert getattr(memlab, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        memlab.nothing_of_the_kind  # noqa: B018 - the look-up is the point
