"""Policies on the command line: those of the package, and classes of one's own."""

import json
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from invariants import rows_of
from own_policies import EveryOther
from shell import run, said
from stores import episodes, write_rows

import memlab
from memlab.compaction.wire import as_data
from memlab.policies import NAMED, POLICIES, KeepRecent, Pipeline, Policy, TimeToLive, ValueCap
from memlab.policies.named import options_of

RULES = '''
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import pandas as pd
from memlab.policies import KeepRecent, Pipeline, Policy


@dataclass(frozen=True)
class Modulo(Policy):
    """Drop every so many."""

    every: int = field(metadata={"help": "one in so many goes", "least": 1})
    share: float = 0.5
    quietly: bool = False
    age: timedelta | None = None
    order: Literal["old", "new"] = "old"
    kinds: tuple[str, ...] = ()
    extra: dict | None = None

    def evict(self, rows, *, now):
        return pd.Series("modulo", index=rows.index[rows["position"] % self.every == 0])


@dataclass(frozen=True)
class Sized(Policy):
    """A cap of one's own."""

    most: int = field(metadata={"help": "how many stay", "size": True})

    def evict(self, rows, *, now):
        return pd.Series("too many", index=rows.index[: max(0, len(rows) - self.most)])


@dataclass(frozen=True)
class Reads(Policy):
    reads_bodies = True

    def evict(self, rows, *, now):
        return pd.Series("no body", index=rows.index[rows["body"].str.len() < 3])


@dataclass(frozen=True)
class Breaks(Policy):
    def evict(self, rows, *, now):
        return rows["nothing of the kind"]


class Undecorated(KeepRecent):
    def evict(self, rows, *, now):
        return super().evict(rows, now=now)


@dataclass(frozen=True)
class Undecided(Policy):
    days: int = 3


@dataclass(frozen=True)
class Alien:
    days: int = 3


class inner:
    @dataclass(frozen=True)
    class Nested(KeepRecent):
        pass
'''


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_rows(tmp_path / "memory.db", episodes(6))
    return tmp_path / "memory.db"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder, as a user would write it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "house_rules.py").write_text(RULES)
    (folder / "typo_rules.py").write_text("def evict(:\n")
    monkeypatch.chdir(folder)
    yield folder / "house_rules.py"
    for name in ("house_rules", "typo_rules"):
        sys.modules.pop(name, None)


def test_a_class_of_ones_own_decides_from_the_command_line(store: Path, rules: Path) -> None:
    shown = said("compact", store, "--policy", "house_rules:Modulo", "--set", "every=3")
    assert "modulo" in shown
    assert "house_rules:Modulo(every=3" in shown


def test_a_plan_names_the_class_and_needs_it_no_more(
    store: Path, rules: Path, tmp_path: Path
) -> None:
    words = ("--policy", "house_rules:Modulo", "--set", "every=2", "--save-plan")
    assert run("compact", store, *words, tmp_path / "plan.json").exit_code == 0
    planned = json.loads((tmp_path / "plan.json").read_text())
    assert planned["policy"]["policy"] == "house_rules:Modulo"
    rules.unlink()
    del sys.modules["house_rules"]
    assert run("apply", tmp_path / "plan.json").exit_code == 0
    assert memlab.load(store)["memory_id"].tolist() == ["e1", "e3", "e5"]
    assert "house_rules" not in sys.modules


def test_a_class_of_ones_own_is_compared_at_its_sizes(store: Path, rules: Path) -> None:
    words = ("compare", store, "--policy", "house_rules:Sized", "--policy", "recent", "--json")
    table = json.loads(run(*words, "--keep-recent", 2, "--keep-recent", 4).output)
    deleted = {row["label"]: row["deleted"] for row in table}
    assert deleted == {"sized 2": 4, "sized 4": 2, "recent 2": 4, "recent 4": 2, "all": 0}


