"""BetterDB memories as its own package writes, evicts, recalls and lists them.

The package talks to a server with vector search. :class:`WithSearch` answers its search commands by
looking at every hash, and hands every other command to a real server.
"""

import asyncio
import os
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

os.environ["BETTERDB_TELEMETRY"] = "false"

NAME = "betterdb_ac"
DIMENSIONS = 8
START_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC, in BetterDB's milliseconds."""

_CLAUSE = re.compile(r"(-?)@(\w+):(\{(?:[^}\\]|\\.)*\}|\[[^\]]*\])")


class WithSearch:
    """A client as the package wants one: ``await execute_command(...)`` on a real server.

    Parameters
    ----------
    client : valkey.Valkey
        Answers in bytes.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.indexes: set[str] = set()
        self._queued: list[tuple[Any, ...]] | None = None

    async def execute_command(self, *command: Any) -> Any:
        word, *rest = command
        match word:
            case "FT.CREATE":
                self.indexes.add(rest[0])
                return b"OK"
            case "FT.INFO":
                if rest[0] not in self.indexes:
                    raise RuntimeError("Unknown index name")
                return [b"num_docs", len(list(self._hashes(rest[0])))]
            case "FT.SEARCH":
                return self._search(*rest)
            case "MULTI":
                self._queued = []
                return b"OK"
            case "EXEC":
                queued, self._queued = self._queued or [], None
                with self.client.pipeline(transaction=True) as pipe:
                    for each in queued:
                        pipe.execute_command(*each)
                    return pipe.execute()
            case "DISCARD":
                self._queued = None
                return b"OK"
        if self._queued is not None:
            self._queued.append(command)
            return b"QUEUED"
        raw = self.client.execute_command(*command)
        if isinstance(raw, dict):  # HGETALL, as a client answers that decodes with "replace":
            # the package's own ``get`` cannot read a vector's bytes in another way
            return [part.decode(errors="replace") for pair in raw.items() for part in pair]
        return raw

    def _hashes(self, index: str) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        prefix = index.removesuffix("idx")
        for key in sorted(self.client.scan_iter(match=f"{prefix}*", _type="HASH")):
            if fields := self.client.hgetall(key):
                yield key, fields

    def _search(self, index: str, query: str, *options: Any) -> list[Any]:
        words, _, nearest = query.partition("=>")
        clauses = _CLAUSE.findall(words)
        assert clauses, query
        found = [
            (key, fields)
            for key, fields in self._hashes(index)
            if all(_holds(fields, *clause) for clause in clauses)
        ]
        given = list(options)
        scores: dict[bytes, bytes] = {}
        if nearest:
            vector = given[given.index("vec") + 1]
            count = int(nearest.split("KNN ")[1].split()[0])
            scores = {k: repr(_distance(f[b"vector"], vector)).encode() for k, f in found}
            found = sorted(found, key=lambda hit: float(scores[hit[0]]))[:count]
        if "SORTBY" in given:
            at = given.index("SORTBY")
            name, downwards = given[at + 1].encode(), given[at + 2] == "DESC"
            found.sort(key=lambda hit: float(hit[1].get(name, b"0")), reverse=downwards)
        wanted = None
        if "RETURN" in given:
            at = given.index("RETURN")
            wanted = [name.encode() for name in given[at + 2 : at + 2 + int(given[at + 1])]]
        at = given.index("LIMIT")
        offset, limit = int(given[at + 1]), int(given[at + 2])
        answer: list[Any] = [len(found)]
        for key, fields in found[offset : offset + limit]:
            shown = fields if wanted is None else {n: fields[n] for n in wanted if n in fields}
            if key in scores:
                shown = {**shown, b"__score": scores[key]}
            answer += [key, [part for pair in shown.items() for part in pair]]
        return answer


def _holds(fields: dict[bytes, bytes], negated: str, name: str, value: str) -> bool:
    stored = fields.get(name.encode())
    if value.startswith("["):
        low, high = value[1:-1].split()
        holds = stored is not None and float(low) <= float(stored) <= float(high)
    else:
        wanted = re.sub(r"\\(.)", r"\1", value[1:-1]).lower()
        tags = [] if stored is None else stored.decode().lower().split(",")
        holds = wanted in [tag.strip() for tag in tags] if name == "tags" else tags == [wanted]
    return not holds if negated else holds


def _distance(one: bytes, other: bytes) -> float:
    a = struct.unpack(f"<{len(one) // 4}f", one)
    b = struct.unpack(f"<{len(other) // 4}f", other)
    lengths = sum(x * x for x in a) ** 0.5 * sum(x * x for x in b) ** 0.5
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / lengths


async def embed(text: str) -> list[float]:
    """A vector that depends on every byte of the text."""
    folded = [0.1] * DIMENSIONS
    for place, byte in enumerate(text.encode()):
        folded[place % DIMENSIONS] += byte / (255 + place)
    return folded


class Betterdb:
    """The package's own store on a server of the test, called without ``await``.

    Parameters
    ----------
    client : valkey.Valkey
        The server.
    max_items : int, optional
        ``maxItemsPerScope``.
    """

    def __init__(self, client: Any, *, name: str = NAME, max_items: int | None = None) -> None:
        from betterdb_agent_memory import MemoryStore

        class Dated(MemoryStore):
            now = START_MS

            def _now_ms(self) -> int:
                return self.now

        self.client = client
        self.name = name
        self.store = Dated(
            client=WithSearch(client),
            name=name,
            embed_fn=embed,
            max_items_per_scope=max_items,
            analytics=False,
        )
        self.run(self.store.ensure_index())

    def run(self, work: Any) -> Any:
        """Wait for its code in a thread of its own, where no loop of a browser's tests runs."""
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
            for _ in "ab":
                self.store.now += 1000
                made = build_memory_record(
                    self.name, str(uuid4()), content, [0.5] * DIMENSIONS, now=self.store.now
                )
                pipe.execute_command("HSET", made.key, *made.fields)
            pipe.execute()

    def everything(self) -> dict[str, Any]:
        """What the package itself reads: every memory by ``get``, and ``list`` over all of them."""
        from betterdb_agent_memory import MemoryListOptions

        listed = self.run(self.store.list(MemoryListOptions(limit=1000)))
        ids = [item.id for item in listed.items]
        return {"list": listed, "get": {i: self.run(self.store.get(i)) for i in sorted(ids)}}


def exact(client: Any, name: str = NAME) -> dict[bytes, tuple[dict[bytes, bytes], int]]:
    """Every memory with every byte, and the moment at which it ends (-1 for never)."""
    keys = client.scan_iter(match=f"{name}:mem:*")
    return {key: (client.hgetall(key), client.execute_command("PEXPIRETIME", key)) for key in keys}
