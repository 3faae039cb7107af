"""Sizing a cap with evidence: exact curve, posterior, recommendation, track record."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
