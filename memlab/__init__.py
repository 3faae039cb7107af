"""See an agent's memory grow, size its ``keep_recent`` cap, compact it safely, take it back."""

from typing import TYPE_CHECKING, Any

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.compaction import Plan, Receipt, apply, plan, restore
    from memlab.doctor import diagnose
    from memlab.errors import MemlabError
    from memlab.evidence import AccessLog, find_references, read_access_log
    from memlab.evidence.past import load_past
    from memlab.evidence.posterior import law
    from memlab.frame import load
    from memlab.growth import growth_curve, summarize
    from memlab.items import MemoryItem, MemoryKind, MemoryProvenance, is_load_bearing_memory
    from memlab.lifecycle import LifecycleStore
    from memlab.maintenance import maintain
    from memlab.policies import (
        KeepRecent,
        Learned,
        NearDuplicate,
        Pipeline,
        Policy,
        TimeToLive,
        TokenBudget,
        decide,
    )
    from memlab.replay import compare
    from memlab.report import explore, store_path
    from memlab.sizing import prepare_sizing, recommend_cap
    from memlab.store import SqliteMemoryStore, copy_store

    __version__: str

__all__ = [
    "AccessLog",
    "KeepRecent",
    "Learned",
    "LifecycleStore",
    "MemlabError",
    "MemoryItem",
    "MemoryKind",
    "MemoryProvenance",
    "NearDuplicate",
    "Pipeline",
    "Plan",
    "Policy",
    "Receipt",
    "SqliteMemoryStore",
    "TimeToLive",
    "TokenBudget",
    "apply",
    "compare",
    "copy_store",
    "decide",
    "diagnose",
    "explore",
    "find_references",
    "growth_curve",
    "is_load_bearing_memory",
    "law",
    "load",
    "load_past",
    "maintain",
    "plan",
    "prepare_sizing",
    "read_access_log",
    "recommend_cap",
    "restore",
    "store_path",
    "summarize",
]

_get, __dir__ = lazy_names(
    __name__,
    {
        "compaction": "Plan Receipt apply plan restore",
        "doctor": "diagnose",
        "errors": "MemlabError",
        "evidence": "AccessLog find_references read_access_log",
        "evidence.posterior": "law",
        "evidence.past": "load_past",
        "frame": "load",
        "growth": "growth_curve summarize",
        "items": "MemoryItem MemoryKind MemoryProvenance is_load_bearing_memory",
        "lifecycle": "LifecycleStore",
        "maintenance": "maintain",
        "policies": (
            "KeepRecent Learned NearDuplicate Pipeline Policy TimeToLive TokenBudget decide"
        ),
        "replay": "compare",
        "report": "explore store_path",
        "sizing": "prepare_sizing recommend_cap",
        "store": "SqliteMemoryStore copy_store",
    },
)


def __getattr__(name: str) -> Any:
    """Import a public name, or a package below this one, on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("memlab")
    return _get(name)
