"""Retention policies: whose rule it is, which memories go, and why.

A policy is a frozen dataclass; :func:`decide` applies it to a frame and deletes nothing.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
