"""Retention policies: whose rule it is, which memories go, and why.

A policy is a frozen dataclass; :func:`decide` applies it to a frame and deletes nothing.
"""

from memlab.policies.base import CappedPolicy, Policy, decide
from memlab.policies.duplicates import NearDuplicate, near_duplicates
from memlab.policies.expiry import PurgeSuperseded, TimeToLive
from memlab.policies.oracle import Oracle
from memlab.policies.pipeline import Pipeline
from memlab.policies.recent import KeepAll, KeepRecent
from memlab.policies.value import ImportanceBudget, ImportanceFloor, ValueCap
from memlab.scoring import composite_score, recency_decay, value_score

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        KeepRecent,
        TimeToLive,
        ValueCap,
        ImportanceBudget,
        ImportanceFloor,
        NearDuplicate,
        PurgeSuperseded,
        KeepAll,
        Oracle,
        Pipeline,
    )
}
"""Every policy of this package by its short name. Fields carry their meaning as metadata."""

__all__ = [
    "POLICIES",
    "CappedPolicy",
    "ImportanceBudget",
    "ImportanceFloor",
    "KeepAll",
    "KeepRecent",
    "NearDuplicate",
    "Oracle",
    "Pipeline",
    "Policy",
    "PurgeSuperseded",
    "TimeToLive",
    "ValueCap",
    "composite_score",
    "decide",
    "near_duplicates",
    "recency_decay",
    "value_score",
]
