"""Rows of any source as one labelled frame."""

from memlab.frame.loading import Source, load

__all__ = ["Source", "load"]
