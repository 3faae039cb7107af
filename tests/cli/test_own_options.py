"""Policy settings are given by the options that the policy declares."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

import memlab.policies
from memlab.policies import KeepRecent
from memlab.policies.named import NAMED, _entry_of_class
from tests.support.shell import output_of, run
from tests.support.stores import episodes, write_rows


@dataclass(frozen=True)
class KeepWeeks(KeepRecent):
    """Keep the newest weeks; the field `keep` declares its own option."""

    keep: int = field(
        default=4, metadata={"help": "weeks to keep", "option": "--keep-weeks", "least": 0}
    )
    name: ClassVar[str] = "weeks"


def test_policy_option_sets_the_declared_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(8))
    monkeypatch.setitem(NAMED, "weeks", _entry_of_class("weeks", KeepWeeks))
    output = output_of("compact", store, "--policy", "weeks", "--keep-weeks", 3)
    assert ":KeepWeeks(keep=3" in output
    assert "  --keep-recent 2\n" in output_of("compact", store, "--keep-recent", 2)
    wrong = run("compact", store, "--policy", "weeks", "--ttl", "3d")
    assert wrong.exit_code == 2
    assert "ttl is not a setting of the policy 'weeks'" in wrong.output
    assert memlab.policies.policy_named("weeks").make(keep=3) == KeepWeeks(3)
