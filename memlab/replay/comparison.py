"""Policies side by side on one history, and which are tried, at which sizes, where nobody says."""

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import active_children
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from memlab import columns as col
from memlab.arguments import expect, refusal, whole_number
from memlab.evidence.past import Memories, names_a_store
from memlab.evidence.reads import Log
from memlab.evidence.references import evidence_of, with_references
from memlab.frame.fields import Flags
from memlab.frame.loading import expect_references
from memlab.policies import KeepAll, Policy, policy_named
from memlab.policies.named import Named, family_of, label_of, options_of, policy_in, policy_of
from memlab.policies.typed import REQUIRED, Setting
from memlab.replay.life import Life, life_of
from memlab.replay.walk import BOOT_MEMORIES, BOOT_TOKENS, KEPT, Replay, bound_of, walk_through
from memlab.sizing.history import mean_p95_max
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import open_source, settings_of
from memlab.text import Cell, Sheet, Shown, Table, command, counted, in_shell, or_dash

SIZES: Final[Mapping[str, Sequence[str]]] = {
    "count": ("50", "100", "200", "500", "1000"),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": ("2000", "5000", "10000", "25000", "50000"),
}
"""Settings that are tried where none are named: those people ask about."""

TRIED: Final = ("recent", "ttl", "value", "learned")
RETIRING: Final = (*TRIED, "tokens")
"""The same where retiring is tried, by which room in tokens is what is saved."""


def with_remembered(policies: list[Policy], source: Source) -> list[Policy]:
    """Return policies and the one that is remembered of a store; its horizon is no matter here."""
    settings = settings_of(source)
    remembered = policy_in_force(source).policy if settings.is_auto else policy_in(settings)
    return [*policies, *([remembered] if remembered and remembered not in policies else [])]


def variants(
    tried: Iterable[Named],
    sizes: Mapping[str, Sequence[Any]],
    texts: Mapping[str, list[str]],
    *,
    both: bool,
) -> Iterator[tuple[Named, dict[str, str]]]:
    """Yield each policy at its sizes and settings; where `both`, by number and by tokens."""
    for named in tried:
        said = {key: values for key, values in texts.items() if key in named.settings}
        rooms = {key for key in said if named.settings[key].size not in {"", "age"}}
        for size in _varied(named, both=both and not rooms) or [None]:
            own = dict(said)
            if size is not None and (not rooms or size.name in rooms or size.size == "age"):
                tried_at = sizes.get(size.size) or SIZES[size.size]
                own.setdefault(size.name, [*map(str, tried_at)])
            for each in product(*own.values()):
                yield named, dict(zip(own, each, strict=True))


def _varied(named: Named, *, both: bool) -> list[Setting | None]:
    """Return the setting by which a policy is tried at several sizes: one it needs, if any."""
    sizes = [one for one in named.settings.values() if one.size]
    sizes.sort(key=lambda one: (one.default is not REQUIRED, one.size == "age"))
    return [*sizes[:1], *(one for one in sizes[1:] if both and one.size != "age")]


Asked = tuple[Policy, bool]
"""A policy, and whether it retires."""

SMALL: Final = 100_000
"""Rows times policies below which starting processes takes longer than it saves."""


