"""The size of a store: its growth over time, what a start loads of it, and alerts about both.

This package measures a store as it is. Caps are recommended in ``sizing``, and pages are written in
``views``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
