"""Policies by name: those of this package, several rules in a row, and classes of one's own."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from memlab.errors import PolicyError
from memlab.policies.base import Policy
from memlab.policies.duplicates import NearDuplicate
from memlab.policies.expiry import PurgeSuperseded, TimeToLive
from memlab.policies.learned import Learned
from memlab.policies.pipeline import Pipeline
from memlab.policies.recent import KeepAll, KeepRecent, TokenBudget
from memlab.policies.typed import Setting, settings_of
from memlab.policies.value import ImportanceBudget, ImportanceFloor, ValueCap

POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy
    for policy in (
        KeepRecent,
        TokenBudget,
        TimeToLive,
        ValueCap,
        ImportanceBudget,
        ImportanceFloor,
        NearDuplicate,
        Learned,
        PurgeSuperseded,
        KeepAll,
        Pipeline,
    )
}
"""Every policy of this package by its short name."""


@dataclass(frozen=True)
class Named:
    """What a name stands for.

    Attributes
    ----------
    name : str
        As on a command line.
    make : callable
        Takes the settings, returns the policy.
    settings : mapping of str to Setting
        What it takes.
    origin : str
        Whose rule it is.
    """

    name: str
    make: Callable[..., Policy]
    settings: Mapping[str, Setting]
    origin: str


def _of_class(name: str, kind: type[Policy]) -> Named:
    return Named(name, kind, settings_of(kind), kind.origin)


def _of_steps(name: str, make: Callable[..., Policy], origin: str, *steps: type[Policy]) -> Named:
    """Return a function that makes a pipeline; what its settings mean is said by the steps."""
    said = {one.name: one for step in reversed(steps) for one in settings_of(step).values()}
    settings = {
        own.name: replace(
            said.get(own.name, own), owner=own.owner, type=own.type, default=own.default
        )
        for own in settings_of(make).values()
    }
    return Named(name, make, settings, origin)


NAMED: Final = {
    one.name: one
    for one in (
        *(
            _of_class(name, kind)
            for name, kind in POLICIES.items()
            if kind not in {KeepAll, Pipeline}
        ),
        _of_steps(
            "odek",
            Pipeline.odek,
            "odek's order: near-duplicates, expiry, then the newest 500",
            NearDuplicate,
            TimeToLive,
            KeepRecent,
        ),
        _of_steps(
            "memforge",
            Pipeline.memforge,
            "MemForge's order: importance floor, then budget per agent",
            ImportanceFloor,
            ImportanceBudget,
        ),
        _of_steps(
            "betterdb",
            Pipeline.betterdb,
            "BetterDB's defaults: own expiry, then the cap of each scope",
            TimeToLive,
            ValueCap,
        ),
    )
}
"""What may be asked for by name."""


def policy_named(name: str) -> Named:
    """Return what a name stands for: one of `NAMED`, or a class as ``package.module:Class``.

    A module is looked for in the working folder first, then where Python looks.

    Raises
    ------
    PolicyError
        When there is no such policy, module or class, or the class is no frozen dataclass with
        :class:`Policy` as its base.
    """
    if name in NAMED:
        return NAMED[name]
    if ":" not in name:
        raise PolicyError(
            f"{name!r} is no policy: name one of {', '.join(NAMED)}, or a class of your own as "
            "package.module:Class"
        )
    return _of_class(name, _own_class(name))


def _own_class(name: str) -> type[Policy]:
    module_name, _, class_name = name.partition(":")
    module = _imported(module_name)
    try:
        found = attrgetter(class_name)(module)
    except AttributeError as error:
        there = [key for key, value in vars(module).items() if _is_policy(value, module_name)]
        raise PolicyError(
            f"{module_name} has no class {class_name!r}; its policies are: "
            f"{', '.join(there) or 'none'}"
        ) from error
    if not _is_policy(found):
        raise PolicyError(f"{name} is not a policy: make it a class whose base is memlab.Policy")
    if "__dataclass_params__" not in vars(found):
        raise PolicyError(f"{name} is not a dataclass: write @dataclass(frozen=True) above it")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise PolicyError(f"{name} decides nothing yet: give it {missing}")
    kind: type[Policy] = found
    return kind


def _is_policy(value: Any, module: str | None = None) -> bool:
    """Whether a value is a class of policies, defined in a module where one is named."""
    return (
        isinstance(value, type) and issubclass(value, Policy) and module in {None, value.__module__}
    )


def _imported(name: str) -> Any:
    """Return a module of the user's.

    Raises
    ------
    PolicyError
        When it is not there, or its own code fails.
    """
    try:
        with _working_folder_first():
            return import_module(name)
    except Exception as error:
        missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise PolicyError(
                f"there is no module {name!r} in {Path.cwd()} or where Python looks; set "
                "PYTHONPATH to the folder that it is in"
            ) from error
        raise PolicyError(
            f"the module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _working_folder_first() -> Iterator[None]:
    """Look in the working folder first, and last from then on: other processes look as this one."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
