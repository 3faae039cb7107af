"""See an agent's memory grow, size its ``keep_recent`` cap, compact it safely, take it back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlab.errors import MemlabError
    from memlab.frame import load
    from memlab.items import (
        EventId,
        EventRef,
        MemoryItem,
        MemoryKind,
        MemoryProvenance,
        is_load_bearing_memory,
    )
    from memlab.store import SqliteMemoryStore

__all__ = [
    "EventId",
    "EventRef",
    "MemlabError",
    "MemoryItem",
    "MemoryKind",
    "MemoryProvenance",
    "SqliteMemoryStore",
    "is_load_bearing_memory",
    "load",
]

_HOME = {
    "EventId": "items",
    "EventRef": "items",
    "MemlabError": "errors",
    "MemoryItem": "items",
    "MemoryKind": "items",
    "MemoryProvenance": "items",
    "SqliteMemoryStore": "store",
    "is_load_bearing_memory": "items",
    "load": "frame",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``import memlab`` stays light (PEP 562)."""
    if name == "__version__":
        return import_module("importlib.metadata").version("memlab")
    if name not in _HOME:
        raise AttributeError(f"module 'memlab' has no attribute {name!r}")
    value = getattr(import_module(f"memlab.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
