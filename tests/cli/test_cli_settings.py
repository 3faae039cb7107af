"""Commands that save a choice in ``memlab.toml`` and use it."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import memlab
from memlab import fleet
from memlab.settings import FILE, read_settings
from memlab.text import command
from tests.support.shell import output_of, run
from tests.support.stores import episodes, write_rows


@pytest.fixture(scope="module")
def two_years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two years")
    return memlab.copy_store(memlab.store_path("two_years"), folder / "memory.db")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(80))


def settings_of(store: Path) -> memlab.settings.Settings:
    return read_settings(store.parent, store.name)


def test_saved_number_is_used_by_every_command(two_years: Path) -> None:
    options = ["--target", "0.85", "--confidence", "0.95", "--token-budget", "500000", "--save"]
    output = output_of("size", two_years, *options)
    assert f"saved in {two_years.parent / FILE}" in output
    maintain = command("maintain", two_years, "--apply")
    assert f"; {maintain} then deletes prunable memories beyond " in output
    goal = {"target": 0.85, "confidence": 0.95, "token_budget": 500_000}
    advice = memlab.recommend_cap(memlab.load(two_years), **goal)
    settings = settings_of(two_years)
    assert settings.keep_recent == advice.keep_recent
    assert settings.target == 0.85
    assert settings.sized is not None
    assert settings.sized[1:] == (advice.memories, advice.until)
    assert abs(datetime.now(UTC) - settings.sized.at) < timedelta(minutes=5)
    sized_again = json.loads(run("size", two_years, "--json").output)
    assert {name: sized_again[name] for name in goal} == goal
    assert sized_again["keep_recent"] == advice.keep_recent
    assert f"  --keep-recent {advice.keep_recent}\n" in run("compact", two_years).output
    assert (
        f"more than {advice.keep_recent:,} prunable memories since" in run("show", two_years).output
    )
    assert run("compact", two_years, "--apply").exit_code == 0
    assert memlab.load(two_years)["prunable"].sum() == advice.keep_recent
    assert run("doctor", two_years, "--strict").output.count("prunable:") == 0


def test_expired_budget_is_renewed_as_a_budget(store: Path) -> None:
    output_of("size", store, "--unit", "tokens", "--save")
    write_rows(store, episodes(16, start=81))
    assert f"memlab size {store} --unit tokens --save    renews" in output_of("show", store)


def test_number_that_cannot_be_checked_is_not_called_expired(store: Path) -> None:
    output_of("size", store, "--save")
    store.with_name("memory.db.archive.db").write_bytes(b"no archive")
    assert "has expired" not in run("show", store).output


def test_expired_number_is_reported_and_not_used(store: Path) -> None:
    output_of("size", store, "--save")
    for verb in ("show", "doctor", "compact"):
        assert "found at 80 episodes on" in output_of(verb, store)
    write_rows(store, episodes(16, start=81))
    expired = "valid until 96 episodes were written, and 96 were"
    for options in ((), ("--apply",)):
        output = output_of("compact", store, *options, code=2)
        assert expired in output
        assert f"memlab size {store} --save" in output
    shown = output_of("show", store)
    assert expired in shown
    assert f"memlab size {store} --save" in shown
    assert "what the saved policy would" not in shown
    assert expired in json.loads(output_of("show", store, "--json"))["number"]
    assert run("doctor", store).exit_code == 0
    assert run("doctor", store, "--strict").exit_code == 1
    assert expired in fleet.plan(store).refused[0].error
    output_of("compact", store, "--keep-recent", 90, "--save", "--apply")
    write_rows(store, episodes(500, start=200))
    output_of("compact", store)  # a given number has no horizon


def test_auto_cap_is_used_by_every_command(store: Path) -> None:
    settings = '[store."memory.db"]\npolicy = { name = "recent", keep = "auto" }\n'
    (store.parent / FILE).write_text(settings)
    assert 'its number stays "auto"' in output_of("size", store, "--target", 0.5, "--save")
    advice = memlab.recommend_cap(store, target=0.5)
    assert advice.keep_recent < 80
    assert f'keep = "auto": {advice.numbers}' in output_of("compact", store)
    assert f"more than {advice.keep_recent} prunable memories since" in output_of("show", store)
    assert f"more than {advice.keep_recent} prunable" in output_of("doctor", store)
    assert f"recent {advice.keep_recent} " in output_of("compare", store)
    (planned,) = fleet.plan(store).stores
    assert planned.deleted == 80 - advice.keep_recent
    output_of("size", store, "--unit", "tokens", "--save")
    answer = json.loads(output_of("compact", store, "--json"))["policy"]
    tokens = memlab.size(store, target=0.5, unit="tokens").advice.number
    assert answer == {"policy": "tokens", "max_tokens": tokens}


def test_no_number_is_suggested_without_settings(store: Path) -> None:
    assert "50" not in run("show", store).output.replace(str(store), "")
    assert run("doctor", store, "--strict").exit_code == 0
    assert f"memlab size {store} --save" in output_of("compact", store, code=2)
    assert "--save needs a STORE" in output_of("size", "--save", code=2), "the bundled one"


def test_given_policy_precedes_the_saved_one(store: Path) -> None:
    for arguments in (("--keep-recent", -1, "--save"), ("--save",)):
        assert run("compact", store, *arguments).exit_code == 2
    assert not (store.parent / FILE).exists()
    result = run("compact", store, "--policy", "ttl", "--ttl", "30d", "--save")
    assert result.exit_code == 0
    assert result.stderr == f"saved in {store.parent / FILE}\n\n"
    by_option = json.loads(run("compact", store, "--keep-recent", 7, "--json").output)
    assert by_option["policy"]["keep"] == 7
    assert settings_of(store).policy == {"name": "ttl", "ttl": "30d"}
    assert len(memlab.load(store)) == 80
    by_settings = json.loads(run("compact", store, "--json").output)
    expected = {"policy": "ttl", "ttl": "30 days, 0:00:00", "own_expiry": True}
    assert by_settings["policy"] == expected
    assert run("compact", store, "--policy", "odek", "--keep-recent", 500, "--save").exit_code == 0
    assert settings_of(store).policy == {"name": "odek", "keep": 500}, "typed, and the default"


def test_plan_names_protected_tags(store: Path) -> None:
    (store.parent / FILE).write_text('protected_tags = ["merged"]\n')
    result = run("compact", store, "--keep-recent", 0)
    assert "load-bearing by memlab.toml: memories tagged merged" in result.output
    assert "nothing to do" in result.output


def test_saved_log_is_used_and_named_if_missing(store: Path) -> None:
    log = store.parent / "reads.jsonl"
    memlab.AccessLog(log).add("e1")
    assert run("size", store, "--log", log, "--save").exit_code == 0
    assert settings_of(store).log == (log,)
    assert re.search(
        "^  later needs .*1 read", run("size", store, "--explain").output, re.MULTILINE
    )
    assert run("size", store, "--only-log").exit_code == 0
    log.unlink()
    assert re.search(rf"{FILE}, line \d: .*reads.jsonl", output_of("size", store, code=2))


def test_compare_uses_the_saved_policy_and_log(store: Path) -> None:
    log = memlab.AccessLog(store.parent / "reads.jsonl")
    log.add("e1")
    settings = 'policy = { name = "recent", keep = 32 }\nlog = "reads.jsonl"\n'
    (store.parent / FILE).write_text(settings)
    output = output_of("compare", store, "--policy", "recent", "--keep-recent", 5)
    assert "recent 32" in output_of("compare", store, "--keep-recent", 5)
    assert "recent 32" not in output
    assert re.search(r"references +1\b", output)


def test_saved_retire_can_be_overridden(store: Path) -> None:
    output = output_of("compact", store, "--keep-recent", 20, "--retire", "--save")
    for phrase in (
        "retires  60 of 80",
        'log = ["reads.jsonl"]',
        "nothing was changed; add --apply",
    ):
        assert phrase in output
    assert "the costliest that would go" in output_of("compact", store, "--rows")
    assert "Deletes 60 of 80" in output_of("compact", store, "--delete")
    assert "says retire = true, and a fleet plan deletes" in fleet.plan([store]).refused[0].error
    digest = memlab.Receipt.from_json(output_of("compact", store, "--apply", "--json")).digest[:12]
    assert "retired, loaded again when needed        60" in output_of("show", store)
    listed = output_of("archive", store)
    assert "applied  retired 60 memories\n" in listed
    assert f"undo: memlab restore {store} {digest}    " in listed
    assert output_of("restore", store, digest).startswith("60 memories are active again")
    output_of("compact", store, "--keep-recent", 20, "--delete", "--save")
    assert not settings_of(store).retire


# Maintenance from cron and systemd

GUIDE = Path(__file__).parents[2].joinpath("docs/guides/nightly.md").read_text()
MEMLAB = Path(sys.executable).with_name("memlab")
KEEPS_5 = 'policy = { name = "recent", keep = 5 }\n'


def block_of(page: str, language: str, number: int = 0) -> str:
    """Return a code block in a language from a page, by its number."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[number]


