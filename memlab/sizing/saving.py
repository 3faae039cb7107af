"""Saving of a recommended number as the policy of a store, in its ``memlab.toml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memlab.settings import SIZED, Sized
from memlab.sources.base import Source
from memlab.sources.opening import save_store_settings, settings_of


class SavedNumber(NamedTuple):
    """The file that a number was saved in, and how long the number is valid.

    Attributes
    ----------
    file : Path
        The settings file.
    validity : str
        How long the number is valid, in words.
    is_automatic : bool
        Whether the settings keep the number ``"auto"``, so that the goal alone was saved.
    """

    file: Path
    validity: str
    is_automatic: bool


def save_number(
    source: Source, policy: Mapping[str, Any], sized: Sized, goal: Mapping[str, Any]
) -> SavedNumber:
    """Write a policy with its number, and the goal of its sizing, to ``memlab.toml``.

    If the settings have the same policy with the number ``"auto"``, it stays.

    Parameters
    ----------
    source : Source
        The store.
    policy : Mapping
        The policy by its keys in a settings file.
    sized : Sized
        The record of the sizing.
    goal : Mapping
        Further settings to write, such as the target.

    Raises
    ------
    MemlabError
        If the store has no folder for settings.
    """
    settings = settings_of(source)
    saved_policy = settings.policy or {}
    is_automatic = settings.is_auto and saved_policy["name"] == policy["name"]
    if is_automatic:
        new_policy = dict(saved_policy)
        validity = 'its number stays "auto", found each time'
    else:
        new_policy = {**policy, SIZED: sized.to_setting()}
        validity = f"until {sized.until:,} episodes are written; {sized.memories:,} were so far"
    file = save_store_settings(source, {"policy": new_policy, **goal})
    return SavedNumber(file, validity, is_automatic)
