"""The examples in docstrings print what they say."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import memlab

MODULES = sorted(each.name for each in pkgutil.walk_packages(memlab.__path__, "memlab."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
