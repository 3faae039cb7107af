"""Commands that show, change and restore a store, as a person types them."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import memlab
from memlab.settings import FILE
from tests.support.invariants import assert_compacted, rows_of
from tests.support.shell import output_of, run, undo_in
from tests.support.stores import episodes, run_sql, write_rows

MEMLAB = Path(sys.executable).with_name("memlab")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "small.db", episodes(30))


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(
    "verb", ["show", "size", "compare", "doctor", "floor", "find", "maintain", "report"]
)
def test_command_prints_the_result_of_its_function(small: Path, verb: str) -> None:
    (small.parent / FILE).write_text('policy = { name = "recent", keep = 9 }\n')
    argument = small.parent if verb == "find" else small
    if verb == "report":
        page = small.with_name("page.html")
        result = memlab.report(argument, page)
        output = run("report", argument, "-o", page).output
    else:
        result = getattr(memlab, verb)(argument)
        output = run(verb, argument).output
    lines = [str(result)]
    if result.next_steps():
        lines += ["", *result.next_steps()]
    assert output == "".join(f"{line}\n" for line in lines)


@pytest.fixture
def issues(tmp_path: Path) -> Path:
    """Copy the bundled store of three hundred issues."""
    bundled = memlab.store_path("three_hundred_issues")
    return memlab.copy_store(bundled, tmp_path / "memory.db")


def compact_issues(store: Path) -> str:
    """Keep the newest fifty memories; return the digest of the plan."""
    return undo_in(output_of("compact", store, "--keep-recent", 50, "--apply"))


def test_compact_without_apply_changes_nothing(issues: Path) -> None:
    content = issues.read_bytes()
    assert "nothing was deleted" in output_of("compact", issues, "--keep-recent", 50)
    assert "memlab deleted nothing, or it was undone" in output_of("archive", issues)
    assert json.loads(output_of("archive", issues, "--json")) == []
    assert issues.read_bytes() == content


def test_deletions_are_archived_and_can_be_searched(issues: Path) -> None:
    before = rows_of(issues)
    compact_issues(issues)
    assert_compacted(before, rows_of(issues), 50)
    assert "542 memories, 0 restored" in output_of("archive", issues)
    assert "Merged #12:" in output_of("archive", issues, "--search", "Merged #12:")


def test_archive_can_be_exported(issues: Path) -> None:
    compact_issues(issues)
    export = issues.with_name("a.jsonl")
    assert "542 memories written" in output_of("archive", issues, "--export", export)
    assert json.loads(output_of("archive", issues, "--export", export, "--json"))["written"] == 542
    assert len(export.read_text().splitlines()) == 542
    assert run("archive", issues, "--export", issues.with_name("a.xls")).exit_code == 2


def test_restore_undoes_a_deletion_once(issues: Path) -> None:
    before = rows_of(issues)
    digest = compact_issues(issues)
    assert "542 memories restored" in output_of("restore", issues, digest)
    assert rows_of(issues) == before
    output = output_of("restore", issues, digest)
    assert "0 memories restored" in output
    assert "is undone already" in output
    printed_json = json.loads(output_of("restore", issues, digest, "--json"))
    assert printed_json == {"restored": 0, "left_out": 0, "rows_left_out": {}, "into": str(issues)}


def test_archive_drop_needs_apply(issues: Path) -> None:
    digest = compact_issues(issues)
    output_of("restore", issues, digest)
    output = output_of("archive", issues, "--drop", digest)
    assert "nothing was dropped; add --apply to do it" in output
    dropped = output_of("archive", issues, "--drop", digest, "--apply")
    assert "dropped 542 memories for good" in dropped
    assert f"{digest}  " in output_of("archive", issues)
    assert run("restore", issues, digest).exit_code == 2


def test_archive_drop_rejects_conflicting_options(issues: Path) -> None:
    digest = compact_issues(issues)
    assert "nothing to drop" in output_of("archive", issues, "--drop-before", "2000-01-01")
    options = ("--drop-before", "2000-01-01", "--drop", "")
    assert "give either --drop-before or --drop" in output_of("archive", issues, *options, code=2)
    assert "whole plans" in output_of("archive", issues, "--drop", digest, "--rows", code=2)
    assert "name a DIGEST too" in output_of("apply", issues, code=2)


def test_show_leaves_out_an_unreadable_archive(issues: Path) -> None:
    issues.with_name("memory.db.archive.db").write_text("something else")
    output = output_of("show", issues, "--backlog", 50)
    for phrase in ("644 memories", "more than 50 prunable memories since", "left out: "):
        assert phrase in output


def test_saved_plan_applies_once_and_only_to_its_store(small: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    moved = memlab.copy_store(small, tmp_path / "moved.db")
    before = rows_of(small)
    result = run("compact", small, "--keep-recent", 9, "--save-plan", plan)
    assert f"memlab apply {plan}" in result.output
    assert run("apply", plan, "--store", moved).exit_code == 0
    assert_compacted(before, rows_of(moved), 9)
    assert rows_of(small) == before
    assert run("apply", plan).exit_code == 0
    assert_compacted(before, rows_of(small), 9)
    assert "was applied on" in output_of("apply", plan, code=1)
    empty = tmp_path / "empty.json"
    saved = output_of("compact", small, "--keep-recent", 9, "--save-plan", empty)
    assert f"nothing to do: this policy keeps every memory; the plan is in {empty}" in saved
    empty.write_text("{}")
    assert f"{empty}: this is not a plan: " in output_of("apply", empty, code=2)


@pytest.mark.parametrize(
    "name",
    [
        ":memory:",
        "file:x.db",
        "file:x.db?mode=memory",
        "./redis:x.db",
        "./claude:x.db",
        "./two\nlines.db",
        "./it's \x07 \udcff.db",
    ],
)
def test_undo_command_is_quoted_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = write_rows(tmp_path / "plain.db", episodes(9), journal_mode="DELETE")
    store = store.rename(tmp_path / name)
    output_of("compact", name, "--keep-recent", 4, "--save-plan", "saved")
    output = output_of("apply", "saved")
    assert len(rows_of(store)) == 4
    created_files = {tmp_path / file for file in (name, f"{name}.archive.db", "saved")}
    assert set(tmp_path.iterdir()) == created_files
    (undo,) = re.findall(r"undo +memlab (.*)", output)
    assert output_of(*words_in_shell(undo)).startswith("5 memories restored")


def words_in_shell(command: str) -> list[str]:
    """Return the words of a command as a shell reads them."""
    words = subprocess.check_output(["bash", "-c", f"printf '%s\\0' {command}"])
    return [os.fsdecode(word) for word in words.split(b"\0")[:-1]]


def compare_texts(left: str, right: str) -> int:
    """Return -1, 0 or 1, as a collation does."""
    if left == right:
        return 0
    return 1 if left > right else -1


def test_unknown_collation_is_an_error_with_advice(small: Path) -> None:
    connection = sqlite3.connect(small)
    connection.create_collation("mine", compare_texts)
    connection.execute("CREATE INDEX by_title ON memory_items (title COLLATE mine)")
    connection.close()
    for arguments in ("show {}", "compact {} --keep-recent 4 --apply", "vacuum {} --apply"):
        assert "drop that index" in output_of(*arguments.format(small).split(), code=2)


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(900))
    command = (
        f"{MEMLAB} compact {store} --keep-recent 3 --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stdout == "{\n"
    assert result.stderr == ""


@pytest.mark.parametrize("mode", [pytest.param("DELETE", marks=pytest.mark.long), "WAL"])
def test_read_only_file_system_is_reported(small: Path, mode: str) -> None:
    run_sql(small, f"PRAGMA journal_mode = {mode}")
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    command += ["sh", "-c", mount, "sh", str(small.parent)]
    command += [sys.executable, "-m", "memlab"]
    command += ["compact", str(small), "--keep-recent", "3", "--apply"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode == 1 and "memlab" not in result.stderr:
        pytest.skip(f"no mounts here: {result.stderr.strip()}")
    assert result.returncode == 2, result.stderr
    assert f"{small} cannot be written: its file system is mounted read-only" in result.stderr
    assert "exists" not in result.stderr


def test_against_lists_differences_of_two_plans(small: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    output_of("compact", small, "--keep-recent", 27, "--save-plan", saved)
    against = ("compact", small, "--against", saved, "--keep-recent")
    printed = output_of(*against, 25, code=1)
    assert "--keep-recent 27 -> --keep-recent 25" in printed
    assert "only the second deletes: 2" in printed
    difference = json.loads(output_of(*against, 25, "--json", code=1))
    assert [memory["memory_id"] for memory in difference["added"]] == ["e4", "e5"]
    assert difference["removed"] == []
    assert difference["rewritten"] == []
    assert len(json.loads(output_of(*against, 30, "--json", code=1))["removed"]) == 3
    before = small.read_bytes()
    refused = output_of(*against, 25, "--apply", code=2)
    assert "--against only compares, so leave out" in refused
    assert small.read_bytes() == before
    assert "the same memories, for the same reasons" in output_of(*against, 27)
    run_sql(small, "UPDATE memory_items SET title = 'another' WHERE memory_id = 'e2'")
    difference = json.loads(output_of(*against, 25, "--json", code=1))
    assert [memory["memory_id"] for memory in difference["rewritten"]] == ["e2"]
