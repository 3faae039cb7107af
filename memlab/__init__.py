"""See an agent's memory grow, size its ``keep_recent`` cap, compact it safely, take it back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlab.compaction.applying import apply, finish
    from memlab.compaction.contents import (
        archived_plans,
        archived_rows,
        drop_archived,
        export_archived,
    )
    from memlab.compaction.planning import plan
    from memlab.compaction.plans import Plan, Receipt
    from memlab.compaction.preview import cap_effect, survivors
    from memlab.compaction.reclaim import space, vacuum
    from memlab.compaction.restoring import restore
    from memlab.doctor import diagnose
    from memlab.errors import MemlabError
    from memlab.evidence.access_log import AccessLog
    from memlab.evidence.elsewhere import law, law_lines
    from memlab.evidence.reads import describe_log, read_access_log
    from memlab.evidence.references import count_references, find_references
    from memlab.frame.loading import load
    from memlab.growth import boot_context, growth_curve, summarize
    from memlab.items import (
        EventId,
        EventRef,
        MemoryItem,
        MemoryKind,
        MemoryProvenance,
        is_load_bearing_memory,
    )
    from memlab.lifecycle import LifecycleStore, Trust
    from memlab.policies import (
        ImportanceBudget,
        ImportanceFloor,
        KeepAll,
        KeepRecent,
        NearDuplicate,
        Oracle,
        Pipeline,
        PurgeSuperseded,
        TimeToLive,
        ValueCap,
        composite_score,
        decide,
        near_duplicates,
        recency_decay,
    )
    from memlab.policies.learned import Learned
    from memlab.replay import compare, overlap, replay_each
    from memlab.report.bundled import store_path
    from memlab.report.panel import explore
    from memlab.report.record import decision_record
    from memlab.sizing import (
        Advice,
        age_rank_quantiles,
        age_ranks,
        backtest_cap,
        boot_over_time,
        cap_curve,
        recommend_cap,
    )
    from memlab.store import SqliteMemoryStore
    from memlab.store.database import copy_store

__all__ = [
    "AccessLog",
    "Advice",
    "EventId",
    "EventRef",
    "ImportanceBudget",
    "ImportanceFloor",
    "KeepAll",
    "KeepRecent",
    "Learned",
    "LifecycleStore",
    "MemlabError",
    "MemoryItem",
    "MemoryKind",
    "MemoryProvenance",
    "NearDuplicate",
    "Oracle",
    "Pipeline",
    "Plan",
    "PurgeSuperseded",
    "Receipt",
    "SqliteMemoryStore",
    "TimeToLive",
    "Trust",
    "ValueCap",
    "age_rank_quantiles",
    "age_ranks",
    "apply",
    "archived_plans",
    "archived_rows",
    "backtest_cap",
    "boot_context",
    "boot_over_time",
    "cap_curve",
    "cap_effect",
    "compare",
    "composite_score",
    "copy_store",
    "count_references",
    "decide",
    "decision_record",
    "describe_log",
    "diagnose",
    "drop_archived",
    "explore",
    "export_archived",
    "find_references",
    "finish",
    "growth_curve",
    "is_load_bearing_memory",
    "law",
    "law_lines",
    "load",
    "near_duplicates",
    "overlap",
    "plan",
    "read_access_log",
    "recency_decay",
    "recommend_cap",
    "replay_each",
    "restore",
    "space",
    "store_path",
    "summarize",
    "survivors",
    "vacuum",
]

_HOME = {
    "AccessLog": "evidence.access_log",
    "Advice": "sizing",
    "EventId": "items",
    "EventRef": "items",
    "ImportanceBudget": "policies",
    "ImportanceFloor": "policies",
    "KeepAll": "policies",
    "KeepRecent": "policies",
    "Learned": "policies.learned",
    "LifecycleStore": "lifecycle",
    "MemlabError": "errors",
    "MemoryItem": "items",
    "MemoryKind": "items",
    "MemoryProvenance": "items",
    "NearDuplicate": "policies",
    "Oracle": "policies",
    "Pipeline": "policies",
    "Plan": "compaction.plans",
    "PurgeSuperseded": "policies",
    "Receipt": "compaction.plans",
    "SqliteMemoryStore": "store",
    "TimeToLive": "policies",
    "Trust": "lifecycle",
    "ValueCap": "policies",
    "age_rank_quantiles": "sizing",
    "age_ranks": "sizing",
    "apply": "compaction.applying",
    "archived_plans": "compaction.contents",
    "archived_rows": "compaction.contents",
    "backtest_cap": "sizing",
    "boot_context": "growth",
    "boot_over_time": "sizing",
    "cap_curve": "sizing",
    "cap_effect": "compaction.preview",
    "compare": "replay",
    "composite_score": "policies",
    "copy_store": "store.database",
    "count_references": "evidence.references",
    "decide": "policies",
    "decision_record": "report.record",
    "describe_log": "evidence.reads",
    "diagnose": "doctor",
    "drop_archived": "compaction.contents",
    "explore": "report.panel",
    "export_archived": "compaction.contents",
    "find_references": "evidence.references",
    "finish": "compaction.applying",
    "growth_curve": "growth",
    "is_load_bearing_memory": "items",
    "law": "evidence.elsewhere",
    "law_lines": "evidence.elsewhere",
    "load": "frame",
    "near_duplicates": "policies",
    "overlap": "replay",
    "plan": "compaction.planning",
    "read_access_log": "evidence.reads",
    "recency_decay": "policies",
    "recommend_cap": "sizing",
    "replay_each": "replay",
    "restore": "compaction.restoring",
    "space": "compaction.reclaim",
    "store_path": "report.bundled",
    "summarize": "growth",
    "survivors": "compaction.preview",
    "vacuum": "compaction.reclaim",
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
