"""Sizing a cap with evidence: exact curve, posterior, recommendation, track record."""

from memlab.sizing.advice import Advice, TradeEnd
from memlab.sizing.backtest import backtest_cap
from memlab.sizing.budget import (
    BudgetAdvice,
    BudgetSizing,
    advise_budget,
    budget_curve,
    prepare_budget,
    recommend_budget,
)
from memlab.sizing.choice import Verdict
from memlab.sizing.curve import Sizing, cap_curve, prepare_sizing
from memlab.sizing.floor import Floor
from memlab.sizing.recommending import advise, recommend_cap
from memlab.sizing.timeline import age_rank_quantiles, age_ranks, boot_over_time, caps_along

__all__ = [
    "Advice",
    "BudgetAdvice",
    "BudgetSizing",
    "Floor",
    "Sizing",
    "TradeEnd",
    "Verdict",
    "advise",
    "advise_budget",
    "age_rank_quantiles",
    "age_ranks",
    "backtest_cap",
    "boot_over_time",
    "budget_curve",
    "cap_curve",
    "caps_along",
    "prepare_budget",
    "prepare_sizing",
    "recommend_budget",
    "recommend_cap",
]
