"""Who does the work on each store, and in which order answers come.

A runner is handed the work and the stores and yields an outcome for each as it comes.
:class:`Serial` is the reference: whatever another runner returns, put in order, is what it returns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from memlab.fleet.names import Member, Sources, members_of
from memlab.fleet.outcomes import Given, Outcome, Work, nothing, outcome_of

if TYPE_CHECKING:
    from memlab.fleet.parts import Parts

Progress = Callable[[int, int], None]
"""Called with how many stores are done, and how many there are."""

FEW: Final = 20
"""Stores that are done before the first process has started."""
FEW_BYTES: Final = 20_000_000
"""The same of bytes."""


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
    parts: "Parts | None" = None,
    given: Given = nothing,
) -> list[Outcome[Any]]:
    """Return an outcome for each store, in the order in which they were named.

    Parameters
    ----------
    work : Work
        What is done to each.
    sources : names, or Members
        As :func:`memlab.fleet.expand_names` takes them.
    runner, progress
        Who does it, and who is told.
    parts : Parts, optional
        Where results are kept as they come. What is there and still holds is not done again.
    given : callable
        What belongs to each store alone.
    """
    members = members_of(sources).stores
    found = {} if parts is None else _still_there(parts, members)
    missing = [member for member in members if member.name not in found]
    chosen = usual_runner(missing) if runner is None else runner
    if progress is not None and found:
        progress(len(found), len(members))
    try:
        for outcome in chosen.run(work, missing, given):
            found[outcome.name] = outcome
            if parts is not None:
                parts.add(outcome)
                if getattr(work, "changes", False):
                    parts.flush()  # what was done is said, whatever happens next
                found[outcome.name] = without_large(outcome)
            if progress is not None:
                progress(len(found), len(members))
    finally:
        if parts is not None:
            parts.flush()
    if parts is not None:
        parts.finish()
    return [found[member.name] for member in members]


def without_large(outcome: Outcome[Any]) -> Outcome[Any]:
    """Return an outcome without what is large in it, which is on the disk."""
    value = outcome.value
    if value is None:
        return outcome
    large = [name for name in value._fields if type(getattr(value, name)) is bytes]
    return replace(outcome, value=value._replace(**dict.fromkeys(large)))


def _still_there(parts: "Parts", members: Sequence[Member]) -> dict[str, Outcome[Any]]:
    """Return the results that still hold, and drop all others."""
    kept = parts.kept()
    found = {
        member.name: kept[member.name].outcome
        for member in members
        if member.name in kept and parts.still_holds(member, kept[member.name].outcome)
    }
    if len(found) < len(kept):
        parts.keep_only(set(found), kept)
    return found
