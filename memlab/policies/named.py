"""Policies in a row, and all by name: as a command asks for them, in memlab.toml, in labels."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from operator import attrgetter
from os import environ
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import Age, age_text
from memlab.errors import PolicyError
from memlab.policies import rules
from memlab.policies.activation import Activation
from memlab.policies.base import GoesBy, Policy, Population, Runner, named_by, runner_for, steps_of
from memlab.policies.duplicates import NearDuplicate
from memlab.policies.typed import REQUIRED, Setting, settings_of
from memlab.settings import NUMBERS, REPLACED, SIZED, Settings
from memlab.text import in_shell, shortened


@dataclass(frozen=True, init=False)
class Pipeline(Policy):
    """Policies in order, each deciding on what the one before left.

    Reasons say which step let a row go, so that steps are counted apart.

    Examples
    --------
    >>> [step.name for step in Pipeline.odek().steps]
    ['dedup', 'ttl', 'recent']
    """

    policies: tuple[Policy, ...]

    asked_for: ClassVar[tuple[str, Mapping[str, Any]] | None] = None
    origin: ClassVar[str] = "odek, MemForge: several rules in order"
    population: ClassVar[Population] = "all"
    runner: ClassVar[Runner] = "steps"

    def __init__(self, *policies: Policy) -> None:
        for policy in policies:
            expect(policy, Policy, call="Pipeline", name="policies")
        vars(self).update(
            policies=policies,
            reads_bodies=any(step.reads_bodies for step in policies),
            learns=any(step.learns for step in policies),
            goes_by=policies[-1].goes_by if policies else "",
        )

    @classmethod
    def odek(
        cls,
        *,
        threshold: float = 0.92,
        ttl: Age | None = None,
        keep: int = 500,
        keep_untrusted: bool = False,
    ) -> "Pipeline":
        """Return odek's order with its defaults: duplicates, expiry (off), newest 500 by time.

        Parameters
        ----------
        threshold : float
            Cosine from which a newer row replaces an older; 0 is off.
        ttl : timedelta or str, optional
            Age at which a row expires; 0 is off.
        keep : int
            Prunable rows that stay, the newest by creation time; 0 is off.
        keep_untrusted : bool
            Whether an untrusted near-duplicate stays beside the trusted row that it repeats, as in
            odek 1.15 of July 2026 and before.
        """
        steps = [
            NearDuplicate(threshold, keep_untrusted=keep_untrusted),
            rules.TimeToLive(ttl, own_expiry=False),
        ]
        steps += [rules.KeepRecent(keep, by=col.CREATED_AT)] if keep else []
        return cls._called(
            "odek",
            steps,
            threshold=threshold,
            ttl=ttl,
            keep=keep,
            keep_untrusted=keep_untrusted,
        )

    @classmethod
    def memforge(cls, *, threshold: float = 0.1, max_items: int | None = None) -> "Pipeline":
        """Return MemForge's order with its defaults: importance floor, then budget (off).

        Rows below `threshold` go, graduated ones excepted; an agent may hold `max_items` (0: any).
        """
        steps = rules.ImportanceFloor(threshold), rules.ImportanceBudget(max_items)
        return cls._called("memforge", steps, threshold=threshold, max_items=max_items)

    @classmethod
    def betterdb(cls, *, max_items: int) -> "Pipeline":
        """Return BetterDB's defaults: rows past their own expiry, then the cap of each scope.

        At most `max_items` may match the agent, thread, namespace and tags of one.
        """
        return cls._called(
            "betterdb", (rules.TimeToLive(), rules.ValueCap(max_items)), max_items=max_items
        )

    @classmethod
    def _called(cls, order: str, steps: Iterable[Policy], **given: Any) -> "Pipeline":
        """Return steps that know by which name and settings they were asked for."""
        pipeline = cls(*steps)
        vars(pipeline).update(asked_for=(order, given))
        return pipeline

    @property
    def steps(self) -> tuple[Policy, ...]:
        """The policies that run, those of an inner pipeline among them."""
        return tuple(step for policy in self.policies for step in steps_of(policy))

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the pipeline with a past to learn from for each of its policies."""
        pipeline = copy(self)
        vars(pipeline).update(policies=tuple(one.after(past, references) for one in self.policies))
        return pipeline

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows that go at each step, among those that the steps before left."""
        left = rows
        gone = [pd.Series(dtype="str")]
        for number, step in enumerate(self.steps, start=1):
            places, why = named_by(step, left.reset_index(drop=True), now=now)
            named = pd.Series(why, index=left.index[places], dtype="str")
            left = left.drop(index=named.index)
            gone.append(f"step {number}: " + named if len(self.steps) > 1 else named)
        every: pd.Series[str] = pd.concat(gone).astype("str")
        return every


POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy
    for policy in (
        rules.KeepRecent,
        rules.TokenBudget,
        rules.TimeToLive,
        rules.ValueCap,
        rules.ImportanceBudget,
        rules.ImportanceFloor,
        NearDuplicate,
        Activation,
        rules.PurgeSuperseded,
        rules.KeepAll,
        Pipeline,
    )
}
"""Every policy of this package by its short name."""


@dataclass(frozen=True)
class Named:
    """What a name stands for."""

    name: str
    make: Callable[..., Policy]
    settings: Mapping[str, Setting]
    origin: str
    goes_by: GoesBy


def _of_class(name: str, kind: type[Policy]) -> Named:
    return Named(name, kind, settings_of(kind), kind.origin, kind.goes_by)


def _of_steps(name: str, make: Callable[..., Policy], origin: str) -> Named:
    """Return a function that makes a pipeline; what its settings mean is said by the steps."""
    own = settings_of(make)
    steps = make(**{each.name: 1 for each in own.values() if each.default is REQUIRED}).steps
    said = {one.name: one for step in steps[::-1] for one in settings_of(type(step)).values()}
    settings = {
        each.name: replace(
            said.get(each.name, each), owner=each.owner, type=each.type, default=each.default
        )
        for each in own.values()
    }
    return Named(name, make, settings, origin, steps[-1].goes_by)


ORDERS: Final = (
    ("odek", "odek's order: near-duplicates, expiry, then the newest 500"),
    ("memforge", "MemForge's order: importance floor, then budget per agent"),
    ("betterdb", "BetterDB's defaults: own expiry, then the cap of each scope"),
)
"""Several policies in a row that have a name."""

NAMED: Final = {
    one.name: one
    for one in (
        *(
            _of_class(name, kind)
            for name, kind in POLICIES.items()
            if kind not in {rules.KeepAll, Pipeline}
        ),
        *(_of_steps(name, getattr(Pipeline, name), origin) for name, origin in ORDERS),
    )
}
"""What may be asked for by name."""


def replaced_in(settings: Settings) -> str:
    """Return the name in the settings of a policy that another has replaced; empty without one."""
    name = (settings.policy or {}).get("name", "")
    return name if name in REPLACED else ""


def policy_named(name: str) -> Named:
    """Return what a name stands for: one of `NAMED`, or a class as ``package.module:Class``.

    A module is looked for in the working folder first, then where Python looks.
    """
    if name in NAMED:
        return NAMED[name]
    if name in REPLACED:
        raise PolicyError(
            f"the policy {name!r} was replaced by {REPLACED[name]!r}, which takes the same "
            f"settings: name that one"
        )
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
    except AttributeError:
        found = None
    if not _is_policy(found):
        there = [key for key, value in vars(module).items() if _is_policy(value, module_name)]
        raise PolicyError(
            f"{module_name} has no policy {class_name!r}, only: {', '.join(there) or 'none'}; a "
            "policy is a class with memlab.Policy as its base, @dataclass(frozen=True) above it "
            "and an evict"
        )
    kind: type[Policy] = found
    return kind


def _is_policy(value: Any, module: str | None = None) -> bool:
    """Whether a value is a class that decides, defined in a module where one is named."""
    known = isinstance(value, type) and issubclass(value, Policy)
    decides = known and "__dataclass_params__" in vars(value) and not inspect.isabstract(value)
    return decides and module in {None, value.__module__}


def _imported(name: str) -> Any:
    """Return a module of the user's: the working folder first, and last for other processes."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        return import_module(name)
    except Exception as error:
        raise PolicyError(
            f"the module {name!r} cannot be imported: {type(error).__name__}: {error}; it is "
            f"looked for in {folder}, then where Python looks (PYTHONPATH)"
        ) from error
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


