"""Retirement in a Claude Code folder: lines move to RETIRED.md and back."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.errors import AlreadyAppliedError, ArchiveError, StalePlanError, StoreError
from memlab.policies import TokenBudget
from memlab.systems.claude_code.source import ClaudeCode
from tests.support.claude_store import (
    at,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memory,
)
from tests.support.crashing import crash_everywhere
from tests.support.stores import files_in

DAY = timedelta(days=1)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def make_folder(tmp_path: Path, count: int = 8, *, extra: tuple[str, ...] = ()) -> Path:
    """Make a folder of one feedback memory and projects; the index ends with extra lines."""
    folder = project_folder(tmp_path)
    for number in range(count):
        kind = "feedback" if number == 0 else "project"
        text = memory(f"t {number}", kind, style="type")
        write_memory(folder, f"t_{number}.md", text, at(number))
    entries = [f"- [T{number}](t_{number}.md) — hook {number}" for number in range(count)]
    write_index(folder, ["# Memory", "", *entries, *extra], end="")
    return folder


def note_read(folder: Path, name: str, moment: datetime) -> None:
    folder.parent.joinpath("memlab.toml").write_text('log = "reads.jsonl"\n')
    with folder.parent.joinpath("reads.jsonl").open("a") as log:
        log.write(json.dumps({"memory_id": name, "at": moment.isoformat()}) + "\n")


def retiring(folder: Path, keep: int, *, now: datetime = NOW) -> memlab.Plan:
    plan = memlab.plan(folder, memlab.KeepRecent(keep), retire=True, now=now)
    return memlab.Plan.from_json(plan.to_json())


def ids(memories: Any) -> list[str]:
    return [memory.memory_id for memory in memories]


def retired(folder: Path) -> list[str]:
    frame = memlab.load(folder)
    return list(frame.memory_id[frame.retired_at.notna()])


def test_retiring_moves_lines_to_retired_md_and_keeps_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    before = files_in(folder)
    plan = retiring(folder, 4)
    receipt = memlab.apply(plan, now=NOW)
    assert ids(plan.retires) == ["t_1.md", "t_2.md", "t_3.md"]
    assert retired(folder) == ["t_1.md", "t_2.md", "t_3.md"]
    lines = [f"- [T{number}](t_{number}.md) — hook {number}" for number in range(5)]
    link_to_retired = "- [Retired memories](RETIRED.md): not loaded at start"
    assert index_lines(folder)[2:5] == [link_to_retired, lines[0], lines[4]]
    assert (folder / "RETIRED.md").read_text().splitlines()[-3:] == lines[1:4]
    assert all((folder / name).read_bytes() == before[name] for name in plan.links)
    frame = memlab.load(folder)
    assert "RETIRED.md" not in set(frame.memory_id)
    assert (frame.tokens > 0).all()  # the cost if the line returned
    about = ClaudeCode(folder).extra_report().to_dict()
    assert about["retired"] == ids(plan.retires)
    assert about["unnamed"] == []
    assert about["dangling"] == []
    assert memlab.plan(folder, memlab.KeepRecent(4), now=NOW).is_empty
    budget = memlab.plan(folder, TokenBudget(1), retire=True, now=NOW)
    assert budget.returns == ()
    assert memlab.restore(receipt).memories == 3
    assert files_in(folder) == before


def test_read_memory_returns_to_the_top_of_the_index(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    memlab.apply(retiring(folder, 4), now=NOW)
    note_read(folder, "t_2.md", NOW + DAY)
    plan = retiring(folder, 4, now=NOW + 2 * DAY)
    memlab.apply(plan, now=NOW + 2 * DAY)
    assert ids(plan.retires) == ["t_4.md"]
    assert ids(plan.returns) == ["t_2.md"]
    assert index_lines(folder)[3] == "- [T2](t_2.md) — hook 2"
    memlab.apply(retiring(folder, 9, now=NOW + 3 * DAY), now=NOW + 3 * DAY)
    assert not (folder / "RETIRED.md").exists()
    assert not any("RETIRED" in line for line in index_lines(folder))


def test_nothing_returns_without_an_index(tmp_path: Path) -> None:
    """A renamed or lost index must not cause a second one."""
    folder = make_folder(tmp_path)
    memlab.apply(retiring(folder, 4), now=NOW)
    note_read(folder, "t_2.md", NOW + DAY)
    (folder / "MEMORY.md").rename(folder / "memory.md")
    plan = retiring(folder, 9, now=NOW + 2 * DAY)
    assert ids(plan.returns) == []
    assert plan.is_empty
    (folder / "memory.md").rename(folder / "MEMORY.md")
    assert "t_2.md" in ids(retiring(folder, 9, now=NOW + 2 * DAY).returns)


LINES = (
    "",
    "## More",
    "Read [T1](t_1.md) first, then [T2](t_2.md).",
    "- [[t_3]] and [T4](t_4.md)",
    "- [[t 5]] by its own name",
)


@pytest.mark.long
@settings(max_examples=12)
@given(data=st.data())
def test_random_index_is_restored_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    extra = data.draw(st.lists(st.sampled_from(LINES), max_size=4))
    folder = make_folder(tmp_path_factory.mktemp("any"), 7, extra=tuple(extra))
    retirements = []
    for day in range(3):
        before = files_in(folder)
        now = NOW + day * DAY
        receipt = memlab.apply(retiring(folder, data.draw(st.integers(0, 7)), now=now), now=now)
        retirements.append((before, receipt))
        note_read(folder, data.draw(st.sampled_from(["t_1.md", "t_5.md"])), now + DAY / 2)
    for before, receipt in reversed(retirements):
        if receipt.archive:
            memlab.restore(receipt)
        assert files_in(folder) == before


@pytest.mark.long
@pytest.mark.parametrize("does", ["apply", "restore"])
def test_crash_at_any_call_leaves_it_done_or_undone(tmp_path: Path, does: str) -> None:
    folder = make_folder(tmp_path)
    memlab.apply(retiring(folder, 4), now=NOW)
    note_read(folder, "t_2.md", NOW + DAY)
    before = files_in(folder)
    plan = retiring(folder, 4, now=NOW + 2 * DAY)
    deleted = ["t_1.md", "t_2.md", "t_3.md"]
    remaining = ["t_1.md", "t_3.md", "t_4.md"]
    does_it = partial(memlab.apply, plan, now=NOW + 2 * DAY)
    if does == "restore":
        does_it()
        does_it = partial(memlab.restore, plan.digest, store=folder)
    expected = remaining if does == "apply" else deleted
    with suppress(AlreadyAppliedError):
        for crashes in crash_everywhere(does_it):  # noqa: B007 - the last value is the number of crashes
            assert retired(folder) in (deleted, remaining), "every reader sees one of the states"
    assert crashes > 30
    assert retired(folder) == expected
    memlab.restore(plan.digest, store=folder)
    assert files_in(folder) == before


def test_forged_index_lines_of_a_plan_are_rejected(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    new_plan = retiring(folder, 4)
    before = files_in(folder)
    first, *other_entries = new_plan.entries
    forged = first._replace(index_entries=first.index_entries.replace("hook 1", "do as I say"))
    for entries in (
        (forged, *other_entries),
        (*new_plan.entries, forged._replace(key="t_7.md")),
        (),
    ):
        plan = memlab.Plan.from_json(replace(new_plan, entries=entries).to_json())
        with pytest.raises(StalePlanError, match="the index does not say"):
            memlab.apply(plan)
        assert files_in(folder) == before


def edit_a_memory(folder: Path) -> None:
    (folder / "t_1.md").write_text("new")


def delete_a_memory(folder: Path) -> None:
    (folder / "t_1.md").unlink()


def remove_the_entries(folder: Path) -> None:
    write_index(folder, index_lines(folder)[:2])


def make_retired_md_a_link(folder: Path) -> None:
    (folder / "RETIRED.md").symlink_to("../other.md")


@pytest.mark.parametrize(
    "change", [edit_a_memory, delete_a_memory, remove_the_entries, make_retired_md_a_link]
)
def test_folder_changed_since_the_plan_is_unchanged(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = make_folder(tmp_path)
    (folder.parent / "other.md").write_text("- [T1](t_1.md)")
    plan = retiring(folder, 4)
    change(folder)
    before = files_in(folder)
    with pytest.raises((StalePlanError, StoreError), match=r"a new plan|no ordinary file"):
        memlab.apply(plan)
    assert files_in(folder) == before


def test_retired_md_can_be_edited_or_deleted_by_hand(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    receipt = memlab.apply(retiring(folder, 4), now=NOW)
    file = folder / "RETIRED.md"
    file.write_text("mine\n" + file.read_text().replace("- [T1](t_1.md) — hook 1\n", "") + "end")
    assert retired(folder) == ["t_2.md", "t_3.md"]
    memlab.apply(retiring(folder, 9, now=NOW + DAY), now=NOW + DAY)
    assert retired(folder) == []
    assert file.read_text().startswith("mine\n# Retired")
    assert file.read_text().endswith("\nend")
    file.unlink()
    assert retired(folder) == []
    assert memlab.restore(receipt, ids=["t_1.md"]).memories in (0, 1)
    with pytest.raises(ArchiveError, match="retired or returned no memory"):
        memlab.restore(receipt, ids=["nobody.md"])
