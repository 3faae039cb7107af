"""The entry of a system in the table of systems, or of one that an installed package offers."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from memlab.sources.base import Source
from memlab.sources.recognition import Evidence

_PACKAGE: Final = "memlab.systems"
"""Package to which the relative module names of systems refer."""


NOT_LOADED: Final = "recalled from"
"""Value of :attr:`System.start` for a system whose agents load no memory at a start."""


class System(NamedTuple):
    """A system whose stores memlab reads. Its modules are imported when they are needed.

    Examples
    --------
    >>> system = System("JSON lines", ("lines",), "my_package.lines:Lines", start="a start")
    >>> system.schemes
    ('lines',)
    """

    name: str
    """Name of its kind of store."""
    schemes: tuple[str, ...]
    """Schemes of its stores, as in ``redis://localhost`` or ``odek:FOLDER``."""
    source: str = ""
    """Module and class of its source, ``package.module:Class``; empty if it has reads alone."""
    reads: str = ""
    """Module that finds its recorded reads; empty if it records none."""
    start: str = NOT_LOADED
    """Label for the use of the active memories by its agent, such as "a start"."""
    usual: tuple[str, ...] = ()
    """Patterns of paths at which such a store is expected."""
    inside: tuple[str, ...] = ()
    """Names of files; a search examines a folder as such a store only if it has one of them."""

    @property
    def first_scheme(self) -> str:
        """Scheme by which settings, archives and plans record its kind of store."""
        return self.schemes[0]

    @property
    def kind(self) -> type[Source]:
        """Class of its source."""
        module, _, name = self.source.partition(":")
        return cast("type[Source]", getattr(import_module(module, _PACKAGE), name))

    @property
    def reads_module(self) -> Any:
        """Module that finds reads, with functions ``recognises(request)`` and ``find(request)``."""
        return import_module(self.reads, _PACKAGE)


class Match(NamedTuple):
    """A system that recognises a path: with the path of its store, and the evidence for it."""

    system: System
    store: Path
    evidence: Evidence
