"""Keys of stored files do not change with Python names."""

import ast
import json
from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass, make_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import memlab
from memlab import settings
from memlab.compaction import index_plans, plans, wire
from memlab.fleet import change, cohort, sweep
from memlab.fleet.workers import FleetTask, Outcome
from memlab.items import Size
from memlab.policies.named import POLICIES
from memlab.sources.folder import files, journal

PACKAGE = Path(memlab.__file__).parent
ROWS = (
    sweep.StoreLine,
    change.PlanRow,
    change.Applied,
    change.MaintainedStore,
    cohort.SizedStore,
)
TABLES: tuple[tuple[type, Any], ...] = (
    *plans.KEYS.items(),
    *index_plans.KEYS.items(),
    *change.KEYS.items(),
    *((row, row.stored_names) for row in ROWS),
    (Size, wire.SIZE_KEYS),
    (settings.Sized, settings.SIZED_KEYS),
    (files.FileCopy, files.FILE_KEYS),
    (journal.Entry, journal._ENTRY_KEYS),
)
"""Every class whose fields are stored, with its table of keys."""
TABLE_NAMES = {
    "KEYS",
    "stored_names",
    "PLANNED_MEMORY_KEYS",
    "SIZE_KEYS",
    "SIZED_KEYS",
    "FILE_KEYS",
    "_ENTRY_KEYS",
}
FROM_NEWER_FORMAT = {"added", "added_fields"}
"""Fields of a plan that hold, under the keys of the file, the fields that a newer memlab added."""
NOT_STORED = {"start", "start_there", "is_retirement", "order_note"}
"""Fields of a plan that are known only when it is made."""


def names_of(record: type) -> list[str]:
    if is_dataclass(record):
        return [
            attribute.name
            for attribute in fields(record)
            if attribute.name not in FROM_NEWER_FORMAT | NOT_STORED
        ]
    return list(record._fields)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("record", "keys"), TABLES, ids=lambda value: getattr(value, "__name__", "")
)
def test_key_table_has_every_field(record: type, keys: Any) -> None:
    assert sorted(keys) == sorted(names_of(record))
    assert len(set(keys.values())) == len(keys)


def test_settings_key_table_has_every_setting() -> None:
    # Only the fields that are settings have metadata: how to parse them.
    stored = [attribute.name for attribute in fields(settings.Settings) if attribute.metadata]
    assert sorted(settings.KEYS) == sorted(stored)


POLICY_KEYS = {
    "recent": ["keep", "by"],
    "tokens": ["max_tokens"],
    "ttl": ["ttl"],
    "value": ["max_items", "half_life", "recency", "importance", "scope"],
    "budget": ["max_items", "scope"],
    "floor": ["threshold"],
    "dedup": ["threshold", "vectorise"],
    "activation": ["max_items", "max_tokens"],
    "purge-superseded": ["older_than"],
    "all": [],
    "pipeline": ["policies"],
}
"""The keys of each policy's settings in plans of format 2."""


def test_every_policy_has_its_stored_keys() -> None:
    assert POLICY_KEYS.keys() == POLICIES.keys()


@pytest.mark.parametrize("name", POLICY_KEYS)
def test_stored_keys_of_policy_settings_stay_valid(name: str) -> None:
    stored = [
        attribute.metadata.get("key", attribute.name)
        for attribute in fields(POLICIES[name])
        if attribute.init
    ]
    assert set(POLICY_KEYS[name]) <= set(stored)


