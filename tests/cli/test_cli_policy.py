"""Policies on the command line: built-in ones and custom classes."""

import json
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import memlab
from memlab.compaction.wire import as_data
from memlab.policies import NAMED, POLICIES, KeepRecent, Pipeline, Policy, ValueCap
from memlab.policies.named import options_of
from tests.support.invariants import rows_of
from tests.support.own_policies import EveryOther
from tests.support.shell import output_of, run
from tests.support.stores import episodes, write_rows

RULES = '''
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import pandas as pd
from memlab.policies import KeepRecent, Policy


@dataclass(frozen=True)
class Modulo(Policy):
    """Drop every so many."""

    every: int = field(metadata={"help": "one in so many goes", "least": 1, "size": True})
    share: float = 0.5
    quietly: bool = False
    age: timedelta | None = None
    order: Literal["old", "new"] = "old"
    kinds: tuple[str, ...] = ()
    extra: dict | None = None

    def evict(self, rows, *, now):
        return pd.Series("modulo", index=rows.index[rows["position"] % self.every == 0])


@dataclass(frozen=True)
class Breaks(Policy):
    def evict(self, rows, *, now):
        return rows["nothing of the kind"]


class Undecorated(KeepRecent):
    def evict(self, rows, *, now):
        return super().evict(rows, now=now)


class inner:
    @dataclass(frozen=True)
    class Warns(Policy):
        def evict(self, rows, *, now):
            warnings.warn("the house is full")
            return pd.Series("warned", index=rows.index[:0])
'''


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(6))


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a module with custom policies into the working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "house_rules.py").write_text(RULES)
    (folder / "typo_rules.py").write_text("def evict(:\n")
    monkeypatch.chdir(folder)
    yield folder / "house_rules.py"
    for name in ("house_rules", "typo_rules"):
        sys.modules.pop(name, None)


def test_plan_of_a_custom_policy_applies_without_its_module(
    store: Path, rules: Path, tmp_path: Path
) -> None:
    policy = ("--policy", "house_rules:Modulo", "--set", "every=2")
    plan = tmp_path / "plan.json"
    output = output_of("compact", store, *policy, "--save-plan", plan)
    assert "house_rules:Modulo(every=2" in output
    assert json.loads(plan.read_text())["policy"]["policy"] == "house_rules:Modulo"
    rules.unlink()
    del sys.modules["house_rules"]
    assert run("apply", plan).exit_code == 0
    assert memlab.load(store)["memory_id"].tolist() == ["e1", "e3", "e5"]
    assert "house_rules" not in sys.modules


def test_nested_policy_class_is_found_and_its_warning_shown(store: Path, rules: Path) -> None:
    with pytest.warns(UserWarning, match="the house is full"):
        output_of("compact", store, "--policy", "house_rules:inner.Warns")


@pytest.mark.parametrize("option", ["--set every=", "--keep-recent "])
def test_custom_policy_is_compared_at_each_setting(store: Path, rules: Path, option: str) -> None:
    settings = f"{option}2 {option}3".split()
    arguments = ("compare", store, "--policy", "house_rules:Modulo", *settings, "--json")
    deleted = {row["label"]: row["deleted"] for row in json.loads(run(*arguments).output)}
    assert deleted == {"modulo 2": 3, "modulo 3": 2, "all": 0}


@pytest.mark.parametrize("command", ["compact", "compare"])
def test_bodies_are_loaded_for_a_custom_policy_that_reads_them(store: Path, command: str) -> None:
    output_of(command, store, "--policy", "tests.support.own_policies:ShortBodies")


@pytest.mark.parametrize(
    ("settings", "parsed"),
    [
        ("every=5 share=.25 quietly=yes", {"every": 5, "share": 0.25, "quietly": True}),
        ("every=5 age=36h order=new", {"age": "1 day, 12:00:00", "order": "new"}),
        ("every=5 kinds=a,b", {"kinds": ["a", "b"]}),
        ("every=5 age=none kinds=none", {"age": None, "kinds": []}),
    ],
)
def test_custom_policy_settings_are_parsed_by_type(
    store: Path, rules: Path, settings: str, parsed: dict[str, object]
) -> None:
    arguments = [f"--set={setting}" for setting in settings.split()]
    output = output_of("compact", store, "--policy", "house_rules:Modulo", *arguments, "--json")
    policy = json.loads(output)["policy"]
    assert {name: policy[name] for name in parsed} == parsed


