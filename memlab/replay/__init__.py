"""Policies replayed on a history: what each would have lost, and what that saved."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
