"""Commands that remember a choice in ``memlab.toml``, and go by it."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from shell import run, said
from stores import episodes, write_rows

import memlab
from memlab import fleet
from memlab.settings import FILE, read_settings


@pytest.fixture(scope="module")
def two_years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two years")
    return memlab.copy_store(memlab.store_path("two_years"), folder / "memory.db")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(80))


def remembered(store: Path) -> memlab.settings.Settings:
    return read_settings(store.parent, store.name)


def test_the_number_that_size_saved_is_what_everything_goes_by(two_years: Path) -> None:
    assert f"remembered in {two_years.parent / FILE}" in said(
        "size", two_years, "--target", 0.85, "--token-budget", 500_000, "--save"
    )
    advice = memlab.recommend_cap(memlab.load(two_years), target=0.85, token_budget=500_000)
    found = remembered(two_years)
    assert (found.keep_recent, found.target) == (advice.keep_recent, 0.85)
    assert found.sized is not None
    assert found.sized[1:] == (advice.memories, advice.until)
    assert abs(datetime.now(UTC) - found.sized.at) < timedelta(minutes=5)
    again = json.loads(run("size", two_years, "--json").output)
    assert (again["target"], again["token_budget"]) == (0.85, 500_000)
    assert f"  recent(keep={advice.keep_recent}, by=" in run("compact", two_years).output
    assert f"backlog         passed {advice.keep_recent:,} on" in run("show", two_years).output
    assert run("compact", two_years, "--apply").exit_code == 0
    assert memlab.load(two_years)["prunable"].sum() == advice.keep_recent
    assert run("doctor", two_years, "--strict").output.count("prunable:") == 0


def test_a_number_past_its_horizon_is_told_and_not_gone_by(store: Path) -> None:
    assert run("size", store, "--save").exit_code == 0
    in_time = "found at 80 memories on"
    for words in (("show", store), ("doctor", store), ("compact", store)):
        shown = run(*words)
        assert (shown.exit_code, in_time in shown.output) == (0, True)
    write_rows(store, episodes(16, start=81))
    past = "spoke until 96 were written, and 96 are"
    for words in (("compact", store), ("compact", store, "--apply")):
        refused = run(*words)
        assert refused.exit_code == 2
        assert past in refused.stderr
        assert f"memlab size {store} --save" in refused.stderr
    assert past in run("show", store).output
    assert past in json.loads(run("show", store, "--json").output)["number"]
    assert run("doctor", store).exit_code == 0
    assert run("doctor", store, "--strict").exit_code == 1
    (refused,) = fleet.plan(store).refused
    assert past in refused.error
    assert run("compare", store).exit_code == 0
    assert run("compact", store, "--keep-recent", 90, "--save", "--apply").exit_code == 0
    assert remembered(store).sized is None
    write_rows(store, episodes(500, start=200))
    assert run("compact", store).exit_code == 0


def test_auto_is_what_everything_goes_by_and_stays_when_a_target_is_saved(store: Path) -> None:
    file = store.parent / FILE
    file.write_text('[store."memory.db"]\npolicy = { name = "recent", keep = "auto" }\n')
    saved = run("size", store, "--target", 0.5, "--save")
    assert 'its number stays "auto"' in saved.stderr
    assert remembered(store).is_auto
    advice = memlab.recommend_cap(store, target=0.5)
    assert advice.keep_recent < 80
    assert f'keep = "auto": {advice.numbers}' in run("compact", store).output
    assert f"backlog         passed {advice.keep_recent} on" in run("show", store).output
    assert f"more than {advice.keep_recent} prunable" in run("doctor", store).output
    assert [each.deleted for each in fleet.plan(store).stores] == [80 - advice.keep_recent]
    assert f'"recent {advice.keep_recent}"' in run("compare", store, "--json").output
    assert run("size", store, "--unit", "tokens", "--save").exit_code == 0
    assert not remembered(store).is_auto
    made = json.loads(run("compact", store, "--json").output)["policy"]
    tokens = memlab.sizing.recommend_budget(store, target=0.5).max_tokens
    assert made == {"policy": "tokens", "max_tokens": tokens}


def test_without_settings_nothing_suggests_a_number(store: Path) -> None:
    assert "50" not in run("show", store).output.replace(str(store), "")
    assert run("doctor", store, "--strict").exit_code == 0
    assert f"memlab size {store} --save" in said("compact", store, code=2)


def test_compact_remembers_any_policy_and_what_is_given_comes_before_it(store: Path) -> None:
    for words in (("--keep-recent", -1, "--save"), ("--save",)):
        assert run("compact", store, *words).exit_code == 2
    assert not (store.parent / FILE).exists()
    shown = run("compact", store, "--policy", "ttl", "--ttl", "30d", "--save")
    assert (shown.exit_code, shown.stderr) == (0, f"remembered in {store.parent / FILE}\n\n")
    given = json.loads(run("compact", store, "--keep-recent", 7, "--json").output)
    assert given["policy"]["keep"] == 7
    assert remembered(store).policy == {"name": "ttl", "ttl": "30d"}
    assert len(memlab.load(store)) == 80
    again = run("compact", store, "--json")
    assert json.loads(again.output)["policy"] == {"policy": "ttl", "ttl": "30 days, 0:00:00"}
    assert run("compact", store, "--policy", "odek", "--keep-recent", 500, "--save").exit_code == 0
    assert remembered(store).policy == {"name": "odek", "keep": 500}, "typed, and the default"


def test_a_protected_tag_is_named_with_the_plan(store: Path) -> None:
    (store.parent / FILE).write_text('protected_tags = ["merged"]\n')
    shown = run("compact", store, "--keep-recent", 0)
    assert "load-bearing by memlab.toml: what is tagged merged" in shown.output
    assert "nothing to do" in shown.output


def test_a_log_that_was_given_is_remembered_read_and_told_by_line_once_it_is_missing(
    store: Path,
) -> None:
    log = store.parent / "reads.jsonl"
    memlab.AccessLog(log).add("e1")
    assert run("size", store, "--log", log, "--save").exit_code == 0
    assert remembered(store).log == (log,)
    assert re.search("^  references .*1 read", run("size", store, "--explain").output, re.MULTILINE)
    assert run("size", store, "--only-log").exit_code == 0
    log.unlink()
    assert re.search(rf"{FILE}, line \d: .*reads.jsonl", said("size", store, code=2))


def test_the_bundled_store_remembers_nothing() -> None:
    assert "--save needs a STORE" in said("size", "--save", code=2)


def test_compare_tries_what_is_remembered_and_reads_the_remembered_log(two_years: Path) -> None:
    file = two_years.parent / FILE
    file.write_text('policy = { name = "recent", keep = 321 }\nlog = "reads.jsonl"\n')
    log = memlab.AccessLog(two_years.parent / "reads.jsonl")
    first = memlab.load(two_years)["memory_id"].iloc[0]
    log.add(first)
    lines = json.loads(
        run("compare", two_years, "--json", "--keep-recent", 5, "--ttl", "9d").output
    )
    assert "recent 321" in {line["label"] for line in lines}
    named = run("compare", two_years, "--policy", "recent", "--keep-recent", 5, "--json").output
    assert "recent 321" not in {line["label"] for line in json.loads(named)}
    with_log = run("compare", two_years, "--policy", "recent", "--keep-recent", 5).output
    file.unlink()
    without = run("compare", two_years, "--policy", "recent", "--keep-recent", 5).output
    counted = [int(re.findall(r"references +(\d+)", text)[0]) for text in (with_log, without)]
    assert counted[0] == counted[1] + 1


def test_the_panel_opens_where_the_settings_say(two_years: Path) -> None:
    (two_years.parent / FILE).write_text("target = 0.8\ntoken_budget = 40_000\n")
    panel = memlab.explore(two_years)
    assert (panel.advice.target, panel.advice.token_budget) == (0.8, 40_000)
    (two_years.parent / FILE).write_text("target = 0.3\n")
    assert memlab.explore(two_years).advice.target == 0.5
    (two_years.parent / FILE).unlink()
    assert memlab.explore(two_years).advice.target == 0.9


def test_how_sure_a_number_is_to_be_can_be_said_and_remembered(two_years: Path) -> None:
    usual = json.loads(run("size", two_years, "--json").output)["keep_recent"]
    surer = json.loads(run("size", two_years, "--confidence", 0.99, "--save", "--json").stdout)
    assert surer["keep_recent"] > usual
    assert remembered(two_years).confidence == 0.99
    again = json.loads(run("size", two_years, "--json").output)
    assert again["keep_recent"] == surer["keep_recent"]
    (two_years.parent / FILE).unlink()


def test_to_retire_is_remembered_and_deleting_can_be_asked_for_all_the_same(store: Path) -> None:
    shown = run("compact", store, "--keep-recent", 20, "--retire", "--save")
    assert "retires       60 of 80 memories" in shown.output
    assert 'log = ["reads.log"]' in shown.output
    assert "nothing was changed; add --apply to do it" in shown.output
    assert remembered(store).retire
    assert "the costliest that would go" in run("compact", store, "--rows").output
    plan = memlab.Plan.from_json(run("compact", store, "--json").output)
    assert (len(plan.retires), plan.memories) == (60, ())
    assert "deletes       60 of 80" in run("compact", store, "--delete").output
    receipt = memlab.Receipt.from_json(run("compact", store, "--apply", "--json").output)
    assert "retired, loaded again when needed        60" in run("show", store).output
    listed = run("archive", store).output
    assert "applied  retired 60 memories\n" in listed
    assert f"undo: memlab restore {store} {receipt.digest[:12]}    " in listed
    assert run("restore", store, receipt.digest[:12]).output.startswith("60 memories restored")
    (refused,) = fleet.plan([store]).refused
    assert "says retire = true, and a fleet plan deletes" in refused.error
    run("compact", store, "--keep-recent", 20, "--delete", "--save")
    assert not remembered(store).retire


def test_where_nothing_is_loaded_at_start_to_retire_is_refused_in_words(tmp_path: Path) -> None:
    assert "there is nothing to retire in odek:" in said(
        "compact", f"odek:{tmp_path}", "--keep-recent", 1, "--retire", code=2
    )
