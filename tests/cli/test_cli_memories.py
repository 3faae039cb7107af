"""Lists of memories: ``memlab rows``, ``compact --rows`` and ``memlab floor``."""

import csv
import json
import re
import shlex
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

import memlab
from memlab.cli import questions
from memlab.policies.supersession import supersedable
from memlab.views.memory_table import BY, WHERE
from tests.support.shell import output_of, run, undo_in
from tests.support.stores import Row, episodes, row, write_rows

LOUD = "\x1b[31m=loud\u202e\n<b>"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    own_row = row("mine", "semantic", "pinned", LOUD, authored_by="me", title=LOUD, body="x" * 900)
    return write_rows(tmp_path / "memory.db", [own_row, *episodes(30)])


def test_rows_filters_agree_in_library_json_csv_and_text(store: Path) -> None:
    listed = memlab.rows(store, memlab.KeepRecent(5), where="not-kept", by="age")
    arguments = ("rows", store, "--keep-recent", 5, "--where", "not-kept", "--by", "age")
    records = json.loads(run(*arguments, "--json").stdout)
    assert [record["memory_id"] for record in records] == list(listed["memory_id"])
    assert list(records[0]) == list(listed)
    printed = csv.DictReader(StringIO(run(*arguments, "--csv", "--limit", 7).stdout))
    assert [record["memory_id"] for record in printed] == list(listed["memory_id"][:7])
    page = run(*arguments).stdout
    complete_page = run(*arguments, "--limit", 0).stdout
    assert episode_lines(page) == episode_lines(complete_page)[:20]
    assert page.splitlines()[-1].startswith("  and 5 more; --limit 0 lists all")


def episode_lines(page: str) -> list[str]:
    """List the lines of a page that show an episode."""
    return [line for line in page.splitlines() if line.startswith("  e")]


def test_rows_can_be_filtered_by_tag_author_and_kind(store: Path) -> None:
    for options in (("--tag", "pinned"), ("--author", "me"), ("--where", "load-bearing")):
        assert json.loads(run("rows", store, *options, "--json").stdout) != []
    for options in (("--tag", "pin"), ("--where", "superseded", "--tag", "pin", "--author", "me")):
        assert json.loads(run("rows", store, *options, "--json").stdout) == []
        assert run("rows", store, *options).stdout.startswith(f"{store}: 0 memories, by tokens\n")


def test_rows_options_equal_the_function_arguments() -> None:
    assert set(questions._LABELS) == set(WHERE)
    assert set(questions._SORT_KEYS) == set(BY)


def test_control_characters_of_memories_are_escaped_in_rows(store: Path) -> None:
    as_csv = output_of("rows", store, "--author", "me", "--csv")
    as_json = output_of("rows", store, "--author", "me", "--json")
    for output in (as_csv, as_json):
        assert "\x1b" not in output
        assert "\u202e" not in output
    (mine,) = csv.DictReader(StringIO(as_csv))
    assert mine["title"] == r"\x1b[31m=loud\u202e\n<b>"
    (record,) = json.loads(as_json)
    assert record["title"] == LOUD
    assert record["tags"] == ["pinned", LOUD]


@pytest.mark.parametrize(
    "policy",
    [
        ("--keep-recent", "5", "--newest-by", "created_at"),
        ("--policy", "tokens", "--max-tokens", "300"),
        ("--set", "keep=5"),
        ("--policy", "dedup", "--threshold", "0.5"),
        ("--policy", "activation", "--max-items", "5"),
        ("--policy", "tests.support.own_policies:EveryOther", "--set", "offset=1"),
    ],
    ids=" ".join,
)
def test_dry_run_lists_the_costliest_and_the_full_command(
    store: Path, policy: tuple[str, ...]
) -> None:
    output = output_of("compact", store, *policy, "--rows")
    costliest = output.partition("the costliest that would go\n")[2]
    (step,) = [line for line in costliest.splitlines() if line.startswith("next: memlab rows")]
    arguments = shlex.split(step.removeprefix("next: memlab ").removesuffix("    all of them"))
    all_ids = [line.split()[0] for line in episode_lines(run(*arguments).stdout)]
    assert [line.split()[0] for line in episode_lines(costliest)] == all_ids[:20]
    planned = json.loads(run("compact", store, *policy, "--json").stdout)["memories"]
    assert set(all_ids) == {memory["memory_id"] for memory in planned}