def cron_command(store: Path) -> str:
    """Return the command of the guide's cron line, for the folder of a store."""
    *_, command = block_of(GUIDE, "cron").strip().split(maxsplit=5)
    command = command.replace("/srv/memlab/.venv/bin/memlab", str(MEMLAB))
    command = command.replace("/srv/agent", str(store.parent))
    assert "/srv" not in command
    return command


def test_memlab_command_of_the_cron_line_runs(store: Path) -> None:
    (store.parent / FILE).write_text(KEEPS_5)
    memlab_command, _, _ = cron_command(store).partition(">>")
    program, *words = shlex.split(memlab_command)
    assert program == str(MEMLAB)
    assert "deleted and archived 75 memories" in output_of(*words)
    assert len(memlab.load(store)) == 5


@pytest.mark.long
def test_cron_line_of_the_guide_runs(store: Path) -> None:
    (store.parent / FILE).write_text(KEEPS_5)
    command = cron_command(store)
    first_run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert first_run.returncode == 0
    assert first_run.stdout == ""
    assert first_run.stderr == ""
    assert len(memlab.load(store)) == 5
    assert "deleted and archived 75 memories" in (store.parent / "maintain.log").read_text()
    (store.parent / FILE).write_text("keep = 5\n")
    second_run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "line 1: there is no setting 'keep'" in second_run.stdout


def test_systemd_units_of_the_guide_are_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here to verify the units with")
    service = block_of(GUIDE, "ini", 0).replace("/srv/memlab/.venv/bin/memlab", str(MEMLAB))
    service = service.replace("User=agent", "User=root")
    (tmp_path / "memlab.service").write_text(service)
    (tmp_path / "memlab.timer").write_text(block_of(GUIDE, "ini", 1))
    units = [tmp_path / "memlab.service", tmp_path / "memlab.timer"]
    verified = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert [line for line in verified.stderr.splitlines() if "memlab" in line] == []
    assert verified.returncode == 0, verified.stderr


def test_restore_names_the_saved_policy_that_would_delete_again(store: Path) -> None:
    output_of("compact", store, "--keep-recent", 60, "--apply")
    assert "memlab.toml" not in output_of("restore", store, "latest")
    output_of("compact", store, "--keep-recent", 60, "--save", "--apply")
    output = output_of("restore", store, "latest")
    assert f"by which memlab maintain {store} --apply may remove them again" in output
