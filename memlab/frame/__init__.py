"""Loading of a store: rows of any source as labelled memories, in a frame or in arrays."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
