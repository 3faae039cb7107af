"""The knowledge graph of the official MCP memory server: JSON lines. The source is read-only.

Each line is an entity with its observations, or a relation between two entities. An entity is a
memory. The server rewrites the whole file without a lock, so that a change by another program would
be lost. It stores no times: the position of a memory is its line.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import ordinary_file
from memlab.sources.base import About, FileSource, WholeReader
from memlab.sources.readers import Key, Reader
from memlab.sources.reads import text as readable_text
from memlab.store.records import check_canonical, encoded, with_place
from memlab.store.shapes import fields, integer, list_of, text
from memlab.text import TextPage, counted, failure_message

_VARIABLE: Final = "MEMORY_FILE_PATH"
_SUFFIXES: Final = (".jsonl", ".json")
_MAX_FIRST_LINE_BYTES: Final = 2**20
"""Number of bytes of a file that are searched for its first line."""
_MAX_FILE_BYTES: Final = 2**30
"""Maximum size in bytes of a file that is read."""
_RELATION_FIELDS: Final = ("from", "to", "relationType")
_RECORD: Final = fields(
    {
        "name": text,
        "entityType": text,
        "observations": list_of(text),
        "relations": list_of(fields({"to": text, "relationType": text})),
        "place": integer(0),
    }
)


class Graph(NamedTuple):
    """A parsed knowledge graph.

    Attributes
    ----------
    records : dict of Key to bytes
        The record of each entity by name.
    relations : int
        Number of relations.
    skipped : int
        Number of lines that are neither an entity nor a relation, and of entities with the name of
        an earlier one.
    """

    records: dict[Key, bytes]
    relations: int
    skipped: int


class McpGraph(FileSource):
    """The entities of a knowledge graph."""

    scheme = "mcp-graph"
    # Whole names: the many transcripts of agents end in .jsonl too, and would all be opened.
    endings = ("memory.jsonl", "memory.json")

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return a file whose first line is an entity or a relation; None for another path."""
        if tables or path.suffix not in _SUFFIXES:
            return None
        with suppress(OSError), ordinary_file(path, max_bytes=_MAX_FILE_BYTES) as file:
            beginning = file.read(_MAX_FIRST_LINE_BYTES).lstrip()
            first = _parsed(beginning.partition(b"\n")[0])
            if _is_entity(first) or _is_relation(first):
                return path
        return None

    @classmethod
    def usual_places(cls, home: Path, environment: Mapping[str, str]) -> Sequence[Path]:
        """Return the file that the environment names. The default is in the server's package."""
        name = environment.get(_VARIABLE, "")
        if name.startswith("~/"):
            return [home / name[2:]]
        path = Path(name)
        return [path] if path.is_absolute() else []

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read the file at one moment."""
        yield WholeReader(self, self.graph().records)

    def graph(self) -> Graph:
        """Return the parsed file; raise ChangedWhileReadError if it is written meanwhile."""
        try:
            with ordinary_file(self.path, max_bytes=_MAX_FILE_BYTES) as file:
                before = os.fstat(file.fileno())
                data = file.read()
                after = os.fstat(file.fileno())
        except (OSError, ValueError) as error:
            problem = f"{self.path} cannot be read"
            raise StoreError(
                failure_message(problem, error, "the path and its permissions")
            ) from error
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ChangedWhileReadError(f"{self.path} is written while it is read; try again")
        return graph_of(data)

    @property
    def read_only_reason(self) -> str:
        """The reason, with the tools to use instead."""
        return (
            f"memlab deletes nothing from {self.name}: a running MCP memory server writes the "
            "whole file back and knows no lock; nothing was changed: keep fewer by its own tools "
            "delete_entities and delete_observations"
        )

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of an entity as a row. Its observations are the body."""
        tags = [parsed["entityType"]] if parsed["entityType"] else []
        return {
            "position": parsed["place"],
            "key": parsed["name"],
            "memory_id": parsed["name"],
            "kind": "episodic",
            "title": parsed["name"].strip(),
            "body": "\n".join(parsed["observations"]),
            "tags_json": json.dumps(tags, ensure_ascii=False),
            "authored_by": "mcp",
            "created_at": None,
            "confidence": 1.0,
            "loaded_at_start": False,
        }

    def check_record(self, key: Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that an archived record is that of an entity with this name."""
        check_canonical(record, parsed)
        _RECORD(parsed)
        if parsed["name"] != key:
            raise ValueError(f"it is a record of {parsed['name']!r:.80}")

    def extra_report(self) -> About:
        """Return a report on the relations and on the lines that are no memories."""
        graph = self.graph()
        facts = [
            ("relations", f"{graph.relations:,} between entities"),
            ("times", "none: the server writes down neither when it stores nor when it reads"),
            ("deletion", "none by memlab: a running server writes the whole file back"),
        ]
        if graph.skipped:
            lines = counted(graph.skipped, "lines")
            facts.append(
                ("skipped", f"{lines} that repeat an entity or are neither entity nor relation")
            )
        counts = {"store": self.name, "relations": graph.relations, "skipped": graph.skipped}
        return About(TextPage("MCP memory server", facts, []), counts)


def graph_of(data: bytes) -> Graph:
    r"""Return a parsed file. Lines that the server itself would skip are counted.

    >>> line = b'{"type":"entity","name":"Ada","entityType":"person","observations":[]}'
    >>> graph = graph_of(line + b"\n{")
    >>> list(graph.records), graph.relations, graph.skipped
    (['Ada'], 0, 1)
    """
    entities: dict[str, dict[str, Any]] = {}
    line_numbers: dict[str, int] = {}
    relations_from: dict[str, list[dict[str, str]]] = {}
    skipped = 0
    for line_number, line in enumerate(data.split(b"\n")):
        if not line.strip():
            continue
        item = _parsed(line)
        if _is_entity(item):
            name = readable_text(item["name"])
            if name in entities:
                skipped += 1
                continue
            line_numbers[name] = line_number
            entities[name] = {
                "name": name,
                "entityType": readable_text(item["entityType"]),
                "observations": [
                    readable_text(observation) for observation in item["observations"]
                ],
            }
        elif _is_relation(item):
            relation = {
                "to": readable_text(item["to"]),
                "relationType": readable_text(item["relationType"]),
            }
            relations_from.setdefault(readable_text(item["from"]), []).append(relation)
        else:
            skipped += 1
    records: dict[Key, bytes] = {}
    for name, entity in entities.items():
        entity["relations"] = relations_from.get(name, [])
        records[name] = with_place(encoded(entity), line_numbers[name])
    relation_count = sum(map(len, relations_from.values()))
    return Graph(records=records, relations=relation_count, skipped=skipped)


def _parsed(line: bytes) -> Any:
    """Return the value of a line in JSON; None for another line."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_entity(item: Any) -> bool:
    """Return whether a parsed line is an entity, by the schema of the server."""
    if not isinstance(item, dict) or item.get("type") != "entity":
        return False
    observations = item.get("observations")
    if not isinstance(observations, list):
        return False
    texts = [item.get("name"), item.get("entityType"), *observations]
    return all(isinstance(value, str) for value in texts)


def _is_relation(item: Any) -> bool:
    """Return whether a parsed line is a relation, by the schema of the server."""
    if not isinstance(item, dict) or item.get("type") != "relation":
        return False
    return all(isinstance(item.get(name), str) for name in _RELATION_FIELDS)
