"""Memory items: load-bearing verdict, field validation, defaults."""

import json
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime

import pytest

from memlab import SqliteMemoryStore
from memlab.items import (
    MemoryItem,
    MemoryKind,
    MemoryProvenance,
    is_load_bearing_memory,
    is_load_bearing_stored,
)

PROVENANCE = MemoryProvenance(None, "agent", source_task_ref="issue:#1")

VERDICT_WITHOUT_TAGS = {
    MemoryKind.SEMANTIC: True,
    MemoryKind.EPISODIC: False,
    MemoryKind.PROCEDURAL: True,
}


def item(kind: MemoryKind, *tags: str) -> MemoryItem:
    return MemoryItem("m1", kind, "title", "body", PROVENANCE, tags)


@pytest.mark.parametrize("kind", MemoryKind)
@pytest.mark.parametrize(
    ("tags", "protects"),
    [
        ((), False),
        (("rejected-paths",), False),
        (("Rejected-Path",), False),
        (("rejected-path",), True),
        (("merged", "rejected-path"), True),
    ],
)
def test_kind_and_tags_decide_what_is_load_bearing(
    kind: MemoryKind, tags: tuple[str, ...], protects: bool
) -> None:
    verdict = VERDICT_WITHOUT_TAGS[kind] or protects
    assert is_load_bearing_memory(item(kind, *tags)) is verdict
    assert is_load_bearing_stored(kind.value, json.dumps(tags)) is verdict


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "dream", "kind must be .*dream"),
        ("tags", "rejected-path", "tags must be .*rejected-path"),
        ("confidence", 1.1, "confidence"),
        ("confidence", float("nan"), "confidence"),
        ("authored_by", " ", "authored_by of a provenance"),
        ("source_task_ref", "  ", "source event or source task: .* source_task_ref"),
        ("supersedes", "m2", "supersedes"),
        ("evidence_refs", (1,), "evidence_refs"),
    ],
)
def test_invalid_item_names_its_field(field: str, value: object, message: str) -> None:
    valid_item = item(MemoryKind.EPISODIC)
    owner = valid_item if hasattr(valid_item, field) else PROVENANCE
    with pytest.raises(ValueError, match=message):
        replace(owner, **{field: value})


def test_created_at_defaults_to_now_in_utc() -> None:
    before = datetime.now(UTC)
    created_at = MemoryProvenance(None, "agent", source_task_ref="issue:#1").created_at
    assert before <= created_at <= datetime.now(UTC)
    assert created_at.tzinfo is UTC
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the missing zone is tested
    assert replace(PROVENANCE, created_at=naive).created_at == naive.replace(tzinfo=UTC)


def test_item_is_frozen_and_active_until_superseded() -> None:
    assert item(MemoryKind.EPISODIC).is_active
    assert not replace(item(MemoryKind.EPISODIC), superseded_by="m2").is_active
    with pytest.raises(FrozenInstanceError):
        item(MemoryKind.EPISODIC).title = "another"  # type: ignore[misc]


def test_docstring_names_the_single_source_of_truth() -> None:
    assert "single source of truth" in str(is_load_bearing_memory.__doc__)


def test_docstring_of_compact_episodic_says_hard_delete_first() -> None:
    first, *_ = str(SqliteMemoryStore.compact_episodic.__doc__).splitlines()
    assert first.startswith("Hard-delete")
