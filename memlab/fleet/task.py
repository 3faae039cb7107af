"""What is done to each store of a fleet, and by whom; a broken one never ends the run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from memlab.errors import MemlabError
from memlab.fleet.names import Member

Row = TypeVar("Row")

Given = Callable[[Member], Any]
"""What belongs to one store alone, fetched when its turn comes."""
Progress = Callable[[int, int], None]
"""Called with how many stores are done, and how many there are."""

STORE: Final = "store"


@dataclass(frozen=True)
class Outcome(Generic[Row]):
    """What became of one store. It pickles, and it is never an exception.

    `name` is the member's, `value` what was asked for. `error` says what is wrong and `kind` the
    name of the error's class; both are empty where nothing is. ``state`` is what the store's files
    were like just before it was read, or just after it was changed; empty where unknown.
    """

    name: str
    value: Row | None = None
    error: str = ""
    kind: str = ""
    state: str = ""


def nothing(member: Member) -> None:
    """Give nothing."""


@runtime_checkable
class Runner(Protocol):
    """Who does the work."""

    def run(
        self, task: "FleetTask[Any]", members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield an outcome for each of the members, as they come.

        MemlabError when nobody is left to do the work.
        """
        ...


@dataclass(frozen=True)
class FleetTask(Generic[Row]):
    """What is done to each store. It pickles, for others may do it."""

    name: str
    work: Callable[..., Row]
    """Takes what opens a store, and what is given for it alone where anything is."""
    row: type[Row]
    """The dataclass of a row; a field ``store`` is the name that the outcome has already."""
    changes: bool = False
    """Whether a store is another one afterwards."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What else makes results those of another question."""
    rests_on: str | None = ""
    """What results of a finished run hold for beside the stores; None: they say nothing later."""

    def do(self, member: Member, given: Any = None) -> Outcome[Row]:
        """Do it to one store; whatever goes wrong with it is part of the answer."""
        if member.problem:
            return Outcome(member.name, error=member.problem, kind="StoreError")
        state = member.state()
        try:
            value = self.work(member.where, *([] if given is None else [given]))
            return Outcome(member.name, value, state=member.state() if self.changes else state)
        except MemlabError as error:
            words, kind = str(error), type(error).__name__
        except Exception as error:  # noqa: BLE001 - one store must not end the run of all
            kind = type(error).__name__
            words = f"memlab failed on it: {kind}: {error}"
        return Outcome(member.name, error=words, kind=kind, state=state)


@dataclass(frozen=True)
class Serial:
    """One store after the other, in this process."""

    def run(
        self, task: FleetTask[Any], members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield the outcomes in the order of the members."""
        for member in members:
            yield task.do(member, given(member))
