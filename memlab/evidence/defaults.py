"""The default target, confidence and horizon of a recommendation."""

from typing import Final

DEFAULT_TARGET: Final = 0.9
"""Share of references to serve."""

DEFAULT_CONFIDENCE: Final = 0.9
"""One-sided confidence of each limit."""

DEFAULT_UNTIL: Final = 1.2
"""Horizon: a number stays valid until this many times the present memories are written.

A store that is sized every night or week need not look a doubling ahead.
"""
