"""Rows of any source as one labelled frame."""

from memlab.frame.loading import frame_of, load

__all__ = ["frame_of", "load"]
