"""Rows of any source as one labelled frame; :mod:`memlab.frame.labelling` stops short of pandas."""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.frame.loading import frame_of, load

__all__ = ["frame_of", "load"]

__getattr__, __dir__ = lazy_names(__name__, {"loading": "frame_of load"})