def test_lists_of_deletions_end_with_the_undo_command(store: Path) -> None:
    saved = store.with_name("plan.json")
    policy = ("compact", store, "--keep-recent", 5)
    assert f"undo: memlab restore {store} DIGEST --id ID" in run(*policy, "--rows").stdout
    run(*policy, "--save-plan", saved)
    last_line = run(*policy, "--against", saved).stdout.splitlines()[-1]
    assert "--apply instead of --against" in last_line
    digest = memlab.apply(memlab.Plan.from_json(saved.read_text())).digest[:12]
    undo = f"undo: memlab restore {store} {digest}    "
    for arguments in ((), ("--rows",), ("--digest", digest), ("--search", "e7")):
        assert run("archive", store, *arguments).stdout.splitlines()[-1].startswith(undo)
    result = run("rows", store, "--where", "deleted").stdout.splitlines()
    assert result[-1].startswith(f"undo: memlab archive {store}    ")
    assert run("restore", store, digest).exit_code == 0
    assert "undo" not in run("archive", store, "--rows").stdout


def test_memory_that_was_archived_twice_counts_once(store: Path) -> None:
    for _ in range(2):
        memlab.apply(memlab.plan(store, memlab.KeepRecent(5)))
        memlab.restore("latest", store=store)
    archived = memlab.compaction.archived_rows(store)
    memories = archived["memory_id"].nunique()
    assert len(archived) == 2 * memories
    in_archive = f"{len(archived)} copies of {memories} memories in the archive"
    assert output_of("archive", store, "--rows").startswith(in_archive)
    searched = output_of("archive", store, "--search", archived["memory_id"].iloc[-1])
    assert searched.startswith("2 copies of 1 memory in the archive")
    assert f"no match among {in_archive}" in output_of("archive", store, "--search", "no such")


def test_rows_option_is_only_for_the_dry_run(store: Path) -> None:
    for other in ("--apply", "--json"):
        output_of("compact", store, "--keep-recent", 5, "--rows", other, code=2)
    assert len(memlab.load(store)) == 31
    assert "the costliest" not in run("compact", store, "--keep-recent", 50, "--rows").stdout


# The floor

TEXT = "the build cache lives beside the lock file and is never shared between two machines"


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """Make a store of load-bearing memories of which three are duplicates."""
    rows = [
        row("d1", "semantic", title="cache", body=TEXT),
        row("s1", "procedural", title="cache", body=TEXT),
        row("d2", "semantic", title="cache", body=TEXT + " again"),
        row("d3", "semantic", title="cache", body=TEXT + " again"),
        row("gone", "semantic", body=TEXT, superseded_by="d1"),
        row("d4", "semantic", title="tests", body="run the slow ones before a release " * 9),
    ]
    rows += [columns | {"title": "cache", "body": TEXT} for columns in episodes(5)]
    return write_rows(tmp_path / "memory.db", rows)


class Successor(NamedTuple):
    """A newer memory that can supersede an older one."""

    memory_id: str
    reason: str


def suggested_successors(store: Path) -> dict[str, Successor]:
    """Return the successor that memlab suggests for each older memory."""
    table = supersedable(memlab.load(store, with_body=True))
    assert table["tokens"].is_monotonic_decreasing
    return {
        line.memory_id: Successor(line.superseded_by, line.reason) for line in table.itertuples()
    }


def test_floor_lists_older_duplicates_with_the_newest_copy(twins: Path) -> None:
    """Superseded and prunable memories are not listed."""
    newest = Successor("d3", "repeated")
    assert suggested_successors(twins) == {"d1": newest, "d2": newest}


def test_long_floor_list_is_cut_and_json_is_complete(tmp_path: Path) -> None:
    rows = [row(f"d{number}", "semantic", title="cache", body=TEXT) for number in range(13)]
    store = write_rows(tmp_path / "memory.db", rows)
    output = run("floor", store).output
    assert len(re.findall("repeated", output)) == 10
    assert "and 2 more; --json has all" in output
    assert run("floor", store, "--json").output.count('"repeated"') == 12


