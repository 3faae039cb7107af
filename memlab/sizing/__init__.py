"""Sizing a cap with evidence: exact curve, posterior, recommendation, track record."""

from memlab.sizing.advice import Advice, TradeEnd
from memlab.sizing.backtest import backtest_cap
from memlab.sizing.choice import Verdict
from memlab.sizing.curve import Sizing, cap_curve, prepare_sizing
from memlab.sizing.floor import Floor
from memlab.sizing.recommending import advise, recommend_cap
from memlab.sizing.timeline import age_rank_quantiles, age_ranks, boot_over_time, caps_along

__all__ = [
    "Advice",
    "Floor",
    "Sizing",
    "TradeEnd",
    "Verdict",
    "advise",
    "age_rank_quantiles",
    "age_ranks",
    "backtest_cap",
    "boot_over_time",
    "cap_curve",
    "caps_along",
    "prepare_sizing",
    "recommend_cap",
]