WRONG = {
    "newest": "'newest' is not a policy: name one of recent, tokens,",
    "typo_rules:Modulo": "the module 'typo_rules' cannot be imported: SyntaxError",
    "house_rules:Module": "no policy 'Module', only: Modulo, Breaks; a policy is a class",
    "house_rules:timedelta": "house_rules has no policy 'timedelta'",
    "house_rules:pd": "house_rules has no policy 'pd'",
    "house_rules:Undecorated": "has no policy 'Undecorated'",
    "house_rules:Policy": "house_rules has no policy 'Policy'",
    "house_rules:Modulo": "needs every (--set every=VALUE)",
    "house_rules:Modulo --set every": "--set every has no value; write --set every=VALUE",
    "house_rules:Modulo --set every=many": "every='many' is not a whole number",
    "house_rules:Modulo --set every=1 --set days=3": "days is not a setting of the policy",
    "house_rules:Modulo --set every=1 --set quietly=maybe": "'maybe' is not yes or no",
    "house_rules:Modulo --set every=1 --set order=odd": "order='odd' is not 'old' or 'new'",
    "house_rules:Modulo --set every=1 --set extra=1": "extra cannot be given as text",
    "house_rules:Breaks": "house_rules:Breaks failed: KeyError",
    "recent --max-tokens 9": "; --policy tokens or activation takes it",
    "recent": "the policy 'recent' needs keep (--keep-recent)",
    "ttl": "the policy 'ttl' needs --ttl, such as 30d",
    "ttl --ttl 30": "'30' is not an age; write one like 30d",
    "ttl --ttl 999999999999d": "more than the calendar holds",
    "dedup --threshold 7": "--threshold 7.0 is not in [0, 1]",
    "value --max-items 5 --scope colour": "'colour' is not 'agent_id'",
}


COMPARED = ("newest", "house_rules:Modulo --set every=many", "house_rules:Breaks")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("compact", arguments) for arguments in WRONG]
    + [("compare", arguments) for arguments in COMPARED],
)
def test_invalid_policy_or_setting_is_explained(
    store: Path, rules: Path, command: str, arguments: str
) -> None:
    before = rows_of(store)
    output = output_of(command, store, "--policy", *arguments.split(), code=2)
    assert WRONG[arguments] in " ".join(output.split())
    assert "Usage: " in output_of(command, store, "--keep-recent", "x", code=2)
    assert rows_of(store) == before


def test_compare_explains_how_to_give_a_setting(store: Path) -> None:
    message = output_of("compare", store, "--policy", "value", "--max-items", 9, code=2)
    assert "--set max_items=VALUE" in message
    assert "Did you mean" not in message
    assert "'--ttl'" in output_of("compare", store, "--tll", "9d", code=2)


def test_every_policy_setting_is_an_option() -> None:
    assert POLICIES.keys() - NAMED.keys() == {"all", "pipeline"}
    help_text = " ".join(run("compact", "--help").output.split())
    for named in NAMED.values():
        assert named.origin in help_text
        for setting in named.settings.values():
            if setting.name != "vectorise":  # a function, which no option can give
                assert setting.option in help_text
                assert setting.help.partition(" ")[2] in help_text


@pytest.mark.parametrize("command", ["compact", "compare", "fleet plan"])
def test_help_lists_policies_and_custom_settings(rules: Path, command: str) -> None:
    help_text = run(*command.split(), "--policy", "house_rules:Modulo", "--help").output
    policies = help_text.partition("Policies:")[2]
    for name in NAMED:
        assert name in policies
    assert "Settings of house_rules:Modulo" in policies
    assert "--set every=N" in policies
    assert "one in so many goes" in policies
    assert "[default: 0.5]" in policies
    assert "--set order=old|new" in policies


def test_compare_shows_served_share_and_bound() -> None:
    store = memlab.store_path("three_hundred_issues")
    names = ("--policy", "recent", "--policy", "tokens")
    policies = (*names, "--keep-recent", 50, "--max-tokens", 3000)
    output = run("compare", store, *policies).output
    for expected in ("served", "at best", "deleted", "recent 50", "tokens 3000", "only here"):
        assert expected in output
    fitting = json.loads(run("compare", store, *policies, "--token-budget", 3000, "--json").output)
    assert all(row["boot_tokens_p95"] <= 3000 for row in fitting)
    assert "tokens 3000" in [row["label"] for row in fitting]


def test_compare_retire_suggests_the_best_policy() -> None:
    store = memlab.store_path("three_hundred_issues")
    retired = json.loads(output_of("compare", store, "--retire", "--every", 25, "--json"))
    tried = {row["rule"] for row in retired if row["retire"]}
    assert tried == {"newest (forge-loop)", "age", "by use", "BetterDB", "odek", "MemForge"}
    page = run("compare", store, "--policy", "activation", "--max-tokens", 2000, "--retire").output
    (step,) = [line for line in page.splitlines() if " compact " in line]
    arguments = step.partition("memlab ")[2].partition("    ")[0]
    assert "--policy activation --max-" in arguments
    assert arguments.endswith(" --retire")
    assert "retires" in run(*shlex.split(arguments)).output


@pytest.mark.parametrize(
    "policy",
    [
        KeepRecent(30),
        ValueCap(30, half_life=timedelta(hours=8)),
        Pipeline.odek(keep=200),
        EveryOther(1),
    ],
)
def test_options_of_a_policy_parse_to_the_same_policy(policy: Policy) -> None:
    arguments = shlex.split(options_of(policy))
    result = run("compact", memlab.store_path("three_hundred_issues"), *arguments, "--json")
    assert json.loads(result.output)["policy"] == as_data(policy)