def test_a_setting_given_twice_is_tried_twice(store: Path, rules: Path) -> None:
    words = ("compare", store, "--policy", "house_rules:Modulo", "--json")
    table = json.loads(run(*words, "--set", "every=2", "--set", "every=3").output)
    assert [row["label"] for row in table] == ["modulo 2", "modulo 3", "all"]
    assert [row["deleted"] for row in table] == [3, 2, 0]


def test_bodies_are_loaded_for_a_class_that_reads_them(store: Path, rules: Path) -> None:
    for command in ("compact", "compare"):
        said(command, store, "--policy", "house_rules:Reads")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("every=5 share=.25 quietly=yes", {"every": 5, "share": 0.25, "quietly": True}),
        ("every=5 age=36h order=new", {"age": "1 day, 12:00:00", "order": "new"}),
        ("every=5 kinds=a,b", {"kinds": ["a", "b"]}),
        ("every=5 age=none kinds=none", {"age": None, "kinds": []}),
    ],
)
def test_its_settings_are_read_by_their_types(
    store: Path, rules: Path, given: str, meant: dict[str, object]
) -> None:
    words = [word for setting in given.split() for word in ("--set", setting)]
    shown = said("compact", store, "--policy", "house_rules:Modulo", *words, "--json")
    assert json.loads(shown)["policy"].items() >= meant.items()


def test_a_class_within_a_class_is_found(store: Path, rules: Path) -> None:
    words = ("--policy", "house_rules:inner.Nested", "--set", "keep=2")
    assert "beyond-newest" in run("compact", store, *words).output


@pytest.mark.parametrize("command", ["compact", "compare"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("newest",), "'newest' is no policy: name one of recent, tokens,"),
        (("no_such_rules:Modulo",), "cannot be imported: ModuleNotFoundError: No module named"),
        (("typo_rules:Modulo",), "the module 'typo_rules' cannot be imported: SyntaxError"),
        ((":Modulo",), "the module '' cannot be imported"),
        (("house_rules:Module",), "no policy 'Module', only: Modulo, Sized, Reads, Breaks; a poli"),
        (("house_rules:",), "has no policy ''"),
        (("house_rules:Alien",), "has no policy 'Alien'"),
        (("house_rules:pd",), "house_rules has no policy 'pd'"),
        (("house_rules:Undecorated",), "has no policy 'Undecorated'"),
        (("house_rules:Undecided",), "with memlab.Policy as its base, @dataclass(frozen=True)"),
        (("house_rules:Modulo",), "needs every (--set every=VALUE)"),
        (("house_rules:Modulo", "every=many"), "every='many' is not a whole number"),
        (("house_rules:Modulo", "every=0"), "every=0 is not a whole number of 1 or more"),
        (("house_rules:Modulo", "every"), "--set every has no value; write --set every=VALUE"),
        (("house_rules:Modulo", "every=1", "days=3"), "days is no setting of the policy"),
        (("house_rules:Modulo", "every=1", "age=30"), "age='30' is not an age; write one like 30d"),
        (
            ("house_rules:Modulo", "every=1", "quietly=perhaps"),
            "quietly='perhaps' is not yes or no",
        ),
        (("house_rules:Modulo", "every=1", "order=odd"), "order='odd' is not 'old' or 'new'"),
        (("house_rules:Modulo", "every=1", "extra=1"), "extra cannot be given as text"),
        (("house_rules:Breaks",), "house_rules:Breaks failed: KeyError"),
    ],
)
def test_a_wrong_policy_is_told_in_a_sentence(
    store: Path, rules: Path, command: str, words: tuple[str, ...], expected: str
) -> None:
    name, *settings = words
    given = [word for setting in settings for word in ("--set", setting)]
    before = rows_of(store)
    refused = run(command, store, "--policy", name, *given)
    assert refused.exit_code == 2
    assert expected in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.output
    assert rows_of(store) == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no policy is remembered for"),
        (("--policy", "recent"), "the policy 'recent' needs keep (--keep-recent)"),
        (("--keep-recent", -1), "--keep-recent -1 is not a whole number of 0 or more"),
        (("--keep-recent", "many"), "--keep-recent 'many' is not a whole number"),
        (("--policy", "value"), "the policy 'value' needs max_items (--max-items)"),
        (("--policy", "value", "--max-items", 5, "--ttl", "3d"), "ttl is no setting"),
        (("--policy", "ttl", "--ttl", "30"), "'30' is not an age; write one like 30d"),
        (("--policy", "ttl", "--ttl", "999999999999d"), "more than the calendar holds"),
        (("--policy", "dedup", "--threshold", "7"), "--threshold 7.0 is not in [0, 1]"),
        (
            ("--policy", "value", "--max-items", 5, "--scope", "colour"),
            "'colour' is not 'agent_id'",
        ),
    ],
)
def test_a_wrong_setting_is_explained(
    store: Path, words: tuple[object, ...], expected: str
) -> None:
    assert expected in said("compact", store, *words, code=2)


