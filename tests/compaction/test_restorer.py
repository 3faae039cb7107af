"""Restoring to store files: the same bytes at the same place, or nothing."""

from pathlib import Path

import pytest
from archives import NOON, planned
from hypothesis import given
from hypothesis import strategies as st
from invariants import (
    archive_of,
    assert_load_bearing_rows_stay,
    assert_nothing_lost,
    rows_of,
)
from stores import (
    RawText,
    Row,
    row,
    row_lists,
    run_sql,
    signals_of,
    write_rows,
    write_signals,
)

from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.compaction.plans import Plan
from memlab.compaction.restorer import restore
from memlab.errors import (
    ArchiveError,
    MemlabError,
)
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import ImportanceBudget, KeepRecent
from memlab.store import SqliteMemoryStore


def test_it_gives_back_the_same_bytes_at_the_same_position(store: Path) -> None:
    before = rows_of(store)
    receipt = apply(planned(store))
    assert restore(receipt) == 6
    assert rows_of(store) == before


def test_restoring_twice_restores_nothing(store: Path) -> None:
    receipt = apply(planned(store))
    restore(receipt)
    before = rows_of(store)
    assert restore(receipt) == 0
    assert rows_of(store) == before


def test_a_restored_row_may_change_and_restoring_again_leaves_it(store: Path) -> None:
    receipt = apply(planned(store))
    restore(receipt)
    run_sql(store, "UPDATE memory_items SET superseded_by = 'e9' WHERE memory_id = 'e1'")
    before = rows_of(store)
    assert restore(receipt) == 0
    assert rows_of(store) == before


def test_what_was_restored_and_compacted_away_comes_back_again(store: Path) -> None:
    before, receipt = rows_of(store), apply(planned(store))
    restore(receipt)
    with SqliteMemoryStore(store) as opened:
        assert opened.compact_episodic(4) == 6
    assert restore(receipt) == 6
    assert rows_of(store) == before


def test_some_rows_can_be_restored_alone(store: Path) -> None:
    before, receipt = rows_of(store), apply(planned(store))
    after = rows_of(store)
    assert restore(receipt, ids=["e2", "e5"]) == 2
    assert rows_of(store) == dict(sorted((after | {5: before[5], 8: before[8]}).items()))
    assert restore(receipt) == 4
    assert rows_of(store) == before


def test_an_unknown_id_restores_nothing(store: Path) -> None:
    receipt = apply(planned(store))
    after = rows_of(store)
    with pytest.raises(ArchiveError, match="deleted no memory nobody"):
        restore(receipt, ids=["e1", "nobody"])
    assert rows_of(store) == after


def test_the_beginning_of_a_digest_will_do(store: Path) -> None:
    receipt = apply(planned(store))
    assert restore(receipt.digest[:6], store=store) == 6


@pytest.mark.parametrize("digest", ["", "zz"])
def test_an_unknown_digest_is_refused_in_words(store: Path, digest: str) -> None:
    apply(planned(store))
    with pytest.raises(ArchiveError, match=f"no plan '{digest}' in .*memlab archive"):
        restore(digest, store=store)


def test_a_beginning_that_names_two_plans_is_refused(store: Path) -> None:
    first = apply(planned(store, 9)).digest
    for keep in range(8, -1, -1):
        if apply(planned(store, keep)).digest[0] == first[0]:
            break
    else:
        alike = f"UPDATE applies SET digest = '{first[0]}' || substr(digest, 2) WHERE apply = 2"
        run_sql(archive_of(store), alike)
    with pytest.raises(ArchiveError, match="names several plans"):
        restore(first[0], store=store)


def test_a_digest_needs_a_store() -> None:
    with pytest.raises(ValueError, match="store must be given"):
        restore("abc")


def test_without_an_archive_it_says_that_nothing_was_taken_out(store: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive"):
        restore("abc", store=store)


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        (lambda path: write_rows(path, [row("new", rowid=4)]), "position 4"),
        (lambda path: write_rows(path, [row("e2", rowid=77)]), "id 'e2'"),
        (lambda path: write_rows(path, [row("e2", rowid=5, title="again")]), "position 5"),
    ],
)
def test_a_place_taken_since_is_named_and_nothing_changes(
    store: Path, change: object, taken: str
) -> None:
    receipt = apply(planned(store))
    change(store)  # type: ignore[operator]
    before = rows_of(store)
    with pytest.raises(ArchiveError, match=taken):
        restore(receipt)
    assert rows_of(store) == before


