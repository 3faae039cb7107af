"""Hand stores out in chunks, a few ahead of the workers, and survive the death of a worker.

Stores go out together by the dozen, for handing one out costs more than surveying it; a large one
goes alone, and first, for it would be waited for at the end. No more is handed out than keeps the
workers busy, so neither a scheduler nor this process ever holds all stores at once.

When a worker dies, every store that it may have been working on is suspect. Suspects are handed
out again one by one, with nothing beside them: the one that ends its worker again and again is set
aside, and all others are as if nothing had happened.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any, Final, Protocol, TypeAlias

from memlab.errors import MemlabError
from memlab.fleet.names import Member
from memlab.fleet.outcomes import SET_ASIDE, Given, Outcome, Work, outcome_of

TOGETHER: Final = 50
"""Stores that are handed out at once, at most: the middle of what pays on Dask."""
LARGE: Final = 16_000_000
"""Bytes of stores that are handed out at once; a larger one goes alone."""
AHEAD: Final = 2
"""Chunks that are handed out for each worker: one to work on and one to follow it."""
LOOKED_AFTER: Final = 10.0
"""Seconds without an answer after which it is asked whether anybody is left to give one."""

Chunk = list[tuple[Member, Any]]
Answer: TypeAlias = "Future[list[Outcome[Any]]]"


class Crew(Protocol):
    """Who works in other processes.

    Attributes
    ----------
    workers : int
        How many there are.
    attempts : int
        How often a store that ends its worker is tried alone.
    deaths : tuple of type
        What a chunk's future raises when its worker died.
    """

    workers: int
    attempts: int
    deaths: tuple[type[BaseException], ...]

    def submit(self, work: Work, chunk: Chunk) -> Answer:
        """Hand a chunk out."""
        ...

    def lost_with_it(self, running: set[Answer]) -> set[Answer]:
        """Return those that a death has ended, all of them answered."""
        ...

    def recover(self) -> None:
        """Be ready for work again after a worker died."""
        ...

    def look_after(self) -> None:
        """Raise a MemlabError when nobody is left to work."""
        ...


def work_through(work: Work, chunk: Chunk) -> list[Outcome[Any]]:
    """Do the work on each store of a chunk; this is what a worker is sent."""
    return [outcome_of(work, member, given) for member, given in chunk]


def drive(
    crew: Crew, work: Work, members: Sequence[Member], given: Given
) -> Iterator[Outcome[Any]]:
    """Yield an outcome for each member as it comes.

    Raises
    ------
    MemlabError
        When nobody is left to work.
    """
    waiting = chunks_of(members, crew.workers)
    running: dict[Answer, list[Member]] = {}
    suspects: deque[Member] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * crew.workers:
                chunk = waiting.popleft()
                running[_handed_out(crew, work, chunk, given)] = chunk
            done = _answered(crew, running)
            if died := any(isinstance(_error(future), crew.deaths) for future in done):
                done |= crew.lost_with_it(set(running))
            for future in done:
                chunk = running.pop(future)
                if isinstance(_error(future), crew.deaths):
                    suspects.extend(chunk)
                else:
                    yield from _result(future)
            if died:
                crew.recover()
        for member in suspects:
            yield _alone(crew, work, member, given)
    finally:
        for future in running:
            future.cancel()


def chunks_of(members: Sequence[Member], workers: int) -> deque[list[Member]]:
    """Return members in chunks: large ones alone and first, small ones in the order given.

    A chunk is at most an even part of a quarter of what is left: the last ones are small, so that
    no worker has much to do when the others have nothing.
    """
    large = sorted((m for m in members if m.size > LARGE), key=lambda m: -m.size)
    chunks = deque([each] for each in large)
    small = [member for member in members if member.size <= LARGE]
    chunk: list[Member] = []
    size = together = 0
    for place, member in enumerate(small):
        if len(chunk) >= together or size + member.size > LARGE:
            together = max(1, min(TOGETHER, (len(small) - place) // (4 * workers)))
            chunk, size = [], 0
            chunks.append(chunk)
        chunk.append(member)
        size += member.size
    return chunks


def _handed_out(crew: Crew, work: Work, chunk: list[Member], given: Given) -> Answer:
    return crew.submit(work, [(member, given(member)) for member in chunk])


def _answered(crew: Crew, running: dict[Answer, list[Member]]) -> set[Answer]:
    while True:
        done, _ = wait(running, timeout=LOOKED_AFTER, return_when=FIRST_COMPLETED)
        if done:
            return done
        crew.look_after()


def _error(future: Answer) -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _result(future: Answer) -> list[Outcome[Any]]:
    try:
        return future.result()
    except CancelledError as error:
        raise MemlabError(
            "whoever hands out the work went away; what is done is done: run the same command again"
        ) from error


def _alone(crew: Crew, work: Work, member: Member, given: Given) -> Outcome[Any]:
    """Try a store with nothing beside it, so that a death is its own."""
    for _ in range(crew.attempts):
        future = _handed_out(crew, work, [member], given)
        _answered(crew, {future: [member]})
        try:
            return _result(future)[0]
        except crew.deaths:
            crew.recover()
    words = (
        "it ended every process that worked on it and was set aside; look at it alone, with more "
        "memory: memlab show"
    )
    return Outcome(member.name, error=words, kind=SET_ASIDE)
