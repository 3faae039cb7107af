"""Retention policies: whose rule it is, which memories go, and why."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
