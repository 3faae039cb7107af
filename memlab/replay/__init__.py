"""Policies replayed on a history: what each would have lost, and what that saved.

The policies are in ``policies``. A cap needs no replay: its exact curve is in ``sizing``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
