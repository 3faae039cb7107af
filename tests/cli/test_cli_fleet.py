"""``memlab fleet``: output, exit codes and files of its commands."""

import csv
import io
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.errors import MemlabError
from memlab.fleet import FleetPlan, size
from memlab.settings import read_settings
from memlab.sources.base import Source
from memlab.sources.opening import save_store_settings
from memlab.text import percent
from tests.support.fleets import agent_store, referring_store
from tests.support.shell import output_of, run
from tests.support.stores import episodes, run_sql, write_rows


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    for count in (3, 30, 300):
        agent_store(tmp_path / f"agent-{count}" / "memory.db", count)
    return tmp_path


def test_fleet_show_lists_largest_first_with_totals(agents: Path) -> None:
    names = f"{agents}/*/memory.db"
    output = output_of("fleet", "show", names, "--backlog", 300)
    assert output.startswith("3 stores, all read\n")
    assert "336 memories" in output
    assert re.findall(r"agent-(\d+)/memory.db$", output, re.MULTILINE) == ["300", "30", "3"]
    assert "1 of 3 stores" in output_of("fleet", "show", names, "--backlog", 100, code=1)
    for command in ("show", "size"):
        output = output_of("fleet", command, agents / "none", code=1)
        assert "there is no file" in output
        assert not re.search("loaded at start|would go|next: ", output)


def test_fleet_show_prints_the_prunable_share_of_tokens(tmp_path: Path) -> None:
    episodes_alone = write_rows(tmp_path / "episodes.db", episodes(3))
    empty = write_rows(tmp_path / "empty.db", [])
    output = output_of("fleet", "show", episodes_alone, empty)
    assert re.search(r" 100\.0%  [0-9-]+  +episodes\.db$", output, re.MULTILINE)
    assert re.search(r" 0  +–  –  +empty\.db$", output, re.MULTILINE)


def records_in(printed: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(printed)))


def test_fleet_show_shortens_names_to_the_terminal_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 80)
    for name in ("x" * 120, "y" * 120):
        write_rows(tmp_path / f"{name}.db", episodes(2))
    output = run("fleet", "show", tmp_path).output
    assert "y" * 14 in output
    lines = [line for line in output.splitlines() if not line.startswith("next: ")]
    assert max(map(len, lines)) <= 80


def test_fleet_show_json_and_csv_list_every_store(agents: Path) -> None:
    (agents / "agent-3" / "broken.db").write_bytes(b"SQLite format 3\0 and no more")
    names = (f"{agents}/*/*.db", "--limit", "1", "--processes", "1")
    stores = json.loads(run("fleet", "show", *names, "--json").output)
    folders = [Path(store["store"]).parent.name for store in stores]
    assert folders == ["agent-3", "agent-3", "agent-30", "agent-300"]
    assert sum(store["error"] is not None for store in stores) == 1
    rows = records_in(run("fleet", "show", *names, "--csv").output)
    assert [cells["memories"] for cells in rows if cells["memories"]] == ["4", "31", "301"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show", "Missing argument"),
        ("show {}/*.none", "nothing matches"),
        ("show @{}/none", "cannot be read"),
        ("show {} --fresh", "--fresh needs --results FOLDER"),
        ("plan {} --fresh --keep-recent 3", "--fresh needs --save-plan FILE"),
        ("apply {}/none.json", "this is not a fleet_plan"),
        ("show {} --processes 2 --scheduler tcp://h:9", "--processes and --scheduler exclude each"),
    ],
)
def test_invalid_fleet_command_is_bad_input(agents: Path, arguments: str, message: str) -> None:
    (agents / "none.json").write_text("{}")
    assert message in output_of("fleet", *arguments.format(agents).split(), code=2)


def test_fleet_plan_review_and_apply(agents: Path) -> None:
    file = agents / "plan.json"
    names = f"{agents}/agent-*/memory.db"
    plan_page = output_of("fleet", "plan", names, "--keep-recent", 20, "--save-plan", file)
    assert "2 of 3 stores change" in plan_page
    assert plan_page.rstrip().endswith(f"memlab fleet apply {file}")
    output = output_of("fleet", "apply", file)
    assert "2 of 2 stores applied, 0 refused" in output
    assert "  290 memories, archived beside their stores" in output
    printed = run("fleet", "show", names).output
    assert re.search(r"on the disk +[\d.]+ MB, of which a vacuum gives back [\d.]+ MB", printed)
    second_page = output_of("fleet", "apply", file)
    assert second_page.startswith("0 of 2 stores applied, 2 applied before, 0 refused\n")
    assert len(re.findall("applied before, on [0-9-]+ [0-9:]+ UTC", second_page)) == 2
    assert "archived beside their stores" not in second_page
    assert "at start  " not in second_page.partition("\n\n")[0]
    second_records = records_in(output_of("fleet", "apply", file, "--csv"))
    assert [outcome["status"] for outcome in second_records] == ["applied before"] * 2
    assert "nothing to do" in output_of("fleet", "plan", names, "--keep-recent", 20)


