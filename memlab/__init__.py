"""See an agent's memory grow, size its ``keep_recent`` cap, compact it safely, take it back.

The names of this module are what most users need; each package below has its own. Modules that
stand here directly import the standard library alone, and serve every package.
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
