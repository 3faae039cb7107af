"""Policies of installed packages, offered by ``memlab.policies`` entry points."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from zipfile import ZipFile

import pytest

import memlab
from memlab.errors import PolicyError
from memlab.policies import KeepRecent, policy_named
from memlab.policies.named import as_setting, policy_in
from memlab.settings import Settings
from tests.support.shell import output_of

CODE = '''
from dataclasses import dataclass, field

import pandas as pd

import memlab


@dataclass(frozen=True)
class EveryNth(memlab.Policy):
    """Delete every nth prunable memory."""

    n: int = field(default=2, metadata={"help": "which memories go", "least": 1, "size": True})

    def evict(self, rows, *, now):
        return pd.Series("every nth", index=rows.index[:: self.n])


no_policy = 5
'''


def wheel(folder: Path, package: str, offers: dict[str, str]) -> Path:
    """Write a wheel with the module ``PACKAGE_rules`` and entry points of policies."""
    info = f"{package}-1.0.dist-info"
    points = "".join(f"{name} = {value}\n" for name, value in offers.items())
    files = {
        f"{package}_rules.py": CODE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[memlab.policies]\n{points}",
    }
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)
    return path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an empty folder for packages on Python's path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def unpack(folder: Path, package: str, **offers: str) -> None:
    """Put a package where pip would, which takes an interpreter longer."""
    with ZipFile(wheel(folder.parent, package, offers)) as archive:
        archive.extractall(folder)
    sys.modules.pop(f"{package}_rules", None)


def install(folder: Path, package: str, **offers: str) -> None:
    path = wheel(folder.parent, package, offers)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), str(path)], check=True, capture_output=True)
    sys.modules.pop(f"{package}_rules", None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    memlab.copy_store(memlab.store_path("three_hundred_issues"), path)
    return path


def test_installed_policy_is_available_by_name(installed: Path, store: Path) -> None:
    install(installed, "nth", nth="nth_rules:EveryNth")
    assert policy_named("nth").origin == "nth_rules:EveryNth"
    plan = output_of("compact", store, "--policy", "nth", "--set", "n=3")
    assert "every nth" in plan
    assert "of the installed package nth" in output_of("compact", "--help")


def test_settings_store_the_name_of_an_installed_policy(installed: Path) -> None:
    unpack(installed, "nth", nth="nth_rules:EveryNth")
    policy = policy_named("nth").make(n=4)
    chosen = as_setting(policy)
    assert chosen == {"name": "nth", "n": 4}
    assert policy_in(Settings(policy=chosen)) == policy


def test_built_in_policy_takes_precedence(installed: Path) -> None:
    unpack(installed, "nth", recent="nth_rules:EveryNth")
    assert policy_named("recent").make(5) == KeepRecent(5)
    assert "of the installed package" not in output_of("compact", "--help")


BROKEN = {
    "a missing module": ("nowhere:EveryNth", "package nth cannot be imported: ModuleNotFoundError"),
    "a missing class": ("nth_rules:Missing", "package nth cannot be imported: AttributeError"),
    "no policy": ("nth_rules:no_policy", "is not a policy: a policy is a class with memlab.Policy"),
}


@pytest.mark.parametrize(("value", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_package_is_named_and_other_policies_work(
    installed: Path, value: str, message: str
) -> None:
    unpack(installed, "nth", nth=value)
    with pytest.raises(PolicyError, match=message):
        policy_named("nth")
    assert policy_named("ttl").name == "ttl"


def test_policy_name_offered_twice_is_rejected(installed: Path) -> None:
    unpack(installed, "nth", nth="nth_rules:EveryNth")
    unpack(installed, "other", nth="other_rules:EveryNth")
    with pytest.raises(PolicyError, match="the packages nth and other both offer a policy 'nth'"):
        policy_named("nth")


def test_unknown_policy_name_lists_installed_policies(installed: Path) -> None:
    unpack(installed, "nth", nth="nth_rules:EveryNth")
    with pytest.raises(PolicyError, match=r"'mth' is not a policy: name one of recent.*, nth, or"):
        policy_named("mth")


def test_a_policy_can_implement_a_protocol() -> None:
    class Named(Protocol):
        def greeting(self) -> str: ...

    @dataclass(frozen=True)
    class Greeting(memlab.KeepRecent, Named):
        def greeting(self) -> str:
            return f"keeps {self.keep}"

    assert Greeting(3).greeting() == "keeps 3"
    assert isinstance(Greeting(3), memlab.Policy)
    assert not isinstance(3, memlab.Policy)
