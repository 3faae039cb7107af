"""Policies replayed on a history: what each would have lost, and what that saved."""

from memlab.replay.comparison import (
    compare,
    evicted_only_by,
    family_of,
    label_of,
    overlap,
    replay_each,
    summarise,
)
from memlab.replay.outcome import Replay
from memlab.replay.walk import replay

__all__ = [
    "Replay",
    "compare",
    "evicted_only_by",
    "family_of",
    "label_of",
    "overlap",
    "replay",
    "replay_each",
    "summarise",
]
