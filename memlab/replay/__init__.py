"""Policies replayed on a history: what each would have lost, and what that saved."""

from memlab.policies.named import family_of, label_of
from memlab.replay.comparison import Bound, compare, oracle, overlap, replay_each, summarise
from memlab.replay.walk import Replay, replay

__all__ = [
    "Bound",
    "Replay",
    "compare",
    "family_of",
    "label_of",
    "oracle",
    "overlap",
    "replay",
    "replay_each",
    "summarise",
]
