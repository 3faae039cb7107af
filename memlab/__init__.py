"""See an agent's memory grow, size its ``keep_recent`` cap, compact it safely, take it back.

This module has the names that most users need. Each package below has further names of its own. The
modules beside the packages import the standard library alone, and all packages use them.
"""

from typing import Any

from memlab.lazy import lazy_names

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name, or a package below this one, on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("memlab")
    return _get(name)
