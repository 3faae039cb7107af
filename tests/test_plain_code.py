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


def starred_literals(nodes: list[ast.AST]) -> list[int]:
    """Return the lines on which a literal tuple, list or set is unpacked in place."""
    literals = (ast.Tuple, ast.List, ast.Set)
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Starred) and isinstance(node.value, literals)
    ]


def names_in(node: ast.AST) -> set[str]:
    """Return the names and items that an expression reads, each whole."""
    return {
        ast.unparse(part)
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
    }


def parallel_assignments(nodes: list[ast.AST]) -> list[int]:
    """Return the lines that assign several values at once which do not depend on each other.

    A swap reads what it assigns, an unpacked result has one value, and both are left alone.
    """
    line_numbers = []
    for node in nodes:
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
    assert starred_literals(list(ast.walk(ast.parse(source)))) == lines


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
    assert parallel_assignments(list(ast.walk(ast.parse(source)))) == lines


Lines = dict[str, list[int]]


@pytest.fixture(scope="module")
def tricks() -> tuple[Lines, Lines]:
    """Return the lines with each trick by path.

    A file is read and its syntax tree is forgotten before the next one: thousands of nodes that
    live on make every later allocation slower.
    """
    starred: Lines = {}
    parallel: Lines = {}
    for path in FILES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        if lines := starred_literals(nodes):
            starred[str(path)] = lines
        if lines := parallel_assignments(nodes):
            parallel[str(path)] = lines
    return starred, parallel


def test_no_literal_is_starred(tricks: tuple[Lines, Lines]) -> None:
    starred, _ = tricks
    assert starred == {}


def test_no_parallel_assignment_of_unrelated_values(tricks: tuple[Lines, Lines]) -> None:
    _, parallel = tricks
    assert parallel == {}