def replay_each(
    frame: Memories,
    references: pd.DataFrame | None,
    policies: Iterable[Policy],
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> list[Replay]:
    """Replay one history under each of several policies, and return the replays in their order.

    Parameters
    ----------
    frame, references, every
        As for :func:`memlab.replay.replay`.
    policies : iterable of Policy
        One for each setting to try.
    workers, progress
        As for :func:`memlab.compare`.
    """
    given = _policies_of(policies)
    with_body = any(step.reads_bodies for policy in given for step in policy.steps)
    history = with_references(frame, references, call="memlab.compare", with_body=with_body)
    life = life_of(*history)
    asked = [(policy, False) for policy in given]
    return _replays(life, asked, every=every, workers=workers, progress=progress)


def _replays(
    life: Life, asked: list[Asked], *, every: int, workers: int | None, progress: bool
) -> list[Replay]:
    """Replay a history that has been prepared; see :func:`replay_each`."""
    every = whole_number("every", every, least=1)
    if workers is None:
        workers = 1
        if len(asked) > 1 and len(life) * len(asked) >= SMALL:
            with suppress(pickle.PicklingError, AttributeError, TypeError):
                pickle.dumps(asked)  # what does not travel is replayed here
                workers = os.cpu_count() or 1
    workers = whole_number("workers", workers, least=1)
    bar = partial(
        tqdm, total=len(asked), desc="replays", unit="policy", disable=not progress, leave=False
    )
    replayed = partial(_replay_one, life=life, every=every)
    if workers == 1:
        return [*map(replayed, bar(asked))]
    # A worker that Ctrl-C stops amid its work, or a second Ctrl-C while workers end, would leave
    # Python waiting for ever. They are started without it, and ended.
    others = active_children()
    with _ctrl_c(SIG_BLOCK), ProcessPoolExecutor(min(workers, len(asked))) as pool:
        found = [pool.submit(replayed, each) for each in asked]
        try:
            with _ctrl_c(SIG_UNBLOCK):
                return [each.result() for each in bar(found)]
        except BaseException:
            for worker in {*active_children()}.difference(others):
                worker.terminate()
            raise


@contextmanager
def _ctrl_c(how: int) -> Iterator[None]:
    """Hold Ctrl-C back from this thread and those who start from it, or let it through."""
    before = pthread_sigmask(how, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)


def _policies_of(policies: object) -> list[Policy]:
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise refusal(policies, "policies", call="memlab.compare", name="policies")
    given = list(policies)
    for policy in given:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return given


def _replay_one(asked: Asked, life: Life, every: int) -> Replay:
    policy, retire = asked
    return walk_through(life, policy, every=every, retire=retire)


def compare(  # noqa: PLR0913 - what is compared, how, and by how many
    frame: Memories,
    references: pd.DataFrame | None = None,
    policies: Iterable[Policy] | None = None,
    *,
    every: int | None = None,
    retire: bool = False,
    token_budget: int | None = None,
    log: Log = None,
    workers: int | None = None,
    progress: bool = False,
) -> "Comparison":
    """Compare policies on one history: what each would have lost, and what that saved.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still there. The oracle is the most that any policy with that many slots could have served.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.recommend_cap`.
    policies : iterable of Policy, optional
        One for each setting to try. By default those that people ask about at several sizes, and
        of a store itself the one that ``memlab.toml`` remembers; of none, what keeping all costs.
    every : int, optional
        Apply each policy after every so many memories; by default after each, of many memories
        about 10,000 times.
    retire : bool
        Replay each policy twice: what it does not keep is deleted, or retired and can come back.
    token_budget : int, optional
        Show only what keeps the boot context's p95 within so many tokens.
    log : DataFrame, str or Path, optional
        An access log; of a store itself the logs that ``memlab.toml`` remembers by default.
    workers : int, optional
        Processes; as many as there are processors by default, none of its own for little work or
        where a policy does not pickle (one with a vectoriser of its own, say).
    progress : bool
        Show a progress bar.

    Returns
    -------
    Comparison
        ``table`` is what :func:`memlab.replay.summarise` returns, with ``KeepAll`` as the last row.
        What retires stands below what deletes.
    """
    call = "memlab.compare"
    expect(retire, bool, call=call, name="retire")
    if token_budget is not None:
        whole_number("token_budget", token_budget)
    expect_references(references, call=call, optional=True)
    if policies is None:
        tried = map(policy_named, RETIRING if retire else TRIED)
        policies = [policy_of(*each) for each in variants(tried, {}, {}, both=retire)]
        if names_a_store(frame):
            policies = with_remembered(policies, open_source(frame))
    given = [one for one in _policies_of(policies) if not isinstance(one, KeepAll)]
    with_body = any(step.reads_bodies for policy in given for step in policy.steps)
    found = evidence_of(frame, log, call=call, with_body=with_body)
    references = found.references if references is None else references
    both = (False, True) if retire else (False,)
    asked = [*product(given, both), (KeepAll(), False)]
    every = -(-len(found.past) // TIMES) or 1 if every is None else every
    life = life_of(found.past, references)
    replays = _replays(life, asked, every=every, workers=workers, progress=progress)
    table = summarise(found.past, references, replays)
    retires = found.source is None or found.source.retires
    about = (len(references), every, token_budget, retires, found.log_option)
    return Comparison(found.name, table, *about)


def summarise(
    frame: pd.DataFrame, references: pd.DataFrame, replays: Sequence[Replay]
) -> pd.DataFrame:
    """Put replays of one history side by side: one row for each, indexed by ``label``.

    `frame` and `references` are what was replayed, `replays` what :func:`replay_each` returned.

    ========================  =============================================================
    ``policy``                its short name
    ``family``                that, and which settings beside its size are not the defaults
    ``options``               what the command line takes for it; empty where it has no name
    ``retire``                whether what went could come back; its label and family say so
    ``served``, ``lost``      share of references served, references whose target was gone
    ``oracle``                the share that could have been served with ``most_held`` slots
    ``boot_memories_mean``    over the moments of the history, as all that follow
    ``boot_tokens_mean``,     (the p95 is the smallest value that 95% of them do not pass)
    ``boot_tokens_p95``
    ``most_held``             the most prunable rows held at once
    ``deleted``               rows that went and have not come back
    ``only_here``             of these, those that no other policy of those compared let go, of
                              those that delete, or that retire, as it does
    ``lost_only_here``        references lost under this policy and no other likewise
    ``floor_memories``,       the load-bearing rows active at the end, which no policy touches
    ``floor_tokens``
    ========================  =============================================================
    """
    life = life_of(frame, references)
    gone, missed = _gone(replays), _missed(replays)
    retire = np.array([one.retire for one in replays], dtype=bool)
    floor_memories, floor_tokens = (
        int(line[-1]) if len(life) else 0 for line in life.history.floor
    )
    bounds: dict[int, float] = {}
    rows = []
    for number, one in enumerate(replays):
        if one.most_held not in bounds:
            bounds[one.most_held] = bound_of(life, one.most_held).served
        tokens = one.boot[BOOT_TOKENS].to_numpy()
        rows.append(
            {
                "label": label_of(one.policy) + RETIRED * one.retire,
                "policy": one.policy.name,
                "family": family_of(one.policy) + RETIRED * one.retire,
                "options": options_of(one.policy),
                "retire": one.retire,
                "served": one.served,
                "lost": one.lost,
                "oracle": bounds[one.most_held],
                "boot_memories_mean": float(one.boot[BOOT_MEMORIES].mean()),
                "boot_tokens_mean": float(one.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": float(mean_p95_max(tokens)[1]) if len(tokens) else np.nan,
                "most_held": one.most_held,
                "deleted": len(one.deleted),
                "only_here": _alone(gone, number, retire),
                "lost_only_here": _alone(missed, number, retire),
                "floor_memories": floor_memories,
                "floor_tokens": floor_tokens,
            }
        )
    table = pd.DataFrame(rows).set_index("label")
    table.attrs = {
        col.SOURCE: frame.attrs.get(col.SOURCE, ""),
        col.RECALLED: bool(frame.attrs.get(col.RECALLED)),
        col.REFERENCES: len(life.references),
        col.GOES_BY: {
            family: one.policy.goes_by
            for family, one in zip(table["family"].tolist(), replays, strict=True)
        },
    }
    return table


def _alone(gone: Flags, number: int, retire: Flags) -> int:
    """Count what went under one replay and no other that retires as it does."""
    alike = gone[:, retire == retire[number]]
    return int((gone[:, number] & (alike.sum(axis=1) == 1)).sum())


def overlap(
    replays: Sequence[Replay], *, of: Literal["deleted", "lost"] = "deleted", share: bool = False
) -> pd.DataFrame:
    """Say how many rows two policies both let go, or how many references both lost: a square frame.

    Over a history much longer than the caps nearly every row goes under every policy in the end;
    what was referred to tells policies apart. The diagonal is each policy's own.

    Parameters
    ----------
    replays : sequence of Replay
        Of one history.
    of : {"deleted", "lost"}
        Rows that went, or references that were lost.
    share : bool
        Divide each line by its own policy's (NaN where that is nothing).
    """
    if of not in {"deleted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'deleted' nor 'lost'")
    gone = _gone(replays) if of == "deleted" else _missed(replays)
    both: np.typing.NDArray[Any] = gone.T.astype(np.int64) @ gone.astype(np.int64)
    if share:
        own = np.diag(both).astype(np.float64)
        both = both / np.where(own > 0, own, np.nan)[:, None]
    labels = [label_of(one.policy) for one in replays]
    table = pd.DataFrame(both, index=labels, columns=labels)
    if replays:
        table.attrs = replays[0].told
    return table


def _gone(replays: Sequence[Replay]) -> Flags:
    """Return which row went under which policy, a line for each row that went under any."""
    went = [one.deleted[col.POSITION].to_numpy() for one in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *went]))
    gone = np.zeros((len(positions), len(replays)), dtype=bool)
    for line, own in zip(gone.T, went, strict=True):
        line[np.searchsorted(positions, own)] = True
    return gone


def _missed(replays: Sequence[Replay]) -> Flags:
    """Return which reference was lost under which policy, shape (references, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    return ~np.column_stack([one.references[KEPT].to_numpy(dtype=bool) for one in replays])


RETIRED: Final = ", retired"
"""In a label: what the policy does not keep can come back."""
TIMES: Final = 10_000
"""About how often each policy is applied along a long history where nobody says."""
FEW: Final = 30
"""References below which shares of them tell no two policies apart."""
GOOD: Final = 0.9
"""The share of references that a cap to look at next serves."""

_LEGEND: Final = {
    "served": (
        "references in this past that found their memory, as they were; memlab size estimates "
        "those to come, which reach further back"
    ),
    "at best": "the most that any policy with as many slots could have served",
    "tokens": "{}: the mean of this past, and what 95% of {} did not pass",
    "only here": "memories that this line alone would have deleted",
    "retired": "not loaded, still to be found, and back once it is read; nothing is deleted",
}


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """What :func:`compare` returned for a store, as people read it.

    Each policy was applied after `every` so many memories; `log` names its log to a command.
    """

    store: str
    table: pd.DataFrame
    references: int
    every: int = 1
    token_budget: int | None = None
    retires: bool = True
    log: tuple[str, ...] = ()

    @property
    def fitting(self) -> pd.DataFrame:
        """What stays within the budget."""
        if self.token_budget is None:
            return self.table
        return self.table[self.table["boot_tokens_p95"] <= self.token_budget]

    def to_json(self) -> str:
        """Return a JSON object for each policy."""
        return self.fitting.reset_index().to_json(orient="records", indent=2)

    def sheet(self) -> Sheet:
        """Return policies side by side, what to doubt, and how to read it."""
        memories, tokens = (self.table[f"floor_{each}"].iloc[0] for each in ("memories", "tokens"))
        floor = f"{counted(memories)}, {counted(tokens, 'tokens')}, are load-bearing"
        if self.fitting.empty:
            least = f"the least is {self.table['boot_tokens_p95'].min():,.0f}"
            title = f"nothing that was tried stays within {self.token_budget:,} tokens: {least}"
            return Sheet(title, [("floor", floor)])
        known = f"{self.references:,}" if self.references else "none"
        if self.references < FEW:
            known += (
                ": too few to tell policies apart by what they serve, so compare what they cost; "
                "memlab harvest adds what the agent read"
            )
        facts = [("references", known), ("floor", floor)]
        if self.every > 1:
            some = f"each policy after every {self.every:,} memories, to save time"
            facts.append(("applied", f"{some}; --every 1 applies it after each"))
        return Sheet(f"policies on the past of {self.store}", facts, self._tables())

    def _tables(self) -> list[Table]:
        """Return the policies, shares as exact as the references allow, and how to read them."""
        went = "not loaded" if self.table["retire"].any() else "deleted"
        header = ("policy", "served", "at best", "tokens", "95%", went, "only here")
        lines = self.fitting.assign(label=self.fitting.index.str.removesuffix(RETIRED))
        some = lines[(lines["deleted"] > 0) | (lines["policy"] == KeepAll.name)]
        shows = ["label", "served", "oracle", "boot_tokens_mean", "boot_tokens_p95", "deleted"]
        shown_lines = some.drop_duplicates(shows)
        left_out = {
            "with nothing to delete": len(lines) - len(some),
            "with nothing gained by retiring": len(some) - len(shown_lines),
        }
        parts = [f"{counted(count, 'lines')} {why}" for why, count in left_out.items() if count]
        remark = f"left out: {', '.join(parts)}" if parts else ""
        rows: list[tuple[Cell, ...]] = [
            (
                str(label),
                self._share(row["served"]),
                self._share(row["oracle"]),
                or_dash(row["boot_tokens_mean"], "{:,.0f}"),
                or_dash(row["boot_tokens_p95"], "{:,.0f}"),
                int(row["deleted"]),
                int(row["only_here"]),
            )
            for label, row in shown_lines.iterrows()
        ]
        searched = self.table.attrs.get(col.RECALLED)
        of = ("there to be found", "moments") if searched else ("loaded at start", "starts")
        shown = {"retired"} if went != "deleted" else set()
        shown |= _LEGEND.keys() - {"retired"} if self.references else set()
        legend = [(name, words.format(*of)) for name, words in _LEGEND.items() if name in shown]
        tables = [Table("", header, rows, remark, whole=True), Table("", (), legend, whole=True)]
        return tables[: 1 + bool(legend)]

    def next_steps(self) -> list[str]:
        """Say what to run for a number, and to see what the cheapest that serves well would do."""
        size = command("size", self.store, *self.log)
        lines = [f"next: {size}    which keep_recent, with evidence"]
        table = self.table if self.fitting.empty else self.fitting
        caps = table[
            (table["family"] == "recent") & (table["served"] >= GOOD) & (table["deleted"] > 0)
        ]
        if len(caps):
            cap = str(caps["boot_tokens_mean"].idxmin()).removeprefix("recent ")
            does = command("compact", self.store, "--keep-recent", cap, *self.log)
            lines.append(f"      {does}    shows what would go")
        retired = table[table["retire"] & (table["options"] != "")]
        good = retired[retired["served"] >= GOOD].sort_values("boot_tokens_mean")
        best = pd.concat([good, retired.sort_values("served", ascending=False)])["options"]
        if len(best) and self.retires:
            options = f"{best.iloc[0]} {in_shell('--retire', *self.log)}"
            does = f"{command('compact', self.store)} {options}"
            lines.append(f"      {does}    what that would retire; what is read comes back")
        return lines

    def _share(self, share: Any) -> str:
        """Write a share as exactly as so many references allow: as a count of few."""
        if not self.references:
            return "–"
        if self.references < FEW:
            return f"{round(share * self.references)} of {self.references}"
        return f"{share:.1%}" if self.references >= 10 * FEW else f"{share:.0%}"
