"""BetterDB memories as its own package writes, evicts, recalls and lists them."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import uuid4

from memlab.testing.labs import TEXTS, Lab
from tests.support.servers import RedisServer

os.environ["BETTERDB_TELEMETRY"] = "false"

NAME = "betterdb_ac"
DIMENSIONS = 8
START_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC, in BetterDB's milliseconds."""


class AsyncClient:
    """An asynchronous connection for the package; undecodable bytes are dropped."""

    def __init__(self, client: Any) -> None:
        import valkey

        options = client.get_connection_kwargs()
        self._client = valkey.Valkey(
            unix_socket_path=options["path"],
            password=options.get("password"),
            decode_responses=True,
            encoding_errors="replace",
            single_connection_client=True,  # a transaction is several commands
        )

    async def execute_command(self, *command: Any) -> Any:
        return self._client.execute_command(*command)


async def embed(text: str) -> list[float]:
    """Return a vector that depends on every byte of the text."""
    vector = [0.1] * DIMENSIONS
    for place, byte in enumerate(text.encode()):
        vector[place % DIMENSIONS] += byte / (255 + place)
    return vector


class Betterdb:
    """The package's own store on a test server, called without ``await``."""

    def __init__(self, client: Any, *, name: str = NAME, **options: Any) -> None:
        from betterdb_agent_memory import MemoryStore

        class Dated(MemoryStore):
            now = START_MS

            def _now_ms(self) -> int:
                return self.now

        self.client = client
        self.name = name
        self.searches = b"search" in str(client.execute_command("MODULE", "LIST")).encode()
        self.store = Dated(
            client=AsyncClient(client), name=name, embed_fn=embed, analytics=False, **options
        )
        if self.searches:
            self.run(self.store.ensure_index())

    def run(self, work: Any) -> Any:
        """Run a coroutine in a separate thread, where no other event loop runs."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, work).result()

    def remember(self, content: str, **fields: Any) -> str:
        """Write one memory, a second after the last one; return its id."""
        self.store.now += 1000
        return str(self.run(self.store.remember(content, **fields)))

    def remember_pair(self, content: str) -> None:
        """Write two memories in one step, as the package writes one with a time to live."""
        from betterdb_agent_memory.build_memory_record import build_memory_record

        with self.client.pipeline(transaction=True) as pipe:
            for _ in range(2):
                self.store.now += 1000
                record = build_memory_record(
                    self.name, str(uuid4()), content, [0.5] * DIMENSIONS, now=self.store.now
                )
                pipe.execute_command("HSET", record.key, *record.fields)
            pipe.execute()

    def ids(self) -> list[str]:
        """Return the sorted ids of all memories."""
        keys = self.client.scan_iter(match=f"{self.name}:mem:*", _type="HASH")
        return sorted(key.decode().rpartition(":")[2] for key in keys)

    def everything(self) -> dict[str, Any]:
        """Return each memory by ``get``, and the list of all."""
        from betterdb_agent_memory import MemoryListOptions

        memories: dict[str, Any] = {
            memory_id: self.run(self.store.get(memory_id)) for memory_id in self.ids()
        }
        if self.searches:
            memories["list"] = self.run(self.store.list(MemoryListOptions(limit=1000)))
        return memories


class RawMemory(NamedTuple):
    """A memory as the server stores it."""

    fields: dict[bytes, bytes]
    expires_at: int
    """Time in milliseconds; -1 if it does not expire."""


def exact(client: Any) -> dict[bytes, RawMemory]:
    """Return every memory as raw bytes, by key."""
    keys = client.scan_iter(match=f"{NAME}:mem:*")
    return {
        key: RawMemory(client.hgetall(key), client.execute_command("PEXPIRETIME", key))
        for key in keys
    }


class BetterdbLab(Lab):
    """A server store with vectors, expiry times, scopes and unknown fields."""

    def __init__(self, redis: RedisServer) -> None:
        self.name = f"{redis.url}?name={NAME}"
        self.client = redis.client()
        self.betterdb = Betterdb(redis.client())

    def fill(self, count: int) -> None:
        texts = (*TEXTS, "NUL \0 inside")
        for number in range(count):
            tags = [["ü", "A b"], [], None][number % 3]
            if number == 0:
                tags = ["rejected-path", "x"]
            memory_id = self.betterdb.remember(
                f"{texts[number % 6]}{number}",
                tags=tags,
                importance=[None, 0.1, 1.0, 1e-17][number % 4],
                ttl=[None, None, 86_400][number % 3],
                agent_id=[None, "a", "ä"][number % 3],
                thread_id=[None, "t1"][number % 2],
                namespace=[None, "n"][number % 2],
                source=[None, "summary"][number % 2],
            )
            if number % 4 == 1:
                unknown_fields = {b"\xff no text": b"\xfe", b"$memory_id": b"5", b"empty": b""}
                self.client.hset(f"{NAME}:mem:{memory_id}", mapping=unknown_fields)

    def add_pair(self, number: int) -> None:
        self.betterdb.remember_pair(f"pair {number}")

    def change(self, key: Any) -> None:
        self.client.hset(key, "importance", "0.25")

    def use(self, key: Any) -> None:
        """Update a memory as the package's recall does."""
        self.client.hset(key, "last_accessed_at", "1772366999999")
        self.client.hincrby(key, "access_count", 1)

    def exactly(self) -> dict[Any, Any]:
        return {key.decode(): stored for key, stored in exact(self.client).items()}