def literal_tables() -> Iterator[tuple[str, ast.Dict]]:
    """Yield every assignment of a key table in the package, with its module."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if not any(name in source for name in TABLE_NAMES):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                if name in TABLE_NAMES:
                    assert isinstance(node.value, ast.Dict), (path, name)
                    yield f"{path.name}:{name}", node.value


def test_key_tables_are_literals() -> None:
    tables = dict(literal_tables())
    assert len(tables) >= 8
    for name, table in tables.items():
        for value in table.values:
            inner = value.values if isinstance(value, ast.Dict) else [value]
            is_table = isinstance(value, ast.Name) and value.id.endswith("_KEYS")
            assert is_table or all(isinstance(expression, ast.Constant) for expression in inner), (
                name
            )


class Renamed(NamedTuple):
    """A planned memory whose fields have other names."""

    address: int | str
    place: int
    name: str
    sort: str
    heading: str
    why: str
    size: int
    written: str
    digest: str


def test_renamed_row_fields_change_no_byte() -> None:
    memory = plans.PlannedMemory(
        key=7,
        position=7,
        memory_id="e7",
        kind="episodic",
        title="shipped",
        reason="beyond-newest",
        tokens=12,
        created_at="2026-03-01",
        fingerprint="ab" * 16,
    )
    renamed_memory = Renamed(*memory)
    keys = dict(zip(Renamed._fields, plans.PLANNED_MEMORY_KEYS.values(), strict=True))
    for in_lines in (True, False):
        as_today = {"memories": (memory,) * 3}
        renamed = {"memories": (renamed_memory,) * 3}
        today = "".join(wire.iter_json(as_today, plans.KEYS, in_lines=in_lines))
        assert "".join(wire.iter_json(renamed, {Renamed: keys}, in_lines=in_lines)) == today
    as_json = wire.to_json_fields(renamed_memory, {Renamed: keys})
    assert as_json == wire.to_json_fields(memory, plans.KEYS)
    (read_back,) = wire.tuples_of({"rows": [as_json]}, "rows", Renamed, {Renamed: keys})
    assert read_back == renamed_memory


def test_renamed_record_fields_change_no_byte() -> None:
    receipt = plans.Receipt(
        digest="ab" * 32,
        store="/srv/memory.db",
        archive=None,
        policy={"policy": "recent", "keep": 5},
        made_at=datetime(2026, 3, 1, tzinfo=UTC),
        applied_at=datetime(2026, 3, 2, tzinfo=UTC),
        deleted=3,
        boot_before=Size(5, 50),
        boot_after=Size(2, 20),
        token_rule="characters / 4",
    )
    renamed_fields = [
        (f"x_{attribute.name}", attribute.type, field()) for attribute in fields(receipt)
    ]
    twin = make_dataclass("Twin", renamed_fields, frozen=True)
    renamed = twin(
        **{f"x_{attribute.name}": getattr(receipt, attribute.name) for attribute in fields(receipt)}
    )
    keys = {twin: {f"x_{name}": key for name, key in plans.KEYS[plans.Receipt].items()}}
    as_json = wire.to_json_fields(renamed, keys)
    assert as_json == wire.to_json_fields(receipt, plans.KEYS)
    as_json = json.loads(json.dumps(as_json))
    assert twin(**wire.fields_in(as_json, twin, keys)) == renamed


def never_called(*_: Any) -> Any:
    raise AssertionError("only the row of the task is used")


def test_renamed_fleet_row_fields_change_no_column() -> None:
    applied_at = datetime(2026, 3, 2, tzinfo=UTC)
    line = change.Applied(
        digest="ab",
        status="applied",
        applied_at=applied_at,
        deleted=3,
        boot_before=10,
        boot_after=5,
        archive=None,
        undo="memlab restore",
    )
    names = {f"x_{name}": key for name, key in change.Applied.stored_names.items()}
    renamed_fields = [(f"x_{attribute.name}", attribute.type) for attribute in fields(line)]
    twin = make_dataclass("Twin", renamed_fields, frozen=True, namespace={"stored_names": names})
    renamed = twin(*(getattr(line, attribute.name) for attribute in fields(line)))
    stored = []
    for row, value in ((change.Applied, line), (twin, renamed)):
        task = FleetTask("apply", work=never_called, row=row)
        outcome = Outcome("a.db", value)
        stored.append(pa.Table.from_pylist([sweep._row_of(outcome)], sweep._schema_of(task)))
    assert stored[0].equals(stored[1])
