"""Rows of any source as one labelled frame; :mod:`memlab.frame.labelling` stops short of pandas."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
