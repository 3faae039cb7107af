"""Bringing the floor down: which load-bearing memories a newer one stands for, as a plan.

Such a plan deletes nothing. :func:`memlab.apply` carries it out and :func:`memlab.restore` takes it
back, as they do with any other.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from memlab import columns as col
from memlab.clock import moment_or_now
from memlab.compaction.plans import TITLE, Plan, PlannedLink
from memlab.compaction.wire import some_of
from memlab.errors import PlanError
from memlab.sources.base import Reader, Source, archive_at, at_one_moment
from memlab.sources.opening import SourceLike, open_source
from memlab.store.records import fingerprint_of

if TYPE_CHECKING:
    import pandas as pd

BY_HAND: Final = "by hand"
"""The reason for a pair that a person named."""


def plan_supersession(
    source: SourceLike,
    links: Mapping[str, str] | None = None,
    *,
    only: Collection[str] | None = None,
    now: datetime | None = None,
) -> Plan:
    """Plan to let newer memories stand for load-bearing ones. Reads only.

    Parameters
    ----------
    source : str, Path, SqliteMemoryStore or Source
        The store.
    links : mapping of str to str, optional
        The id of the memory that is to stand for each; what
        :func:`memlab.policies.successors.supersedable` finds when not given.
    only : collection of str, optional
        Of what is found, these ids alone.
    now : datetime, optional
        The moment of the decision, with a time zone; the current one by default.

    Returns
    -------
    Plan
        Print it to see what it would do.

    Raises
    ------
    PlanError
        When an id is not an active load-bearing memory, one stands for itself, or the store knows
        of no memories that stand for others.
    UnsafeDeletionError
        When the store is in memory, where there is no place for an archive.
    MissingExtraError
        When scikit-learn, which finds near-duplicates, is not installed and `links` is not given.
    StoreError, BadRowError
        When the store cannot be read.
    """
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.compaction.plan_supersession")
    if not opened.supersedes:
        opened.superseding()  # which says why it cannot
    archive_at(opened)  # refused here where there is no place for one
    return at_one_moment(opened, lambda reader: _plan_of(reader, opened, links, only, moment))


def _plan_of(
    reader: Reader,
    source: Source,
    links: Mapping[str, str] | None,
    only: Collection[str] | None,
    now: datetime,
) -> Plan:
    from memlab.compaction.planner import columns_of, groups_of
    from memlab.frame.loading import frame_of
    from memlab.policies import KeepAll
    from memlab.policies.base import decision_of

    frame = frame_of(
        reader.batches(with_body=True),
        name=source.name,
        with_body=True,
        protected=source.protected,
    )
    chosen = _found(frame, only) if links is None else _by_hand(frame, links)
    policy = {"policy": "supersede", **({"only": sorted(only)} if only is not None else {})}
    return Plan(
        store=source.name,
        made_at=now,
        policy=policy,
        token_rule=str(frame.attrs[col.TOKEN_RULE]),
        groups=groups_of(columns_of(frame), decision_of(frame, KeepAll(), now=now)),
        memories=(),
        kept=(),
        supersedes=_planned(reader, frame, chosen),
    )


def _found(frame: "pd.DataFrame", only: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """Return what is found to be superseded: by what, and the reason."""
    from memlab.policies.successors import supersedable

    found = supersedable(frame)
    columns = (found[name] for name in (col.MEMORY_ID, col.SUPERSEDED_BY, col.REASON))
    chosen = {older: (newer, reason) for older, newer, reason in zip(*columns, strict=True)}
    if only is None:
        return chosen
    if unknown := sorted(set(only) - chosen.keys()):
        raise PlanError(
            f"nothing is found to stand for {some_of(unknown)}; memlab floor lists for what there "
            "is, and --supersede OLDER=NEWER names a pair by hand"
        )
    return {older: chosen[older] for older in chosen if older in set(only)}


def _by_hand(frame: "pd.DataFrame", links: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Check the pairs that a person named."""
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    active, known = set(frame[col.MEMORY_ID][frame[col.ACTIVE]]), set(floor[col.MEMORY_ID])
    for older, newer in links.items():
        if older not in known:
            raise PlanError(
                f"{older!r} is no active load-bearing memory of this store: memlab compact deletes "
                "prunable ones, and one that is superseded is not loaded"
            )
        if newer not in active or newer == older or newer in links:
            raise PlanError(
                f"{newer!r} cannot stand for {older!r}: name another active memory of this store, "
                "one that is not superseded in the same plan"
            )
    return {older: (newer, BY_HAND) for older, newer in links.items()}


def _planned(
    reader: Reader, frame: "pd.DataFrame", chosen: Mapping[str, tuple[str, str]]
) -> tuple[PlannedLink, ...]:
    address = col.KEY if col.KEY in frame else col.POSITION
    columns = list({address, col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS})
    ends = {*chosen, *(newer for newer, _ in chosen.values())}
    named = frame.loc[frame[col.MEMORY_ID].isin(ends), columns].to_dict(orient="records")
    row_of = {str(row[col.MEMORY_ID]): row for row in named}
    keys = [row[address] for row in named]
    prints = {key: fingerprint_of(record) for key, record in reader.records(keys)}
    planned = []
    for older, (newer, reason) in chosen.items():
        row, by = row_of[older], row_of[newer][address]
        planned.append(
            PlannedLink(
                key=row[address],
                position=row[col.POSITION],
                memory_id=older,
                kind=str(row[col.KIND]),
                title=row[col.TITLE][:TITLE],
                reason=reason,
                tokens=row[col.TOKENS],
                fingerprint=prints[row[address]],
                by_key=by,
                by_memory_id=newer,
                by_fingerprint=prints[by],
            )
        )
    return tuple(sorted(planned, key=lambda link: link.position))
