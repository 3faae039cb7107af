"""Keep what is the most likely to be needed next: a conditional logit over what is there.

McFadden (1974) has the likelihood; sampling the memories not needed leaves its maximum where it was
(McFadden 1978). Weights start from other stores' and move with the store's own needs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.prior import EVIDENCE, Evidence
from memlab.evidence.references import find_references, references_on_rows
from memlab.evidence.usage import HALF_LIFE
from memlab.frame.fields import Flags, Floats, Ints, as_instant
from memlab.policies.base import CappedPolicy, GoesBy, Keys, Rows, Runner

WRITTEN: Final = ("size", "odd size", "gap", "lag", "names", "breadth", "tag rate")
"""Known when a memory is written, or at the last look: the part of a score that stands still."""

LIVED: Final = (
    *("age", "old age", "needs", "since last", "names by age", "number distance"),
    *("days", "fading needs", "days since last"),
)
"""What changes from one write or need to the next."""

OTHERS: Final = 60
"""Memories drawn, for each need, among those it might have fallen on: half of them near."""

MOST_NEEDS: Final = 4000
"""The newest needs that are fitted, or tried, at a look."""

MARGIN: Final = 2.0
"""Standard errors by which what was expected must have served less than the newest in as much room
for age to decide."""

LENGTH_UNKNOWN: Final = 0.3
"""How much a memory's length counts against it per token while age alone decides. Of 0.1 to 0.5, on
nine public histories, the power that served most without losing a point anywhere; 1 would be right
if long memories were needed no more than short ones."""

HEAD: Final = 10
"""Tokens that a memory is taken to cost beside its own: a word or two are not for nothing."""

FIRST_LOOK: Final = 10
"""Needs seen before a store's own weights are fitted for the first time."""

GROWTH: Final = 1.15
"""By how much needs grow from one look to the next."""

TAG_PRIOR: Final = 10.0
"""Needs' worth of belief that a tag is needed as much as any other."""

_LAST_NUMBER: Final = r"(?:^|[^0-9A-Za-z])(\d{1,15})$"
_DAY: Final = np.timedelta64(1, "D")
_EPOCH: Final = np.datetime64(0, "us")


@dataclass(frozen=True)
class Experience:
    """Memories in order of writing, load-bearing ones left out, and their needs, times in days."""

    tokens: Ints
    written: Floats
    """What is known of each when it is written, from size to breadth in the words of `Learned`."""
    names: Floats
    number: Floats
    highest: Floats
    tags: Ints
    born: Floats
    at: Ints
    target: Ints
    when: Floats
    read: Flags
    position: Ints
    """The position that was about to be written when each need arose."""
    floor: Ints
    """Tokens of the load-bearing memories that had been written when each need arose."""
    searched: bool
    """Whether memories are found by searching, none of them loaded at start."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def looks(self) -> Ints:
        """Needs that had arisen when everything so far is looked at again."""
        counts, count = [], FIRST_LOOK
        while count <= len(self.at):
            counts.append(count)
            count = max(count + FIRST_LOOK, int(count * GROWTH))
        return np.array(counts, dtype=np.int64)

    @cached_property
    def tag_rates(self) -> Floats:
        """How much more a memory's tags were needed: a shrunken log, (looks + 1, memories)."""
        kinds = int(self.tags.max(initial=-1)) + 1
        rates = np.zeros((len(self.looks) + 1, len(self)))
        if not kinds:
            return rates
        carries = self.tags >= 0
        share = carries / np.maximum(carries.sum(axis=1, keepdims=True), 1)
        for line, seen in zip(rates[1:], self.looks.tolist(), strict=True):
            moment = self.at[seen - 1]
            needed = _tally(self.tags[self.target[:seen]], kinds)
            written = _tally(self.tags[:moment], kinds)
            overall = seen / moment
            rate = (needed + TAG_PRIOR) / (written + TAG_PRIOR / overall) / overall
            line[:] = (np.append(np.log(rate), 0.0)[self.tags] * share).sum(axis=1)
        return rates

    @cached_property
    def before(self) -> Ints:
        """Needs that had arisen before each: those of one moment know nothing of each other."""
        new = np.ones(len(self.at), dtype=bool)
        new[1:] = (np.diff(self.at) > 0) | (np.diff(self.when) > 0)
        return np.maximum.accumulate(np.where(new, np.arange(len(self.at)), 0))

    def use(self, memory: Ints, seen: "Ints | int") -> tuple[Ints, Ints, Floats, Floats]:
        """Say of each memory, by `seen` needs: their count, the last (place, time), fading sum."""
        keys, order, fading = self._by_target
        span = len(self.at) + 1
        first = np.searchsorted(keys, memory * span)
        past = np.searchsorted(keys, memory * span + seen)
        needed = past > first
        last = np.where(needed, np.append(order, 0)[past - 1], -1)
        at = np.append(self.at, -1)[last]
        when = np.where(needed, np.append(self.when, 0.0)[last], self.born[memory])
        return past - first, at, when, np.where(needed, np.append(fading, 0.0)[past - 1], 0.0)

    @cached_property
    def _by_target(self) -> tuple[Ints, Ints, Floats]:
        """Needs by memory, as one key; their numbers; their sum by each, fading."""
        order = np.argsort(self.target, kind="stable")
        fading = np.ones(len(order))
        target, when = self.target[order], self.when[order]
        again = np.flatnonzero(target[1:] == target[:-1]) + 1
        kept = 0.5 ** (np.maximum(when[again] - when[again - 1], 0.0) / HALF_LIFE)
        for place, share in zip(again.tolist(), kept.tolist(), strict=True):
            fading[place] += share * fading[place - 1]
        return target * (len(order) + 1) + order, order, fading


