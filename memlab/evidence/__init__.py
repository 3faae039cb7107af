"""Evidence that a memory was needed: references, reads and losses.

:class:`StoreHistory` and the past with its deleted memories are here too, because all evidence is
about them. Evidence decides nothing: caps are chosen in ``sizing``, where the prior of other
projects is, and memories in ``policies``. How an agent's system records reads is in ``systems``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