def test_fleet_apply_refuses_plans_of_restored_stores(agents: Path) -> None:
    file = agents / "plan.json"
    names = f"{agents}/agent-*/memory.db"
    output_of("fleet", "plan", names, "--keep-recent", 20, "--save-plan", file)
    output_of("fleet", "apply", file)
    output_of("restore", agents / "agent-30" / "memory.db", "latest")
    page = output_of("fleet", "apply", file, code=1)
    assert page.startswith("0 of 2 stores applied, 1 applied before, 1 refused\n")
    assert "10 of them restored since" in " ".join(page.split())


def test_rejected_store_gives_exit_code_1(agents: Path) -> None:
    (agents / "text.db").write_text("none")
    names = (f"{agents}/agent-*/memory.db", agents / "text.db")
    file = agents / "plan.json"
    options = ("--keep-recent", 20, "--save-plan", file)
    assert "refused" in output_of("fleet", "plan", *names, *options, code=1)
    run_sql(agents / "agent-30" / "memory.db", "DELETE FROM memory_items WHERE memory_id = 'e1'")
    applied = output_of("fleet", "apply", file, code=1)
    assert "1 of 2 stores applied, 1 refused" in applied
    assert "is not as plan" in applied


@pytest.mark.usefixtures("no_rendering")
@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("show */memory.db --results out", "out"),
        ("size */memory.db --results out", "out"),
        ("report */memory.db -o page.html --results out", "out/survey"),
        ("report */memory.db -o page.html --results out", "out/size"),
        ("maintain */memory.db --results out", "out"),
        ("plan */memory.db --keep-recent 9 --save-plan out", "out.plans"),
    ],
)
def test_fleet_results_are_kept_and_discarded_with_fresh(
    agents: Path, monkeypatch: pytest.MonkeyPatch, command: str, folder: str
) -> None:
    monkeypatch.chdir(agents)
    for store in agents.glob("agent-*"):
        (store / "memlab.toml").write_text('policy = { name = "recent", keep = 5 }\n')
    arguments = ("fleet", *command.split())
    output_of(*arguments)
    (part,) = (agents / folder).glob("part-*.parquet")
    part.write_bytes(b"a damaged part")
    assert "cannot be read" in output_of(*arguments, code=2)
    output_of(*arguments, "--fresh")


def test_fleet_size_prints_a_cap_and_evidence_per_store(agents: Path) -> None:
    output = output_of("fleet", "size", f"{agents}/*/memory.db")
    assert "The safe caps of 3 stores cut their starts today from " in output
    assert "too few stores have references" in output
    save_step, plan_step = output.splitlines()[-2:]
    names = shlex.quote(f"{agents}/*/memory.db")
    assert save_step.startswith(f"next: memlab fleet size {names} --save ")
    assert plan_step.endswith("    plans by the saved caps")  # fleet plan deletes nothing
    tiny_budget = ("fleet", "size", f"{agents}/*/memory.db", "--token-budget", "1")
    records = records_in(output_of(*tiny_budget, "--csv", code=1))
    assert {store["verdict"] for store in records} == {"floor-exceeds-budget"}
    page = run(*tiny_budget).output
    assert "No store has a cap: " in page
    assert "next: memlab floor STORE    for each of 3 stores that no budget" in page
    words = page.split()
    assert "keep_recent" not in words
    assert "--keep-recent" not in words


