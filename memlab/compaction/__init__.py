"""Plan, apply, archive, restore, and the room on the disk."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
