"""Changes of a store by a plan: planning, applying, restoring; and the archive's contents.

What decides which memories go belongs to ``policies`` and ``sizing``; the files of an archive
belong to ``store.archive``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
