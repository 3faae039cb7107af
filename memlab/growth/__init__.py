"""The growth of a memory, and what it costs an agent to load."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
