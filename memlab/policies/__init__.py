"""Retention policies: whose rule it is, which memories go, and why.

A policy is a frozen dataclass; :func:`decide` applies it to a frame and deletes nothing.
"""

from memlab.policies.base import CappedPolicy, DatedPolicy, Policy, decide
from memlab.policies.duplicates import NearDuplicate, near_duplicates
from memlab.policies.learned import Learned
from memlab.policies.named import NAMED, POLICIES, Pipeline, policy_named
from memlab.policies.rules import (
    ImportanceBudget,
    ImportanceFloor,
    KeepAll,
    KeepRecent,
    PurgeSuperseded,
    TimeToLive,
    TokenBudget,
    ValueCap,
    composite_score,
    recency_decay,
    value_score,
)

__all__ = [
    "NAMED",
    "POLICIES",
    "CappedPolicy",
    "DatedPolicy",
    "ImportanceBudget",
    "ImportanceFloor",
    "KeepAll",
    "KeepRecent",
    "Learned",
    "NearDuplicate",
    "Pipeline",
    "Policy",
    "PurgeSuperseded",
    "TimeToLive",
    "TokenBudget",
    "ValueCap",
    "composite_score",
    "decide",
    "near_duplicates",
    "policy_named",
    "recency_decay",
    "value_score",
]
