"""``memlab compact`` and ``memlab restore``: effect, cost, undo, and memories by id."""

import json
import re
from pathlib import Path

import pytest

import memlab
from memlab.compaction.wire import OPTIONS, as_data, policy_in_words
from memlab.errors import PlanError
from memlab.policies.named import NAMED, options_of, policy_named, policy_of
from memlab.policies.typed import REQUIRED
from tests.support.invariants import rows_of
from tests.support.shell import output_of, run
from tests.support.stores import episodes, row, write_rows


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    load_bearing = [
        row("d1", "semantic"),
        row("s1", "procedural"),
        row("r1", "episodic", "rejected-path"),
    ]
    return write_rows(Path("memory.db"), load_bearing + episodes(10))


def test_dry_run_shows_effect_cost_and_undo_in_order(store: Path) -> None:
    lines = output_of("compact", store, "--keep-recent", 4).splitlines()
    assert lines[0] == "Deletes 6 of 13 memories: a start goes from 78 to 42 tokens."
    assert lines[1].startswith("  of later needs  ")
    assert lines[2].startswith("  in the past  ")
    assert lines[-1].split("    ")[0] == "undo: memlab restore memory.db latest"


def test_dry_run_names_a_plan_only_if_it_is_saved(store: Path) -> None:
    compact = ("compact", store, "--keep-recent", 4)
    assert "\nplan for memory.db\n" in output_of(*compact)
    page = output_of(*compact, "--save-plan", "plan.json")
    digest = memlab.Plan.from_json(Path("plan.json").read_text()).digest
    assert f"\nplan {digest[:12]} for memory.db\n" in page


def test_apply_shows_the_cost_and_ends_with_undo(store: Path) -> None:
    lines = output_of("compact", store, "--keep-recent", 4, "--apply").splitlines()
    assert lines[0].startswith("Deletes 6 of 13 memories")
    assert "in the past" in lines[2]
    assert lines[-1].split()[:4] == ["undo", "memlab", "restore", "memory.db"]


def test_compact_prints_paths_as_given(store: Path) -> None:
    output = output_of("compact", store, "--keep-recent", 4)
    output += output_of("compact", store, "--keep-recent", 4, "--apply")
    assert str(store.resolve().parent) not in output
    assert "  archive  memory.db.archive.db\n" in output


def test_cost_in_the_past_equals_the_observed_curve(tmp_path: Path) -> None:
    two_years = memlab.copy_store(memlab.store_path("two_years"), tmp_path / "m.db")
    cost = json.loads(output_of("compact", two_years, "--keep-recent", 675, "--json"))["cost"]
    served = memlab.sizing.cap_curve(two_years).loc[675, "served_observed"]
    assert cost["missed"] == round(cost["references"] * (1 - served))
    output = output_of("compact", two_years, "--keep-recent", 675)
    share = f"{cost['missed'] / cost['references']:.1%}"
    assert f"{cost['missed']} of {cost['references']} later needs ({share})" in output


# Undo with ``latest``


def test_restore_latest_takes_the_last_plan_not_undone(store: Path) -> None:
    before = rows_of(store)
    output_of("compact", store, "--keep-recent", 6, "--apply")
    between = rows_of(store)
    output_of("compact", store, "--keep-recent", 4, "--apply")
    several = output_of("restore", store, code=2)
    assert "which plan? " in several
    assert "memlab restore memory.db latest" in several
    assert "2 memories restored" in output_of("restore", store, "latest")
    assert rows_of(store) == between
    assert "4 memories restored" in output_of("restore", store)  # only one plan is left to undo
    assert rows_of(store) == before
    assert "no plan is left to undo" in output_of("restore", store, "latest", code=2)


def test_restore_latest_undoes_a_retirement(store: Path) -> None:
    before = rows_of(store)
    output_of("compact", store, "--keep-recent", 4, "--retire", "--apply")
    output_of("restore", store, "latest")
    assert rows_of(store) == before


def test_second_retirement_retires_none(store: Path) -> None:
    output_of("compact", store, "--keep-recent", 4, "--retire", "--apply")
    second_output = " ".join(output_of("compact", store, "--keep-recent", 4, "--retire").split())
    assert " retires 0 of 7 memories (0.0%)" in second_output
    assert "deletes 0 of" not in second_output


# Memories by id


@pytest.mark.parametrize("option", ["--delete", "--retire"])
def test_memories_given_by_id_are_deleted_and_restored(store: Path, option: str) -> None:
    before = rows_of(store)
    output = output_of("compact", store, "--id", "e3", "--id", "e7", option, "--apply")
    assert re.search(r"  policy +--id e3 --id e7\n", output)
    frame = memlab.load(store)
    remaining = set(frame.loc[frame["active"] & frame["prunable"], "memory_id"])
    assert remaining == {"e1", "e2", "e4", "e5", "e6", "e8", "e9", "e10"}
    output_of("restore", store)
    assert rows_of(store) == before


