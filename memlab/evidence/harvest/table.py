"""The table of sources: who reads what."""

from contextlib import suppress
from typing import Final

from memlab.errors import MemlabError
from memlab.evidence.harvest import (
    claude_code,
    claude_mem,
    codex,
    langgraph,
    mcp_memory,
    memforge,
    openclaw,
)
from memlab.evidence.harvest.databases import read_database
from memlab.evidence.harvest.found import Asked, Way
from memlab.evidence.harvest.postgres import is_server, shown
from memlab.sources.recognising import begins_as_sqlite, tables_of

WAYS: Final = (
    Way(memforge.NAME, memforge.recognises, memforge.find),
    Way(langgraph.NAME, langgraph.recognises, langgraph.find),
    Way(claude_mem.NAME, claude_mem.recognises, claude_mem.find),
    Way(mcp_memory.NAME, mcp_memory.recognises, mcp_memory.find),
    Way(codex.NAME, codex.recognises, codex.find),
    Way(openclaw.NAME, openclaw.recognises, openclaw.find),
    Way(claude_code.NAME, claude_code.recognises, claude_code.find),
)
"""In the order in which they are asked; a workspace and a memory folder can look alike."""

_OWN_STORE: Final = "memory_items"
_ANYTHING: Final = "SELECT count(*) FROM sqlite_schema"
"""Says what is wrong with a database that cannot be read."""


def is_harvestable(source: object) -> bool:
    """Whether a source is of a kind whose reads can be harvested."""
    asked = Asked(str(source))
    with suppress(MemlabError, OSError, ValueError):
        return any(way.recognises(asked) for way in WAYS)
    return False


def way_for(asked: Asked) -> Way:
    """Return how a source is harvested.

    Raises
    ------
    MemlabError
        When it is of no kind that is known; says what would help.
    """
    try:
        for way in WAYS:
            if asked.source and way.recognises(asked):
                return way
        there = bool(asked.source) and asked.path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise MemlabError(f"{asked.source} cannot be looked at ({error}); check it") from error
    if is_server(asked.source):
        raise MemlabError(
            f"{shown(asked.source)} has neither MemForge's retrieval_log nor LangGraph's store; "
            "check the database and the role"
        )
    if not there:
        raise MemlabError(f"there is no {asked.source}; check the path")
    if _OWN_STORE in tables_of(asked.path):
        raise MemlabError(
            f"{asked.source} is an agent's own store, which writes down no reads; give it a log: "
            "SqliteMemoryStore(path, access_log=memlab.AccessLog('reads.log'))"
        )
    if asked.path.is_file() and begins_as_sqlite(asked.path):
        read_database(asked.path, lambda connection: connection.execute(_ANYTHING).fetchone())
    kinds = ", ".join(way.name for way in WAYS)
    raise MemlabError(f"{asked.source} is none of what can be harvested: {kinds}")