TRUSTED: Final = "MEMLAB_POLICY_MODULES"
"""The environment variable that lists modules whose policies ``memlab.toml`` may name."""


def policy_in(settings: Settings, number: int | None = None) -> Policy | None:
    """Return the policy that is remembered of a store; `number` where that is to be found anew."""
    if settings.policy is None:
        return None
    given = {key: value for key, value in settings.policy.items() if key != SIZED}
    if settings.is_auto and number is not None:
        given[NUMBERS[given["name"]]] = number
    try:
        name = given.pop("name")
        name = REPLACED.get(name, name)
        _check_trusted(name)
        return policy_of(policy_named(name), given)
    except (PolicyError, ValueError, TypeError) as error:
        raise settings.error("policy", f"policy: {error}") from error


def as_setting(policy: Policy) -> dict[str, Any]:
    """Return a policy that has a name as a file of settings holds it, its size always in it.

    >>> from memlab.policies import TimeToLive
    >>> as_setting(TimeToLive(timedelta(days=30)))
    {'name': 'ttl', 'ttl': '30d'}
    """
    name, _, values = _known_as(policy, sized=True) or (policy.address, {}, {})
    name = name if name in NAMED else policy.address
    return {"name": name, **{key: _written(value) for key, value in values.items()}}


def _check_trusted(name: str) -> None:
    """Refuse to import what a file beside a store asks for, unless a person said so elsewhere."""
    module, colon, _ = name.partition(":")
    if colon and module not in environ.get(TRUSTED, "").replace(",", " ").split():
        raise PolicyError(
            f"{shortened(name)} is a class of one's own, and a file beside a store may not have "
            f"code run: put {shortened(module)} into the environment variable {TRUSTED} where you "
            "trust it, or name the policy on the command line with --policy"
        )


