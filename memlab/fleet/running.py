"""Who does the work on each store, and in which order answers come.

A runner is handed the work and the stores and yields an outcome for each as it comes.
:class:`Serial` is the reference: whatever another runner returns, put in order, is what it returns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from memlab.fleet.names import Member, Sources, members_of
from memlab.fleet.outcomes import Outcome, Work, outcome_of

Given = Callable[[Member], Any]
"""What belongs to one store alone, fetched when its turn comes."""

Progress = Callable[[int, int], None]
"""Called with how many stores are done, and how many there are."""

FEW: Final = 20
"""Stores that are done before the first process has started."""
FEW_BYTES: Final = 20_000_000
"""The same of bytes."""


def nothing(member: Member) -> None:
    """Give nothing."""


@runtime_checkable
class Runner(Protocol):
    """Who does the work."""

    def run(
        self, work: Work, members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield an outcome for each of the members, as they come.

        Raises
        ------
        MemlabError
            When nobody is left to do the work.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One store after the other, in this process."""

    def run(
        self, work: Work, members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield the outcomes in the order of the members."""
        for member in members:
            yield outcome_of(work, member, given(member))


def usual_runner(members: Sequence[Member]) -> Runner:
    """Return who works where nobody was named: processes, where these pay for their start."""
    if len(members) < FEW and sum(member.size for member in members) < FEW_BYTES:
        return Serial()
    from memlab.fleet.processes import Processes

    return Processes()


def outcomes_of(
    work: Work,
    sources: Sources,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> list[Outcome[Any]]:
    """Return an outcome for each store, in the order in which they were named."""
    members = members_of(sources).stores
    chosen = usual_runner(members) if runner is None else runner
    found: dict[str, Outcome[Any]] = {}
    for outcome in chosen.run(work, members):
        found[outcome.name] = outcome
        if progress is not None:
            progress(len(found), len(members))
    return [found[member.name] for member in members]
