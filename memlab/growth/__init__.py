"""How a memory grew, and what it costs an agent to load.

Everything here reads frames as :func:`memlab.load` returns them and takes its verdicts from their
labels. The boot context is what an agent loads at start: the active memories, or those of them that
their source loads. Its prunable share is what a cap could take away.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.growth.context import PARTS, Boot, boot_context, growth_curve
    from memlab.growth.inventory import Inventory, Store, find_stores
    from memlab.growth.summary import Forecast, Pace, StoreSummary, summarize

__all__ = [
    "PARTS",
    "Boot",
    "Forecast",
    "Inventory",
    "Pace",
    "Store",
    "StoreSummary",
    "boot_context",
    "find_stores",
    "growth_curve",
    "summarize",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "context": "PARTS Boot boot_context growth_curve",
        "inventory": "Inventory Store find_stores",
        "summary": "Forecast Pace StoreSummary summarize",
    },
)
