"""The memory browser in Python: filters, selection, plans, deletion and undo."""

import re
import sqlite3
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab.compaction import cost_of
from memlab.errors import MemlabError
from memlab.views import MemoryBrowser
from memlab.views.browser import LISTED
from tests.support.stores import episodes, row, write_rows

STORE = memlab.store_path("looked_up")
LOG = STORE.with_suffix(".searches.jsonl")
NOW = datetime(2026, 6, 30, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def opened() -> MemoryBrowser:
    return memlab.browse(STORE, log=LOG, now=NOW)


@pytest.fixture
def browser(opened: MemoryBrowser) -> MemoryBrowser:
    """Return a browser that shows all memories and selects none."""
    opened.select([])
    opened.show_all()
    return opened


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return memlab.load(STORE, with_body=True)


def test_browser_shows_all_memories_newest_first(
    browser: MemoryBrowser, frame: pd.DataFrame
) -> None:
    newest_first = list(reversed(frame["memory_id"].tolist()))
    assert browser.shown["memory_id"].tolist() == newest_first


def test_period_includes_first_and_last_day(browser: MemoryBrowser, frame: pd.DataFrame) -> None:
    browser.show_period("2025-10-01", "2025-10-31")
    is_in_october = frame["created_at"].dt.strftime("%Y-%m") == "2025-10"
    assert set(browser.shown["memory_id"]) == set(frame.loc[is_in_october, "memory_id"])


def test_period_and_brush_are_synchronised(browser: MemoryBrowser) -> None:
    browser.show_period("2025-10-01", "2025-10-31")
    first, last = browser.curve.span
    assert 0 < first < last < 1
    browser.show_all()
    assert browser.curve.span == []


def test_brush_sets_the_period(browser: MemoryBrowser) -> None:
    browser.show_period("2025-10-01", "2025-10-31")
    shown_ids = browser.shown["memory_id"].tolist()
    span = browser.curve.span
    browser.show_all()
    browser.curve.span = [span[0] + 0.0005, span[1] - 0.0005]
    assert browser.shown["memory_id"].tolist() == shown_ids


def test_empty_brush_shows_all(browser: MemoryBrowser) -> None:
    browser.curve.span = [0.1, 0.2]
    assert len(browser.shown) < len(browser.memories)
    browser.curve.span = []
    assert len(browser.shown) == len(browser.memories)


@pytest.mark.parametrize("part", ["decisions", "skills", "rejected paths", "episodes"])
def test_selected_part_shows_the_memories_of_its_bar(
    browser: MemoryBrowser, frame: pd.DataFrame, part: str
) -> None:
    browser.context.selected = [part]
    context = memlab.growth.boot_context(frame)
    assert len(browser.shown) == context.loc[part, "memories"]
    assert browser.shown["tokens"].sum() == context.loc[part, "tokens"]


def test_groups_unite_within_a_kind_and_intersect_across(browser: MemoryBrowser) -> None:
    browser.show_groups("newest quarter")
    newest = set(browser.shown["memory_id"])
    browser.show_groups("oldest quarter")
    oldest = set(browser.shown["memory_id"])
    browser.show_groups("newest quarter", "oldest quarter")
    assert set(browser.shown["memory_id"]) == newest | oldest
    browser.show_groups("newest quarter", "decisions")
    assert browser.shown.empty


def test_groups_of_both_charts_can_be_named_together(browser: MemoryBrowser) -> None:
    browser.show_groups("episodes")
    episodes_shown = set(browser.shown["memory_id"])
    browser.show_groups("oldest quarter")
    oldest = set(browser.shown["memory_id"])
    browser.show_groups("episodes", "oldest quarter")
    assert set(browser.shown["memory_id"]) == episodes_shown & oldest
    assert browser.context.selected == ["episodes"]
    assert browser.usage.selected == ["oldest quarter"]


def test_groups_by_reads_filter_by_count(browser: MemoryBrowser) -> None:
    browser.show_groups("read never")
    assert (browser.shown["reads"] == 0).all()
    browser.show_groups("read five times or more")
    assert (browser.shown["reads"] >= 5).all()


def test_unknown_group_lists_the_known_groups(browser: MemoryBrowser) -> None:
    with pytest.raises(ValueError, match=r"no group 'old'; there are decisions, .*oldest quarter"):
        browser.show_groups("old")


def test_selected_rows_are_those_of_the_shown_memories(browser: MemoryBrowser) -> None:
    browser.show_period("2025-10-01", "2025-10-31")
    browser.grid.selected_rows = [0, 2]
    expected = browser.shown["memory_id"].iloc[[0, 2]].tolist()
    assert browser.selected["memory_id"].tolist() == expected


def test_a_filter_keeps_the_selected_memories_that_it_shows(browser: MemoryBrowser) -> None:
    browser.show_period("2025-10-01", "2025-12-31")
    in_october = browser.shown["memory_id"].iloc[-1]
    in_december = browser.shown["memory_id"].iloc[0]
    browser.select([in_october, in_december])
    browser.show_period("2025-10-01", "2025-10-31")
    assert browser.selected["memory_id"].tolist() == [in_october]
    assert browser.ids == [in_october]
    browser.show_all()
    assert browser.selected.empty


def test_a_filter_removes_the_selection_of_hidden_memories(browser: MemoryBrowser) -> None:
    browser.grid.selected_rows = [0]
    browser.show_period("2025-10-01", "2025-10-31")
    assert browser.selected.empty


def test_status_says_that_the_table_holds_only_the_newest(
    browser: MemoryBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.views.browser.MAX_GRID_ROWS", 7)
    browser.show_all()
    browser.show_period("2025-10-01", "2025-10-31")
    assert "the table holds the newest 7: narrow the range to see others" in browser.status.value
    assert len(browser.grid.df) == 7


def test_status_says_that_the_log_is_of_another_store(tmp_path: Path) -> None:
    log = tmp_path / "reads.jsonl"
    log.write_text('{"memory_id": "of another store", "at": "2026-06-01T00:00:00Z"}\n')
    browser = memlab.browse(STORE, log=log, now=NOW)
    assert "is it another store's log?" in unescape(browser.status.value)


def test_a_selected_memory_shows_its_text(browser: MemoryBrowser, frame: pd.DataFrame) -> None:
    memory = frame.iloc[100]
    browser.select([memory["memory_id"]])
    assert f"<pre tabindex='0'>{memory['body']}</pre>" in browser.details.value


def test_body_is_shown_after_a_later_write(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(8))
    browser = memlab.browse(store)
    write_rows(store, episodes(1, start=9))
    browser.select(["e2"])
    assert "body of e2" in browser.details.value


def test_store_texts_are_escaped(tmp_path: Path) -> None:
    hostile = row("m0", "episodic", title="<b>title</b>", body="<script>alert(1)</script>\x1b[31m")
    browser = memlab.browse(write_rows(tmp_path / "memory.db", [hostile]))
    browser.select(["m0"])
    assert "<script>" not in browser.details.value
    assert "<b>title" not in browser.details.value
    assert "\x1b" not in browser.details.value
    assert "<b>title" not in browser._repr_mimebundle_()["text/html"]


def test_the_plan_deletes_the_selected_memories(browser: MemoryBrowser) -> None:
    prunable = browser.shown.loc[browser.shown["label"] == "prunable", "memory_id"].head(3)
    browser.select(prunable)
    plan = browser.plan()
    assert {memory.memory_id for memory in plan.memories} == set(prunable)
    assert {memory.reason for memory in plan.memories} == {"by-id"}


def test_no_plan_deletes_a_load_bearing_memory(browser: MemoryBrowser) -> None:
    load_bearing = browser.shown.loc[browser.shown["label"] == "load-bearing", "memory_id"]
    browser.select(load_bearing)
    assert len(browser.selected) == len(load_bearing)
    with pytest.raises(MemlabError, match="none of them prunable"):
        browser.plan()


def test_unknown_id_is_rejected_and_selection_kept(browser: MemoryBrowser) -> None:
    browser.grid.selected_rows = [0]
    with pytest.raises(MemlabError, match="has no memory zzz"):
        browser.select(["zzz"])
    assert len(browser.selected) == 1


def test_memory_not_shown_cannot_be_selected(browser: MemoryBrowser) -> None:
    newest = str(browser.shown["memory_id"].iloc[0])
    browser.show_period("2025-10-01", "2025-10-31")
    with pytest.raises(MemlabError, match=rf"not shown, so not selectable: {newest}"):
        browser.select([newest])


def test_empty_selection_has_no_plan(browser: MemoryBrowser) -> None:
    with pytest.raises(MemlabError, match="nothing is selected"):
        browser.plan()


def test_plan_leaves_out_unprunable_memories(browser: MemoryBrowser) -> None:
    browser.select(browser.shown["memory_id"])
    labels = browser.selected.set_index("memory_id")["label"]
    assert {"load-bearing", "prunable", "superseded"} <= set(labels)
    planned = [memory.memory_id for memory in browser.plan().memories]
    assert set(planned) == set(labels.index[labels == "prunable"])
    assert set(browser.ids) == set(planned)
    (policy,) = re.findall(r"^  policy +(.*)$", str(browser.plan()), re.MULTILINE)
    assert policy.endswith(f" and {len(planned) - 20} more")


def test_plan_button_shows_plan_and_cost(browser: MemoryBrowser) -> None:
    browser.show_groups("read five times or more")
    browser.select(browser.shown["memory_id"])
    browser.plan_button.click()
    cost = cost_of(browser.plan(), log=LOG)
    assert cost.to_deleted > 0
    assert f"{cost.to_deleted} of {cost.references} later needs" in browser.planned.value


def test_shown_plan_includes_the_code_to_undo_it(own: MemoryBrowser) -> None:
    own.plan_button.click()
    assert "memlab.restore(receipt)" in own.planned.value


def test_new_selection_removes_the_shown_plan(browser: MemoryBrowser) -> None:
    browser.grid.selected_rows = [0]
    browser.plan_button.click()
    assert browser.planned.value
    browser.grid.selected_rows = [1]
    assert not browser.planned.value


@pytest.fixture
def own(tmp_path: Path) -> MemoryBrowser:
    """Open a browser on a new store, with two prunable memories selected."""
    rows = [*episodes(8), row("d0", "semantic"), row("d1", "semantic")]
    browser = memlab.browse(write_rows(tmp_path / "memory.db", rows))
    browser.select(["e2", "e3"])
    return browser


def is_offered(button: Any) -> bool:
    return button.layout.display != "none" and not button.disabled


def test_only_a_shown_plan_can_be_applied(own: MemoryBrowser, tmp_path: Path) -> None:
    before = (tmp_path / "memory.db").read_bytes()
    assert not is_offered(own.delete_button)
    own.plan_button.click()
    assert is_offered(own.delete_button)
    assert not is_offered(own.undo_button)
    own.select(["e4"])
    assert not is_offered(own.delete_button)
    own.delete_button.click()
    assert (tmp_path / "memory.db").read_bytes() == before


def test_delete_and_undo_buttons_work(own: MemoryBrowser, tmp_path: Path) -> None:
    store = tmp_path / "memory.db"
    before = memlab.load(store)
    selected = set(own.ids)
    own.plan_button.click()
    own.delete_button.click()
    assert set(before["memory_id"]) - set(memlab.load(store)["memory_id"]) == selected
    assert selected.isdisjoint(own.shown["memory_id"])
    assert "; 2 deleted here" in own.status.value
    assert "memlab restore" in own.planned.value
    own.undo_button.click()
    assert memlab.load(store).equals(before)
    assert selected <= set(own.shown["memory_id"])
    assert "2 memories restored" in own.planned.value
    assert not is_offered(own.undo_button)


def test_deletion_is_dated_by_the_clock(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(8))
    browser = memlab.browse(store, now=datetime(2020, 1, 1, tzinfo=UTC))
    browser.select(["e2"])
    before = datetime.now(UTC)
    browser.plan_button.click()
    browser.delete_button.click()
    past = memlab.load_past(store).set_index("memory_id")
    assert past.loc["e2", "deleted_at"] >= before.replace(microsecond=0)


def test_charts_count_no_memory_that_was_deleted_here(tmp_path: Path) -> None:
    days = [f"2026-03-{day:02}" for day in range(1, 9)]
    dated = [row(f"e{n}", "episodic", created_at=day) for n, day in enumerate(days)]
    rows = [row("d0", "semantic"), row("d1", "semantic"), *dated]
    own = memlab.browse(write_rows(tmp_path / "memory.db", rows))
    own.show_groups("episodes")
    assert "8 prunable beside 2 load-bearing memories" in own.curve.html
    own.select(["e2", "e3"])
    own.plan_button.click()
    own.delete_button.click()
    assert "6 prunable beside 2 load-bearing memories" in own.curve.html
    assert "An agent starts with 8 memories" in own.context.html
    assert own.context.selected == ["episodes"]
    own.undo_button.click()
    assert "8 prunable beside 2 load-bearing memories" in own.curve.html
    own.context.selected = []
    assert len(own.shown) == 10


def test_groups_of_both_charts_stay_chosen_after_a_deletion(tmp_path: Path) -> None:
    store = memlab.copy_store(STORE, tmp_path / "memory.db")
    own = memlab.browse(store, log=LOG, now=NOW)
    own.show_groups("episodes", "oldest quarter")
    shown = own.shown["memory_id"].tolist()
    own.select(shown[:1])
    own.plan_button.click()
    own.delete_button.click()
    assert own.shown["memory_id"].tolist() == shown[1:]
    assert own.context.selected == ["episodes"]
    assert own.usage.selected == ["oldest quarter"]


def test_a_deletion_can_be_repeated_after_an_undo(own: MemoryBrowser, tmp_path: Path) -> None:
    selected = own.ids
    for _ in range(2):
        own.select(selected)
        own.plan_button.click()
        own.delete_button.click()
        assert set(selected).isdisjoint(memlab.load(tmp_path / "memory.db")["memory_id"])
        own.undo_button.click()


def test_deletions_are_undone_in_reverse_order(own: MemoryBrowser, tmp_path: Path) -> None:
    before = memlab.load(tmp_path / "memory.db")
    first = own.ids
    own.plan_button.click()
    own.delete_button.click()
    own.select(["e7"])
    own.plan_button.click()
    own.delete_button.click()
    own.undo_button.click()
    assert set(before["memory_id"]) - set(own.shown["memory_id"]) == set(first)
    own.undo_button.click()
    assert memlab.load(tmp_path / "memory.db").equals(before)


def test_load_bearing_selection_cannot_be_deleted(own: MemoryBrowser) -> None:
    own.select(["d1"])
    own.plan_button.click()
    assert "--supersede d1=NEWER" in own.planned.value
    assert not is_offered(own.delete_button)


def test_mixed_selection_names_what_stays(own: MemoryBrowser) -> None:
    own.select([*own.ids, "d1"])
    own.plan_button.click()
    assert "Deletes 2 of 10 memories" in own.planned.value
    assert "--supersede d1=NEWER" in own.planned.value
    assert is_offered(own.delete_button)


def test_changed_store_is_not_deleted_from(own: MemoryBrowser, tmp_path: Path) -> None:
    own.plan_button.click()
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        connection.execute("UPDATE memory_items SET title = 'new' WHERE memory_id = 'e2'")
    connection.close()
    own.delete_button.click()
    assert "role='alert'" in own.planned.value
    assert len(memlab.load(tmp_path / "memory.db")) == 10
    assert not is_offered(own.undo_button)


def test_bundled_store_cannot_be_deleted_from(browser: MemoryBrowser) -> None:
    browser.select(browser.shown.loc[browser.shown["label"] == "prunable", "memory_id"].head(1))
    browser.plan_button.click()
    assert "memlab.copy_store" in browser.planned.value
    assert not is_offered(browser.delete_button)


def test_a_selection_is_deleted_and_restored(tmp_path: Path) -> None:
    copy = memlab.copy_store(STORE, tmp_path / "memory.db")
    before = memlab.load(copy)
    selected = before.loc[before["prunable"], "memory_id"].iloc[[3, 40]]
    receipt = memlab.apply(memlab.plan(copy, ids=selected))
    assert set(selected).isdisjoint(memlab.load(copy)["memory_id"])
    memlab.restore(receipt)
    assert memlab.load(copy).equals(before)


def test_static_page_has_a_table_and_a_chart(browser: MemoryBrowser) -> None:
    bundle: dict[str, Any] = browser._repr_mimebundle_()
    assert bundle["text/html"].count("<tr>") >= LISTED
    assert "<script" not in bundle["text/html"]
    assert '<div class="memlab-chart">' in bundle["text/html"]
    assert f"and {len(browser.memories) - LISTED} more" in bundle["text/plain"]


def test_a_frame_has_no_plan(frame: pd.DataFrame) -> None:
    browser = memlab.browse(frame)
    browser.grid.selected_rows = [0]
    assert browser.plan_button.disabled
    with pytest.raises(MemlabError, match="a frame has nothing to delete"):
        browser.plan()


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 memories"), (1, "1 memory"), (2, "2 memories")]
)
def test_small_stores_can_be_browsed(tmp_path: Path, count: int, words: str) -> None:
    browser = memlab.browse(write_rows(tmp_path / "memory.db", episodes(count)))
    assert len(browser.shown) == count
    assert browser.usage is None
    assert str(browser.sheet().title).endswith(words)
    browser.show_all()
    browser.select(browser.shown["memory_id"].head(1))


def test_undated_memories_are_outside_every_period(tmp_path: Path) -> None:
    rows = [
        row(f"m{day}", "episodic", created_at=f"2026-01-0{day}T00:00:00+00:00")
        for day in (1, 2, 3, 4)
    ]
    frame = memlab.load(write_rows(tmp_path / "memory.db", rows))
    frame.loc[3, "created_at"] = pd.NaT
    browser = memlab.browse(frame)
    browser.show_period("2026-01-02", "2026-01-03")
    assert browser.shown["memory_id"].tolist() == ["m3", "m2"]
