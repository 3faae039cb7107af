"""Two packing tricks that may not appear in the code."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
FILES = sorted(
    path
    for folder in ("memlab", "tests", ".ci", "data")
    for path in (CHECKOUT / folder).rglob("*.py")
)


def starred_literals(tree: ast.AST) -> list[int]:
    """Return the lines on which a literal tuple, list or set is unpacked in place."""
    literals = (ast.Tuple, ast.List, ast.Set)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Starred) and isinstance(node.value, literals)
    ]


def names_in(node: ast.AST) -> set[str]:
    """Return the names and items that an expression reads, each whole."""
    return {
        ast.unparse(part)
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
    }


def parallel_assignments(tree: ast.AST) -> list[int]:
    """Return the lines that assign several values at once which do not depend on each other.

    A swap reads what it assigns, an unpacked result has one value, and both are left alone.
    """
    line_numbers = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)):
            continue
        if any(isinstance(part, ast.Starred) for part in [*target.elts, *node.value.elts]):
            continue
        assigned = {ast.unparse(part) for part in target.elts}
        if not assigned & names_in(node.value):
            line_numbers.append(node.lineno)
    return line_numbers


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("call(*(1, 2))", [1]),
        ("[*[1], 2]", [1]),
        ("call(*values)", []),
    ],
)
def test_starred_literals_are_found(source: str, lines: list[int]) -> None:
    assert starred_literals(ast.parse(source)) == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("first, second = 1, call()", [1]),
        ("left, right = right, left", []),
        ("low, high = limits()", []),
        ("low, high = high, low + high", []),
    ],
)
def test_parallel_assignments_are_found(source: str, lines: list[int]) -> None:
    assert parallel_assignments(ast.parse(source)) == lines


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    """Return the syntax tree of each file by path."""
    return {str(path): ast.parse(path.read_text()) for path in FILES}


def test_no_literal_is_starred(trees: dict[str, ast.AST]) -> None:
    lines_by_file = {path: starred_literals(tree) for path, tree in trees.items()}
    assert {path: lines for path, lines in lines_by_file.items() if lines} == {}


def test_no_parallel_assignment_of_unrelated_values(trees: dict[str, ast.AST]) -> None:
    lines_by_file = {path: parallel_assignments(tree) for path, tree in trees.items()}
    assert {path: lines for path, lines in lines_by_file.items() if lines} == {}
