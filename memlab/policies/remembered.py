"""The policy that a person chose for a store, as ``memlab.toml`` writes it."""

from collections.abc import Mapping
from datetime import timedelta
from os import environ
from typing import Any, Final

from memlab.errors import PolicyError
from memlab.items import shortened
from memlab.moments import age_text
from memlab.policies.base import Policy
from memlab.policies.named import NAMED, Named, policy_named
from memlab.policies.typed import REQUIRED, Setting
from memlab.settings import Settings

TRUSTED: Final = "MEMLAB_POLICY_MODULES"
"""The environment variable that lists modules whose policies ``memlab.toml`` may name."""


def policy_in(settings: Settings) -> Policy | None:
    """Return the policy that is remembered of a store; None where none is.

    Raises
    ------
    SettingsError
        When it is no policy, or a class of one's own whose module is not among those that
        ``MEMLAB_POLICY_MODULES`` lists; the message names the line. Importing a module runs it, and
        a store's folder may be anybody's.
    """
    if settings.policy is None:
        return None
    given = dict(settings.policy)
    try:
        name = given.pop("name")
        _check_trusted(name)
        return _made(policy_named(name), given)
    except (PolicyError, ValueError, TypeError) as error:
        raise settings.error("policy", f"policy: {error}") from error


def as_setting(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's name and settings as a file of settings holds them.

    Examples
    --------
    >>> as_setting("ttl", {"ttl": timedelta(days=30)})
    {'name': 'ttl', 'ttl': '30d'}
    """
    return {"name": name, **{key: _written(value) for key, value in values.items()}}


def _check_trusted(name: str) -> None:
    """Refuse to import what a file beside a store asks for, unless a person said so elsewhere."""
    module, colon, _ = name.partition(":")
    if name in NAMED or not colon:
        return
    if module not in environ.get(TRUSTED, "").replace(",", " ").split():
        raise PolicyError(
            f"{shortened(name)} is a class of one's own, and a file beside a store may not have "
            f"code run: put {shortened(module)} into the environment variable {TRUSTED} where you "
            "trust it, or name the policy on the command line with --policy"
        )


def _meant(setting: Setting, value: Any) -> Any:
    return setting.parsed(value) if isinstance(value, str) else setting.checked(value)


def _written(value: Any) -> Any:
    """Return a value as TOML has it, which knows no length of time and no nothing."""
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return age_text(value)
    return list(value) if isinstance(value, tuple) else value


def _made(named: Named, given: Mapping[str, Any]) -> Policy:
    if foreign := [name for name in given if name not in named.settings]:
        known = ", ".join(named.settings) or "no settings"
        raise PolicyError(f"{foreign[0]!r} is no setting of {named.name!r}, which takes {known}")
    for name, setting in named.settings.items():
        if setting.default is REQUIRED and name not in given:
            raise PolicyError(f"the policy {named.name!r} needs {name}")
    return named.make(**{name: _meant(named.settings[name], one) for name, one in given.items()})
