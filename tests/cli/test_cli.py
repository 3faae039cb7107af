"""Looking at a store, changing it, and taking that back: as a person types it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from invariants import assert_compacted, rows_of
from shell import run, undo_in
from stores import Row, episodes, row, run_sql, write_rows

import memlab
from memlab.settings import FILE

MEMLAB = Path(sys.executable).with_name("memlab")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "small.db", episodes(30))


# Look


def test_show_prints_the_headline_numbers_and_json_says_the_same(store: Path) -> None:
    shown = run("show", store)
    assert shown.exit_code == 0
    for words in (
        "644 memories",
        "loaded at every start          600",
        "decisions                      3",
        "skills                         5",
        "episodes                     592",
        "prunable share  98.7% of 600 memories, 99.0% of 31,861 tokens",
        "floor           1.3% of 600 memories, 1.0% of 31,861 tokens",
    ):
        assert words in shown.output
    assert "passed 50 on" in run("show", store, "--backlog", 50).output
    boot = json.loads(run("show", store, "--json").output)["summary"]["boot"]
    assert (boot["memories"], boot["prunable"]["memories"]) == (600, 592)


def test_without_a_store_show_and_size_look_at_the_bundled_two_years() -> None:
    assert "3,200 memories, 2024-07-01 to 2026-06-30" in run("show").output
    assert "2,864 of 3,038 written" in run("size", "--explain").output


def test_an_archive_that_is_none_is_said_and_left_out(store: Path) -> None:
    store.with_name("memory.db.archive.db").write_text("something else")
    shown = run("show", store)
    assert shown.exit_code == 0
    assert "644 memories" in shown.output
    assert "left out: " in shown.output


@pytest.mark.parametrize(
    "verb", ["show", "size", "compare", "doctor", "floor", "find", "maintain", "report"]
)
def test_a_command_prints_what_the_function_of_its_name_returns(small: Path, verb: str) -> None:
    (small.parent / FILE).write_text('policy = { name = "recent", keep = 9 }\n')
    where, page = (small.parent if verb == "find" else small), small.with_name("page.html")
    found = memlab.report(where, page) if verb == "report" else getattr(memlab, verb)(where)
    printed = run(verb, where, *(["-o", page] if verb == "report" else [])).output
    steps = found.next_steps()
    assert printed == "\n".join([str(found), *([""] if steps else []), *steps, ""])


# Compact, review, apply, take back


def test_compact_shows_what_it_would_do_does_it_with_apply_and_it_is_taken_back(
    store: Path,
) -> None:
    before, content = rows_of(store), store.read_bytes()
    shown = run("compact", store, "--keep-recent", 50)
    assert shown.exit_code == 0
    for words in ("542 of 644 memories", "600 memories", "58 memories", "nothing was deleted"):
        assert words in shown.output
    assert store.read_bytes() == content
    done = run("compact", store, "--keep-recent", 50, "--apply")
    assert done.exit_code == 0
    assert_compacted(before, rows_of(store), 50)
    restored = run("restore", store, undo_in(done.output))
    assert "542 memories restored" in restored.output
    assert rows_of(store) == before
    again = run("restore", store, undo_in(done.output))
    assert again.exit_code == 0
    assert "0 memories restored" in again.output
    assert "is in the store already" in again.output


def test_what_was_restored_is_counted_for_a_script(small: Path) -> None:
    done = json.loads(run("compact", small, "--keep-recent", 9, "--apply", "--json").output)
    restored = json.loads(run("restore", small, done["digest"], "--json").output)
    assert restored == {"restored": 21, "left_out": 0, "rows_left_out": {}, "into": str(small)}


def test_a_saved_plan_is_applied_after_review_once_and_to_the_store_it_saw(
    small: Path, tmp_path: Path
) -> None:
    plan, moved = tmp_path / "plan.json", memlab.copy_store(small, tmp_path / "moved.db")
    before = rows_of(small)
    shown = run("compact", small, "--keep-recent", 9, "--save-plan", plan)
    assert f"memlab apply {plan}" in shown.output
    assert run("apply", plan, "--store", moved).exit_code == 0
    assert_compacted(before, rows_of(moved), 9)
    assert rows_of(small) == before
    assert run("apply", plan).exit_code == 0
    assert_compacted(before, rows_of(small), 9)
    again = run("apply", plan)
    assert (again.exit_code, "was applied on" in again.stderr) == (1, True)


@pytest.mark.parametrize("name", [":memory:", "file:x.db", "file:x.db?mode=memory"])
def test_a_file_whose_name_sqlite_takes_for_more_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_rows(tmp_path / "plain.db", episodes(9), journal_mode="DELETE").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    done = run("compact", name, "--keep-recent", 4, "--apply")
    assert done.exit_code == 0, done.stderr
    assert len(memlab.load(tmp_path / name)) == 4
    assert sorted(each.name for each in tmp_path.iterdir()) == [name, f"{name}.archive.db"]


@pytest.mark.parametrize(
    "name", ["redis:x.db", "claude:x.db", "two\nlines.db", "it's \x07 \udcff.db"]
)
def test_what_takes_a_deletion_back_can_be_copied_into_a_shell(
    small: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(small.parent)
    small.rename(small.with_name(name))
    done = run("compact", f"./{name}", "--keep-recent", 10, "--apply")
    (undo,) = re.findall(r"undo +memlab (.*)", done.stdout)
    back = subprocess.run(["bash", "-c", f"{MEMLAB} {undo}"], capture_output=True, check=True)
    assert back.stdout.startswith(b"20 memories restored")


def test_a_collation_of_the_agents_own_is_told_in_words(small: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(small)
    connection.create_collation("mine", lambda a, b: (a > b) - (a < b))
    connection.execute("CREATE INDEX by_title ON memory_items (title COLLATE mine)")
    connection.close()
    for words in ("show {}", "compact {} --keep-recent 4 --apply", "vacuum {} --apply"):
        refused = run(*words.format(small).split())
        assert refused.exit_code == 2
        assert "drop that index" in refused.stderr


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3_000))
    command = (
        f"{MEMLAB} compact {store} --keep-recent 3 --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_file_system_that_is_mounted_read_only_is_told(small: Path, mode: str) -> None:
    run_sql(small, f"PRAGMA journal_mode = {mode}")
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    words = ("compact", small, "--keep-recent", 3, "--apply")
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    memlab = [sys.executable, "-m", "memlab", *map(str, words)]
    done = subprocess.run(
        [*unshare, str(small.parent), *memlab], check=False, capture_output=True, text=True
    )
    if done.returncode == 1 and "memlab" not in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert done.returncode == 2, done.stderr
    assert f"{small} cannot be written: its file system is mounted read-only" in done.stderr
    assert "exists" not in done.stderr


# The archive, and the room


def test_the_archive_is_listed_searched_exported_and_dropped(store: Path, tmp_path: Path) -> None:
    listed = run("archive", store)
    assert (listed.exit_code, "no plan has taken anything out of" in listed.output) == (0, True)
    assert json.loads(run("archive", store, "--json").output) == []
    digest = undo_in(run("compact", store, "--keep-recent", 50, "--apply").output)
    listed = run("archive", store)
    assert f"{digest}  " in listed.output
    assert "542 memories, 0 restored" in listed.output
    assert f"\nundo: memlab restore {store} {digest}    puts back" in listed.output
    assert "Merged #12:" in run("archive", store, "--search", "Merged #12:").output
    export = tmp_path / "a.jsonl"
    assert "542 memories written" in run("archive", store, "--export", export).output
    assert len(export.read_text().splitlines()) == 542
    assert run("archive", store, "--export", tmp_path / "a.xls").exit_code == 2
    assert "nothing to drop" in run("archive", store, "--drop-before", "2000-01-01").output
    shown = run("archive", store, "--drop", digest).output
    assert "never restored  542" in shown
    assert "nothing was dropped; add --apply to do it" in shown
    dropped = run("archive", store, "--drop", digest, "--apply").output
    assert "dropped 542 memories for good" in dropped
    assert f"{digest}  " in run("archive", store).output
    assert run("restore", store, digest).exit_code == 2


# Two plans


def saved_plan(store: Path, keep: int) -> Path:
    path = store.with_name(f"{len(list(store.parent.iterdir()))}.json")
    assert run("compact", store, "--keep-recent", keep, "--save-plan", path).exit_code == 0
    return path


def test_a_diff_says_what_only_one_of_two_plans_deletes(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = saved_plan(small, 27), saved_plan(small, 25)
    against = ("--keep-recent", 25, "--against", first)
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 60)
    found = run("compact", small, *against)
    assert found.exit_code == 1
    assert all(len(line) <= 60 for line in found.output.splitlines())
    policies = "recent(keep=27, by='position') -> recent(keep=25, by='position')"
    assert policies in " ".join(found.output.split())
    assert "only the second deletes: 2" in found.output
    told = json.loads(run("compact", small, *against, "--json").output)
    assert [each["memory_id"] for each in told["added"]] == ["e4", "e5"]
    assert (told["removed"], told["rewritten"]) == ([], [])
    words = ("compact", small, "--keep-recent", 27, "--against", second)
    assert json.loads(run(*words, "--json").output)["removed"] == told["added"]
    before = small.read_bytes()
    refused = run(*words, "--apply")
    assert refused.exit_code == 2
    assert "--against only compares, and nothing was changed" in refused.output
    assert small.read_bytes() == before
    same = run("compact", small, "--keep-recent", 25, "--against", second)
    assert (same.exit_code, "the same memories, for the same reasons" in same.output) == (0, True)
    run_sql(small, "UPDATE memory_items SET title = 'another' WHERE memory_id = 'e2'")
    told = json.loads(run("compact", small, *against, "--json").output)
    assert [each["memory_id"] for each in told["rewritten"]] == ["e2"]


# Words


SEVERAL = re.compile(
    r"(?<![\d,.:#-])1 (?:(?:more|load-bearing|prunable|rejected) )?"
    r"(?:memories|tokens|episodes|decisions|skills|paths|places|stores|files|plans|references|reads|times|windows"
    r"|lines|links|copies|faults|rows|databases)\b"
)


def test_of_one_thing_no_command_speaks_as_of_several(tmp_path: Path) -> None:
    decision = row("d", "semantic", body="", title="d", created_at="2026-03-01T10:00:00")
    store = write_rows(tmp_path / "memory.db", [decision, row("e", body="", title="e")])
    plan = tmp_path / "plan.json"
    said = [
        run(*words)
        for words in (
            *(("show", store), ("size", store), ("floor", store), ("doctor", store)),
            *(("find", tmp_path), ("size", store, "--unit", "tokens"), ("compare", store)),
            ("compact", store, "--keep-recent", 0, "--save-plan", plan),
            *(("apply", plan), ("archive", store), ("doctor", store), ("show", store)),
            ("archive", store, "--drop-before", "2100-01-01"),
            *(("fleet", "show", tmp_path), ("fleet", "size", tmp_path)),
            ("fleet", "plan", tmp_path, "--keep-recent", 0),
            ("report", store, "-o", tmp_path / "r.html"),
            ("fleet", "report", store, "-o", tmp_path / "fleet.html"),
        )
    ]
    digest = said[9].output.split()[0]
    assert "1 store, all read" in said[13].output
    later: Row = row("later", rowid=2)
    write_rows(store, [later])
    said += [run("restore", store, digest)]
    found = [line for each in said for line in each.output.splitlines() if SEVERAL.search(line)]
    assert "\n".join(found) == ""
