"""How a memory grew, what it costs an agent to load, and what a cap would change.

Everything here reads frames as :func:`memlab.load` returns them and takes its verdicts from their
labels. The boot context is what an agent loads at start: the active rows. Noise is the prunable
part of it.
"""

from memlab.growth.context import (
    PARTS,
    Amount,
    Boot,
    CapEffect,
    boot_context,
    cap_effect,
    survivors,
)
from memlab.growth.curve import growth_curve
from memlab.growth.summary import Forecast, Pace, StoreSummary, summarize

__all__ = [
    "PARTS",
    "Amount",
    "Boot",
    "CapEffect",
    "Forecast",
    "Pace",
    "StoreSummary",
    "boot_context",
    "cap_effect",
    "growth_curve",
    "summarize",
    "survivors",
]
