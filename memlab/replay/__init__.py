"""Policies replayed on a history: what each would have lost, and what that saved."""

from memlab.replay.bound import Bound, oracle
from memlab.replay.comparison import compare, overlap, replay_each, summarise
from memlab.replay.labels import family_of, label_of
from memlab.replay.tables import Replay
from memlab.replay.walk import replay

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