def _written(value: Any) -> Any:
    """Return a value as TOML has it, which knows no length of time and no nothing."""
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return age_text(value)
    return list(value) if isinstance(value, tuple) else value


def check_known(names: Iterable[str], policies: Sequence[Named]) -> None:
    """Refuse settings that none of some policies has."""
    if foreign := [name for name in names if not any(name in one.settings for one in policies)]:
        known = (f"{one.name!r}, which takes {_in_words(one, one.settings)}" for one in policies)
        takers = [name for name, one in NAMED.items() if {*foreign} <= one.settings.keys()]
        other = f"; --policy {' or '.join(takers)} takes it" if takers else ""
        words = f"{', '.join(foreign)} is no setting of the policy {'; '.join(known)}"
        raise PolicyError(words + other)


def _in_words(named: Named, names: Iterable[str]) -> str:
    """Name settings as Python and ``memlab.toml`` do, and as the command line does."""
    typed = [named.settings[name] for name in names if named.settings[name].metavar]
    how = "{0.option}" if named.name in NAMED else "--set {0.name}=VALUE"
    return ", ".join(f"{one.name} ({how.format(one)})" for one in typed) or "no settings"


def policy_of(named: Named, given: Mapping[str, Any]) -> Policy:
    """Return a policy with settings, each of which may be a text."""
    check_known(given, [named])
    own = named.settings
    if missing := [name for name in own if own[name].default is REQUIRED and name not in given]:
        raise PolicyError(f"the policy {named.name!r} needs {_in_words(named, missing)}")
    return named.make(
        **{
            name: own[name].parsed(value) if isinstance(value, str) else own[name].checked(value)
            for name, value in given.items()
        }
    )


def family_of(policy: Policy) -> str:
    """Name a policy with those of its settings, its size aside, that are not the defaults.

    >>> from memlab.policies import KeepRecent, ValueCap
    >>> family_of(KeepRecent(50)), family_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent', 'value, half_life')
    """
    if (known := _known_as(policy)) is None:
        return " > ".join(family_of(step) for step in policy.steps)
    name, settings, values = known
    return ", ".join([name, *(key for key in values if key != _first_size(settings))])


def label_of(policy: Policy) -> str:
    """Name a policy with the settings that are not its defaults.

    >>> from memlab.policies import KeepRecent, Pipeline, ValueCap
    >>> label_of(KeepRecent(50)), label_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent 50', 'value 200, half_life=1 d')
    >>> label_of(Pipeline.odek(keep=200))
    'odek 200'
    """
    if (known := _known_as(policy)) is None:
        return " > ".join(label_of(step) for step in policy.steps)
    name, settings, values = known
    alone = {key for key in values if settings[key].default is REQUIRED} | {_first_size(settings)}
    said = [_short(one) if key in alone else f"{key}={_short(one)}" for key, one in values.items()]
    return f"{name} {', '.join(said)}".strip()


def options_of(policy: Policy) -> str:
    """Return what the command line takes for a policy; nothing of some in a row without a name.

    >>> from memlab.policies import Activation
    >>> options_of(Activation(max_tokens=8000))
    '--policy activation --max-tokens 8000'
    """
    if (known := _known_as(policy)) is None:
        return ""
    name, settings, values = known
    words = ["--policy", name if name in NAMED else policy.address]
    for key, value in ((key, _written(value)) for key, value in values.items()):
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words += [settings[key].option, text] if name in NAMED else ["--set", f"{key}={text}"]
    return in_shell(*words)


_Known = tuple[str, Mapping[str, Setting], dict[str, Any]]


def _known_as(policy: Policy, *, sized: bool = False) -> _Known | None:
    """Return the name a policy is asked for by, its settings, and those changed; or its size."""
    if runner_for(policy) != "steps":
        name = policy.name
        settings = settings_of(type(policy))
        values: Mapping[str, Any] = vars(policy)
    elif isinstance(policy, Pipeline) and policy.asked_for is not None:
        name, values = policy.asked_for
        settings = NAMED[name].settings
    else:
        return None
    size = _first_size(settings) if sized else None
    apart = {
        each: values[each]
        for each, setting in settings.items()
        if values[each] != setting.default or (each == size and values[each] is not None)
    }
    return name, settings, apart


def _first_size(settings: Mapping[str, Setting]) -> str | None:
    """Return the setting that needs no name beside the policy's: its first size, an age last."""
    sizes = [one for one in settings.values() if one.size]
    return min(sizes, key=lambda one: one.size == "age").name if sizes else None


def _short(value: Any) -> str:
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return f"{days:.3g} d" if days >= 1 else f"{24 * days:.3g} h"
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return getattr(value, "__name__", str(value))
