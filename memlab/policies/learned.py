"""Keep what the store's own past says will be referred to: a conditional logit over what is there.

A reference falls on one of the memories written so far; how much more likely on one than on
another is ``exp(score)``. McFadden (1974) has the likelihood; sampling the memories it did not
fall on, with their sampling odds taken out, leaves its maximum where it was (McFadden 1978).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references, references_on_rows
from memlab.policies.base import CappedPolicy, GoesBy, Keys, Rows, Runner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIRST_LOOK: Final = 30
"""References seen before anything is learned from them."""

GROWTH: Final = 1.15
"""By how much references grow from one look to the next."""

TAG_PRIOR: Final = 10.0
"""References' worth of belief that a tag is referred to as much as any other."""

_LAST_NUMBER: Final = r"(?:^|[^0-9A-Za-z])(\d{1,15})$"


@dataclass(frozen=True)
class Experience:
    """Memories in the order they were written, load-bearing ones left out, and references to them.

    What is said of a memory was known when it was written, so a look back is a look back: what came
    later changes nothing.
    """

    size: Floats
    gap: Floats
    lag: Floats
    names: Floats
    breadth: Floats
    number: Floats
    highest: Floats
    tags: Ints
    at: Ints
    target: Ints

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def looks(self) -> Ints:
        """Memories written by each moment at which everything so far is looked at again.

        The moments follow from the number of references alone, so they stay as history grows.
        """
        counts, count = [], FIRST_LOOK
        while count <= len(self.at):
            counts.append(count)
            count = max(count + 10, int(count * GROWTH))
        moments = self.at[np.array(counts, dtype=np.int64) - 1] + 1
        # A reference of the moment itself may still follow: the look takes in all of them.
        return np.unique(moments)

    @cached_property
    def tag_rates(self) -> Floats:
        """How much more often than others a memory's tags were referred to, (looks + 1, memories).

        Mean over its tags of the logarithm of references per memory against the overall rate,
        shrunken toward it. Zero before the first look.
        """
        kinds = int(self.tags.max(initial=-1)) + 1
        rates = np.zeros((len(self.looks) + 1, len(self)))
        if not kinds:
            return rates
        carries = self.tags >= 0
        share = carries / np.maximum(carries.sum(axis=1, keepdims=True), 1)
        for line, moment in zip(rates[1:], self.looks, strict=True):
            seen = np.searchsorted(self.at, moment)
            referred = _tally(self.tags[self.target[:seen]], kinds)
            written = _tally(self.tags[:moment], kinds)
            overall = seen / moment
            rate = (referred + TAG_PRIOR) / (written + TAG_PRIOR / overall) / overall
            line[:] = (np.append(np.log(rate), 0.0)[self.tags] * share).sum(axis=1)
        return rates

    def references_before(self, memory: Ints, moment: "Ints | np.int64") -> tuple[Ints, Ints]:
        """Return how often each memory was referred to before a moment; when last, or -1."""
        keys, at, span = self._by_target
        first = np.searchsorted(keys, memory * span)
        past = np.searchsorted(keys, memory * span + moment)
        last = np.where(past > first, np.append(at, -1)[past - 1], -1)
        return past - first, last

    @cached_property
    def _by_target(self) -> tuple[Ints, Ints, int]:
        """References sorted by memory and moment, as one key, and the key's stride."""
        span = len(self) + 2
        order = np.lexsort((self.at, self.target))
        return self.target[order] * span + self.at[order], self.at[order], span


def experience_of(frame: pd.DataFrame, references: pd.DataFrame | None = None) -> Experience:
    """Return what a store has lived through."""
    if references is None:
        references = find_references(frame)
    counted = ~frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = frame.loc[counted]
    on_rows = references_on_rows(rows, references)
    number, highest = _task_numbers(rows)
    gaps = rows[col.CREATED_AT].diff().dt.total_seconds().to_numpy(dtype=np.float64)
    return Experience(
        size=_standardised(np.log1p(rows[col.CHARS].to_numpy(dtype=np.float64))),
        gap=_standardised(np.log1p(np.nan_to_num(np.maximum(gaps, 0.0)))),
        lag=_standardised(np.log1p(highest - number)),
        names=np.log1p(_lengths(rows[col.EVIDENCE_REFS])),
        breadth=np.minimum(_lengths(rows[col.TAGS]), 4.0) - 2.0,
        number=number,
        highest=highest,
        tags=_tag_numbers(rows[col.TAGS]),
        at=on_rows.at,
        target=on_rows.target,
    )


def _standardised(values: Floats) -> Floats:
    """Return how far each value is from the mean until then, in standard deviations, at most 3."""
    count = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / count
    variance = np.maximum(np.cumsum(values**2) / count - mean**2, 0.01)
    return np.asarray(np.clip((values - mean) / np.sqrt(variance), -3.0, 3.0))


