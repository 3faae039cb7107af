"""The README agrees with the package."""

import re
import shlex
import sys
from doctest import ELLIPSIS, OutputChecker
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

import memlab
from memlab.cli import COMMANDS, main
from memlab.lazy import install_command
from memlab.policies import NAMED

CHECKOUT = Path(__file__).resolve().parent.parent
README = (CHECKOUT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def test_ci_runs_the_test_command_and_leaves_nothing_out() -> None:
    report, tests = (block.strip() for block in blocks("sh"))
    assert report.endswith("memlab report")
    assert tests.endswith("pytest")
    assert f"{tests} --all" in (CHECKOUT / ".ci" / "run").read_text().splitlines()


def test_every_command_mentioned_exists() -> None:
    assert set(re.findall(r"memlab ([a-z]+)(?: [A-Z\[]| \w+\.db)", README)) <= set(COMMANDS)


def test_policy_table_of_the_guide_is_complete() -> None:
    table = (CHECKOUT / "docs" / "guides" / "policies.md").read_text()
    named = dict(re.findall(r"^\| `(\w[\w-]*)` \| .*? \| (.*?) \|$", table, re.MULTILINE))
    assert named == {name: policy.origin for name, policy in NAMED.items()}


@pytest.mark.parametrize("block", blocks("console"))
def test_sample_output_is_what_the_command_prints(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--example" not in block:
        memlab.copy_store(memlab.store_path("three_hundred_issues"), "memory.db")
    command, _, expected = block.removeprefix("$ memlab ").partition("\n")
    result = CliRunner().invoke(main, command.split(), catch_exceptions=False)
    output, wanted = (
        "\n".join(map(str.rstrip, page.splitlines())) for page in (result.output, expected)
    )
    assert OutputChecker().check_output(wanted, output, ELLIPSIS)


def test_quoted_answer_is_that_of_the_bundled_store() -> None:
    (quoted,) = re.findall(r"^> (.*)$", README, re.MULTILINE)
    assert memlab.size(memlab.store_path("two_years")).answer.startswith(quoted)


def test_lab_is_installed_and_opened_by_one_line() -> None:
    (line,) = blocks("shell")
    assert "'.[lab]'" in line
    assert line.strip().endswith("memlab lab")


INSTALLS = re.compile(r"pip install (?:-\S+ |\[[^\]]*\] )*['\"]?memlab\b(?!-\d)")


def test_no_page_installs_memlab_from_an_index() -> None:
    texts = [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]
    texts += [*(CHECKOUT / "memlab").rglob("*.py"), *(CHECKOUT / "notebooks").glob("*.ipynb")]
    misleading = [path for path in texts if INSTALLS.search(path.read_text())]
    assert misleading == []
    assert INSTALLS.search("pip install --no-deps memlab")
    assert INSTALLS.search("pip install 'memlab[valkey]'")


def test_install_hint_of_an_extra_names_its_packages() -> None:
    stated = [Requirement(requirement) for requirement in requires("memlab") or ()]
    extras = sorted(metadata("memlab").get_all("Provides-Extra") or ())
    assert "report" in extras
    for extra in extras:
        arguments = shlex.split(install_command(extra))
        assert arguments[:4] == [sys.executable, "-m", "pip", "install"]
        named = {Requirement(word).name for word in arguments[4:]}
        needed = {
            requirement.name
            for requirement in stated
            if requirement.marker is not None and f'extra == "{extra}"' in str(requirement.marker)
        }
        assert named == needed
        assert "memlab" not in named


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run_and_restore_the_store(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    memlab.copy_store(memlab.store_path("three_hundred_issues"), "memory.db")
    before = memlab.load("memory.db")
    exec(compile(block, "README.md", "exec"), {})
    assert memlab.load("memory.db").equals(before)


def test_changelog_has_a_section_for_this_version() -> None:
    assert f"## {memlab.__version__}" in (CHECKOUT / "CHANGELOG.md").read_text()
