"""Many stores: one table of all stores, a shared prior, and one reviewed change.

The packages ``sizing``, ``compaction`` and ``upkeep`` work on a single store. This package runs
them on each store, and collects the results.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
