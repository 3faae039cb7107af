"""Replay policies on a history: the references that each would have lost, and the tokens saved.

The policies are in ``policies``. A cap needs no replay: its exact curve is in ``sizing``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
