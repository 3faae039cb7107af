"""Many stores: one table of all, and one reviewed change."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