def experience_of(frame: pd.DataFrame, references: pd.DataFrame | None = None) -> Experience:
    """Return what a store has lived through."""
    if references is None:
        references = find_references(frame)
    counted = ~frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = frame.loc[counted]
    target, at, place = references_on_rows(rows, references)
    gaps = rows[col.CREATED_AT].diff().dt.total_seconds().to_numpy(dtype=np.float64)
    born = np.fmax.accumulate(np.append(0.0, _days(rows[col.CREATED_AT])))[1:]
    when = _days(references[col.AT].iloc[place])
    when = np.where(np.isnan(when), np.append(born, born[-1:])[at], when)
    read = (references[col.KIND].iloc[place] == "log").to_numpy(dtype=bool)
    order = np.lexsort((target, when, at))
    days = pd.DataFrame({"target": target[order], "day": np.floor(when[order])})
    order = order[~(days.duplicated().to_numpy() & read[order])]
    number, highest = _task_numbers(rows)
    size = _standardised(np.log1p(rows[col.CHARS].to_numpy(dtype=np.float64)))
    gap = _standardised(np.log1p(np.nan_to_num(np.maximum(gaps, 0.0))))
    lag = _standardised(np.log1p(highest - number))
    names = np.log1p(_lengths(rows[col.EVIDENCE_REFS]))
    breadth = np.minimum(_lengths(rows[col.TAGS]), 4.0) - 2.0
    tokens = frame[col.TOKENS].to_numpy(dtype=np.int64)
    floor = np.cumsum(tokens * ~counted)
    before = np.searchsorted(frame[col.POSITION], references[col.AT_POSITION].iloc[place[order]])
    return Experience(
        tokens=tokens[counted],
        floor=np.append(0, floor)[before],
        written=np.column_stack([size, size**2 - 1.0, gap, lag, names, breadth]),
        names=names,
        number=number,
        highest=highest,
        tags=_tag_numbers(rows[col.TAGS]),
        born=born,
        at=at[order],
        target=target[order],
        when=when[order],
        read=read[order],
        position=references[col.AT_POSITION].to_numpy(dtype=np.int64)[place[order]],
        searched=col.LOADED_AT_START in frame and not frame[col.LOADED_AT_START].any(),
    )


def days_of(moment: datetime) -> float:
    """Return a moment as days."""
    return float((as_instant(moment) - _EPOCH) / _DAY)


def _days(times: "pd.Series[Any]") -> Floats:
    naive = times.astype(col.TIME).dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    return (naive - _EPOCH) / _DAY


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


class Weights(NamedTuple):
    """Weights of :data:`WRITTEN` and :data:`LIVED` over stores: mean and standard deviation."""

    mean: Floats
    spread: Floats


@cache
def fitted_weights(evidence: Evidence) -> Weights:
    """Return the weights as ``data/fit_weights.py`` fitted them on public histories."""
    text = files("memlab.policies").joinpath("weights.json").read_text("utf-8")
    fitted = json.loads(text)[evidence]["weights"]
    return Weights(*np.array([fitted[name] for name in (*WRITTEN, *LIVED)], dtype=np.float64).T)


