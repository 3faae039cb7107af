"""Systems of installed packages, by entry points (:data:`memlab.plugins.SYSTEMS`).

They are read only for a scheme that memlab does not know, and for a path that none of memlab's own
systems recognises.
"""

import re
import warnings
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

from memlab.errors import ChangedWhileReadError, MemlabError, PluginWarning
from memlab.plugins import SYSTEMS, load_offer, offer_named, offers, package_of
from memlab.sources.base import Source
from memlab.sources.conformance_record import fault_of_record, is_suite_running
from memlab.sources.system import Match, System

_SCHEME: Final = re.compile("[a-z][a-z0-9+.-]*", re.IGNORECASE)
"""A scheme of a URL (RFC 3986): a letter, then letters, digits, plus signs, dots and hyphens."""


def installed_system(scheme: str) -> System | None:
    """Return the system that an installed package offers for a scheme; None if none does.

    Raises
    ------
    MemlabError
        If it cannot be imported or is no system, or if two packages offer the scheme.
    """
    if not _SCHEME.fullmatch(scheme):
        return None
    point = offer_named(SYSTEMS, scheme, "system")
    if point is None:
        return None
    return _system_of(point)


def installed_systems(built_in: Collection[str]) -> list[System]:
    """Return the systems of installed packages without the schemes that are built in.

    Broken ones are left out with a :class:`memlab.errors.PluginWarning`.
    """
    systems = []
    offered_names = {point.name for point in offers(SYSTEMS)}
    for name in sorted(offered_names.difference(built_in)):
        try:
            system = installed_system(name)
        except MemlabError as error:
            _warn(f"left out: {error}")
            continue
        if system is not None and system not in systems:
            systems.append(system)
    return systems


def installed_matches(
    path: Path, tables: Mapping[str, Collection[str]], built_in: Collection[str]
) -> list[Match]:
    """Return the systems of installed packages that recognise a path, with store and evidence.

    A system that raises an error is left out with a :class:`memlab.errors.PluginWarning`.
    """
    matches = []
    columns = {name: frozenset(names) for name, names in tables.items()}
    for system in installed_systems(built_in):
        try:
            match = system.kind.evidence_for(path, columns)
        except ChangedWhileReadError:
            raise
        except Exception as error:  # noqa: BLE001
            point = offer_named(SYSTEMS, system.first_scheme, "system")
            package = package_of(point) if point is not None else "?"
            _warn(
                f"left out: the system {system.first_scheme!r} of the package {package} fails at "
                f"{path} with {type(error).__name__}: {error}; update or uninstall the package"
            )
            continue
        if match is not None:
            store, evidence = match
            matches.append(Match(system, store, evidence))
    return matches


def unproven_reason(source: Source, scheme: str) -> str:
    """Return the reason why memlab only reads a store of an installed package.

    It is empty if memlab deletes from the store, too.
    """
    if is_suite_running():
        return ""
    fault = fault_of_record(type(source))
    if not fault:
        return ""
    point = offer_named(SYSTEMS, scheme, "system")
    package = package_of(point) if point is not None else type(source).__module__
    return (
        f"memlab only reads {source.name}: the package {package} has not shown that its code "
        f"deletes safely, because {fault}; nothing was changed: its authors run python -m "
        "memlab.testing on their tests and ship the record that it writes"
    )


@lru_cache(64)
def _system_of(point: EntryPoint) -> System:
    """Import, check and return the system of an entry point."""
    value = load_offer(point, "system")
    subject = f"{point.value}, which the package {package_of(point)} offers as {point.name!r},"
    if not isinstance(value, System) or point.name not in value.schemes:
        raise MemlabError(
            f"{subject} is not a system: a system is a memlab.sources.system.System with that "
            "scheme; update or uninstall the package"
        )
    try:
        kind = value.kind
    except Exception as error:
        raise MemlabError(
            f"{subject} names the source {value.source}, which cannot be imported: "
            f"{type(error).__name__}: {error}; update or uninstall the package"
        ) from error
    is_source = isinstance(kind, type) and issubclass(kind, Source)  # type: ignore[redundant-expr]
    if not is_source or kind.scheme not in value.schemes:
        raise MemlabError(
            f"{subject} names {value.source}, which is not a source with that scheme; update or "
            "uninstall the package"
        )
    return value


def _warn(message: str) -> None:
    warnings.warn(message, PluginWarning, stacklevel=2)