def test_every_setting_of_every_policy_is_an_option() -> None:
    assert POLICIES.keys() - NAMED.keys() == {"all", "pipeline"}
    helped = " ".join(run("compact", "--help").output.split())
    for named in NAMED.values():
        assert named.origin in helped
        for setting in named.settings.values():
            assert setting.option in helped or setting.name == "vectorise"
            assert setting.help.partition(" ")[2] in helped or setting.name == "vectorise"


def test_help_names_every_policy_and_what_a_class_of_ones_own_takes(rules: Path) -> None:
    for command in ("compact", "compare", "fleet plan"):
        helped = run(*command.split(), "--policy", "house_rules:Modulo", "--help").output
        listed = helped.partition("Policies:")[2]
        assert [name for name in NAMED if name not in listed] == []
        for words in (
            *("Settings of house_rules:Modulo", "--set every=N", "one in so many goes"),
            *("[default: 0.5]", "--set order=old|new"),
        ):
            assert words in listed


def test_policies_are_compared_by_what_they_would_have_served() -> None:
    store = memlab.store_path("three_hundred_issues")
    words = ("--policy", "recent", "--policy", "tokens", "--keep-recent", 50, "--max-tokens", 3000)
    shown = run("compare", store, *words).output
    for expected in ("served", "at best", "deleted", "recent 50", "tokens 3000", "only here"):
        assert expected in shown
    retired = json.loads(run("compare", store, "--retire", "--json").output)
    tried = {row["label"] for row in retired if row["retire"]}
    assert {
        "recent 50, retired",
        "learned max_tokens=2000, retired",
        "tokens 2000, retired",
    } <= tried
    last = run("compare", store, "--policy", "learned", "--max-tokens", 2000, "--retire").output
    step = last.splitlines()[-1].strip().removeprefix("memlab ").partition("    ")[0]
    assert "--policy learned --max-" in step
    assert step.endswith(" --retire")
    assert "retires" in run(*shlex.split(step)).output
    fitting = json.loads(run("compare", store, *words, "--token-budget", 3000, "--json").output)
    assert all(row["boot_tokens_p95"] <= 3000 for row in fitting)
    assert "tokens 3000" in [row["label"] for row in fitting]


@pytest.mark.parametrize(
    "policy",
    [
        KeepRecent(30),
        TimeToLive(timedelta(days=30)),
        ValueCap(30, half_life=timedelta(hours=8)),
        Pipeline.odek(keep=200),
        EveryOther(1),
    ],
)
def test_what_is_typed_for_a_policy_makes_the_same_policy(policy: Policy) -> None:
    words = shlex.split(options_of(policy))
    shown = run("compact", memlab.store_path("three_hundred_issues"), *words, "--json")
    assert json.loads(shown.output)["policy"] == as_data(policy)