class Moment(NamedTuple):
    """When something is asked: memories written, needs that had arisen, and the time in days."""

    written: "Ints | int"
    seen: "Ints | int"
    now: "Floats | float"


class Space(NamedTuple):
    """What is kept has so much room: memories, load-bearing ones aside, or tokens with them."""

    size: int
    of_tokens: bool


@dataclass(frozen=True)
class Expectation:
    """Scores of memories at any moment of a history, each from what was known by then."""

    experience: Experience
    of_others: Mapping[Evidence, Weights] | None = None
    """What weights start from, other than the fitted ones."""
    _trusted: dict[Space, Flags] = field(default_factory=dict, init=False, repr=False)

    def prior(self, seen: int) -> Weights:
        """Return what is known of weights from other stores, by the kinds of the needs seen."""
        known = self.of_others or {kind: fitted_weights(kind) for kind in EVIDENCE}
        share = (
            float(self.experience.read[:seen].mean()) if seen else float(self.experience.searched)
        )
        both = zip(known["reads"], known["references"], strict=True)
        return Weights(*(share * reads + (1 - share) * references for reads, references in both))

    @cached_property
    def weights(self) -> Floats:
        """Weights before the first look, by the kinds of the needs it brings, and after each."""
        weights = np.empty((len(self._seen) - 1, len(WRITTEN) + len(LIVED)))
        for line, seen, until in zip(weights, self._seen[:-1], self._seen[1:], strict=True):
            prior = self.prior(seen or until)
            line[:] = prior.mean
            if seen:
                line[:], _ = fit_choice(*self.cases(max(0, seen - MOST_NEEDS), seen), prior)
        return weights

    def trusted(self, space: Space) -> Flags:
        """Whether expectations decide: at first, and after each look unless age served more."""
        if space not in self._trusted:
            floor = self.experience.floor * space.of_tokens
            expected, newest = self._reach[int(space.of_tokens)] <= space.size - floor
            gain = expected.astype(np.float64) - newest
            count = np.arange(1, len(gain) + 1)
            mean = np.cumsum(gain) / count
            error = np.sqrt(np.maximum(np.cumsum(gain**2) / count - mean**2, 0.0) / count)
            looks = self.experience.looks - 1
            self._trusted[space] = np.append(True, (mean + MARGIN * error >= 0)[looks])
        return self._trusted[space]

    def decides(self, seen: "Ints | int", space: Space) -> bool:
        """Return whether expectations decide once so many needs have arisen, not age alone."""
        return bool(self.trusted(space)[self._look(seen)])

    def scores(self, memories: Ints, moment: Moment, space: Space) -> Floats:
        """Return the log likelihood of a next need of each memory, or token, but for a constant."""
        cost = np.log(self.experience.tokens[memories] + HEAD) if space.of_tokens else 0.0
        if not self.decides(moment.seen, space):
            return np.asarray(-np.log(moment.written - memories) - LENGTH_UNKNOWN * cost)
        look = self._look(moment.seen)
        weights = self.weights[look] if look else self.prior(int(moment.seen)).mean
        standing = self._written(memories, look) @ weights[: len(WRITTEN)]
        lived = self._lived(memories, moment) @ weights[len(WRITTEN) :]
        return np.asarray(standing + lived - cost)

    def _look(self, seen: "Ints | int") -> Any:
        return np.searchsorted(self.experience.looks, seen, side="right")

    def _written(self, memory: Ints, look: Any) -> Floats:
        past = self.experience
        rates = past.tag_rates[look, memory]
        return np.concatenate([past.written[memory], rates[..., None]], axis=-1)

    def _lived(self, memory: Ints, moment: Moment) -> Floats:
        past, written = self.experience, np.asarray(moment.written)
        age = np.log(written - memory)
        needs, last, when, fading = past.use(memory, moment.seen)
        idle = np.maximum(moment.now - when, 0.0)
        columns = (
            age,
            np.maximum(age - 5.0, 0.0),
            np.log1p(needs),
            np.where(needs > 0, np.log(np.maximum(written - last, 1)) - 4.0, 0.0),
            past.names[memory] * (age - 4.0),
            np.log1p(np.abs(past.highest[written - 1] - past.number[memory])),
            np.log1p(np.maximum(moment.now - past.born[memory], 0.0)),
            np.log1p(fading * 0.5 ** (idle / HALF_LIFE)),
            np.log1p(idle),
        )
        return np.stack(columns, axis=-1)

    @cached_property
    def _seen(self) -> Ints:
        """Needs that had arisen at first, by each look, and by the end."""
        return np.concatenate([[0], self.experience.looks, [len(self.experience.at)]])

    @cached_property
    def _draws(self) -> Floats:
        """A number below one for each memory drawn for each need."""
        return np.random.default_rng(0).random((len(self.experience.at), OTHERS))

    @cached_property
    def _reach(self) -> Floats:
        """Memories, then tokens, that rank no lower than each need did: as expected, and by age."""
        past = self.experience
        reach = np.zeros((2, 2, len(past.at)))
        for seen, last, weights in zip(self._seen[:-1], self._seen[1:], self.weights, strict=True):
            first = max(seen, last - MOST_NEEDS)
            written, memory, log_odds = self._drawn(first, last)
            score = self.cases(first, last)[0] @ weights
            for line, tokens in zip(reach, (np.ones_like(past.tokens), past.tokens), strict=True):
                size, whole = tokens[memory], np.append(0, np.cumsum(tokens))[written[:, 0]]
                share = size[:, 1:] * np.exp(-log_odds[:, 1:])
                drawn = share.sum(axis=1)  # nothing where none of them has a token
                scale: Any = (whole - size[:, 0]) / np.where(drawn > 0, drawn, 1.0)
                share *= scale[:, None]
                cost = np.log(size + HEAD) * (tokens is past.tokens)
                by_age = -np.log(written - memory) - LENGTH_UNKNOWN * cost
                for kind, rank in enumerate((score - cost, by_age)):
                    above = rank[:, 1:] > rank[:, :1]
                    line[kind, first:last] = size[:, 0] + (share * above).sum(axis=1)
            reach[0, 1, first:last] = written[:, 0] - memory[:, 0]
        return reach

    def cases(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return for some needs the features of target and others, and the log of drawing odds."""
        past = self.experience
        written, memory, log_odds = self._drawn(first, last)
        seen = past.before[first:last, None]
        moment = Moment(written, seen, past.when[first:last, None])
        parts = self._written(memory, self._look(seen)), self._lived(memory, moment)
        return np.concatenate(parts, axis=-1), log_odds

    def _drawn(self, first: int, last: int) -> tuple[Ints, Ints, Floats]:
        """Return for some needs what was written, target and others, and their log drawing odds."""
        at, draws = self.experience.at, self._draws[first:last]
        written = at[first:last, None]
        near = OTHERS // 2
        ages = np.empty((len(written), OTHERS + 1), dtype=np.int64)
        ages[:, 0] = written[:, 0] - self.experience.target[first:last]
        ages[:, 1 : near + 1] = np.exp(draws[:, :near] * np.log(written + 1.0))
        ages[:, near + 1 :] = 1 + draws[:, near:] * written
        ages = np.clip(ages, 1, written)
        odds = 0.5 * np.log((ages + 1.0) / ages) / np.log(written + 1.0) + 0.5 / written
        return written, written - ages, np.log(odds)


def fit_choice(cases: Floats, log_odds: Floats, prior: Weights) -> tuple[Floats, Floats]:
    """Fit weights by penalised maximum likelihood; return the curvature there, too."""
    start, precision = prior.mean, prior.spread**-2.0
    weights, value = start, -np.inf
    step, scale = np.zeros_like(start), 1.0
    for _ in range(60):
        trial = weights + scale * step
        score = cases @ trial - log_odds
        total = np.logaddexp.reduce(score, axis=1)
        reached = float((score[:, 0] - total).sum() - precision @ (trial - start) ** 2 / 2)
        if reached < value:
            scale /= 2
            continue
        gained, weights, value = reached - value, trial, reached
        share = np.exp(score - total[:, None])
        mean = np.einsum("en,enf->ef", share, cases)
        slope = (cases[:, 0] - mean).sum(axis=0) - precision * (weights - start)
        spread = (cases * np.sqrt(share)[..., None]).reshape(-1, len(start))
        curvature = spread.T @ spread - mean.T @ mean + np.diag(precision)
        if gained < 1e-6:
            break
        step, scale = np.linalg.solve(curvature, slope), 1.0
    return weights, curvature


class _Expected(NamedTuple):
    """What a past lets expect, and the ids of the memories that it is about."""

    expectation: Expectation
    counted: "pd.Series[Any]"


@dataclass(frozen=True)
class Learned(CappedPolicy):
    """Keep the prunable memories that are the most likely to be needed next.

    How likely goes by age in memories and in days, by how often, how lately and on how many days a
    memory was referred to or read, by length, tags and what it names. What each says is known from
    other stores, of reads and of references apart, and moves with every need of the store itself:
    which of the memories there at the time it fell on. Where that would have served fewer needs
    than age alone in the room there is, it keeps the newest, as `KeepRecent` does, and its reason
    says so.

    With `max_items` it counts memories, and load-bearing ones come on top, as under `KeepRecent`:
    what is needed tends to be long, so the same number of them takes more tokens than the newest
    would. With `max_tokens` it counts tokens, load-bearing ones among them, as `TokenBudget` does,
    and keeps what is the most likely to be needed per token, then what else fits; while age alone
    decides, of two memories of one age the shorter.

    A store that has been compacted shows only what was kept, and a log of reads is no part of it.
    :func:`memlab.plan` gives both; anywhere else do so with :meth:`after`. Without them it learns
    from what is there.
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
    expected: "_Expected | None" = field(default=None, init=False, repr=False, compare=False)

    origin: ClassVar[str] = "memlab: what needs so far, here and elsewhere, say of the next"
    reason: ClassVar[str] = "least-expected"
    by_age: ClassVar[str] = "oldest: use served fewer needs than age"
    fills: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    runner: ClassVar[Runner] = "learned"
    goes_by: ClassVar[GoesBy] = "use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.max_items is None) == (self.max_tokens is None):
            both = "" if self.max_items is None else ", not both"
            raise ValueError(
                f"give either max_items (--max-items) or max_tokens (--max-tokens){both}: how much "
                "it may keep"
            )

    @property
    def slots(self) -> int | None:
        """How many prunable rows stay, or for how many tokens there is room."""
        return self.max_tokens if self.max_items is None else self.max_items

    @property
    def space(self) -> Space:
        """The same, and what is counted."""
        return Space(int(self.slots or 0), self.max_items is None)

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the tokens of each row; or one for each prunable row, and none for the others."""
        if self.max_items is None:
            return rows[col.TOKENS].to_numpy(dtype=np.int64)
        return (~rows[col.LOAD_BEARING].to_numpy(dtype=bool)).astype(np.int64)

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the policy with a past to learn from."""
        policy = replace(self)
        vars(policy).update(past=past, references=references)
        return policy

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the least expected rows, as many as there is no room for."""
        told, expected = replace(self), self._expected(rows)
        vars(told).update(expected=expected)
        named = super(Learned, told).evict(rows, now=now)
        needs = len(expected.expectation.experience.at)
        decides = expected.expectation.decides(needs, self.space)
        return named if decides else named.replace(self.reason, self.by_age)

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:
        """Return how likely each row, or each of its tokens, is to be needed; 0 if load-bearing."""
        here = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(dict(rows))
        expectation, counted = self.expected or self._expected(here)
        # An id may have been deleted and written again: the newest of them counts.
        newest = np.flatnonzero(~counted.duplicated(keep="last"))
        place = pd.Index(counted.iloc[newest]).get_indexer(pd.Index(here[col.MEMORY_ID]))
        scores = np.zeros(len(here))
        known = place >= 0
        moment = Moment(len(counted), len(expectation.experience.at), days_of(now))
        scores[known] = expectation.scores(newest[place[known]], moment, self.space)
        return (scores,)

    def _expected(self, here: pd.DataFrame) -> "_Expected":
        past = here
        if self.past is not None:  # and what was written since, in rowid order
            new = here[~here[col.MEMORY_ID].isin(self.past[col.MEMORY_ID])]
            both = [self.past, new[list(self.past.columns.intersection(new.columns))]]
            past = pd.concat(both).sort_values(col.POSITION, kind="stable", ignore_index=True)
        counted = past.loc[~past[col.LOAD_BEARING], col.MEMORY_ID]
        return _Expected(Expectation(experience_of(past, self.references)), counted)
