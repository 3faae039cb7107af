"""Processes that write memories on servers as BetterDB and MemForge do, with little rest."""

import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

NAME: Final = "betterdb_ac"
AGENT: Final = "a"
_READ: Final = (
    "UPDATE warm_tier SET access_count = access_count + 1, last_accessed = now() "
    "WHERE id = %(memory)s"
)
_LOG: Final = (
    "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text) "
    "VALUES (%(agent)s, %(memory)s, 'why')"
)
_RELATE: Final = (
    "INSERT INTO causal_edges (agent_id, cause_id, effect_id) "
    "VALUES (%(agent)s, %(memory)s, %(other)s) ON CONFLICT DO NOTHING"
)


@dataclass
class Written:
    """What one writer did, in its own words."""

    contents: dict[Any, str] = field(default_factory=dict)
    """By memory, as it wrote it last and was not told that it is gone."""
    uses: dict[Any, int] = field(default_factory=dict)
    """By memory, how many of its reads were taken down."""
    links: list[tuple[Any, Any]] = field(default_factory=list)
    """Pairs of memories between which it wrote something."""

    def some(self, rng: random.Random, count: int) -> list[Any]:
        """Of its memories, whatever became of them; of the newest more often than of the others."""
        known = list(self.contents)
        return [known[-1 - int(len(known) * rng.random() ** 2)] for _ in range(count)]


def write_betterdb(socket: str, writer: int, steps: int) -> Written:
    """Remember, recall, revise and forget, by the commands that the package sends."""
    import valkey
    from betterdb_agent_memory.build_memory_record import build_memory_record

    rng, written = random.Random(writer), Written()
    client = valkey.Valkey(unix_socket_path=socket)
    # What a recall leaves of a memory that went meanwhile is no memory of the writer's.
    there = "if redis.call('HEXISTS', KEYS[1], 'content') == 0 then return 0 end "
    revise = client.register_script(
        f"{there} redis.call('HSET', KEYS[1], 'content', ARGV[1]) return 1"
    )
    forget = client.register_script(f"{there} return redis.call('DEL', KEYS[1])")
    for step in range(steps):
        time.sleep(rng.uniform(0, 0.01))
        content = f"writer {writer}, step {step}"
        match rng.choices(["remember", "recall", "revise", "forget"], [30, 60, 5, 5])[0]:
            case "remember":
                made = build_memory_record(
                    NAME, f"w{writer}-{step}", content, [0.5] * 8, now=1_772_366_400_000 + step
                )
                client.hset(made.key, items=made.fields)
                written.contents[made.key] = content
            case "recall" if written.contents:
                for key in written.some(rng, 8):
                    if client.exists(key):
                        client.hset(key, "last_accessed_at", str(1_772_366_400_000 + step))
                        client.hincrby(key, "access_count", 1)
            case "revise" if written.contents:
                (key,) = written.some(rng, 1)
                if revise([key], [content]):
                    written.contents[key] = content
            case "forget" if written.contents:
                (key,) = written.some(rng, 1)
                if forget([key]):
                    del written.contents[key]
    return written


def write_memforge(url: str, writer: int, steps: int) -> Written:
    """Consolidate, retrieve and relate, by statements like MemForge's."""
    import psycopg
    from memforge_store import add_memory

    rng, written = random.Random(writer), Written()
    with psycopg.connect(url, autocommit=True) as connection:

        def done(*statements: str, **values: Any) -> int:
            """How many rows the last one wrote; none where the memory is gone or held by others."""
            try:
                with connection.transaction():
                    return [connection.execute(each, values) for each in statements][-1].rowcount
            except (psycopg.IntegrityError, psycopg.errors.DeadlockDetected):
                return 0

        for step in range(steps):
            time.sleep(rng.uniform(0, 0.06))
            if rng.random() < 0.4 or not written.contents:
                content = f"writer {writer}, step {step}"
                memory = add_memory(connection, AGENT, content=content, importance=rng.random())
                written.contents[memory], written.uses[memory] = content, 0
                continue
            memory, other = written.some(rng, 2)
            if rng.random() < 0.7:
                written.uses[memory] += done(_READ, _LOG, memory=memory, agent=AGENT)
            elif done(_RELATE, agent=AGENT, memory=memory, other=other):
                written.links.append((memory, other))
    return written
