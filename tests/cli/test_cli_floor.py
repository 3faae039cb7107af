"""``memlab floor``: the load-bearing memories, what they cost, and which repeat another."""

import re
from pathlib import Path

import pytest
from shell import run, said, undo_in
from stores import Row, episodes, row, write_rows

import memlab
from memlab.policies.successors import supersedable

pytest.importorskip("sklearn")

TEXT = "the build cache lives beside the lock file and is never shared between two machines"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "memory.db",
        [
            row("d1", "semantic", title="cache", body=TEXT),
            row("s1", "procedural", title="cache", body=TEXT),
            row("d2", "semantic", title="cache", body=TEXT + " again"),
            row("d3", "semantic", title="cache", body=TEXT + " again"),
            row("gone", "semantic", body=TEXT, superseded_by="d1"),
            row("d4", "semantic", title="tests", body="run the slow ones before a release " * 9),
            *(each | {"title": "cache", "body": TEXT} for each in episodes(5)),
        ],
    )


def found(store: Path) -> dict[str, tuple[str, str]]:
    table = supersedable(memlab.load(store, with_body=True))
    assert table["tokens"].is_monotonic_decreasing
    columns = (table[name] for name in ("memory_id", "superseded_by", "reason"))
    return {older: (newer, reason) for older, newer, reason in zip(*columns, strict=True)}


def test_older_twins_of_one_kind_are_found_with_the_newest_that_repeats_them(store: Path) -> None:
    """None that is superseded already, or that a cap deletes."""
    assert found(store) == {"d1": ("d3", "repeated"), "d2": ("d3", "repeated")}


def test_a_long_list_is_cut_and_json_has_all(tmp_path: Path) -> None:
    rows = [row(f"d{n}", "semantic", title="cache", body=TEXT) for n in range(13)]
    store = write_rows(tmp_path / "memory.db", rows)
    done = run("floor", store).output
    assert len(re.findall("repeated", done)) == 10
    assert "and 2 more; --json has all" in done
    assert run("floor", store, "--json").output.count('"repeated"') == 12


def test_a_chain_of_memories_leads_to_its_newest(tmp_path: Path) -> None:
    texts = [TEXT, TEXT + " today", TEXT + " today too"]
    rows = [row(f"d{n}", "semantic", title="x", body=text) for n, text in enumerate(texts)]
    store = write_rows(tmp_path / "memory.db", rows)
    strict = memlab.NearDuplicate(threshold=0.95)
    table = supersedable(memlab.load(store, with_body=True), policy=strict)
    assert set(table["superseded_by"]) == {"d2"}
    assert table.set_index("memory_id").loc["d0", "why"].endswith("in a chain of 3")


def test_what_memories_say_of_each_other_is_found(tmp_path: Path) -> None:
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
    assert found(write_rows(tmp_path / "memory.db", rows)) == {
        "old": ("new", "said to be replaced"),
        "stub": ("new", "passed on"),
        "basis": ("built", "overtaken"),
    }


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--supersede", "d1"), "is not OLDER=NEWER"),
        (("--supersede", "d1=nobody"), "'nobody' cannot stand for 'd1'"),
        (("--supersede", "d1=d2", "--id", "d1"), "either --id or --supersede"),
        (("--id", "d4"), "nothing is found to stand for d4"),
    ],
)
def test_a_mistake_is_said(store: Path, words: tuple[str, ...], fault: str) -> None:
    assert fault in said("floor", store, *words, code=2)


def test_without_scikit_learn_all_but_near_duplicates_is_shown_and_that_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])

    monkeypatch.setattr("memlab.lazy.import_module", not_installed)
    shown = said("floor", store)
    assert "The costliest" in shown
    assert "not looked for  near-duplicates: this needs sklearn, " in shown
    assert run("floor", store, "--save-plan", store.with_name("plan.json")).exit_code == 2


def test_of_a_store_of_episodes_it_says_that_no_memory_is_kept(tmp_path: Path) -> None:
    shown = said("floor", write_rows(tmp_path / "memory.db", episodes(3)))
    assert "load-bearing  nothing: no memory is kept whatever the cap" in shown
    assert "boot context  18 tokens, all of which a cap can take away" in shown


def test_the_costliest_are_shown_and_the_command_that_plans_the_rest(store: Path) -> None:
    shown = run("floor", store).output
    assert "5 memories" in shown
    assert shown.index("d4") < shown.index("A newer one could stand for")
    assert f"memlab floor {store} --save-plan floor.json" in shown


def test_all_one_or_a_pair_can_be_planned_applied_and_taken_back(
    store: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "floor.json"
    saved = run("floor", store, "--save-plan", plan).output
    assert f"nothing was changed; the plan is in {plan}. After review:" in saved
    assert len(memlab.load(store).query("active")) == 10
    receipt = run("apply", plan).output
    assert "superseded    2 memories" in receipt
    assert len(memlab.load(store).query("active")) == 8
    assert "superseded 2 memories" in run("archive", store).output
    assert f"2 memories restored into {store}" in run("restore", store, undo_in(receipt)).output
    assert len(memlab.load(store).query("active")) == 10
    for words in (("--id", "d1"), ("--supersede", "d4=s1")):
        assert "superseded    1 memory" in said("floor", store, *words, "--apply")
    frame = memlab.load(store).set_index("memory_id")
    assert frame.superseded_by[["d1", "d4"]].tolist() == ["d3", "s1"]
