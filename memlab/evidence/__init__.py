"""What says that a memory was needed: references, access logs, other projects, the whole past."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
