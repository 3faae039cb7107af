"""How a memory grew, and what it costs an agent to load.

Everything here reads frames as :func:`memlab.load` returns them and takes its verdicts from their
labels. The boot context is what an agent loads at start: the active memories, or those of them that
their source loads. Its prunable share is what a cap could take away.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
