"""How a memory grew, and what it costs an agent to load.

The boot context is what an agent loads at start: the active memories, or those of them that their
source loads. Its prunable share is what a cap could take away.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
