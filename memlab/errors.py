"""Errors and warnings of memlab.

Every message says what happened, where, and what to do next. Every error can be pickled, so that it
can leave a process pool.
"""

from datetime import datetime


class MemlabError(Exception):
    """Base class of all errors that memlab raises on purpose.

    Examples
    --------
    >>> import memlab
    >>> try:
    ...     memlab.load("/no/such/memory.db")
    ... except MemlabError as error:
    ...     print(type(error).__name__)
    StoreError
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and notebooks show in place of a traceback: the message.

        A traceback through memlab does not explain the mistake; ``%debug`` still shows it.
        """
        return [f"{type(self).__name__}: {self}"]


class UnansweredError(MemlabError):
    """The store no longer has the data that a notebook shows; the message says what is missing."""


class WrongArgumentError(MemlabError, TypeError):
    """An argument of a call has the wrong type; the message names the right call."""


class PolicyError(MemlabError, ValueError):
    """A policy that was named cannot be made, or failed while it decided."""


class SettingsError(MemlabError):
    """The ``memlab.toml`` beside a store cannot be used; the message names the line."""


class StoreError(MemlabError):
    """A file cannot be used as a store: missing, not SQLite, locked, damaged, another schema."""


class UndecidedKindError(StoreError):
    """The kind of a folder cannot be determined, or is not the one that its archive notes.

    Attributes
    ----------
    folder : str
        The folder as it was named.
    names : tuple of str
        Names with a scheme, such as ``claude:FOLDER``. Each opens the folder as one kind.
    """

    def __init__(self, message: str, *, folder: str = "", names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.folder = folder
        self.names = names


class ChangedWhileReadError(StoreError):
    """Somebody wrote while a store that cannot be locked was read. Reading again may succeed."""


class UnsafeDeletionError(MemlabError):
    """Deleting from this store is not safe; the message says what to do instead."""


class BadRowError(MemlabError):
    """A row of a store cannot be interpreted.

    Attributes
    ----------
    position : int or None
        The position of the row.
    memory_id : str or None
        The id in it.
    column : str or None
        The column with the wrong value.
    """

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        memory_id: str | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message)
        self.position = position
        self.memory_id = memory_id
        self.column = column


class CompactionError(MemlabError):
    """A change would affect other memories than its plan lists. It was rolled back."""


class StalePlanError(MemlabError):
    """A row that a plan decided on has changed or is missing.

    Attributes
    ----------
    memory_ids : tuple of str
        The ids of these rows.
    """

    def __init__(self, message: str, *, memory_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.memory_ids = memory_ids


class PlanError(MemlabError):
    """A file is not a plan or a receipt that this version can read."""


class AlreadyAppliedError(MemlabError):
    """A plan was applied before; it is not applied twice.

    Attributes
    ----------
    applied_at : datetime or None
        When the plan was applied. memlab always gives it; an error that is unpickled, as from
        another process, first has none.
    restored : int
        The number of memories that it deleted and that were restored since.
    """

    def __init__(
        self, message: str, *, applied_at: datetime | None = None, restored: int = 0
    ) -> None:
        super().__init__(message)
        self.applied_at = applied_at
        self.restored = restored


class ArchiveError(MemlabError):
    """Archived rows cannot be read, matched to their store, or restored."""


class MissingExtraError(MemlabError, ImportError):
    """A part of memlab needs optional dependencies that are not installed."""


class PluginWarning(UserWarning):
    """A system of an installed package does not work and was left out; the message names it."""


class FloorExceedsBudgetWarning(UserWarning):
    """The load-bearing memories alone have more tokens than the budget of a start."""


class DamagedArchiveWarning(UserWarning):
    """Parts of an archive cannot be read and were left out; the message names them."""


class DamagedLogWarning(UserWarning):
    """The write-ahead log of a store cannot be read; the message names the copy that is kept."""


class ArchivePermissionsWarning(UserWarning):
    """An archive had wider permissions than a memory: they were restricted, or the memory stays."""
