"""Connect to a Valkey or Redis server, and track the keys that change while it is read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import environ
from typing import Any, Final

from memlab.errors import ChangedWhileReadError, UnsafeDeletionError
from memlab.lazy import import_extra
from memlab.sources.address import Address, Messages, translated_errors
from memlab.store import shapes

PASSWORDS: Final = ("VALKEYCLI_AUTH", "REDISCLI_AUTH")
"""Environment variables from which the servers' own clients take a password."""


_ANSWER_TIMEOUT: Final = 30.0
"""Timeout in seconds for an answer."""
_CONNECT_TIMEOUT: Final = 10.0
"""Timeout in seconds for connecting."""
_INVALIDATED: Final = b"__redis__:invalidate"
"""Channel on which a server announces changed keys."""


@contextmanager
def connected(address: Address, database: int) -> Iterator["ServerConnection"]:
    """Yield a connection to a database of a server."""
    valkey = import_extra("valkey", extra="valkey")
    errors = (valkey.exceptions.ValkeyError, OSError, _WrongAnswerError)
    with translated_errors(address.without_password(), address, errors, _MESSAGES):
        # The options in the URL are memlab's, not the client's.
        pool = valkey.ConnectionPool.from_url(
            address.without_password(*address.options),
            db=database,
            password=_password_of(address),
            socket_timeout=_ANSWER_TIMEOUT,
            socket_connect_timeout=_CONNECT_TIMEOUT,
        )
        with closing(ServerConnection(pool.make_connection())) as connection:
            if b"_mode:cluster" in connection.ask("INFO", "server"):
                raise UnsafeDeletionError(
                    f"{address.without_password()} is one node of a cluster, which keeps memories "
                    "on several; memlab reads a single server: use the system's own setting for a "
                    "cap"
                )
            yield connection


def _password_of(address: Address) -> str | None:
    """Return the password in a URL, else in an environment variable; None for none."""
    password = address.secrets.get("password")
    if password:
        return password
    for variable in PASSWORDS:
        if environ.get(variable):
            return environ[variable]
    return None


class ServerConnection:
    """A connection that can send several commands together. It never sends a command twice."""

    def __init__(self, connection: Any) -> None:
        self.connection: Final = connection
        with _as_wrong_answer("a login"):
            connection.connect()

    def close(self) -> None:
        """Close the connection."""
        self.connection.disconnect()

    def ask(self, *command: Any) -> Any:
        """Return the answer to a command."""
        (answer,) = self.ask_all([command])
        return answer

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the answers to commands that are sent together; raise the first error."""
        answers = self._answers(commands)
        for command, answer in zip(commands, answers, strict=True):
            _check_answer(command, answer)
        return answers

    def in_transaction(self, commands: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """Return the answers to commands in one transaction; None if a watched key changed."""
        all_answers = self._answers([("MULTI",), *commands, ("EXEC",)])
        # The last answer, that to EXEC, has the answers to all commands.
        answers: list[Any] | None = all_answers[-1]
        if answers is None:
            return None
        if type(answers) is not list or len(answers) != len(commands):
            raise _WrongAnswerError("EXEC", answers)
        for command, answer in zip(commands, answers, strict=True):
            if not isinstance(answer, Exception):
                _check_answer(command, answer)
        return answers

    def _answers(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the unchecked answers to commands."""
        from valkey.exceptions import ResponseError

        self.connection.send_packed_command(self.connection.pack_commands(commands))
        answers: list[Any] = []
        first_error: ResponseError | None = None
        name, *_ = commands[0]
        with _as_wrong_answer(name):
            for _ in commands:
                try:
                    answers.append(self.connection.read_response())
                except ResponseError as error:
                    if first_error is None:
                        first_error = error
        if first_error is not None:
            raise first_error
        return answers


