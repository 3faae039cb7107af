"""The tokens of a start are one number in every command, before and after a compaction."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.charts import plot_before_after, plot_boot_context
from memlab.compaction.plans import Receipt
from memlab.growth.context import boot_context, loaded_after
from memlab.sizing.curve import prepare_sizing
from memlab.sizing.effect_of_cap import cap_effect, survivors
from memlab.sizing.lifetimes import Present
from memlab.views.page import decision_record
from tests.support.claude_store import (
    START,
    at,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memories,
    write_memory,
)
from tests.support.frames import make_episodes
from tests.support.notebook_stores import STORES
from tests.support.openclaw_store import days_before, write_workspace

NOW = at(24 * 400)
KINDS = ("eleven", "sixty", "claude", "openclaw", "serena", "odek")


def cut_folder(home: Path, *, shuffled: bool = False) -> Path:
    """Write 260 memories and an index of as many lines, of which a start loads 199."""
    folder = project_folder(home)
    lines = []
    for number in range(260):
        kind = "feedback" if number % 5 == 0 else "project"
        body = "x " * (number % 7)
        hook = "about it " * (number % 3)
        write_memory(folder, f"m{number}.md", memory(f"m{number}", kind, body=body), at(number))
        lines.append(f"- [Memory {number}](m{number}.md): {hook}")
    if shuffled:
        random.Random(1).shuffle(lines)
    write_index(folder, ["# Index of memories", *lines])
    return folder


def tokens_in_show(store: Path | str) -> int:
    """Return the tokens of a start according to `memlab show`."""
    summary = memlab.show(store, now=NOW).summary
    return summary.boot.tokens + summary.index_overhead


@pytest.mark.parametrize(
    "cap",
    [
        pytest.param(0, marks=pytest.mark.long),
        pytest.param(10, marks=pytest.mark.long),
        150,
        pytest.param(190, marks=pytest.mark.long),
        pytest.param(205, marks=pytest.mark.long),
    ],
)
def test_every_command_counts_the_same_start_of_a_cut_index(tmp_path: Path, cap: int) -> None:
    folder = cut_folder(tmp_path / "home")
    sizing = prepare_sizing(memlab.load_past(folder))
    plan = memlab.plan(folder, memlab.KeepRecent(cap), now=NOW)
    (store,) = memlab.find(tmp_path / "home").stores
    assert plan.start is not None
    start = tokens_in_show(folder)
    assert store.tokens_at_start == start
    assert memlab.size(folder, now=NOW).advice.loaded == start
    assert plan.start.before.tokens == start
    (at_cap,) = sizing.at([cap]).to_dict("records")
    expected = int(at_cap["boot_tokens"])
    assert f"a start goes from {start:,} to {expected:,} tokens" in plan.effect
    memlab.apply(plan, now=NOW)
    assert tokens_in_show(folder) == expected
    assert plan.start.after.tokens == expected
    assert memlab.show(folder, now=NOW).summary.boot.memories == at_cap["boot_memories"]


@pytest.mark.parametrize("cap", [pytest.param(10, marks=pytest.mark.long), 190])
def test_effect_of_a_cap_on_a_cut_index_is_what_a_start_loads(tmp_path: Path, cap: int) -> None:
    folder = cut_folder(tmp_path)
    frame = memlab.load(folder)
    effect = cap_effect(frame, cap)
    start_after = boot_context(survivors(frame, cap))
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(cap), now=NOW), now=NOW)
    after = memlab.show(folder, now=NOW).summary
    assert effect.after == after.boot
    assert start_after["tokens"].sum() == tokens_in_show(folder)
    assert f"{tokens_in_show(folder):,}" in str(effect)


@pytest.mark.parametrize("is_saved", [pytest.param(False, marks=pytest.mark.long), True])
def test_receipt_of_a_folder_says_what_a_start_loads(tmp_path: Path, is_saved: bool) -> None:
    folder = cut_folder(tmp_path)
    plan = memlab.plan(folder, memlab.KeepRecent(10), now=NOW)
    assert plan.start is not None
    before = plan.start.before
    after = plan.start.after
    if is_saved:
        plan = memlab.Plan.from_json(plan.to_json())
    receipt = memlab.apply(plan, now=NOW)
    assert receipt.start_before == before
    assert receipt.start_after == after
    assert tokens_in_show(folder) == after.tokens
    line = f"a start       {before.memories} memories, {before.tokens:,} tokens -> "
    assert f"{line}{after.memories} memories, {after.tokens:,} tokens" in str(receipt)
    assert "a start" in receipt._repr_html_()
    stored = json.loads(receipt.to_json())
    assert stored["start_after"] == {"memories": after.memories, "tokens": after.tokens}
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_retirement_from_a_file_predicts_the_start(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path)
    plan = memlab.plan(folder, memlab.KeepRecent(30), retire=True, now=NOW)
    receipt = memlab.apply(memlab.Plan.from_json(plan.to_json()), now=NOW)
    assert plan.start is not None
    assert receipt.start_after == plan.start.after


def test_receipt_without_a_start_is_readable(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path)
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(10), now=NOW), now=NOW)
    stored = json.loads(receipt.to_json())
    del stored["start_before"], stored["start_after"]
    older = Receipt.from_json(json.dumps(stored))
    assert older.start_after is None
    assert "a start" not in str(older)


def test_floor_of_a_cut_index_says_how_many_are_loaded(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path)
    assert "52 load-bearing memories, 40 of them loaded now" in str(memlab.show(folder, now=NOW))
    plan = memlab.plan(folder, memlab.KeepRecent(10), now=NOW)
    assert "52 load-bearing memories" in plan.floor_in_words
    assert plan.floor_in_words.endswith("; 40 of them loaded now")
    for page in (plan.sheet(), plan.sheet(below_effect=True)):
        assert dict(page.facts)["floor"] == plan.floor_in_words
    advice = memlab.size(folder, now=NOW).advice
    assert plan.floor_in_words in decision_record(advice, plan, now=NOW)


def test_floor_that_is_loaded_is_said_once(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memories(folder, "a", "b")
    write_memory(folder, "told.md", memory("told", kind="feedback"))
    write_index(folder, [*index_lines(folder), "- [T](told.md)"])
    plan = memlab.plan(folder, memlab.KeepRecent(1), now=NOW)
    assert "loaded now" not in f"{plan}{memlab.show(folder, now=NOW)}"
    assert "1 load-bearing memory" in plan.floor_in_words


def test_alert_of_a_cut_index_costs_what_the_table_says(tmp_path: Path) -> None:
    overview = memlab.show(cut_folder(tmp_path), now=NOW)
    (cut,) = [alert for alert in overview.alerts if alert.name == "cut"]
    assert cut.tokens == overview.summary.not_loaded.tokens


def test_cap_that_costs_more_than_a_larger_one_has_a_note(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    lines = []
    for number in range(260):
        write_memory(folder, f"m{number}.md", memory(f"m{number}"), at(number))
        hook = "about it " * 20 if number >= 200 else ""
        lines.append(f"- [Memory {number}](m{number}.md): {hook}")
    write_index(folder, lines)
    sized = memlab.size(folder, now=NOW)
    table = sized.advice.table(sized.sizing.at([200, 220, 260]))
    assert (
        "; 200 and 220 take more tokens than a larger cap: a start loads only part" in table.remark
    )
    table = sized.advice.table(sized.sizing.at([10, 20, 260]))
    assert "more tokens than a larger cap" not in table.remark


def test_text_of_the_index_is_part_of_a_start(tmp_path: Path) -> None:
    context = boot_context(cut_folder(tmp_path))
    assert context.loc["text of the index"].tolist() == [0, 5, True]


def test_charts_of_a_start_count_the_text_of_the_index(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path)
    context = boot_context(folder)
    chart = plot_boot_context(context)
    assert f"199 memories and {tokens_in_show(folder):,} tokens" in chart.get_title(loc="left")
    assert "-home-u-work/memory." in chart.texts[-2].get_text() + chart.texts[-1].get_text()
    names = [label.get_text() for label in chart.get_yticklabels()]
    assert names[-1] == "text of the index\nnot a memory"
    after = plot_before_after(context, boot_context(survivors(folder, 10)))
    assert f"{tokens_in_show(folder):,} → " in after.get_title(loc="left")
    words = [text.get_text() for text in after.texts]
    assert any("include 5 tokens of the index's own text" in text for text in words)


def test_start_of_a_reordered_index_loads_as_many_entries(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path, shuffled=True)
    plan = memlab.plan(folder, memlab.KeepRecent(190), now=NOW)
    assert plan.start is not None
    memlab.apply(plan, now=NOW)
    after = memlab.show(folder, now=NOW).summary
    assert after.boot.memories == 199
    assert plan.start.after.memories == 199
    tokens = after.boot.tokens + after.index_overhead
    assert plan.start.after.tokens == pytest.approx(tokens, rel=0.02)


def test_retirement_predicts_the_start(tmp_path: Path) -> None:
    folder = cut_folder(tmp_path)
    plan = memlab.plan(folder, memlab.KeepRecent(30), retire=True, now=NOW)
    assert plan.start is not None
    memlab.apply(plan, now=NOW)
    after = memlab.show(folder, now=NOW).summary
    assert plan.start.after.memories == after.boot.memories


@pytest.mark.parametrize("kind", KINDS)
def test_size_and_show_count_the_same_start(tmp_path: Path, kind: str) -> None:
    with STORES[kind](tmp_path) as store:
        advice = memlab.size(store, now=NOW).advice
        loads_any = memlab.show(store, now=NOW).summary.loads_any
        if advice.loads_at_start:
            start = advice.loaded
        else:
            assert advice.loaded == advice.active_tokens
            start = advice.load_bearing_at_start
        expected = tokens_in_show(store) if loads_any else 0
        assert start == expected


def test_workspace_with_loaded_document_says_what_a_start_loads(tmp_path: Path) -> None:
    workspace = write_workspace(tmp_path / "w", days_before(START.date(), 400))
    text = memlab.size(f"openclaw:{workspace}", now=NOW).advice.answer
    tokens = tokens_in_show(f"openclaw:{workspace}")
    assert tokens > 0
    assert f"nly load-bearing memories, {tokens:,} tokens, are loaded at start" in text
    assert "a start" not in text


@given(data=st.data())
def test_loaded_tokens_by_cap_equal_the_start_afterwards(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    is_loaded = data.draw(flags)
    assume(any(is_loaded))  # else the memories are only searched
    frame = make_episodes(count)
    frame[c.TOKENS] = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    frame[c.LOAD_BEARING] = data.draw(flags)
    frame[c.PRUNABLE] = ~frame[c.LOAD_BEARING]
    frame[c.LOADED_AT_START] = is_loaded
    frame.attrs[c.INDEX_TOKENS] = 3
    frame.attrs[c.RECALLED] = False
    present = Present.of(frame, NOW)
    for cap in range(present.prunable + 1):
        is_kept = np.asarray(frame.index.isin(survivors(frame, cap).index))
        loaded = frame[loaded_after(frame, is_kept)]
        prunable = loaded[loaded[c.PRUNABLE]]
        assert present.loaded.at(cap) == (
            len(loaded),
            loaded[c.TOKENS].sum() + 3,
            len(prunable),
            prunable[c.TOKENS].sum(),
        )
