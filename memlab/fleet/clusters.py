"""Workers of a Dask cluster, on other machines too."""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import memlab
from memlab.errors import MemlabError
from memlab.extras import import_extra
from memlab.fleet.driving import Answer, Chunk, drive, work_through
from memlab.fleet.names import Member
from memlab.fleet.outcomes import Given, Outcome, Work, nothing

PATIENCE: Final = 30.0
"""Seconds that a scheduler has to answer, and a first worker to come."""


@dataclass(frozen=True)
class Cluster:
    """The workers that a Dask client reaches.

    Parameters
    ----------
    client : distributed.Client
        Connected; it is left open.
    patience : float
        Seconds to wait for a first worker.
    """

    client: Any = field(repr=False)
    patience: float = PATIENCE

    def run(
        self, work: Work, members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield an outcome for each of the members, as they come.

        Raises
        ------
        MemlabError
            When there is no worker, one runs another memlab than this, or the scheduler goes away.
        """
        yield from drive(_Workers(self.client, self.patience), work, members, given)


@contextmanager
def cluster_at(
    address: str | None = None, *, scheduler_file: Path | None = None, patience: float = PATIENCE
) -> Iterator[Cluster]:
    """Connect to a scheduler, and part from it at the end.

    Parameters
    ----------
    address : str, optional
        Such as ``tcp://10.0.0.1:8786``.
    scheduler_file : Path, optional
        The file that ``dask scheduler --scheduler-file`` wrote.
    patience : float
        Seconds to wait for an answer, and for a first worker.

    Raises
    ------
    MemlabError
        When there is no scheduler.
    MissingExtraError
        When Dask is not installed.
    """
    distributed = import_extra("distributed", extra="fleet")
    where = address or str(scheduler_file)
    if scheduler_file is not None and not scheduler_file.exists():
        raise MemlabError(f"there is no scheduler file {scheduler_file}; is the scheduler running?")
    try:
        client = distributed.Client(
            address,
            scheduler_file=None if scheduler_file is None else str(scheduler_file),
            timeout=patience,
            set_as_default=False,
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise MemlabError(
            f"no scheduler answers at {where} ({error}); start one with: dask scheduler"
        ) from error
    with client:
        yield Cluster(client, patience)


class _Workers:
    """The workers of a client as a crew. Dask tries a chunk on other workers by itself."""

    attempts = 1

    def __init__(self, client: Any, patience: float) -> None:
        distributed = import_extra("distributed", extra="fleet")
        self.deaths: tuple[type[BaseException], ...] = (distributed.KilledWorker,)
        self._client = client
        self._patience = patience
        try:
            client.wait_for_workers(1, timeout=patience)
        except TimeoutError as error:
            raise MemlabError(
                f"no worker came to {self._where} in {patience:.0f} seconds; start one with: "
                f"dask worker {self._where}"
            ) from error
        _check_versions(self._versions())
        self.workers = max(1, sum(client.nthreads().values()))
        self._executor = client.get_executor(pure=False)

    @property
    def _where(self) -> str:
        return str(self._client.scheduler.address)

    def _versions(self) -> Mapping[str, Any]:
        """Ask each worker which memlab it runs; Dask itself would wait for a frozen one for ever.

        Raises
        ------
        MemlabError
            When one does not answer.
        """
        answers: Future[Mapping[str, Any]] = Future()

        def ask() -> None:
            try:
                answers.set_result(self._client.run(_version, on_error="return"))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                answers.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answers.result(self._patience)
        except TimeoutError as error:
            raise MemlabError(
                f"a worker of {self._where} did not say in {self._patience:.0f} seconds which "
                "memlab it runs; look for one that hangs, end it and run the same command again"
            ) from error

    def submit(self, work: Work, chunk: Chunk) -> Answer:
        submitted: Answer = self._executor.submit(_checked, work, chunk, memlab.__version__)
        return submitted

    def lost_with_it(self, running: set[Answer]) -> set[Answer]:  # noqa: ARG002 - as every crew
        """Return none: Dask tries again what a worker left undone."""
        return set()

    def recover(self) -> None:
        """Nothing to do: whoever started the workers starts them again."""

    def look_after(self) -> None:
        """Wait for a worker, and raise a MemlabError when none comes."""
        if self._client.status != "running":
            raise MemlabError(
                f"the scheduler at {self._where} went away; what is done is done: run the same "
                "command again"
            )
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise MemlabError(
                f"no worker is left at {self._where}; what is done is done: start one and run the "
                "same command again"
            ) from error


def _version() -> str:
    return memlab.__version__


def _check_versions(answers: Mapping[str, Any]) -> None:
    """Refuse workers that run another memlab, or none.

    Raises
    ------
    MemlabError
        With each such worker.
    """
    wrong = {
        worker: f"memlab {answer}" if isinstance(answer, str) else f"no memlab ({answer})"
        for worker, answer in answers.items()
        if answer != memlab.__version__
    }
    if wrong:
        each = "; ".join(f"{worker} runs {what}" for worker, what in sorted(wrong.items())[:5])
        raise MemlabError(
            f"this is memlab {memlab.__version__}, and {each}; install the same on every worker "
            "and start them again"
        )


def _checked(work: Work, chunk: Chunk, version: str) -> list[Outcome[Any]]:
    """Work through a chunk on a worker; one that came late may run another memlab."""
    if version != memlab.__version__:
        words = (
            f"the worker on {socket.gethostname()} runs memlab {memlab.__version__} and the client "
            f"{version}; install the same on both"
        )
        return [Outcome(member.name, error=words, kind="MemlabError") for member, _ in chunk]
    return [_with_host(outcome) for outcome in work_through(work, chunk)]


def _with_host(outcome: Outcome[Any]) -> Outcome[Any]:
    """Say on which machine something has to be installed."""
    if outcome.kind != "MissingExtraError":
        return outcome
    return replace(outcome, error=f"on {socket.gethostname()}: {outcome.error}")