def _task_numbers(rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the number each task reference ends in, and the highest until then."""
    place = np.arange(len(rows), dtype=np.float64)
    found = rows[col.SOURCE_TASK_REF].astype("str").str.extract(_LAST_NUMBER, expand=False)
    number = pd.to_numeric(found, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if 2 * np.count_nonzero(np.isnan(number)) >= len(number):
        return place, place
    highest = np.fmax.accumulate(np.append(0.0, number))[1:]
    return np.where(np.isnan(number), highest, number), highest


def _lengths(cells: "pd.Series[Any]") -> Floats:
    return np.fromiter(map(len, cells), np.float64, len(cells))


def _tag_numbers(cells: "pd.Series[Any]") -> Ints:
    """Return tags as numbers in order of appearance, one row of them a memory."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(tag, len(numbers)) for tag in tags] for tags in cells]
    table = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _tally(tags: Ints, kinds: int) -> Floats:
    return np.bincount(tags[tags >= 0], minlength=kinds).astype(np.float64)


WRITTEN: Final = ("size", "odd size", "gap", "lag", "names", "breadth", "tag rate")
"""Known when a memory is written, or at the last look: the part of a score that stands still."""

LIVED: Final = ("age", "old age", "references", "since last", "names by age", "number distance")
"""What changes from one write to the next."""

AGE_ONLY: Final = (len(WRITTEN), len(WRITTEN) + 1)
"""The features of an expectation that knows ages alone."""

NOT_REFERRED: Final = 60
"""Memories drawn, for each reference, among those it might have fallen on: half of them near."""

PENALTY: Final = 20.0
"""Of a squared weight. Features are about one wide, so a weight is within 0.2 of none until some
tens of references say otherwise."""

MOST_REFERENCES: Final = 4000
"""The newest references that are fitted."""

MARGIN: Final = 2.0
"""Standard errors by which expectations must have beaten age alone before they are acted on."""

FEWEST_TRIED: Final = 100
"""References that must have been tried before the record counts: with fewer, two or three losses by
chance outweigh what there is to gain."""

LENGTH_UNKNOWN: Final = 0.3
"""How much a memory's length counts against it per token while age alone decides. Of 0.1 to 0.5, on
nine public histories, the power that served most without losing a point anywhere; 1 would be right
if long memories were referred to no more than short ones."""

HEAD: Final = 10
"""Tokens that a memory is taken to cost beside its own: a word or two are not for nothing."""


@dataclass(frozen=True)
class Expectation:
    """Scores of memories at any moment of a history, each from what was known by then."""

    experience: Experience

    @property
    def weights(self) -> Floats:
        """Weights after each look, shape (looks, features)."""
        return self._fits[0]

    @cached_property
    def trusted(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Whether, at each look, expectations made before had beaten age alone by the margin."""
        _, gain = self._fits
        known = np.isfinite(gain)
        trusted = np.zeros(len(self.experience.looks), dtype=bool)
        for look, seen in enumerate(self._seen[:-1]):
            record = gain[:seen][known[:seen]]
            if len(record) >= FEWEST_TRIED:
                error = record.std(ddof=1) / np.sqrt(len(record))
                trusted[look] = record.mean() > MARGIN * error
        return trusted

    def look_before(self, moment: int) -> int | None:
        """Return the look whose weights are in use at a moment; None while age alone decides."""
        look = int(np.searchsorted(self.experience.looks, moment, side="right")) - 1
        return look if look >= 0 and self.trusted[look] else None

    def scores(self, memories: Ints, moment: int) -> Floats:
        """Return the log likelihood of a next reference to each memory, but for a constant."""
        look = self.look_before(moment)
        if look is None:
            return memories.astype(np.float64)
        weights = self.weights[look]
        lived = self._lived(memories, np.int64(moment))
        return np.asarray(self._standing[look][memories] + lived @ weights[len(WRITTEN) :])

    def scores_per_token(self, memories: Ints, moment: int, tokens: Ints) -> Floats:
        """Return the same for each of their tokens."""
        cost = np.log(tokens + HEAD)
        if self.look_before(moment) is None:
            return np.asarray(-np.log(moment - memories) - LENGTH_UNKNOWN * cost)
        return np.asarray(self.scores(memories, moment) - cost)

    @cached_property
    def _standing(self) -> dict[int, Floats]:
        """What the features known at writing add to scores, for each look that is acted on."""
        return {
            look: self._written(np.arange(len(self.experience)), np.int64(look + 1))
            @ self.weights[look, : len(WRITTEN)]
            for look in np.flatnonzero(self.trusted).tolist()
        }

    def _written(self, memory: Ints, look: "Ints | np.int64") -> Floats:
        past = self.experience
        return np.stack(
            [
                past.size[memory],
                past.size[memory] ** 2 - 1.0,
                past.gap[memory],
                past.lag[memory],
                past.names[memory],
                past.breadth[memory],
                past.tag_rates[look, memory],
            ],
            axis=-1,
        )

    def _lived(self, memory: Ints, moment: "Ints | np.int64") -> Floats:
        past = self.experience
        age = np.log(moment - memory)
        references, last = past.references_before(memory, moment)
        since = np.where(references > 0, np.log(np.maximum(moment - last, 1)) - 4.0, 0.0)
        distance = np.abs(past.highest[moment - 1] - past.number[memory])
        columns = (
            age,
            np.maximum(age - 5.0, 0.0),
            np.log1p(references),
            since,
            past.names[memory] * (age - 4.0),
            np.log1p(distance),
        )
        return np.stack(columns, axis=-1)

    @cached_property
    def _seen(self) -> Ints:
        """References that had arisen by each look, and by the end."""
        past = self.experience
        return np.append(np.searchsorted(past.at, past.looks), len(past.at))

    @cached_property
    def _draws(self) -> Floats:
        """A number below one for each memory drawn for each reference."""
        return np.random.default_rng(0).random((len(self.experience.at), NOT_REFERRED))

    @cached_property
    def _fits(self) -> tuple[Floats, Floats]:
        """Weights after each look, and what they gained on age alone at each reference after it.

        The gain is a difference of log shares, NaN before the first look.
        """
        weights = np.zeros((len(self.experience.looks), len(WRITTEN) + len(LIVED)))
        gain = np.full(len(self.experience.at), np.nan)
        for line, seen, until in zip(weights, self._seen[:-1], self._seen[1:], strict=True):
            cases, odds = self._cases(max(0, seen - MOST_REFERENCES), seen)
            line[:] = fit_choice(cases, odds, AGE_ONLY[0])
            age_alone = np.zeros_like(line)
            age_alone[list(AGE_ONLY)] = fit_choice(cases[..., list(AGE_ONLY)], odds, 0)
            cases, odds = self._cases(seen, until)
            gain[seen:until] = log_shares(cases, odds, line) - log_shares(cases, odds, age_alone)
        return weights, gain

    def _cases(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return for some references the features of target and others, and the drawing odds."""
        moment = self.experience.at.reshape(-1, 1)[first:last]
        draws = self._draws[first:last]
        near = NOT_REFERRED // 2
        ages = np.empty((len(moment), NOT_REFERRED + 1), dtype=np.int64)
        ages[:, 0] = moment[:, 0] - self.experience.target[first:last]
        ages[:, 1 : near + 1] = np.exp(draws[:, :near] * np.log(moment + 1.0))
        ages[:, near + 1 :] = 1 + draws[:, near:] * moment
        ages = np.clip(ages, 1, moment)
        odds = 0.5 * np.log((ages + 1.0) / ages) / np.log(moment + 1.0) + 0.5 / moment
        look = np.searchsorted(self.experience.looks, moment, side="right")
        memory = moment - ages
        features = np.concatenate(
            [self._written(memory, look), self._lived(memory, moment)], axis=-1
        )
        return features, np.log(odds)


def log_shares(cases: Floats, odds: Floats, weights: Floats) -> Floats:
    """Return the logarithm of the share that the first alternative of each case has."""
    score = cases @ weights - odds
    return np.asarray(score[:, 0] - np.logaddexp.reduce(score, axis=1))


def fit_choice(cases: Floats, odds: Floats, age: int) -> Floats:
    """Fit weights by penalised maximum likelihood (Newton's method, halving steps too long)."""
    start = np.zeros(cases.shape[-1])
    start[age] = -1.0
    weights, value = start, -np.inf
    step, scale = np.zeros_like(start), 1.0
    for _ in range(60):
        trial = weights + scale * step
        score = cases @ trial - odds
        total = np.logaddexp.reduce(score, axis=1)
        reached = float((score[:, 0] - total).sum() - PENALTY / 2 * ((trial - start) ** 2).sum())
        if reached < value:
            scale /= 2
            continue
        gained, weights, value = reached - value, trial, reached
        if gained < 1e-6:
            break
        share = np.exp(score - total[:, None])
        mean = np.einsum("en,enf->ef", share, cases)
        slope = (cases[:, 0] - mean).sum(axis=0) - PENALTY * (weights - start)
        spread = (cases * np.sqrt(share)[..., None]).reshape(-1, len(start))
        curvature = spread.T @ spread - mean.T @ mean + PENALTY * np.eye(len(start))
        step, scale = np.linalg.solve(curvature, slope), 1.0
    return weights


@dataclass(frozen=True)
class Learned(CappedPolicy):
    """Keep the prunable memories that are the most likely to be referred to next.

    How likely is learned from the references so far: which of the memories there at the time each
    fell on, by age, length, tags, what they name, how often and how lately they had been referred
    to. It is fitted again as references arise. Until there have been enough, and unless it has told
    references it had not seen better than age alone, it keeps the newest, as `KeepRecent` does.

    With `max_items` it counts memories, and load-bearing ones come on top, as under `KeepRecent`:
    what is referred to tends to be long, so the same number of them takes more tokens than the
    newest would. With `max_tokens` it counts tokens, load-bearing ones among them, as `TokenBudget`
    does, and keeps what is the most likely to be referred to per token; while age alone decides, of
    two memories of one age the shorter.

    A store that has been compacted shows only what was kept. :func:`memlab.plan` gives it the rows
    that the store's archive keeps as well; anywhere else do so with :meth:`after`. Without them it
    learns from what is there.

    Raises
    ------
    ValueError
        If neither or both of `max_items` and `max_tokens` are given, or one is not a whole number
        of 0 or more.
    """

    max_items: int | None = field(
        default=None, metadata={"help": "prunable memories to keep", "least": 0, "size": True}
    )
    max_tokens: int | None = field(
        default=None,
        metadata={"help": "tokens that the boot context may take", "least": 0, "size": "tokens"},
    )
    past: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    references: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "learned"
    origin: ClassVar[str] = "memlab: what the store's own past says will be referred to"
    reason: ClassVar[str] = "least-expected"
    learns: ClassVar[bool] = True
    runner: ClassVar[Runner] = "learned"
    goes_by: ClassVar[GoesBy] = "use"

    def __post_init__(self) -> None:
        """Refuse two measures of room, or none."""
        super().__post_init__()
        if (self.max_items is None) == (self.max_tokens is None):
            both = "" if self.max_items is None else ", not both"
            raise ValueError(f"give either max_items or max_tokens{both}: the room there is")

    @property
    def slots(self) -> int | None:
        """How many prunable rows stay, or for how many tokens there is room."""
        return self.max_tokens if self.max_items is None else self.max_items

    def sizes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the tokens of each row; or one for each prunable row, and none for the others."""
        if self.max_items is None:
            return rows[col.TOKENS].to_numpy(dtype=np.int64)
        return (~rows[col.LOAD_BEARING].to_numpy(dtype=bool)).astype(np.int64)

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the policy with a past to learn from.

        Parameters
        ----------
        past : DataFrame
            Every row that was ever written, gone ones among them, as :func:`memlab.load` returns.
        references : DataFrame, optional
            What ``find_references`` returns; found in `past` when not given.
        """
        policy = replace(self)
        object.__setattr__(policy, "past", past)
        object.__setattr__(policy, "references", references)
        return policy

    def expectation(
        self, frame: pd.DataFrame, references: pd.DataFrame | None = None
    ) -> Expectation:
        """Return the expectation that a history gives rise to.

        Parameters
        ----------
        frame : DataFrame
            Rows in rowid order, those pruned since among them.
        references : DataFrame, optional
            What ``find_references`` returns; found in the frame when not given.
        """
        return Expectation(experience_of(frame, references))

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:  # noqa: ARG002
        """Return how likely each row is to be referred to next; 0 for a load-bearing one.

        With `max_tokens`, how likely for each of its tokens.
        """
        here = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(dict(rows))
        past = here if self.past is None else _with_past(self.past, here)
        expectation = self.expectation(past, self.references)
        counted = past.loc[~past[col.LOAD_BEARING], col.MEMORY_ID]
        # An id may have been deleted and written again: the newest of them counts.
        newest = np.flatnonzero(~counted.duplicated(keep="last"))
        place = pd.Index(counted.iloc[newest]).get_indexer(here[col.MEMORY_ID])
        scores = np.zeros(len(here))
        known = place >= 0
        tokens = here[col.TOKENS].to_numpy(dtype=np.int64)[known]
        scores[known] = self.ranking(expectation, newest[place[known]], len(counted), tokens)
        return (scores,)

    def ranking(
        self, expectation: Expectation, memories: Ints, moment: int, tokens: Ints
    ) -> npt.NDArray[np.float64]:
        """Return what memories are ranked by; see :meth:`Expectation.scores`."""
        if self.max_tokens is None:
            return expectation.scores(memories, moment)
        return expectation.scores_per_token(memories, moment, tokens)


def _with_past(past: pd.DataFrame, here: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the past and any written since, in rowid order."""
    new = here[~here[col.MEMORY_ID].isin(past[col.MEMORY_ID])]
    every = pd.concat([past, new[list(past.columns.intersection(new.columns))]])
    return every.sort_values(col.POSITION, kind="stable").reset_index(drop=True)
