"""MemForge: its ``retrieval_log`` on PostgreSQL, a row for every memory that a query returned."""

from typing import Final

from memlab.evidence.harvest.found import Asked, Found, Read
from memlab.evidence.harvest.postgres import agent_of, is_server, read_server, tables_on

NAME: Final = "a MemForge database"

_ALL: Final = "SELECT id, warm_tier_id, created_at FROM retrieval_log ORDER BY id"
_OF_AGENT: Final = (
    "SELECT id, warm_tier_id, created_at FROM retrieval_log WHERE agent_id = %s ORDER BY id"
)
_HIDDEN: Final = "SELECT row_security_active('retrieval_log')"


def recognises(asked: Asked) -> bool:
    """Whether the source is such a database."""
    return is_server(asked.source) and {"retrieval_log", "warm_tier"} <= set(
        tables_on(asked.source)
    )


def find(asked: Asked) -> Found:
    """Return every memory that a query returned, of one agent where the URL names one."""
    found = Found(store=asked.source)
    agent = agent_of(asked.source)
    query, values = (_ALL, ()) if agent is None else (_OF_AGENT, (agent,))
    for number, memory, at in read_server(asked.source, query, *values):
        found.reads.append(Read(str(memory), at, f"memforge:{number}", "retrieval"))
    ((hidden,),) = read_server(asked.source, _HIDDEN)
    if hidden and agent is None:
        found.notes.append(
            "row level security hides other agents' rows from this role: connect as the tables' "
            "owner to harvest them all, or name one agent"
        )
    found.notes.append(
        "MemForge drops a memory's retrievals together with the memory; the log keeps them"
    )
    return found
