"""Retention policies: whose rule it is, which memories go, and why.

A policy is a frozen dataclass; :func:`decide` applies it to a frame and deletes nothing.
"""

from memlab.policies.base import CappedPolicy, Policy, decide
from memlab.policies.recent import KeepAll, KeepRecent

__all__ = ["CappedPolicy", "KeepAll", "KeepRecent", "Policy", "decide"]