class Changes:
    """The keys that any client changes from now on, as announced by the server."""

    def __init__(
        self, connection: ServerConnection, subscriber: ServerConnection, prefix: bytes
    ) -> None:
        self._subscriber = subscriber
        number = subscriber.ask("CLIENT ID")
        subscriber.ask("SUBSCRIBE", _INVALIDATED)
        connection.ask("CLIENT TRACKING", "ON", "REDIRECT", number, "BCAST", "PREFIX", prefix)

    def changed_keys(self) -> set[bytes]:
        """Return the keys that changed since the last call.

        The server announces changes in order, so before it answers the PING, it has announced all
        changes that it made before its last answer to the other connection.
        """
        changed: set[bytes] = set()
        connection = self._subscriber.connection
        connection.send_command("PING")
        with _as_wrong_answer("PING"):
            while True:
                answer = connection.read_response()
                if answer[0] == b"pong":
                    return changed
                _kind, _channel, keys = answer
                if keys is None:
                    message = "the server was emptied while it was read; try again"
                    raise ChangedWhileReadError(message)
                _check_keys(keys)
                changed.update(keys)


class _WrongAnswerError(Exception):
    """The answer to a command is not that of a Valkey or Redis server."""

    def __init__(self, command: str, answer: object) -> None:
        super().__init__(f"to {command} it says {shapes.abbreviated(answer)}")


@contextmanager
def _as_wrong_answer(command: str) -> Iterator[None]:
    """Raise _WrongAnswerError for an answer that the client cannot parse."""
    try:
        yield
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _WrongAnswerError(command, error) from error


def _check_bytes(value: Any) -> None:
    """Check for bytes."""
    shapes.check_type(value, bytes, "bytes")


_check_keys: Final = shapes.list_of(_check_bytes)


def _check_number(value: Any) -> None:
    """Check for a number in decimal digits."""
    _check_bytes(value)
    if not re.fullmatch(rb"\d{1,20}", value):  # int() takes signs, spaces and underscores, too
        raise ValueError(f"{shapes.abbreviated(value)} is not a number")


def _check_pairs(value: Any) -> None:
    """Check for a list of names that are each followed by a value."""
    _check_keys(value)
    if len(value) % 2:
        raise ValueError(f"{len(value):,} names and values, of which one is missing")


_ANSWER_SHAPES: Final[dict[str, shapes.Shape]] = {
    **dict.fromkeys(("INFO", "PING", "WATCH", "CLIENT TRACKING"), _check_bytes),
    **dict.fromkeys(("EXISTS", "DEL", "HSET", "HINCRBY", "CLIENT ID"), shapes.integer()),
    **dict.fromkeys(("PEXPIREAT", "PEXPIRETIME"), shapes.integer()),
    "HGETALL": _check_pairs,
    "HKEYS": shapes.list_of(_check_bytes),
    "HMGET": shapes.list_of(shapes.optional(_check_bytes)),
    "SCAN": shapes.pair(_check_number, shapes.list_of(_check_bytes)),
    "SUBSCRIBE": shapes.list_of(shapes.anything),
    "TIME": shapes.pair(_check_number, _check_number),
}
"""Shape of the answer to each command."""


def _check_answer(command: tuple[Any, ...], answer: Any) -> None:
    """Check that an answer to a command has its shape."""
    name = command[0]
    with _as_wrong_answer(name):
        _ANSWER_SHAPES[name](answer)
        fields = command[2:]  # HMGET KEY FIELD ...
        if name == "HMGET" and len(answer) != len(fields):
            raise ValueError(f"{len(answer):,} values of {len(fields):,} fields")


def host_and_port(address: Address) -> tuple[str, int]:
    """Return the host and the port of a server; by default ``localhost`` and 6379."""
    host, colon, port = address.hosts.rpartition(":")
    has_port = colon != "" and port.isdigit()
    if not has_port:
        host = address.hosts
        port = "6379"
    host = host.strip("[]")  # the brackets around an IPv6 address
    if not host:
        host = "localhost"
    return host, int(port)


_MESSAGES: Final[Messages] = {
    "AuthenticationError": "refuses the login; name the user in the URL and give the password in "
    f"the variable {PASSWORDS[0]}",
    "NoPermissionError": "does not allow this user what is needed ({answer}); grant it, or name "
    "another user",
    "ReadOnlyError": "is a replica, which takes no writes; name its primary",
    "OutOfMemoryError": "has no memory left; raise its maxmemory, then try again",
    **dict.fromkeys(
        ("ConnectionError", "TimeoutError", "OSError"),
        "does not answer ({answer}); check the address and that the server runs, then try again",
    ),
    "_WrongAnswerError": "does not answer as a Valkey or Redis server does ({answer}); check the "
    "address",
    "ValkeyError": "refuses: {answer}",
}
