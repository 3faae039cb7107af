"""Options that name a policy and its settings, the same for every command that takes one."""

import inspect
import re
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from memlab.policies import Policy

ORIGINS: Final = {
    "recent": "forge-loop: the newest N by insertion order",
    "ttl": "odek, BetterDB: expiry by age",
    "value": "BetterDB agent-memory: importance and recency of use, per scope",
    "budget": "MemForge: hard budget per agent, least important first",
    "floor": "MemForge: importance floor, graduated rows excepted",
    "dedup": "odek: a newer near-duplicate replaces the older, trust permitting",
    "odek": "odek's order: near-duplicates, expiry, then the newest 500",
    "memforge": "MemForge's order: importance floor, then budget per agent",
    "betterdb": "BetterDB's defaults: own expiry, then the cap of each scope",
    "learned": "memlab: what the store's own past says will be needed",
    "purge-superseded": "memlab: superseded rows, which no compaction reclaims",
}
"""Policies that a command takes by name, and whose rule each is."""

_LARGEST_UNIT: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """A number with a unit: an age without one could be seconds or milliseconds."""

    name = "AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the age, or say what one looks like."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no age; write one like 30d, 12h or 2w", param, ctx)
        try:
            return timedelta(**{_LARGEST_UNIT[found[2]]: float(found[1])})
        except OverflowError:
            self.fail(f"{value!r} is more than the calendar holds", param, ctx)


SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "keep": {"param_decls": ["--keep-recent"], "type": click.IntRange(min=0)},
    "max_items": {"param_decls": ["--max-items"], "type": click.IntRange(min=0)},
    "ttl": {"param_decls": ["--ttl"], "type": Age()},
    "half_life": {"param_decls": ["--half-life"], "type": Age()},
    "recency": {"param_decls": ["--recency"], "type": click.FloatRange(min=0)},
    "importance": {"param_decls": ["--importance"], "type": click.FloatRange(min=0)},
    "threshold": {"param_decls": ["--threshold"], "type": click.FloatRange(min=0)},
    "older_than": {"param_decls": ["--older-than"], "type": Age()},
}
"""Settings of policies by the name of the argument, and the option that gives each."""

_HELP: Final = {
    "keep": "Newest prunable memories to keep (recent, odek).",
    "max_items": "Memories to hold, in all or per scope (value, budget, memforge, betterdb, "
    "learned).",
    "ttl": "Age at which a memory goes, like 30d (ttl, odek).",
    "half_life": "Time since last access at which recency halves (value).",
    "recency": "Weight of recency (value).",
    "importance": "Weight of importance (value).",
    "threshold": "Importance (floor, memforge) or likeness (dedup, odek) that decides.",
    "older_than": "Age from which a superseded memory goes (purge-superseded).",
}


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--policy`` and the settings of every policy to a command."""
    for name, option in reversed(SETTINGS.items()):
        declared = [*option["param_decls"], name]
        command = click.option(*declared, type=option["type"], help=_HELP[name])(command)
    return click.option(
        "--policy",
        "policy_name",
        type=click.Choice(list(ORIGINS)),
        default="recent",
        show_default=True,
        help="The rule that decides; whose it is stands below.",
    )(command)


def origins_epilog(names: Collection[str] = tuple(ORIGINS)) -> str:
    """Return whose rule each policy is, for the end of the help of a command that takes `names`."""
    width = max(map(len, names))
    lines = [f"  {name:{width}}  {origin}" for name, origin in ORIGINS.items() if name in names]
    return "\b\nPolicies:\n" + "\n".join(lines)


def policy_of(policy_name: str, settings: dict[str, Any]) -> "Policy":
    """Return the policy that the command line names.

    Raises
    ------
    click.UsageError
        When a setting is missing, or belongs to another policy.
    """
    factory = _factories()[policy_name]
    accepted = inspect.signature(factory).parameters
    given = {name: value for name, value in settings.items() if value is not None}
    if foreign := sorted(given.keys() - accepted.keys()):
        raise click.UsageError(
            f"{_options(foreign)} is no setting of the policy {policy_name!r}, which takes "
            f"{_options(name for name in SETTINGS if name in accepted)}"
        )
    needed = [name for name, each in accepted.items() if each.default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in given]:
        raise click.UsageError(f"the policy {policy_name!r} needs {_options(missing)}")
    try:
        return factory(**given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _factories() -> "dict[str, Callable[..., Policy]]":
    from memlab.policies import POLICIES, Pipeline
    from memlab.policies.learned import Learned

    presets: dict[str, Callable[..., Policy]] = {
        "odek": Pipeline.odek,
        "memforge": Pipeline.memforge,
        "betterdb": Pipeline.betterdb,
        "learned": Learned,
    }
    return {**POLICIES, **presets}


def _options(names: Any) -> str:
    return ", ".join(SETTINGS[name]["param_decls"][0] for name in names) or "no settings"
