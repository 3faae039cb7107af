"""Retention policies: each decides which memories of a frame go, and why.

A policy opens no store and deletes nothing: plans are made and applied in ``compaction``. What a
policy would have lost is measured in ``replay``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
