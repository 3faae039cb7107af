"""Pipelines of policies, and the registry from which policies are made by name."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from operator import attrgetter
from os import environ
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import Age, age_text
from memlab.errors import PolicyError
from memlab.policies import rules
from memlab.policies.activation import Activation
from memlab.policies.base import (
    Policy,
    Population,
    RanksBy,
    RunnerName,
    evicted_by,
    runner_name_of,
    steps_of,
)
from memlab.policies.duplicates import DEFAULT_THRESHOLD, NearDuplicate
from memlab.policies.plugins import (
    is_policy_class,
    plugin_name_of,
    plugin_names,
    plugin_policy,
)
from memlab.policies.typed import REQUIRED, Setting, settings_of
from memlab.settings import NUMBERS, REPLACED, SIZED, Settings
from memlab.text import in_shell, shortened


class NamedCall(NamedTuple):
    """The name and the settings that a named pipeline was made from."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, init=False)
class Pipeline(Policy):
    """Policies in order; each decides about the rows that the previous one left.

    A reason names the step that evicted a row, so that evictions can be counted by step.

    Examples
    --------
    >>> [step.name for step in Pipeline.odek().steps]
    ['dedup', 'ttl', 'recent']
    """

    policies: tuple[Policy, ...]

    named_call: ClassVar[NamedCall | None] = None
    origin: ClassVar[str] = "odek, MemForge: several rules in order"
    population: ClassVar[Population] = "all"
    runner: ClassVar[RunnerName] = "steps"

    def __init__(self, *policies: Policy) -> None:
        for policy in policies:
            expect(policy, Policy, call="Pipeline", name="policies")
        self._set("policies", policies)
        self._set("reads_bodies", any(policy.reads_bodies for policy in policies))
        self._set("learns", any(policy.learns for policy in policies))
        self._set("ranks_by", policies[-1].ranks_by if policies else "")

    def _set(self, name: str, value: Any) -> None:
        """Set a field or a class attribute of this frozen instance."""
        object.__setattr__(self, name, value)

    @classmethod
    def odek(
        cls,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        ttl: Age | None = None,
        keep: int = 500,
        keep_untrusted: bool = False,
    ) -> "Pipeline":
        """Return odek's pipeline: near-duplicates, expiry (off by default), newest 500 by time.

        Parameters
        ----------
        threshold : float
            Cosine from which a newer row replaces an older one; 0 is off.
        ttl : timedelta or str, optional
            Age at which a row expires; 0 is off.
        keep : int
            Prunable rows that stay, the newest by creation time; 0 is off.
        keep_untrusted : bool
            Whether an untrusted near-duplicate stays beside the trusted row that it repeats, as in
            odek 1.15 of July 2026 and before.
        """
        steps: list[Policy] = [
            NearDuplicate(threshold, keep_untrusted=keep_untrusted),
            rules.TimeToLive(ttl, own_expiry=False),
        ]
        if keep:
            steps.append(rules.KeepRecent(keep, by=col.CREATED_AT))
        return cls._with_name(
            "odek",
            steps,
            threshold=threshold,
            ttl=ttl,
            keep=keep,
            keep_untrusted=keep_untrusted,
        )

    @classmethod
    def memforge(cls, *, threshold: float = 0.1, max_items: int | None = None) -> "Pipeline":
        """Return MemForge's pipeline: importance floor, then budget (off by default).

        Rows below `threshold` are evicted unless they are graduated. An agent may hold `max_items`
        rows; 0 is off.
        """
        steps = [rules.ImportanceFloor(threshold), rules.ImportanceBudget(max_items)]
        return cls._with_name("memforge", steps, threshold=threshold, max_items=max_items)

    @classmethod
    def betterdb(cls, *, max_items: int) -> "Pipeline":
        """Return BetterDB's pipeline: the expiry of each row, then the cap of each scope.

        At most `max_items` rows may match the agent, thread, namespace and tags of a row.
        """
        steps = [rules.TimeToLive(), rules.ValueCap(max_items)]
        return cls._with_name("betterdb", steps, max_items=max_items)

    @classmethod
    def _with_name(cls, name: str, steps: Iterable[Policy], **settings: Any) -> "Pipeline":
        """Return a pipeline that remembers the name and the settings it was made from."""
        pipeline = cls(*steps)
        pipeline._set("named_call", NamedCall(name, settings))
        return pipeline

    @property
    def steps(self) -> tuple[Policy, ...]:
        """The policies that run, with those of inner pipelines."""
        return tuple(step for policy in self.policies for step in steps_of(policy))

    def with_past(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the pipeline with a past for each of its policies."""
        pipeline = copy(self)
        pipeline._set(
            "policies", tuple(policy.with_past(past, references) for policy in self.policies)
        )
        return pipeline

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Return the rows that each step evicts, among those that earlier steps left."""
        remaining = rows
        reasons_by_step = [pd.Series(dtype="str")]
        for number, step in enumerate(self.steps, start=1):
            places, reasons = evicted_by(step, remaining.reset_index(drop=True), now=now)
            evicted = pd.Series(reasons, index=remaining.index[places], dtype="str")
            remaining = remaining.drop(index=evicted.index)
            if len(self.steps) > 1:
                evicted = f"step {number}: " + evicted
            reasons_by_step.append(evicted)
        all_reasons: pd.Series[str] = pd.concat(reasons_by_step).astype("str")
        return all_reasons


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
class PolicyEntry:
    """An entry of the registry: a policy, or pipeline, that has a name.

    Attributes
    ----------
    name : str
        The name.
    make : callable
        Returns the policy; takes its settings.
    settings : mapping of str to Setting
        The settings by name.
    origin : str
        The system that the rule comes from.
    ranks_by : {"age", "use", ""}
        Whether it keeps memories by age, by use, or by neither.
    """

    name: str
    make: Callable[..., Policy]
    settings: Mapping[str, Setting]
    origin: str
    ranks_by: RanksBy


def _entry_of_class(name: str, kind: type[Policy]) -> PolicyEntry:
    """Return the entry of a policy class."""
    return PolicyEntry(name, kind, settings_of(kind), kind.origin, kind.ranks_by)


def _entry_of_pipeline(name: str, make: Callable[..., Policy], origin: str) -> PolicyEntry:
    """Return the entry of a function that makes a pipeline.

    The settings take their types and defaults from the function, and all else from the steps.
    """
    own_settings = settings_of(make)
    # A pipeline is made only to read its steps, so any value will do for a required setting.
    any_values = {
        setting.name: 1 for setting in own_settings.values() if setting.default is REQUIRED
    }
    steps = make(**any_values).steps
    documented_settings: dict[str, Setting] = {}
    # If several steps have a setting of one name, the first of them documents it.
    for step in reversed(steps):
        documented_settings |= settings_of(type(step))
    settings = {}
    for setting in own_settings.values():
        settings[setting.name] = replace(
            documented_settings.get(setting.name, setting),
            owner=setting.owner,
            name=setting.name,
            type=setting.type,
            default=setting.default,
        )
    return PolicyEntry(name, make, settings, origin, steps[-1].ranks_by)


NAMED_PIPELINES: Final = (
    ("odek", "odek's order: near-duplicates, expiry, then the newest 500"),
    ("memforge", "MemForge's order: importance floor, then budget per agent"),
    ("betterdb", "BetterDB's defaults: own expiry, then the cap of each scope"),
)
"""Pipelines that have a name, and the system that each comes from."""


def _registry() -> dict[str, PolicyEntry]:
    """Return every policy and named pipeline that can be asked for by name."""
    registry = {}
    for name, kind in POLICIES.items():
        if kind not in {rules.KeepAll, Pipeline}:
            registry[name] = _entry_of_class(name, kind)
    for name, origin in NAMED_PIPELINES:
        registry[name] = _entry_of_pipeline(name, getattr(Pipeline, name), origin)
    return registry


NAMED: Final = _registry()
"""Policies that can be asked for by name."""


def replaced_in(settings: Settings) -> str:
    """Return the name of the policy in the settings if that policy was replaced; else empty."""
    name = (settings.policy or {}).get("name", "")
    return name if name in REPLACED else ""


def policy_named(name: str) -> PolicyEntry:
    """Return the entry of the policy with a name.

    The name is one of `NAMED`, the name of an entry point of the group ``memlab.policies`` in an
    installed package, or a class as ``package.module:Class``. memlab's own names take precedence.
    The module of a class is searched in the working folder first, then on Python's path.

    Examples
    --------
    >>> policy_named("recent").origin
    'forge-loop: the newest N by insertion order'
    """
    if name in NAMED:
        return NAMED[name]
    if name in REPLACED:
        raise PolicyError(
            f"the policy {name!r} was replaced by {REPLACED[name]!r}, which takes the same "
            f"settings: name that one"
        )
    if ":" in name:
        return _entry_of_class(name, _user_class(name))
    kind = plugin_policy(name)
    if kind is None:
        known_names = [*NAMED, *sorted(plugin_names().keys() - NAMED.keys())]
        raise PolicyError(
            f"{name!r} is not a policy: name one of {', '.join(known_names)}, or a class of your "
            "own as package.module:Class"
        )
    return _entry_of_class(name, kind)


def _user_class(name: str) -> type[Policy]:
    """Import and return a policy class of the user."""
    module_name, _, class_name = name.partition(":")
    module = _user_module(module_name)
    try:
        value = attrgetter(class_name)(module)
    except AttributeError:
        value = None
    if not is_policy_class(value):
        names = [name for name, item in vars(module).items() if is_policy_class(item, module_name)]
        existing = ", ".join(names) if names else "none"
        raise PolicyError(
            f"{module_name} has no policy {class_name!r}, only: {existing}; a policy is a class "
            "with memlab.Policy as its base, @dataclass(frozen=True) above it and an evict"
        )
    kind: type[Policy] = value
    return kind


def _user_module(name: str) -> Any:
    """Import and return a module of the user.

    During the import the working folder is the first entry of Python's path. Afterwards it stays as
    the last entry, so that other processes find the module too.
    """
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


TRUSTED_MODULES_VARIABLE: Final = "MEMLAB_POLICY_MODULES"
"""The environment variable that lists modules whose policies ``memlab.toml`` may name."""


def policy_in(settings: Settings, number: int | None = None) -> Policy | None:
    """Return the policy in a store's settings; `number` replaces its size if that is automatic."""
    if settings.policy is None:
        return None
    values = {key: value for key, value in settings.policy.items() if key != SIZED}
    if settings.is_auto and number is not None:
        values[NUMBERS[values["name"]]] = number
    try:
        name = values.pop("name")
        name = REPLACED.get(name, name)
        _check_trusted(name)
        return policy_of(policy_named(name), values)
    except (PolicyError, ValueError, TypeError) as error:
        raise settings.error("policy", f"policy: {error}") from error


def as_setting(policy: Policy) -> dict[str, Any]:
    """Return a policy as it is written in a settings file, always with its size.

    >>> from memlab.policies import TimeToLive
    >>> as_setting(TimeToLive(timedelta(days=30)))
    {'name': 'ttl', 'ttl': '30d'}
    """
    as_named = _as_named(policy, with_size=True)
    setting: dict[str, Any] = {"name": policy.address}
    if as_named is not None:
        if as_named.name in NAMED:
            setting["name"] = as_named.name
        else:
            setting["name"] = plugin_name_of(policy.address) or policy.address
        for name, value in as_named.changed.items():
            setting[name] = _as_toml(value)
    return setting


def _check_trusted(name: str) -> None:
    """Raise an error if a class is named in a module that the user has not allowed to import."""
    module, colon, _ = name.partition(":")
    trusted_modules = environ.get(TRUSTED_MODULES_VARIABLE, "").replace(",", " ").split()
    if colon and module not in trusted_modules:
        raise PolicyError(
            f"{shortened(name)} is a class of your own, and a file beside a store must not run "
            f"code: put {shortened(module)} into the environment variable "
            f"{TRUSTED_MODULES_VARIABLE} where you trust it, or name the policy on the command "
            "line with --policy"
        )


def _as_toml(value: Any) -> Any:
    """Return a value as one that TOML has: it has no timedelta, tuple or None."""
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return age_text(value)
    return list(value) if isinstance(value, tuple) else value


def check_known(names: Iterable[str], policies: Sequence[PolicyEntry]) -> None:
    """Raise an error if there is a setting that none of the policies has."""
    unknown = [name for name in names if not any(name in entry.settings for entry in policies)]
    if not unknown:
        return
    known = [
        f"{entry.name!r}, which takes {_describe_settings(entry, entry.settings)}"
        for entry in policies
    ]
    message = f"{', '.join(unknown)} is not a setting of the policy {'; '.join(known)}"
    takers = [name for name, entry in NAMED.items() if set(unknown) <= entry.settings.keys()]
    if takers:
        message += f"; --policy {' or '.join(takers)} takes it"
    raise PolicyError(message)


def _describe_settings(entry: PolicyEntry, names: Iterable[str]) -> str:
    """Return a text with the names of settings in Python and their options on a command line."""
    texts = []
    for name in names:
        setting = entry.settings[name]
        can_be_text = setting.metavar != ""
        if can_be_text:
            option = setting.option if entry.name in NAMED else f"--set {setting.name}=VALUE"
            texts.append(f"{setting.name} ({option})")
    return ", ".join(texts) or "no settings"


def policy_of(entry: PolicyEntry, settings: Mapping[str, Any]) -> Policy:
    """Return a policy with the given settings, whose values may be texts."""
    check_known(settings, [entry])
    missing = [
        name
        for name, setting in entry.settings.items()
        if setting.default is REQUIRED and name not in settings
    ]
    if missing:
        raise PolicyError(f"the policy {entry.name!r} needs {_describe_settings(entry, missing)}")
    values = {}
    for name, value in settings.items():
        setting = entry.settings[name]
        values[name] = setting.parsed(value) if isinstance(value, str) else setting.checked(value)
    return entry.make(**values)


def family_of(policy: Policy) -> str:
    """Return the name of a policy with its changed settings, without its size.

    >>> from memlab.policies import KeepRecent, ValueCap
    >>> family_of(KeepRecent(50)), family_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent', 'value, half_life')
    """
    as_named = _as_named(policy)
    if as_named is None:
        return " > ".join(family_of(step) for step in policy.steps)
    size = _first_size(as_named.settings)
    other_settings = [name for name in as_named.changed if name != size]
    return ", ".join([as_named.name, *other_settings])


def label_of(policy: Policy) -> str:
    """Return the name of a policy with its settings that differ from the defaults.

    >>> from memlab.policies import KeepRecent, Pipeline, TimeToLive, ValueCap
    >>> label_of(KeepRecent(50)), label_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent 50', 'value 200, half_life=1 d')
    >>> label_of(TimeToLive(timedelta(days=1250)))
    'ttl 1250 d'
    >>> label_of(Pipeline.odek(keep=200))
    'odek 200'
    """
    as_named = _as_named(policy)
    if as_named is None:
        return " > ".join(label_of(step) for step in policy.steps)
    size = _first_size(as_named.settings)
    parts = []
    for name, value in as_named.changed.items():
        is_required = as_named.settings[name].default is REQUIRED
        text = _short_text(value)
        parts.append(text if is_required or name == size else f"{name}={text}")
    return f"{as_named.name} {', '.join(parts)}".strip()


def options_of(policy: Policy) -> str:
    """Return the command-line options of a policy; empty for a pipeline without a name.

    >>> from memlab.policies import Activation
    >>> options_of(Activation(max_tokens=8000))
    '--policy activation --max-tokens 8000'
    """
    as_named = _as_named(policy)
    if as_named is None:
        return ""
    has_name = as_named.name in NAMED
    options = ["--policy", as_named.name if has_name else policy.address]
    for name, value in as_named.changed.items():
        toml_value = _as_toml(value)
        text = ",".join(map(str, toml_value)) if isinstance(toml_value, list) else str(toml_value)
        if has_name:
            options += [as_named.settings[name].option, text]
        else:
            options += ["--set", f"{name}={text}"]
    return in_shell(*options)


class _NamedPolicy(NamedTuple):
    """A policy as a name and settings.

    Attributes
    ----------
    name : str
        The name.
    settings : mapping of str to Setting
        All its settings.
    changed : dict
        The values that differ from the defaults.
    """

    name: str
    settings: Mapping[str, Setting]
    changed: dict[str, Any]


def _as_named(policy: Policy, *, with_size: bool = False) -> _NamedPolicy | None:
    """Return a policy as a name and settings; None for a pipeline without a name.

    With `with_size`, the changed values always include its size.
    """
    if runner_name_of(policy) != "steps":
        name = policy.name
        settings = settings_of(type(policy))
        values: Mapping[str, Any] = vars(policy)
    elif isinstance(policy, Pipeline) and policy.named_call is not None:
        name, values = policy.named_call
        settings = NAMED[name].settings
    else:
        return None
    size = _first_size(settings) if with_size else None
    changed = {}
    for key, setting in settings.items():
        value = values[key]
        if value != setting.default or (key == size and value is not None):
            changed[key] = value
    return _NamedPolicy(name, settings, changed)


def _first_size(settings: Mapping[str, Setting]) -> str | None:
    """Return the name of the setting for the size of a policy; None if it has none.

    It is the first such setting that is not an age, else the first age. A label shows its value
    without the name.
    """
    sizes = [setting for setting in settings.values() if setting.size_unit]
    ages_last = sorted(sizes, key=lambda setting: setting.size_unit == "age")
    return ages_last[0].name if ages_last else None


def _short_text(value: Any) -> str:
    """Return a value as a short text."""
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        if days >= 100:
            return f"{days:.0f} d"
        if days >= 1:
            return f"{days:.3g} d"
        return f"{24 * days:.3g} h"
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return getattr(value, "__name__", str(value))
