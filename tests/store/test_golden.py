"""Stores written in every earlier format can be read, undone and extended."""

import json
import re
import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import memlab
from memlab import fleet
from memlab.compaction import Plan, Receipt, archived_plans, archived_rows, dropped_plans, recover
from memlab.compaction.archive_views import last_applied
from memlab.errors import StalePlanError
from memlab.sources.opening import open_source, settings_of
from tests.support.golden_files import CLAUDE, FORMATS, copy_golden, raise_formats, write_first_rows
from tests.support.invariants import archive_of, rows_of
from tests.support.shell import output_of, run
from tests.support.stores import files_in


@pytest.fixture(params=[False, True], ids=["today", "raised"], autouse=True)
def raised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Raise the written formats; every earlier format must still be read."""
    if request.param:
        raise_formats(monkeypatch)
    return bool(request.param)


TODAY = False
RAISED = True


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest) -> str:
    """Return the folder name of each format."""
    return str(request.param)


@pytest.fixture
def items(golden: str, tmp_path: Path) -> Path:
    """Copy the golden store with its archive, settings and log."""
    return copy_golden(golden, "items", tmp_path) / "memory.db"


@pytest.fixture
def claude(golden: str, tmp_path: Path) -> Path:
    """Copy the golden Claude Code folder."""
    return copy_golden(golden, "claude", tmp_path) / CLAUDE


def digests_of(store: Path) -> list[str]:
    return [entry.digest for entry in archived_plans(store)]


class ListedEntry(NamedTuple):
    """Fields of an entry of an archive that the golden stores have in every format."""

    memories: int
    restored: int = 0
    is_finished: bool = True
    has_plan: bool = True
    is_recovery: bool = False


ENTRIES = {
    "deletion": ListedEntry(memories=4, restored=1),
    "supersession": ListedEntry(memories=0),
    "deletion by a runtime": ListedEntry(memories=5, has_plan=False),
    "recovery": ListedEntry(memories=1, has_plan=False, is_recovery=True),
    "retirement": ListedEntry(memories=0),
    "return": ListedEntry(memories=0),
    "interrupted deletion": ListedEntry(memories=4, is_finished=False),
}
"""The entries of a golden store, oldest first."""


def test_golden_store_lists_every_entry_of_its_archive(items: Path) -> None:
    entries = [
        ListedEntry(
            memories=entry.memories,
            restored=entry.restored,
            is_finished=entry.finished_at is not None,
            has_plan=entry.has_plan,
            is_recovery=entry.is_recovery,
        )
        for entry in archived_plans(items)
    ]
    assert entries == list(ENTRIES.values())
    assert [dropped.memories for dropped in dropped_plans(items)] == [2]
    assert len(archived_rows(items)) == 13
    applied = last_applied(items)
    assert applied is not None
    plan, _ = applied
    assert [memory.memory_id for memory in plan.memories] == ["e3", "e4", "e5", "e6"]


COMMANDS = (
    "archive {}",
    "archive {} --rows",
    "archive {} --json",
    "lost {}",
    "rows {}",
    "show {}",
    "size {}",
    "doctor {}",
    "report {} --chart growth -o {out}/chart.svg",
    "maintain {}",
    "archive {} --drop-before 2030-01-01",
)
PAGE = "report {} -o {out}/page.html"
"""It takes 3 s of drawing."""
ALSO_RAISED = ("archive {} --rows", "show {}", "maintain {}")
"""Commands of a default run on raised formats; ``--all`` tries the others, too."""


def pairs_of_format_and_command() -> list[Any]:
    """Pair each golden store with each command, and mark the pairs that a default run omits."""
    pairs: list[Any] = [(TODAY, command) for command in COMMANDS]
    pairs.append(pytest.param(TODAY, PAGE, marks=pytest.mark.long))
    for command in (*COMMANDS, PAGE):
        marks = [] if command in ALSO_RAISED else [pytest.mark.long]
        pairs.append(pytest.param(RAISED, command, marks=marks))
    return pairs


@pytest.mark.parametrize(("raised", "command"), pairs_of_format_and_command(), indirect=["raised"])
def test_reading_golden_store_changes_no_byte(
    items: Path, tmp_path: Path, command: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = files_in(tmp_path)
    out = tmp_path_factory.mktemp("out")
    result = run(*command.format(items, out=out).split())
    assert result.exit_code in (0, 1), result.output
    assert "move it away" not in result.output
    assert files_in(tmp_path) == before


def test_golden_store_loses_one_memory_and_recovers_it(items: Path) -> None:
    assert json.loads(output_of("lost", items, "--json"))["lost"][0]["memory_id"] == "e13"
    recovered = recover(items)
    assert list(recovered.losses) == ["e13"]
    assert memlab.restore(recovered.digest, store=items).memories == 1


def test_undoing_all_of_golden_store_restores_its_first_rows(items: Path, tmp_path: Path) -> None:
    recover(items)
    for entry in reversed(archived_plans(items)):
        if not entry.is_recovery:
            memlab.restore(entry.digest, store=items)
    expected_rows = rows_of(write_first_rows(tmp_path / "first.db"))
    for position, row in list(expected_rows.items()):
        _, memory_id, *_ = row
        if memory_id in (b"e1", b"e2"):  # their copies were dropped from the archive
            del expected_rows[position]
    assert rows_of(items) == expected_rows


@pytest.mark.parametrize("name", ["deletion", "supersession", "retirement", "return"])
def test_each_plan_of_golden_store_is_undone_by_its_receipt(items: Path, name: str) -> None:
    interrupted_deletion = digests_of(items)[-1]
    # It deleted a memory that the plan "return" had returned.
    memlab.restore(interrupted_deletion, store=items)
    before = rows_of(items)
    receipt = Receipt.from_json(items.with_name(f"{name}.receipt.json").read_text())
    restored = memlab.restore(receipt, store=items)
    expected = {"deletion": 4, "supersession": 1, "retirement": 2, "return": 2}
    assert restored.memories == expected[name]
    assert rows_of(items) != before


def test_deletion_of_one_memory_is_undone_by_id(items: Path) -> None:
    digest = digests_of(items)[0]
    assert memlab.restore(digest, store=items, ids=["e5"]).memories == 1
    assert b"e5" in {row[1] for row in rows_of(items).values()}


def test_interrupted_plan_of_golden_store_is_finished(items: Path) -> None:
    digest = digests_of(items)[-1]
    before = rows_of(items)
    assert output_of("apply", items, digest[:12], "--json")
    assert rows_of(items) == before
    assert all(entry.finished_at for entry in archived_plans(items))
    assert memlab.restore(digest, store=items).memories == 4


def test_golden_archive_takes_another_plan(items: Path) -> None:
    before = rows_of(items)
    plan = Plan.from_json(items.with_name("open.plan.json").read_text())
    with pytest.raises(StalePlanError):
        memlab.apply(plan, store=items)
    receipt = memlab.apply(memlab.plan(items, memlab.KeepRecent(4)))
    assert receipt.deleted > 0
    assert memlab.restore(receipt).memories == receipt.deleted
    assert rows_of(items) == before


def test_golden_archive_is_dropped_and_copied(items: Path) -> None:
    output = output_of("archive", items, "--drop", digests_of(items)[0], "--apply")
    assert "4 memories" in output
    assert len(dropped_plans(items)) == 2
    output_of("archive", items, "--copy")
    assert archive_of(items).exists()


def test_golden_settings_are_read(items: Path) -> None:
    settings = settings_of(open_source(items))
    assert settings.keep_recent == 16
    assert settings.sized is not None
    assert settings.sized.memories == 30
    assert settings.sized.until == 60
    assert settings.target == 0.9
    assert settings.confidence == 0.8
    assert settings.token_budget == 2000
    assert settings.archive_for == timedelta(days=365)
    assert settings.delete_retired_after == timedelta(days=90)
    assert settings.protected_tags == {"keep"}
    assert settings.keep_copies is True
    assert settings.retire is True
    assert settings.log == (items.with_name("reads.jsonl"),)


def test_golden_claude_folder_undoes_retirement_and_deletion(claude: Path) -> None:
    deletion, retirement = archived_plans(claude)
    assert memlab.restore(retirement.digest, store=claude).memories == 3
    assert not (claude / "RETIRED.md").exists()
    assert memlab.restore(deletion.digest, store=claude).memories == 3
    lines = [
        f"- [About {number}](topic_{number}.md) — a hook, {number}\n" for number in range(1, 13)
    ]
    assert (claude / "MEMORY.md").read_text() == "".join(["# Memory index\n", "\n", *lines])
    for number in range(1, 13):
        assert f"né 🦀 {number}." in (claude / f"topic_{number}.md").read_text()


def test_golden_odek_folder_undoes_deletion(golden: str, tmp_path: Path) -> None:
    folder = copy_golden(golden, "odek", tmp_path) / "episodes"
    (entry,) = archived_plans(folder)
    assert memlab.restore(entry.digest, store=folder).memories == 3
    listed = json.loads((folder / "index.json").read_text())
    assert [searched["session_id"] for searched in listed] == [f"s{number}" for number in range(8)]
    for number in range(8):
        text = (folder / f"s{number}.md").read_text()
        assert text == f"summary {number}\nof a session, né\n"


def test_pending_change_of_golden_folder_is_rolled_back(golden: str, tmp_path: Path) -> None:
    folder = copy_golden(golden, "pending", tmp_path) / CLAUDE
    output_of("show", folder)
    assert (folder / ".memlab").exists()
    assert not (folder / "topic_7.md").exists()
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(5)))
    assert not (folder / ".memlab").exists()
    assert receipt.deleted == 1
    assert not (folder / "topic_7.md").exists()
    assert "What was found out" in (folder / "topic_8.md").read_text()
    assert "topic_8.md" in (folder / "MEMORY.md").read_text()


def test_golden_fleet_plan_is_applied(
    golden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    copied = copy_golden(golden, "fleet", tmp_path)
    text = (copied / "fleet.json").read_text()
    folder = Path(json.loads(text)["largest"][0]["store"]).parent.parent
    if folder.exists():
        pytest.skip(f"{folder}, which the plan names, is there already")
    shutil.copytree(copied, folder)  # a plan names its stores by absolute paths
    request.addfinalizer(partial(shutil.rmtree, folder))
    monkeypatch.chdir(folder)
    parsed = fleet.FleetPlan.from_json(text).to_json()
    assert without_versions(parsed) == without_versions(text)
    survey = fleet.survey(["a/memory.db", "b/memory.db"], out=folder / "survey")
    assert survey["memories"].tolist() == [9, 9]
    applied = fleet.apply(folder / "fleet.json")
    assert applied["deleted"].tolist() == [3, 3]
    assert applied["error"].isna().all()


PLANS = ("deletion", "dropped", "supersession", "retirement", "return", "open")
VERSIONS = re.compile(r'\n? ?"(memlab_\w+|readable_from)": \d+,')


def without_versions(text: str) -> str:
    """Return a text without its format versions."""
    return VERSIONS.sub("", text)


@pytest.mark.parametrize("name", PLANS)
def test_golden_plan_and_receipt_round_trip(items: Path, name: str) -> None:
    written = items.with_name(f"{name}.plan.json").read_text()
    parsed = Plan.from_json(written)
    assert without_versions(parsed.to_json()) == without_versions(written)
    assert Plan.from_json(parsed.to_json(compact=True)) == parsed
    receipt = items.with_name(f"{name}.receipt.json")
    if receipt.exists():
        text = receipt.read_text()
        assert without_versions(Receipt.from_json(text).to_json()) == without_versions(text)
