"""Many stores: one table of all, a prior that they share, and one reviewed change.

What is done to a single store is in ``sizing``, ``compaction`` and ``upkeep``; this package runs it
on each store and collects the results.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
