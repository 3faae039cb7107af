"""Codex's own code, which writes memories into a home with a model on the loopback interface.

Codex writes a raw memory for a thread that was idle for an hour. So the threads are made first, one
time in Codex's own database of threads is then set back, and Codex is started again. The answers of
the model come from a server in this process: nothing leaves the machine.
"""

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from tests.support.databases import copy_recorded, record, recording_of

DATABASES: Final = {"v1": "memories_1.sqlite", "v2": "memories_v2_1.sqlite"}
"""Name of the database in a Codex home, by the version of the memories."""
_FOLDERS: Final = {"v1": "memories", "v2": "memories_v2"}
_EXTRACTS: Final = "model-that-extracts"
_CONSOLIDATES: Final = "model-that-consolidates"
_CITE: Final = "cite "
_SUMMARY: Final = """\
v1

## User Profile

- nothing

## User preferences

- nothing

## General Tips

- nothing

## What's in Memory

- nothing
"""
"""A summary with the sections that Codex asks for."""
_CITATION: Final = (
    "done\n<oai-mem-citation>\n<citation_entries>\nMEMORY.md:1-1|note=[used]\n"
    "</citation_entries>\n<rollout_ids>\n{}\n</rollout_ids>\n</oai-mem-citation>"
)
_CONFIGURATION: Final = """\
model = "model-that-answers"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "read-only"

[model_providers.loopback]
name = "loopback"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
supports_websockets = false

[features]
memories = {writes}
enable_request_compression = false

[memories]
version = "{version}"
extract_model = "model-that-extracts"
consolidation_model = "model-that-consolidates"
max_raw_memories_for_consolidation = {most}
max_rollouts_per_startup = 9
min_rollout_idle_hours = 1

[analytics]
enabled = false
"""


class CodexThread(NamedTuple):
    """A thread, and the memory that the model makes of it.

    Attributes
    ----------
    prompt : str
        What the person says; no other thread has the same words.
    summary : str
        The summary of the thread.
    slug : str
        A short name; it may be empty.
    raw : str
        The raw memory; the second version does not ask for one.
    """

    prompt: str
    summary: str
    slug: str
    raw: str


def write_codex(
    program: Path | None, home: Path, version: str, threads: Sequence[CodexThread], *, most: int
) -> Path:
    """Let Codex write the memories of some threads, and cite the first one; return its database.

    Parameters
    ----------
    program : Path or None
        Codex's program; None where it is not installed: the recorded database is copied.
    home : Path
        The Codex home, which does not exist.
    version : str
        The version of the memories, "v1" or "v2".
    threads : sequence of CodexThread
        The threads, the oldest first.
    most : int
        The number of memories that are consolidated.
    """
    database = home / DATABASES[version]
    recording = recording_of("codex", json.dumps([version, most, *threads]))
    if program is None:
        copy_recorded(recording, database)
        return database
    home.mkdir(parents=True)
    with _model(home, version, threads) as port:

        def configure(*, writes: bool) -> None:
            text = _CONFIGURATION.format(
                port=port, version=version, most=most, writes=str(writes).lower()
            )
            (home / "config.toml").write_text(text)

        configure(writes=False)
        with _server(program, home) as ask:
            ids = [ask(thread.prompt) for thread in threads]
        _set_back(home, ids)
        configure(writes=True)
        all_written = f"count(*) = {len(threads)} AND sum(selected_for_phase2) = {most}"
        with _server(program, home) as ask:
            ask("begin")
            _wait(database, f"SELECT {all_written} FROM stage1_outputs")
        with _server(program, home) as ask:
            ask(_CITE + ids[0])
            _wait(database, "SELECT count(*) FROM stage1_outputs WHERE usage_count = 1")
    record(recording, database)
    return database


