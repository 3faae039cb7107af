"""Files of the official MCP memory server: read, sized, never changed."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import UnsafeDeletionError
from memlab.sources.opening import recognise
from memlab.sources.readers import Key
from memlab.systems.mcp_graph import graph_of
from memlab.testing.conformance import ReadingSuite
from memlab.testing.labs import TEXTS, Lab
from tests.support.owners import write_mcp_graph
from tests.support.shell import output_of


def entity(name: str, *observations: str, kind: str = "person") -> dict[str, Any]:
    return {"type": "entity", "name": name, "entityType": kind, "observations": list(observations)}


def relation(name: str, other: str, kind: str = "knows") -> dict[str, Any]:
    return {"type": "relation", "from": name, "to": other, "relationType": kind}


def write(path: Path, items: list[Mapping[str, Any]]) -> Path:
    """Write a file as the server does: into a temporary file that replaces it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in items]
    draft = path.with_suffix(".tmp")
    draft.write_text("\n".join(lines) + "\n")
    return draft.replace(path)


class GraphLab(Lab):
    """A file of the server's form."""

    where = "memory.jsonl"

    def fill(self, count: int) -> None:
        items = [
            entity(f"né {number}", TEXTS[number % 5], f"observation {number}")
            for number in range(count)
        ]
        write(self.path, [*items, relation("né 1", "né 2"), relation("né 1", "né 3")])

    def add_pair(self, number: int) -> None:
        pair = [entity(f"pair {number}"), entity(f"pair {number} ", "again")]
        self._write(self._items("entity") + pair + self._items("relation"))

    def change(self, key: Key) -> None:
        items = self._items("entity")
        for item in items:
            if item["name"] == key:
                item["observations"].append("changed")
        self._write(items + self._items("relation"))

    def exactly(self) -> dict[Key, Any]:
        return {item["name"]: item for item in self._items("entity")}

    def _items(self, kind: str) -> list[dict[str, Any]]:
        items = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [item for item in items if item["type"] == kind]

    def _write(self, items: list[Mapping[str, Any]]) -> None:
        write(self.path, items)


class TestMcpGraphSource(ReadingSuite):
    lab_type = GraphLab

    def test_deletion_is_rejected_naming_the_tools(self, lab: GraphLab) -> None:
        before = lab.path.read_bytes()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        with pytest.raises(UnsafeDeletionError, match=re.escape("delete_entities")):
            memlab.apply(plan)
        assert lab.path.read_bytes() == before
        assert [path.name for path in lab.path.parent.iterdir()] == ["memory.jsonl"]


def test_entity_is_a_memory_with_its_observations(tmp_path: Path) -> None:
    items = [entity("Ada", "writes programs", "likes tea"), entity("Engine", kind="machine")]
    path = write(tmp_path / "memory.jsonl", [*items, relation("Ada", "Engine")])
    frame = memlab.load(path, with_body=True)
    assert frame["memory_id"].tolist() == ["Ada", "Engine"]
    assert frame["body"].tolist() == ["writes programs\nlikes tea", ""]
    assert frame["tags"].tolist() == [("person",), ("machine",)]
    assert frame["created_at"].isna().all()
    assert frame["prunable"].all()


def test_commands_work_and_count_lines_that_are_no_entity(tmp_path: Path) -> None:
    entities = [entity(f"e{number}", "x" * 40) for number in range(40)]
    path = write(tmp_path / "memory.jsonl", entities)
    with path.open("a") as file:
        file.write('{"type":"entity","name":"e1","entityType":"","observations":[]}\n{broken\n')
    answer = json.loads(output_of("show", "--json", str(path)))
    assert answer["summary"]["rows"]["memories"] == 40
    assert "2 lines that repeat an entity or are neither entity nor relation" in output_of(
        "show", str(path)
    )
    assert len(json.loads(output_of("rows", "--json", str(path)))) == 40
    assert json.loads(output_of("size", "--json", str(path)))["verdict"]
    stores = json.loads(output_of("find", "--json", str(tmp_path)))["stores"]
    assert [store["system"] for store in stores] == ["MCP memory server"]
    assert "delete_entities" in output_of(
        "compact", "--keep-recent", "9", "--apply", str(path), code=2
    )
    assert "memory" in output_of("doctor", str(path))


def test_file_of_another_name_is_recognised_but_not_found(tmp_path: Path) -> None:
    path = write(tmp_path / "knowledge.jsonl", [entity("Ada")])
    assert memlab.load(path)["memory_id"].tolist() == ["Ada"]
    assert memlab.find(tmp_path).stores == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"type": "entity"}',
        '{"type": "user", "message": {}}',
        "[" * 9999,
    ],
)
def test_other_json_lines_are_no_graph(tmp_path: Path, text: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(text + "\n")
    assert recognise(path) is None


NAMES = st.text(min_size=1, max_size=4)
ITEMS = st.one_of(
    st.builds(entity, NAMES, st.text(max_size=9)),
    st.builds(relation, NAMES, NAMES),
    st.dictionaries(st.sampled_from(["type", "name", "from"]), st.none() | NAMES),
)


@given(st.lists(ITEMS, max_size=12))
def test_every_line_is_an_entity_a_relation_or_skipped(items: list[Any]) -> None:
    data = "\n".join(json.dumps(item) for item in items).encode()
    graph = graph_of(data)
    assert len(graph.records) + graph.relations + graph.skipped == len(items)
    names = [item["name"] for item in items if "observations" in item]
    assert set(graph.records) == {name.encode(errors="replace").decode() for name in names}


CALLS = [
    (
        "create_entities",
        {
            "entities": [
                {
                    "name": "app",
                    "entityType": "project",
                    "observations": ["builds with uv", "née 🦀"],
                },
                {"name": "ci", "entityType": "service", "observations": []},
            ]
        },
    ),
    ("create_relations", {"relations": [{"from": "ci", "to": "app", "relationType": "tests"}]}),
    (
        "add_observations",
        {"observations": [{"entityName": "ci", "contents": ["runs nightly"]}]},
    ),
]


def test_file_written_by_the_server_is_read(tmp_path: Path) -> None:
    file = write_mcp_graph(tmp_path / "memory.jsonl", CALLS)
    before = file.read_bytes()
    frame = memlab.load(file, with_body=True).set_index("memory_id")
    assert frame.index.tolist() == ["app", "ci"]
    assert "builds with uv" in frame.loc["app", "body"]
    assert "née 🦀" in frame.loc["app", "body"]
    assert "runs nightly" in frame.loc["ci", "body"]
    assert json.loads(output_of("show", "--json", file))["about"]["relations"] == 1
    assert "MCP" in output_of("find", tmp_path)
    assert output_of("size", file)
    assert file.read_bytes() == before
