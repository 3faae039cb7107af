"""Sizing a cap with evidence: exact curve, posterior, recommendation, track record."""

from memlab.sizing.advice import Advice, BudgetAdvice, TradeEnd
from memlab.sizing.curve import (
    BudgetSizing,
    Sizing,
    budget_curve,
    cap_curve,
    prepare_budget,
    prepare_sizing,
)
from memlab.sizing.goal import advise, advise_budget, recommend_budget, recommend_cap
from memlab.sizing.history import Floor
from memlab.sizing.record import Verdict
from memlab.sizing.timeline import (
    age_rank_quantiles,
    age_ranks,
    backtest_cap,
    boot_over_time,
    caps_along,
)

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
