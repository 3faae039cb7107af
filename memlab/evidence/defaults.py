"""The default target, confidence and horizon of a recommendation."""

from typing import Final

DEFAULT_TARGET: Final = 0.9
"""Share of references to serve."""

DEFAULT_CONFIDENCE: Final = 0.9
"""One-sided confidence of each limit."""

DEFAULT_UNTIL: Final = 1.2
"""Horizon: a recommendation stays valid until the store has written so many times its memories.

If a store is sized every night or every week, a short horizon is enough.
"""