def test_second_retirement_by_id_keeps_the_first(store: Path) -> None:
    for memory_id in ("e3", "e7"):
        output_of("compact", store, "--id", memory_id, "--retire", "--apply")
    frame = memlab.load(store)
    assert set(frame.loc[~frame["active"], "memory_id"]) == {"e3", "e7"}


@pytest.mark.parametrize(
    ("memory_id", "message"),
    [
        ("d1", "memlab floor"),
        ("r1", "--supersede r1=NEWER supersedes it by a newer memory"),
        ("nobody", "is not a memory of this store; memlab rows"),
        ("e33", "is not a memory of this store; 'e3' is one; memlab rows"),
    ],
)
@pytest.mark.parametrize("option", ["--delete", "--retire"])
def test_unremovable_id_is_rejected(store: Path, memory_id: str, message: str, option: str) -> None:
    before = rows_of(store)
    result = run("compact", store, "--id", "e1", "--id", memory_id, option, "--apply")
    assert result.exit_code == 2
    assert message in result.output
    assert rows_of(store) == before


def test_all_prunable_memories_by_id_need_no_all_option(store: Path) -> None:
    ids = [f"--id=e{number}" for number in range(1, 11)]
    assert "--all" not in output_of("compact", store, *ids)
    output_of("compact", store, *ids, "--apply")
    assert len(rows_of(store)) == 3
    output_of("restore", store, "latest")
    assert len(rows_of(store)) == 13


def test_ids_exclude_a_policy(store: Path) -> None:
    output = output_of("compact", store, "--id", "e1", "--keep-recent", 3, code=2)
    assert "leave out the policy" in output
    with pytest.raises(ValueError, match="either a policy or ids"):
        memlab.plan(store, memlab.KeepRecent(3), ids=["e1"])
    with pytest.raises(TypeError, match="ids"):
        memlab.plan(store, ids="e1")


def test_plan_by_ids_round_trips_and_applies(store: Path) -> None:
    plan = memlab.plan(store, ids=["e3", "e3"])
    assert [memory.memory_id for memory in plan.memories] == ["e3"]
    parsed = memlab.Plan.from_json(plan.to_json())
    receipt = memlab.apply(parsed)
    assert receipt.deleted == 1
    assert memlab.restore(receipt).memories == 1
    with pytest.raises(PlanError, match="not a memory of this store"):
        memlab.plan(store, ids=[""])


# Policies as options

SAMPLES = {
    "N": "7",
    "AGE": "36h",
    "X": "0.5",
    "yes|no": "no",
    "NAMES": "agent_id",
    "position|created_at": "created_at",
}
"""A value for each kind of setting, by its metavar."""


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - {"ids", "merge"}))
def test_printed_policy_options_equal_the_typed_ones(name: str) -> None:
    named = policy_named(name)
    settings = [setting for setting in named.settings.values() if setting.metavar]
    every = {setting.name: SAMPLES[setting.metavar] for setting in settings}
    if name == "activation":
        del every["max_items"]  # excludes max_tokens
    required = {
        setting.name: SAMPLES[setting.metavar]
        for setting in settings
        if setting.default is REQUIRED
    }
    for values in (every, required):
        if name == "activation" and not values:
            continue  # needs one of its two caps
        policy = policy_of(named, values)
        printed = policy_in_words(as_data(policy)).removeprefix(f"--policy {name}")
        # `options_of` writes the values as Python does, and the printed policy has "no" for False.
        typed = options_of(policy).replace("False", "no").removeprefix(f"--policy {name}")
        assert printed.split() == typed.split()


def test_policies_without_options_are_known() -> None:
    assert set(NAMED) - set(OPTIONS) == {"dedup", "odek", "memforge", "betterdb"}


def test_plan_file_in_place_of_a_digest_is_explained(store: Path) -> None:
    output_of("compact", store, "--keep-recent", 4, "--save-plan", "plan.json")
    message = output_of("apply", store, "plan.json", code=2)
    assert "plan.json is a plan file: memlab apply plan.json" in message
    output_of("apply", "plan.json")
    digest = memlab.Plan.from_json(Path("plan.json").read_bytes()).digest
    refusal = output_of("restore", store, "plan.json", code=2)
    assert f"memlab restore memory.db {digest[:12]}" in " ".join(refusal.split())


def test_cap_of_zero_needs_no_all_option(store: Path) -> None:
    dry_run = output_of("compact", store, "--keep-recent", 0)
    assert "every prunable memory would go: a cap of 0 asks for it, without --all" in dry_run
    assert "A cap of 0 needs no --all" in " ".join(output_of("compact", "--help").split())
    assert "10 memories" in output_of("compact", store, "--keep-recent", 0, "--apply")


def test_each_sum_of_a_plan_is_printed_once(store: Path) -> None:
    output = output_of("compact", store, "--keep-recent", 4)
    words = output.replace(",", "").split()
    assert words.count("78") == 1
    assert words.count("42") == 1
    assert words.count("13") == 1
    assert "a start " in output
    assert output.count("a start ") == 1
