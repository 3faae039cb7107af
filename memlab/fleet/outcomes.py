"""What becomes of each store of a fleet: a value, or why there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from memlab.errors import MemlabError
from memlab.fleet.names import Member

Value = TypeVar("Value")

Given = Callable[[Member], Any]
"""What belongs to one store alone, fetched when its turn comes."""

SET_ASIDE: Final = "SetAside"
"""Kind of the error of a store that ends whatever process works on it."""


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """What became of one store. It pickles, and it is never an exception.

    Attributes
    ----------
    name : str
        The store's, as :class:`memlab.fleet.Member` has it.
    value : object
        What was asked for; None where there is an error.
    error : str
        What is wrong, in words; empty where nothing is.
    kind : str
        The name of the error's class, such as ``StalePlanError``; empty where nothing is wrong.
    state : str
        What the store's files were like just before it was read, or just after it was changed;
        empty where that is not known.
    """

    name: str
    value: Value | None = None
    error: str = ""
    kind: str = ""
    state: str = ""


class Work(Protocol):
    """What is done to each store: a frozen dataclass at the top of a module, so that it pickles.

    Where it has an attribute ``changes`` that is true, a store is another one afterwards.
    """

    def __call__(self, where: str, given: Any) -> Any:
        """Return what a store has to say.

        Parameters
        ----------
        where : str
            Its path or URL.
        given : object
            What belongs to this store alone, such as a plan; None without.
        """
        ...


def nothing(member: Member) -> None:
    """Give nothing."""


def outcome_of(work: Work, member: Member, given: Any = None) -> Outcome[Any]:
    """Do the work on one store; whatever goes wrong with it is part of the answer."""
    if member.problem:
        return Outcome(member.name, error=member.problem, kind="StoreError")
    state = member.state()
    try:
        value = work(member.where, given)
        if getattr(work, "changes", False):
            state = member.state()
        return Outcome(member.name, value, state=state)
    except MemlabError as error:
        return Outcome(member.name, error=str(error), kind=type(error).__name__, state=state)
    except MemoryError:
        words = "there is not memory enough for it here; look at it on a larger machine"
        return Outcome(member.name, error=words, kind="MemoryError", state=state)
    except Exception as error:  # noqa: BLE001 - one store must not end the run of all
        words = f"memlab failed on it: {type(error).__name__}: {error}"
        return Outcome(member.name, error=words, kind=type(error).__name__, state=state)