def test_a_plan_that_frees_the_last_place_says_so_and_the_rest_comes_back_by_id(
    store: Path,
) -> None:
    assert "takes the place of the newest" not in str(planned(store))
    made = planned(store, 0)
    assert "takes the place of the newest, which goes" in str(made)
    assert Plan.from_json(made.to_json()) == made
    receipt = apply(made)
    write_rows(store, [row("next", rowid=13)])
    with pytest.raises(ArchiveError, match=r"1 place .*position 13.*the other 9 by id"):
        restore(receipt)
    assert restore(receipt, ids=[f"e{n}" for n in range(1, 10)]) == 9


def test_all_of_it_can_go_into_a_new_file(store: Path, tmp_path: Path) -> None:
    before, receipt = rows_of(store), apply(planned(store))
    write_rows(store, [row("new", rowid=4)])
    after, into = rows_of(store), tmp_path / "restored.db"
    assert restore(receipt, into=into) == 6
    assert rows_of(into) == {position: before[position] for position in range(4, 10)}
    assert rows_of(store) == after
    assert sorted(p.name for p in tmp_path.iterdir() if "restored" in p.name) == ["restored.db"]


def test_a_store_that_is_lost_does_not_keep_its_archive_from_a_new_file(
    store: Path, tmp_path: Path
) -> None:
    receipt = apply(planned(store))
    store.unlink()
    assert restore(receipt, ids=["e1"], into=tmp_path / "restored.db") == 1
    assert len(rows_of(tmp_path / "restored.db")) == 1


def test_an_existing_file_is_not_written_over(store: Path) -> None:
    receipt = apply(planned(store))
    before = rows_of(store)
    with pytest.raises(MemlabError, match="exists; name a file that does not"):
        restore(receipt, into=store)
    assert rows_of(store) == before


def test_signals_go_with_their_row_and_come_back(store: Path) -> None:
    write_signals(store, "e1", importance=0.1 + 0.2, access_count=3, namespace="ns", trusted=0)
    write_signals(store, "e2", last_accessed_at="2026-03-01T12:00:00Z", agent_id="ü")
    write_signals(store, "e10", importance=0.9)
    rows, signals = rows_of(store), signals_of(store)
    receipt = apply(planned(store))
    assert [each[0] for each in signals_of(store)] == ["e10"]
    assert restore(receipt) == 6
    assert (rows_of(store), signals_of(store)) == (rows, signals)


def test_a_lifecycle_store_gets_back_what_it_knew(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with LifecycleStore(path) as lifecycle:
        for number in range(6):
            item = MemoryItem(
                f"e{number}",
                MemoryKind.EPISODIC,
                "title",
                "body",
                MemoryProvenance(None, "agent", source_task_ref="issue:#1", created_at=NOON),
            )
            lifecycle.put(item, importance=number / 10, agent_id="a", namespace=f"n{number % 2}")
        lifecycle.touch(["e1", "e4"], now=NOON)
    rows, signals = rows_of(path), signals_of(path)
    receipt = apply(plan(path, ImportanceBudget(2, scope=()), now=NOON))
    assert [each[0] for each in signals_of(path)] == ["e4", "e5"]
    assert restore(receipt) == 4
    assert (rows_of(path), signals_of(path)) == (rows, signals)


def test_rows_come_back_where_no_side_table_is_left(store: Path) -> None:
    write_signals(store, "e1", importance=0.5)
    before, receipt = rows_of(store), apply(planned(store))
    run_sql(store, "DROP TABLE memory_signals")
    assert restore(receipt) == 6
    assert rows_of(store) == before


@given(
    rows=row_lists(max_size=12),
    events=st.lists(st.binary(max_size=5), min_size=12, max_size=12),
    chosen=st.sets(st.integers(0, 11)),
)
def test_any_rows_restored_are_byte_for_byte_what_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    events: list[bytes],
    chosen: set[int],
) -> None:
    odd = [
        each | {"source_event_id": RawText(event)}
        for each, event in zip(rows, events, strict=False)
    ]
    store = write_rows(tmp_path_factory.mktemp("random") / "memory.db", odd)
    before = rows_of(store)
    made = plan(store, KeepRecent(0), now=NOON)
    receipt = apply(made)
    ids = [each.memory_id for number, each in enumerate(made.memories) if number in chosen]
    if made.memories:
        assert restore(receipt, ids=ids) == len(ids)
    positions = {each.position for each in made.memories if each.memory_id not in ids}
    assert rows_of(store) == {p: r for p, r in before.items() if p not in positions}
    assert_load_bearing_rows_stay(before, rows_of(store))
    assert_nothing_lost(before, store)
