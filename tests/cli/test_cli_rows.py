"""``memlab rows`` and ``compact --rows``: which memories, as a table, CSV and JSON."""

import csv
import json
import shlex
from io import StringIO
from pathlib import Path

import pytest
from shell import run, said
from stores import episodes, row, write_rows

import memlab
from memlab.cli import questions
from memlab.compaction.listing import BY, WHERE

LOUD = "\x1b[31m=loud\u202e\n<b>"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    own = row("mine", "semantic", "pinned", LOUD, authored_by="me", title=LOUD, body="x" * 900)
    return write_rows(tmp_path / "memory.db", [own, *episodes(30)])


def test_filters_order_and_limit_mean_the_same_in_every_form(store: Path) -> None:
    listed = memlab.rows(store, memlab.KeepRecent(5), where="not-kept", by="age")
    words = ("rows", store, "--keep-recent", 5, "--where", "not-kept", "--by", "age")
    records = json.loads(run(*words, "--json").stdout)
    assert [each["memory_id"] for each in records] == list(listed["memory_id"])
    assert list(records[0]) == list(listed)
    printed = csv.DictReader(StringIO(run(*words, "--csv", "--limit", 7).stdout))
    assert [each["memory_id"] for each in printed] == list(listed["memory_id"][:7])
    page = run(*words).stdout.splitlines()
    assert [line for line in page if line.startswith("  e")] == [
        line for line in run(*words, "--limit", 0).stdout.splitlines() if line.startswith("  e")
    ][:20]
    assert page[-1].startswith("  and 5 more; --limit 0 lists all")
    for narrowing in (("--tag", "pinned"), ("--author", "me"), ("--where", "load-bearing")):
        assert [e["memory_id"] for e in json.loads(run("rows", store, *narrowing, "--json").stdout)]
    for nothing in (("--tag", "pin"), ("--where", "superseded", "--tag", "pin", "--author", "me")):
        assert json.loads(run("rows", store, *nothing, "--json").stdout) == []
        assert run("rows", store, *nothing).stdout.startswith(f"{store}: 0 memories, by tokens\n")


def test_the_options_are_what_the_function_takes() -> None:
    assert (set(questions._WHERE), set(questions._BY)) == (set(WHERE), set(BY))


def test_what_memories_say_steers_nothing_and_is_whole_for_a_script(store: Path) -> None:
    as_csv, as_json = (said("rows", store, "--author", "me", form) for form in ("--csv", "--json"))
    assert not {"\x1b", "\u202e"} & set(as_csv + as_json)
    (mine,) = csv.DictReader(StringIO(as_csv))
    assert mine["title"] == r"\x1b[31m=loud\u202e\n<b>"
    (record,) = json.loads(as_json)
    assert (record["title"], record["tags"]) == (LOUD, ["pinned", LOUD])


@pytest.mark.parametrize(
    "policy",
    [
        ("--keep-recent", "5", "--newest-by", "created_at"),
        ("--policy", "tokens", "--max-tokens", "300"),
        ("--set", "keep=5"),
        ("--policy", "dedup", "--threshold", "0.5"),
        ("--policy", "learned", "--max-items", "5"),
        ("--policy", "own_policies:EveryOther", "--set", "offset=1"),
    ],
    ids=" ".join,
)
def test_a_dry_run_lists_the_costliest_and_how_to_list_all(
    store: Path, policy: tuple[str, ...]
) -> None:
    shown = run("compact", store, *policy, "--rows")
    assert shown.exit_code == 0, shown.output
    listed = shown.stdout.partition("the costliest that would go\n")[2].splitlines()
    (line,) = [each for each in listed if each.startswith("next: memlab rows")]
    words = shlex.split(line.removeprefix("next: memlab ").removesuffix("    all of them"))
    every = [each for each in run(*words).stdout.splitlines() if each.startswith("  e")]
    assert [each.split()[0] for each in listed if each.startswith("  e")] == [
        each.split()[0] for each in every[:20]
    ]
    planned = json.loads(run("compact", store, *policy, "--json").stdout)["memories"]
    assert {each.split()[0] for each in every} == {each["memory_id"] for each in planned}


def test_every_list_of_deletions_ends_with_how_to_take_one_back(store: Path) -> None:
    saved = store.with_name("plan.json")
    policy = ("compact", store, "--keep-recent", 5)
    assert f"undo: memlab restore {store} DIGEST --id ID" in run(*policy, "--rows").stdout
    run(*policy, "--save-plan", saved)
    assert "with --apply instead" in run(*policy, "--against", saved).stdout.splitlines()[-1]
    digest = memlab.apply(memlab.Plan.from_json(saved.read_text())).digest[:12]
    undo = f"undo: memlab restore {store} {digest}    "
    for words in ((), ("--rows",), ("--digest", digest), ("--search", "e7")):
        assert run("archive", store, *words).stdout.splitlines()[-1].startswith(undo)
    listed = run("rows", store, "--where", "deleted").stdout.splitlines()
    assert listed[-1].startswith(f"undo: memlab archive {store}    ")
    assert run("restore", store, digest).exit_code == 0
    assert "undo" not in run("archive", store, "--rows").stdout


def test_rows_are_for_the_dry_run(store: Path) -> None:
    for other in ("--apply", "--json"):
        said("compact", store, "--keep-recent", 5, "--rows", other, code=2)
    assert len(memlab.load(store)) == 31
    assert "the costliest" not in run("compact", store, "--keep-recent", 50, "--rows").stdout
