"""A Valkey or Redis server: connected to, listened to while it is read, its errors in words."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import environ
from typing import Any, Final

from memlab.errors import ChangedWhileReadError, StoreError, UnsafeDeletionError
from memlab.extras import import_extra
from memlab.sources.address import Address

PASSWORDS: Final = ("VALKEYCLI_AUTH", "REDISCLI_AUTH")
"""Environment variables in which the servers' own clients look for a password."""

TLS: Final = ("valkeys", "rediss")
SCHEMES: Final = ("valkey", "redis", *TLS, "unix")

_ANSWER_WITHIN: Final = 30.0
_CONNECT_WITHIN: Final = 10.0
_INVALIDATED: Final = b"__redis__:invalidate"


@contextmanager
def connected(address: Address, database: int) -> Iterator["Line"]:
    """Hand out a connection to a server.

    Parameters
    ----------
    address : Address
        One of :data:`SCHEMES`.
    database : int
        The number of a database on the server.

    Raises
    ------
    StoreError
        When there is no server, it refuses, or it goes away during the block.
    UnsafeDeletionError
        When it is one of a cluster.
    MissingExtraError
        When the ``valkey`` extra is not installed.
    """
    valkey = import_extra("valkey", extra="valkey")
    with (
        _errors_in_words(address, valkey),
        closing(Line(_connection(address, database, valkey))) as line,
    ):
        _check_kind(line, address)
        yield line


class Line:
    """One connection, on which many commands are sent at once and none is sent twice.

    Parameters
    ----------
    connection : valkey.Connection
        That answers in bytes.
    """

    def __init__(self, connection: Any) -> None:
        self.connection: Final = connection
        connection.connect()

    def close(self) -> None:
        """Hang up."""
        self.connection.disconnect()

    def ask(self, *command: Any) -> Any:
        """Return the answer to a command."""
        return self.ask_all([command])[0]

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the answers to commands that are sent together; an error is raised at the end."""
        from valkey.exceptions import ResponseError

        self.connection.send_packed_command(self.connection.pack_commands(commands))
        answers: list[Any] = []
        refused: list[Exception] = []
        for _ in commands:
            try:
                answers.append(self.connection.read_response())
            except ResponseError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        return answers

    def at_once(self, commands: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """Return the answers to commands between which no other comes.

        None when a key that this connection watches was written, and nothing was done. A command
        that failed has an exception for an answer.
        """
        answers: list[Any] | None = self.ask_all([("MULTI",), *commands, ("EXEC",)])[-1]
        return answers


class Changes:
    """The keys that anybody changes from now on, as the server itself tells.

    Parameters
    ----------
    line : Line
        On which what changes is read.
    listening : Line
        Another to the same server, for nothing else.
    prefix : bytes
        How the keys begin.
    """

    def __init__(self, line: Line, listening: Line, prefix: bytes) -> None:
        self._listening = listening.connection
        number = listening.ask("CLIENT", "ID")
        listening.ask("SUBSCRIBE", _INVALIDATED)
        line.ask("CLIENT", "TRACKING", "ON", "REDIRECT", number, "BCAST", "PREFIX", prefix)

    def so_far(self) -> set[bytes]:
        """Return the keys changed since the last call, up to the last answer of the other line.

        Raises
        ------
        ChangedWhileReadError
            When all of them were, by FLUSHALL or FLUSHDB.
        """
        changed: set[bytes] = set()
        self._listening.send_command("PING")
        while (answer := self._listening.read_response())[0] != b"pong":
            if answer[2] is None:
                raise ChangedWhileReadError("the server was emptied while it was read; try again")
            changed.update(answer[2])
        return changed


def _connection(address: Address, database: int, valkey: Any) -> Any:
    given = next((environ[name] for name in PASSWORDS if environ.get(name)), None)
    options: dict[str, Any] = {
        "db": database,
        "username": address.user,
        "password": address.password or given,
        "socket_timeout": _ANSWER_WITHIN,
        "socket_connect_timeout": _CONNECT_WITHIN,
    }
    if address.scheme == "unix":
        return valkey.UnixDomainSocketConnection(path=address.path, **options)
    host, port = host_and_port(address)
    kind = valkey.SSLConnection if address.scheme in TLS else valkey.Connection
    return kind(host=host, port=port, **options)


def host_and_port(address: Address) -> tuple[str, int]:
    """Return where a server listens; 6379 of this machine where nothing is said."""
    host, colon, port = address.where.rpartition(":")
    if not colon or not port.isdigit():
        host, port = address.where, "6379"
    return host.strip("[]") or "localhost", int(port)


def _check_kind(line: Line, address: Address) -> None:
    if b"_mode:cluster" in line.ask("INFO", "server"):
        raise UnsafeDeletionError(
            f"{address.without_password()} is one node of a cluster, which keeps memories on "
            "several; memlab reads a single server",
            instead="the system's own setting for a cap",
        )


@contextmanager
def _errors_in_words(address: Address, valkey: Any) -> Iterator[None]:
    """Turn errors of the client into sentences that hold no password."""
    wrong = valkey.exceptions
    name = address.without_password()
    try:
        yield
    except wrong.AuthenticationError as error:
        raise StoreError(
            f"{name} refuses the login; name the user in the URL and give the password in the "
            f"variable {PASSWORDS[0]}"
        ) from error
    except wrong.NoPermissionError as error:
        raise StoreError(
            f"{name} does not allow this user what is needed ({address.hidden(str(error))}); grant "
            "it, or name another user"
        ) from error
    except wrong.ReadOnlyError as error:
        raise StoreError(f"{name} is a replica, which takes no writes; name its primary") from error
    except wrong.OutOfMemoryError as error:
        raise StoreError(
            f"{name} has no memory left; raise its maxmemory, then try again"
        ) from error
    except (wrong.ConnectionError, wrong.TimeoutError, OSError) as error:
        raise StoreError(
            f"{name} does not answer ({address.hidden(str(error))}); check the address and that "
            "the server runs, then try again"
        ) from error
    except wrong.ValkeyError as error:
        raise StoreError(f"{name} refuses: {address.hidden(str(error))}") from error
