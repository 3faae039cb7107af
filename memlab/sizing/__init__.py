"""Sizing a cap or a token budget: exact curve, posterior, backtest, recommendation.

The references and the prior come from ``evidence``. Rules other than a cap or a budget are compared
in ``replay``, and the page of ``memlab size`` is in ``views``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