def test_next_steps_of_fleet_size_save_caps_and_plan_by_them(
    agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(agents)
    output = output_of("fleet", "size", f"{agents}/*/memory.db")
    save_step, plan_step = output.splitlines()[-2:]
    for step in (save_step.removeprefix("next:"), plan_step):
        command, _, _ = step.strip().partition("    ")
        program, *arguments = shlex.split(command)
        assert program == "memlab"
        output_of(*arguments)
    assert len(list(agents.glob("*/memlab.toml"))) == 3
    assert (agents / "fleet-plan.json").is_file()


def test_saved_caps_of_a_fleet_are_planned_exactly(tmp_path: Path) -> None:
    """The caps that the fleet's own data moved are planned, not those of each store alone."""
    for number in range(4):
        folder = tmp_path / f"agent-{number}"
        folder.mkdir()
        referring_store(folder / "memory.db", 200, 2 + number)
    names = f"{tmp_path}/*/memory.db"
    output = output_of("fleet", "size", names, "--save", "--until", 1.5)
    assert "saved the settings of 4 stores, each in the memlab.toml beside it" in output
    assert "--save " not in output.splitlines()[-1]
    sized = size(names)  # the horizon is in the settings now
    caps_alone = [memlab.size(store).advice.keep_recent for store in sized["store"]]
    assert sized["keep_recent"].tolist() != caps_alone
    plan = tmp_path / "plan.json"
    output_of("fleet", "plan", names, "--save-plan", plan)
    planned = FleetPlan.read(plan)
    deleted = {store.store: store.deleted for store in planned.stores}
    for store in sized.to_dict("records"):
        assert deleted.get(str(store["store"]), 0) == store["deletes"], store
        settings = (Path(str(store["store"])).parent / "memlab.toml").read_text()
        assert f"keep = {store['keep_recent']}" in settings
        assert "until = 1.5" in settings


def test_stores_whose_settings_take_precedence_are_named(agents: Path) -> None:
    automatic, retired, _ = sorted(agents.glob("*/memory.db"))
    (automatic.parent / "memlab.toml").write_text('policy = {name = "recent", keep = "auto"}\n')
    (retired.parent / "memlab.toml").write_text("retire = true\n")
    output = output_of("fleet", "size", f"{agents}/*/memory.db", "--save")
    assert f'{automatic}: its number stays "auto"' in output
    assert f"{retired}: retire = true: maintain retires by this cap, fleet plan does not" in output
    assert read_settings(automatic.parent, "memory.db").is_auto
    assert read_settings(retired.parent, "memory.db").keep_recent is not None
    planned = memlab.fleet.plan(f"{agents}/*/memory.db")
    assert [refused.store for refused in planned.refused] == [str(retired)]


def test_cap_that_cannot_be_saved_is_named(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(source: Source, values: Mapping[str, Any]) -> Path:
        if "agent-30/" in source.name:
            raise MemlabError("its folder is not writable")
        return save_store_settings(source, values)

    monkeypatch.setattr("memlab.sizing.saving.save_store_settings", save)
    output = output_of("fleet", "size", f"{agents}/*/memory.db", "--save", code=1)
    assert "saved the settings of 2 stores" in output
    assert f"not saved for {agents}/agent-30/memory.db: its folder is not writable" in output


def test_fleet_size_names_what_fits_a_small_budget(agents: Path) -> None:
    names = f"{agents}/agent-*/memory.db"
    sized = size(names, token_budget=400)
    tight = sized[sized["verdict"] == "target-exceeds-budget"]
    assert len(tight) > 0
    output = run("fleet", "size", names, "--token-budget", 400).output
    for line in tight.itertuples():
        fits = f"{line.fits:,} ({percent(line.fits_served, decimals=0)})"
        assert re.search(rf"–  +{line.likely:,}  +{re.escape(fits)}", output)
    command = f"memlab fleet plan '{names}' --policy tokens --max-tokens 400"
    assert command in output
    assert run(*shlex.split(command)[1:]).exit_code == 0
    assert "fits" not in run("fleet", "size", names).output


def test_fleet_maintain_follows_the_settings_of_each_store(agents: Path) -> None:
    (agents / "agent-30" / "memlab.toml").write_text('policy = { name = "recent", keep = 5 }\n')
    maintain = ("fleet", "maintain", agents / "agent-30" / "memory.db", "--json")
    (outcome,) = json.loads(output_of(*maintain))
    assert outcome["status"] == "would"
    assert outcome["deleted"] == 25
    (outcome,) = json.loads(output_of(*maintain, "--apply"))
    assert outcome["status"] == "done"
    assert outcome["deleted"] == 25
    all_stores = output_of("fleet", "maintain", f"{agents}/*/memory.db", code=1)
    assert "maintenance of 3 stores: 1 nothing" in all_stores
    assert all_stores.count("  no settings for it\n") == 2
    assert all_stores.count("memlab size STORE --save") == 1
