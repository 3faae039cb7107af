"""Which memories a search names, or matches better (by BM25) than anything that is there."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from math import log1p
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.sources.base import Search

_CHARACTER: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")
"""A word; in writing without spaces, a character."""
_LONGEST: Final = 1_000
"""Characters of a search that are looked at."""
_SHORTEST_NAME: Final = 4
"""Characters of a name by which a search may name a memory."""
_K: Final = 1.2
_B: Final = 0.75
_COVERED: Final = 0.5
"""Of what a search says, by weight, that must be in a memory which it matches."""


def searched_for(
    searches: Sequence[Search],
    there: pd.DataFrame,
    away: pd.DataFrame,
    since: Mapping[str, datetime],
) -> Iterator[tuple[str, datetime]]:
    """Yield by id and moment what is away and was searched for since; once a day each."""
    names = [*map(str, away[c.MEMORY_ID])]
    frames = (away, there)
    texts = [text for each in frames for text in each[c.TITLE] + "\n" + each[c.BODY]]
    match = _Matcher(texts, {word for each in searches for word in _words(each.words)})
    stems = [PurePosixPath(name).stem.casefold() for name in names]
    known = set()

    @cache
    def asked_by(words: str) -> set[int]:
        said = words.casefold()
        named = (n for n, stem in enumerate(stems) if len(stem) >= _SHORTEST_NAME and stem in said)
        return {*named, *match.better_than_the_rest(words, len(names))}

    for search in searches:
        for number in asked_by(search.words[:_LONGEST]):
            need = names[number], search.at.date()
            if need not in known and search.at > since[names[number]]:
                known.add(need)
                yield names[number], search.at


class _Matcher:
    """Texts, by the words that somebody may look for."""

    def __init__(self, texts: Sequence[str], wanted: set[str]) -> None:
        self._found: dict[str, dict[int, int]] = defaultdict(dict)
        lengths = np.zeros(len(texts))
        for number, text in enumerate(texts):
            words = Counter(_words(text))
            lengths[number] = words.total()
            for word in wanted & words.keys():
                self._found[word][number] = words[word]
        self._damping = _K * (1 - _B + _B * lengths / max(lengths.mean(), 1)) if texts else lengths

    def better_than_the_rest(self, words: str, count: int) -> list[int]:
        """Return those of the first `count` texts that match better than each of the others."""
        total = len(self._damping)
        score, covered, whole = np.zeros(total), np.zeros(total), 0.0
        for word in {*_words(words)}:
            found = self._found.get(word, {})
            count_in = max(len(found), 1)  # a word that none has weighs as one that one has
            weight = log1p((total - count_in + 0.5) / (count_in + 0.5))
            whole += weight
            places, times = np.array([*found], int), np.array([*found.values()], float)
            score[places] += weight * times * (_K + 1) / (times + self._damping[places])
            covered[places] += weight
        best = score[count:].max(initial=0.0)
        return np.flatnonzero(
            (score[:count] > best) & (covered[:count] >= _COVERED * whole)
        ).tolist()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