def test_chain_of_near_duplicates_leads_to_the_newest(tmp_path: Path) -> None:
    rows = [
        row("d0", "semantic", title="x", body=TEXT),
        row("d1", "semantic", title="x", body=TEXT + " today"),
        row("d2", "semantic", title="x", body=TEXT + " today too"),
    ]
    store = write_rows(tmp_path / "memory.db", rows)
    strict = memlab.NearDuplicate(threshold=0.95)
    table = supersedable(memlab.load(store, with_body=True), policy=strict)
    assert set(table["superseded_by"]) == {"d2"}
    assert table.set_index("memory_id").loc["d0", "why"].endswith("one of 3 in a chain")


def test_floor_finds_replacements_named_in_memories(tmp_path: Path) -> None:
    def decision(memory_id: str, body: str, **columns: str) -> Row:
        return row(memory_id, "semantic", title="", body=body, **columns)

    rows = [
        decision("old", "tabs are for makefiles"),
        decision("stub", "moved elsewhere", evidence_refs_json='["new"]'),
        decision("basis", "count rows before a vacuum"),
        decision("kept", "write tests first", evidence_refs_json='["e9"]'),
        decision("new", "spaces, never tabs, in every file of ours", supersedes_json='["old"]'),
        decision("built", "one lock for all writers", evidence_refs_json='["basis"]'),
        decision("both", "a queue for slow readers", evidence_refs_json='["kept"]'),
        row("e1", evidence_refs_json='["built", "kept", "both"]'),
    ]
    assert suggested_successors(write_rows(tmp_path / "memory.db", rows)) == {
        "old": Successor("new", "said to be replaced"),
        "stub": Successor("new", "passed on"),
        "basis": Successor("built", "overtaken"),
    }


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--supersede", "d1"), "is not OLDER=NEWER"),
        (("--supersede", "d1=nobody"), "'nobody' cannot stand for 'd1'"),
        (("--supersede", "d1=d2", "--id", "d1"), "either --id or --supersede"),
        (("--id", "d4"), "no newer memory repeats d4"),
    ],
)
def test_floor_rejects_invalid_arguments(
    twins: Path, arguments: tuple[str, ...], fault: str
) -> None:
    assert fault in output_of("floor", twins, *arguments, code=2)


def test_floor_of_a_recorded_store(real_store: Callable[[str], Path]) -> None:
    assert "590 memories" in output_of("floor", real_store("agent-store1"))


def test_floor_without_scipy_omits_near_duplicates(
    twins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])

    monkeypatch.setattr("memlab.lazy.import_module", not_installed)
    output = output_of("floor", twins)
    assert "The costliest" in output
    assert "not looked for  near-duplicates: this needs scipy, " in output
    assert "near-duplicates" in json.loads(output_of("floor", twins, "--json"))["unseen"]
    assert run("floor", twins, "--save-plan", twins.with_name("plan.json")).exit_code == 2


def test_floor_of_a_store_of_episodes_is_empty(tmp_path: Path) -> None:
    output = output_of("floor", write_rows(tmp_path / "memory.db", episodes(3)))
    assert "load-bearing  none: a cap can delete every memory" in output
    assert "a start       18 tokens, all of them prunable" in output


def test_floor_shows_costliest_duplicates_and_plan_command(twins: Path) -> None:
    output = run("floor", twins).output
    assert "5 memories" in output
    assert output.index("d4") < output.index("Could be superseded by a newer memory")
    assert f"memlab floor {twins} --save-plan floor.json" in output


def test_floor_plans_are_applied_and_undone(twins: Path, tmp_path: Path) -> None:
    plan = tmp_path / "floor.json"
    saved = run("floor", twins, "--save-plan", plan).output
    assert f"nothing was changed; the plan is in {plan}. After review:" in saved
    assert len(memlab.load(twins).query("active")) == 10
    receipt = run("apply", plan).output
    assert "superseded  2 memories" in receipt
    assert len(memlab.load(twins).query("active")) == 8
    assert "superseded 2 memories" in run("archive", twins).output
    assert (
        f"2 memories are active again in {twins}" in run("restore", twins, undo_in(receipt)).output
    )
    assert len(memlab.load(twins).query("active")) == 10
    for arguments in (("--id", "d1"), ("--supersede", "d4=s1")):
        assert "superseded  1 memory" in output_of("floor", twins, *arguments, "--apply")
    frame = memlab.load(twins).set_index("memory_id")
    assert frame.superseded_by[["d1", "d4"]].tolist() == ["d3", "s1"]
