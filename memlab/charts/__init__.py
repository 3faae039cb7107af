"""Charts of computed frames: each takes ``ax=None``, draws, and returns the Axes.

A chart computes nothing, prints nothing and shows nothing. Without `ax` it draws on a figure of its
own, made without pyplot; ``ax.figure`` is the picture. A `cap` is one to look at, `advice` what
:func:`memlab.recommend_cap` returns, whose target, budget and caps are drawn.
"""

from importlib.util import find_spec

from memlab.lazy import lazy_names, missing_extra

if find_spec("matplotlib") is None:
    raise missing_extra("matplotlib", "report")

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
