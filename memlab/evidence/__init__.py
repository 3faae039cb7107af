"""Evidence that a memory was needed: references, reads and losses.

:class:`StoreHistory` is here too: all evidence is about the present and deleted memories of a
store. This package decides nothing: ``sizing`` chooses caps, with the prior from other projects,
and ``policies`` choose memories. ``systems`` reads the records of reads of each agent's system.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
