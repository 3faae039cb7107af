"""What can go wrong for a user, in words a user can act on.

Every message says what happened, where, and what to do next. Every error pickles, so that it
survives a process pool.
"""


class MemlabError(Exception):
    """Base of every error that memlab raises on purpose."""


class WrongArgumentError(MemlabError, TypeError):
    """A call was given something that it does not take; the message names the right call."""


class PolicyError(MemlabError, ValueError):
    """A policy that was asked for by name cannot be made, or failed while it decided."""


class SettingsError(MemlabError):
    """``memlab.toml`` beside a store cannot be used; the message names the line."""


class StoreError(MemlabError):
    """A file cannot be used as a store: missing, not SQLite, locked, corrupt, another schema."""


class UndecidedKindError(StoreError):
    """A folder is of no kind that evidence decides, or of another than is known of it.

    Attributes
    ----------
    given : str
        The folder as it was named.
    names : tuple of str
        Names with a scheme, such as ``claude:FOLDER``, of which each opens it as one kind.
    """

    def __init__(self, message: str, *, given: str = "", names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.given = given
        self.names = names


class ChangedWhileReadError(StoreError):
    """Somebody wrote while a store was read that nothing could lock; reading again may do."""


class UnsafeDeletionError(MemlabError):
    """Deleting from this store is not safe here; the message says what to do instead."""


class BadRowError(MemlabError):
    """A row of a store cannot be interpreted."""

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
    """A deletion did not do what was decided; it was rolled back and the store is as before."""


class StalePlanError(MemlabError):
    """A row that a plan decided on has changed or gone since."""

    def __init__(self, message: str, *, memory_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.memory_ids = memory_ids


class PlanError(MemlabError):
    """A file is not a plan or a receipt that this version can read."""


class AlreadyAppliedError(MemlabError):
    """A plan was carried out before; it is not carried out twice."""


class ArchiveError(MemlabError):
    """Archived rows cannot be read, matched to their store, or restored."""


class MissingExtraError(MemlabError, ImportError):
    """A part of memlab was used whose optional dependencies are not installed."""


class FloorExceedsBudgetWarning(UserWarning):
    """The load-bearing memories alone take more tokens than a start may take."""


class DamagedArchiveWarning(UserWarning):
    """Parts of an archive cannot be read and were left out; the message names them."""


class DamagedLogWarning(UserWarning):
    """The write-ahead log of a store cannot be read; the message says where a copy is kept."""


class ArchivePermissionsWarning(UserWarning):
    """An archive was open to more people than a memory: it is not any more, or the memory stays."""
