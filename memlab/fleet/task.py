"""What is done to each store of a fleet, what becomes of it, and who does it.

A :class:`FleetTask` says what is done to one store and which row it gives. A store that is damaged,
locked or gone is an :class:`Outcome` with its error, never the end of the run. Who does the work is
a runner; :class:`Serial` is the reference: whatever another runner returns, put in order, is what
it returns. What is kept of an earlier run is not asked for again, and what rows look like in a
frame is read from their annotations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypeVar,
    get_args,
    get_type_hints,
    runtime_checkable,
)

from memlab import columns as col
from memlab.errors import MemlabError
from memlab.fleet.names import Member, Sources, members_of

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")

Given = Callable[[Member], Any]
"""What belongs to one store alone, fetched when its turn comes."""
Progress = Callable[[int, int], None]
"""Called with how many stores are done, and how many there are."""

STORE: Final = "store"
DTYPES: Final[dict[type, Any]] = {str: "str", int: "Int64", float: "Float64", datetime: col.TIME}
"""The column of a frame that fields of a type become."""

FEW: Final = 20
"""Stores that are done before the first process has started."""
FEW_BYTES: Final = 20_000_000
"""The same of bytes."""


@dataclass(frozen=True)
class Outcome(Generic[Row]):
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

        Raises
        ------
        MemlabError
            When nobody is left to do the work.
        """
        ...


@dataclass(frozen=True)
class FleetTask(Generic[Row]):
    """What is done to each store. It pickles, for others may do it.

    Parameters
    ----------
    name : str
        What it is called where its results are kept.
    work : callable
        Takes what opens a store, and what is given for it alone where anything is; returns its row.
    row : type
        The dataclass of a row. A field ``store`` is the name that the outcome has already.
    changes : bool
        Whether a store is another one afterwards.
    asked : mapping
        What else makes results those of another question.
    rests_on : str or None
        What results of a run that has finished hold for beside the stores; None where they say
        nothing to a later run.
    """

    name: str
    work: Callable[..., Row]
    row: type[Row]
    changes: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict)
    rests_on: str | None = ""

    @property
    def columns(self) -> dict[str, type]:
        """The type of each column between the store's name and its error."""
        types = get_type_hints(self.row)
        return {
            each.name: next(
                kind
                for kind in (*get_args(types[each.name]), types[each.name])
                if kind is not NoneType
            )
            for each in fields(self.row)  # type: ignore[arg-type]
            if each.name != STORE
        }

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
        except MemoryError:
            words = "there is not memory enough for it here; look at it on a larger machine"
            kind = "MemoryError"
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


def outcomes_of(
    task: FleetTask[Row],
    sources: Sources,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
    given: Given = nothing,
) -> list[Outcome[Row]]:
    """Do a task to every store; return what became of each, in the order of their names."""
    members = members_of(sources).stores
    parts = None
    if out is not None:
        from memlab.fleet.parts import Parts

        parts = Parts(Path(out), task)
    found = {} if parts is None else parts.still_there(members)
    missing = [member for member in members if member.name not in found]
    if progress is not None and found:
        progress(len(found), len(members))
    try:
        for outcome in (runner or usual_runner(missing)).run(task, missing, given):
            found[outcome.name] = outcome
            if parts is not None:
                parts.add(outcome)
                found[outcome.name] = _without_large(outcome)
            if progress is not None:
                progress(len(found), len(members))
    finally:
        if parts is not None:
            parts.flush()
    if parts is not None:
        parts.finish()
    return [found[member.name] for member in members]


def table_of(task: FleetTask[Any], sources: Sources, **how: Any) -> "pd.DataFrame":
    """Do a task to every store, as :func:`outcomes_of` does; return a row for each."""
    import pandas as pd

    found = outcomes_of(task, sources, **how)
    columns = {STORE: pd.Series([each.name for each in found], dtype="str")}
    for name, kind in task.columns.items():
        values = [None if each.value is None else getattr(each.value, name) for each in found]
        if kind is datetime:
            moments = pd.Series(values, dtype="object")
            columns[name] = pd.to_datetime(moments, utc=True).astype(DTYPES[kind])
        else:
            columns[name] = pd.Series(values, dtype=DTYPES[kind])
    columns["error"] = pd.Series([each.error or None for each in found], dtype="str")
    return pd.DataFrame(columns)


def usual_runner(members: Sequence[Member]) -> Runner:
    """Return who works where nobody was named: processes, where these pay for their start."""
    if len(members) < FEW and sum(member.size for member in members) < FEW_BYTES:
        return Serial()
    from memlab.fleet.workers import Processes

    return Processes()


def _without_large(outcome: Outcome[Row]) -> Outcome[Row]:
    """Return an outcome without what is large in it, which is on the disk."""
    large = [name for name, value in vars(outcome.value or outcome).items() if type(value) is bytes]
    if not large:
        return outcome
    return replace(outcome, value=replace(outcome.value, **dict.fromkeys(large)))  # type: ignore[type-var]
