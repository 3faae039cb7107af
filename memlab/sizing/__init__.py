"""Sizing a cap or a token budget: curve, prior, posterior, backtest, recommendation.

The references come from ``evidence``. Rules other than a cap or a budget are compared
in ``replay``, and the page of ``memlab size`` is in ``views``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
