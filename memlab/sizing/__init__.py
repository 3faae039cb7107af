"""Sizing a cap with evidence: exact curve, honest estimate, recommendation, track record."""

from memlab.sizing.advice import Advice, TradeEnd, advise, recommend_cap
from memlab.sizing.backtest import backtest_cap
from memlab.sizing.choice import Verdict
from memlab.sizing.curve import Sizing, cap_curve, prepare_sizing
from memlab.sizing.floor import Floor

__all__ = [
    "Advice",
    "Floor",
    "Sizing",
    "TradeEnd",
    "Verdict",
    "advise",
    "backtest_cap",
    "cap_curve",
    "prepare_sizing",
    "recommend_cap",
]
