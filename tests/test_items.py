from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime

import pytest

import memlab
from memlab.items import (
    EventId,
    EventRef,
    MemoryItem,
    MemoryKind,
    MemoryProvenance,
    is_load_bearing_memory,
    is_load_bearing_stored,
    strings_of,
)

PROVENANCE = MemoryProvenance(None, "agent", source_task_ref="issue:#1")

VERDICT_WITHOUT_TAGS = {
    MemoryKind.SEMANTIC: True,
    MemoryKind.EPISODIC: False,
    MemoryKind.PROCEDURAL: True,
}


def item(kind: MemoryKind, *tags: str) -> MemoryItem:
    return MemoryItem("m1", kind, "title", "body", PROVENANCE, tags)


def test_every_kind_has_a_verdict() -> None:
    assert set(VERDICT_WITHOUT_TAGS) == set(MemoryKind)


@pytest.mark.parametrize("kind", MemoryKind)
def test_an_item_without_tags_is_judged_by_its_kind(kind: MemoryKind) -> None:
    assert is_load_bearing_memory(item(kind)) is VERDICT_WITHOUT_TAGS[kind]


@pytest.mark.parametrize(
    "tags", [("failed",), ("merged",), ("rejected-paths",), ("Rejected-Path",)]
)
def test_an_ordinary_episode_is_prunable(tags: tuple[str, ...]) -> None:
    assert is_load_bearing_memory(item(MemoryKind.EPISODIC, *tags)) is False


@pytest.mark.parametrize("kind", MemoryKind)
@pytest.mark.parametrize(
    "tags", [("rejected-path",), ("merged", "rejected-path"), ("rejected-path", "axis:foo")]
)
def test_a_rejected_path_is_load_bearing_whatever_its_kind(
    kind: MemoryKind, tags: tuple[str, ...]
) -> None:
    assert is_load_bearing_memory(item(kind, *tags)) is True


def test_the_predicate_is_public() -> None:
    assert memlab.is_load_bearing_memory is is_load_bearing_memory


def test_the_stored_form_has_the_verdict_of_the_item() -> None:
    assert is_load_bearing_stored("episodic", '["failed"]') is False
    assert is_load_bearing_stored("episodic", '["failed", "rejected-path"]') is True
    assert is_load_bearing_stored("semantic", "[]") is True


@pytest.mark.parametrize(
    ("kind", "tags_json", "words"),
    [
        ("dream", "[]", "kind 'dream' is not one of semantic, episodic, procedural"),
        ("episodic", "[1]", "tags_json '[1]' is not a JSON list of strings"),
        ("episodic", '"rejected-path"', "is not a JSON list of strings"),
        ("episodic", "{}", "is not a JSON list of strings"),
        ("episodic", "[", "tags_json '[' is not JSON"),
        ("episodic", "[" * 100_000, "is not JSON"),
    ],
)
def test_a_stored_form_that_cannot_be_classified_is_refused(
    kind: str, tags_json: str, words: str
) -> None:
    with pytest.raises(ValueError, match=r"kind|tags_json") as refused:
        is_load_bearing_stored(kind, tags_json)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", 1.1),
        ("confidence", -0.1),
        ("confidence", float("nan")),
        ("authored_by", " "),
        ("source_task_ref", None),
        ("source_task_ref", "  "),
        ("supersedes", "m2"),
        ("evidence_refs", (1,)),
    ],
)
def test_a_broken_provenance_names_its_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        replace(PROVENANCE, **{field: value})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"authored_by": " "}, "provenance"),
        ({"source_task_ref": None}, "source event or source task"),
        ({"source_task_ref": " "}, "source event or source task"),
        ({"confidence": 1.1}, "confidence"),
    ],
)
def test_a_broken_provenance_is_refused_in_the_words_of_an_agents_own_store(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        replace(PROVENANCE, **fields)


def test_a_source_event_serves_instead_of_a_task() -> None:
    event = EventRef(EventId("e1"), 3)
    assert MemoryProvenance(event, "agent").source_event == event


def test_created_at_defaults_to_now_in_utc() -> None:
    before = datetime.now(UTC)
    created_at = MemoryProvenance(None, "agent", source_task_ref="issue:#1").created_at
    assert before <= created_at <= datetime.now(UTC)
    assert created_at.tzinfo is UTC


def test_a_time_without_a_zone_is_in_utc() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the missing zone is the point
    assert replace(PROVENANCE, created_at=naive).created_at == naive.replace(tzinfo=UTC)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="dream"):
        item("dream")  # type: ignore[arg-type]


def test_a_bare_string_is_not_a_sequence_of_tags() -> None:
    with pytest.raises(ValueError, match="tags"):
        MemoryItem("m1", MemoryKind.EPISODIC, "", "", PROVENANCE, "rejected-path")  # type: ignore[arg-type]


def test_an_item_is_active_until_another_supersedes_it() -> None:
    assert item(MemoryKind.EPISODIC).is_active
    assert not replace(item(MemoryKind.EPISODIC), superseded_by="m2").is_active


def test_items_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        item(MemoryKind.EPISODIC).title = "another"  # type: ignore[misc]


def test_strings_are_read_in_order() -> None:
    assert strings_of('["b", "a", "ü"]') == ("b", "a", "ü")
