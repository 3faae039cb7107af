"""The size of a store: its growth over time, what a start loads of it, and alerts about both.

Only what is there is measured here. Which cap would do is asked in ``sizing``, and what a page says
of these numbers stands in ``views``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
