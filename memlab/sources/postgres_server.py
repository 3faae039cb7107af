"""A PostgreSQL server: one transaction on it, its settings held, its errors in words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from memlab.errors import ArchiveError, MemlabError, StalePlanError, StoreError
from memlab.extras import import_extra
from memlab.sources.address import Address

SCHEMES: Final = ("postgresql", "postgres")

_CONNECT_WITHIN: Final = 10
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
}
"""On which the text of a value depends, and for how long a transaction may wait."""

_NEXT: Final = {
    "InvalidPassword": "give the password in PGPASSWORD or in a file ~/.pgpass",
    "InsufficientPrivilege": "grant it, or connect as the owner of the tables",
    "LockNotAvailable": "somebody holds a memory locked for long; try again when it is done",
    "DeadlockDetected": "somebody changes the same memories; try again",
    "ReadOnlySqlTransaction": "it is a standby or set read-only; name its primary",
    "QueryCanceled": "somebody or a setting of the server cancelled it; try again",
    "DiskFull": "make room on its disk",
    "UndefinedTable": "check the database's name and its search_path",
}


@contextmanager
def one_transaction(
    address: Address, own_options: tuple[str, ...], settings: Mapping[str, str], *, write: bool
) -> Iterator[Any]:
    """Hand out a connection in a transaction that sees one moment, and commit or roll back.

    Parameters
    ----------
    address : Address
        One of :data:`SCHEMES`; whatever it leaves open, libpq takes from the environment.
    own_options : tuple of str
        Options of the URL that are none of libpq's.
    settings : mapping of str to str
        Further settings of the session, for this transaction.
    write : bool
        Whether the transaction may write; it is committed when the block ends.

    Raises
    ------
    StoreError
        When there is no server, it refuses, or it goes away during the block.
    StalePlanError
        When somebody changed the same memories at the same time.
    MissingExtraError
        When the ``postgresql`` extra is not installed.
    """
    psycopg = import_extra("psycopg", extra="postgresql")
    with _errors_in_words(address, own_options, psycopg):
        connection = psycopg.connect(
            address.without_password(*own_options),
            **address.secrets,
            connect_timeout=_CONNECT_WITHIN,
            client_encoding="utf8",
            application_name="memlab",
        )
        with connection:  # commits at the end, or rolls back; then closes
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = not write
            pairs = {**_SETTINGS, **settings}
            connection.execute(
                "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(pairs)),
                [part for pair in pairs.items() for part in pair],
            )
            yield connection


@contextmanager
def _errors_in_words(
    address: Address, own_options: tuple[str, ...], psycopg: Any
) -> Iterator[None]:
    """Turn errors of the client into sentences that hold no password."""
    name = address.without_password(*own_options)
    wrong = psycopg.errors
    try:
        yield
    except wrong.SerializationFailure as error:
        raise StalePlanError(
            f"somebody changed the same memories of {name} at the same time; nothing was changed: "
            "make a new plan"
        ) from error
    except wrong.IntegrityError as error:
        raise ArchiveError(
            f"{name} refuses: {_first_line(error, address)}; nothing was changed: look at the "
            "table that it names"
        ) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{name} holds text that is not UTF-8; mend its encoding") from error
    except psycopg.Error as error:
        if isinstance(error, MemlabError):  # pragma: no cover - never both
            raise
        said = _first_line(error, address)
        kind = type(error).__name__
        if kind in _NEXT:
            raise StoreError(f"{name} refuses ({said}); {_NEXT[kind]}") from error
        if isinstance(error, psycopg.OperationalError):
            raise StoreError(
                f"{name} does not answer ({said}); check the address, the login and that the "
                "server runs, then try again: nothing was changed half"
            ) from error
        raise StoreError(f"{name} refuses: {said}") from error


def _first_line(error: Exception, address: Address) -> str:
    text = str(error).strip() or type(error).__name__
    return address.hidden(text.splitlines()[0])