@contextmanager
def _model(home: Path, version: str, threads: Sequence[CodexThread]) -> Iterator[int]:
    """Serve the answers of a model, and yield the port."""

    class Model(BaseHTTPRequestHandler):
        """A server of the Responses API."""

        def do_GET(self) -> None:
            """List no models."""
            self._send("application/json", '{"data": [], "models": []}')

        def do_POST(self) -> None:
            """Answer with one message."""
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = _answer(request, home / _FOLDERS[version], threads)
            content = [{"type": "output_text", "text": text}]
            item = {"type": "message", "role": "assistant", "id": "m", "content": content}
            usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            events: list[dict[str, Any]] = [
                {"type": "response.created", "response": {"id": "r"}},
                {"type": "response.output_item.done", "item": item},
                {"type": "response.completed", "response": {"id": "r", "usage": usage}},
            ]
            lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
            self._send("text/event-stream", "".join(lines))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _answer(request: dict[str, Any], folder: Path, threads: Sequence[CodexThread]) -> str:
    """Return the answer of the model to a request."""
    prompt = json.dumps(request["input"])
    if request["model"] == _EXTRACTS:
        (thread,) = [thread for thread in threads if thread.prompt in prompt]
        memory = {"rollout_summary": thread.summary, "rollout_slug": thread.slug}
        if "raw_memory" in json.dumps(request.get("text")):
            memory["raw_memory"] = thread.raw
        return json.dumps(memory)
    if request["model"] == _CONSOLIDATES:  # its output is these files
        (folder / "MEMORY.md").write_text("# Memory\n")
        (folder / "memory_summary.md").write_text(_SUMMARY)
        return "consolidated"
    _, marker, cited = prompt.rpartition(_CITE)
    return _CITATION.format(cited[:36]) if marker else "done"


@contextmanager
def _server(program: Path, home: Path) -> Iterator[Callable[[str], str]]:
    """Run Codex's app server, and yield a function that begins a thread and returns its id."""
    work = home.parent / "work"
    work.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "CODEX_HOME": str(home),
    }
    with subprocess.Popen(
        [str(program), "app-server"],
        cwd=work,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests = server.stdin
        answers = server.stdout

        def send(**message: Any) -> None:
            requests.write(json.dumps(message) + "\n")
            requests.flush()

        def wait_for_message(key: str, value: object) -> dict[str, Any]:
            """Read messages up to the first with this value, and return it."""
            for line in answers:
                message: dict[str, Any] = json.loads(line)
                assert "error" not in message, message
                if message.get(key) == value:
                    return message
            raise AssertionError(f"Codex ended before {key} {value}")

        def ask(prompt: str) -> str:
            send(id="begin", method="thread/start", params={"cwd": str(work)})
            thread = str(wait_for_message("id", "begin")["result"]["thread"]["id"])
            text = [{"type": "text", "text": prompt}]
            send(id="say", method="turn/start", params={"threadId": thread, "input": text})
            wait_for_message("method", "turn/completed")
            return thread

        send(id="open", method="initialize", params={"clientInfo": {"name": "t", "version": "1"}})
        wait_for_message("id", "open")
        send(method="initialized")
        yield ask
        requests.close()
        server.wait(30)


def _set_back(home: Path, ids: Sequence[str]) -> None:
    """Let each thread have been idle for some hours, the last one for two."""
    with closing(sqlite3.connect(home / "state_5.sqlite")) as connection, connection:
        for hours, thread in enumerate(reversed(ids), start=2):
            connection.execute(
                "UPDATE threads SET updated_at = updated_at - ?1 * 3600, "
                "updated_at_ms = updated_at_ms - ?1 * 3600000 WHERE id = ?2",
                (hours, thread),
            )


def _wait(database: Path, query: str) -> None:
    """Wait until a query of a database gives a true value; at most a minute."""
    pause = Event()
    for _ in range(600):
        if database.exists():
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                try:
                    ((value,),) = connection.execute(query)
                except sqlite3.OperationalError:  # its tables are being made
                    value = None
            if value:
                return
        pause.wait(0.1)
    raise AssertionError(f"Codex did not come to {query}")
