"""Output on a terminal and in a pipe: width, colour, progress, shell completion."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from click import unstyle
from click.shell_completion import BashComplete
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.cli import main, output
from memlab.text import Table, TextPage, as_text, fitted_line
from tests.support.archives import compacted, leave_unfinished, planned
from tests.support.shell import output_of, run
from tests.support.stores import episodes, write_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t") / "memory.db"
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), path)


def on_a_terminal(width: int, *words: object, **variables: str) -> list[str]:
    """Return the lines that a command prints on a terminal of a width."""
    given = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    asked = ["-c", 'exec "$@" 2>/dev/null', "sh", sys.executable, "-m", "memlab", *map(str, words)]
    how = {"env": given | {"TERM": "vt100"} | variables, "dimensions": (40, width)}
    terminal = pexpect.spawn("sh", asked, timeout=300, encoding="utf-8", **how)
    written = terminal.read()
    terminal.close()
    assert terminal.exitstatus == 0, written
    return written.replace("\r\n", "\n").removesuffix("\x1b[0m").split("\n")


def test_no_output_line_is_wider_than_the_terminal(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    wide = run("size", store.name, "--explain").output
    assert max(map(len, wide.splitlines())) > 100  # lines are not wrapped
    assert "\x1b" not in wide
    for width in (60, 120):
        lines = list(map(unstyle, on_a_terminal(width, "size", store.name, "--explain")))
        breakable = [line for line in lines if not re.match(r"\s*(next: )?\s*memlab ", line)]
        assert max(map(len, breakable)) <= width
        numbers, narrow_numbers = (
            {*re.findall(r"\d[\d,.%]*", text)} for text in (wide, " ".join(lines))
        )
        assert numbers <= narrow_numbers


@pytest.mark.parametrize(
    "arguments", ["", "--unit tokens", "--token-budget 15000", "--unit tokens --token-budget 12000"]
)
def test_size_output_fits_a_screen(
    store: Path, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 80)
    lines = run("size", store.name, *arguments.split()).output.splitlines()
    assert len(lines) < 32
    explain = f"memlab size memory.db {arguments} --explain".split()
    assert any(line.split()[: len(explain)] == explain for line in lines)


def test_answer_is_coloured_if_the_terminal_supports_it(store: Path) -> None:
    lines = on_a_terminal(80, "size", store)
    marked = {unstyle(line).strip()[:12]: line for line in lines if "\x1b" in line}
    commands = [line for line in marked.values() if "memlab " in line]
    assert commands[0].startswith("next: \x1b[36mmemlab compact ")
    marked = {words: line for words, line in marked.items() if line not in commands}
    *answer, likely, safe = marked.values()
    assert unstyle(answer[0]).startswith("Compacting to the newest 531 episodes")
    colours = ["\x1b[1m"] * len(answer) + ["\x1b[33m     ", "\x1b[32m\x1b[1m"]
    assert list(marked)[-2:] == ["~ 177   90.0", "> 531   99.3"]
    for line, colour in zip([*answer, likely, safe], colours, strict=True):
        assert line.startswith(colour)
        assert line.endswith("\x1b[0m")
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_a_terminal(80, "size", store, **variables) == list(map(unstyle, lines))
    assert "\x1b" not in run("size", store).output


@given(
    line=st.lists(st.sampled_from(["memory", "a", "keep_recent", "  ", "12,345", ":"])).map(
        " ".join
    ),
    width=st.integers(40, 120),
)
def test_wrapping_keeps_all_words(line: str, width: int) -> None:
    lines = fitted_line(line, width)
    assert " ".join(lines).split() == line.split()
    assert all(len(line) <= width for line in lines)


def test_command_is_never_wrapped() -> None:
    command = f"memlab compact {'/a/long/path' * 10}.db --keep-recent 50"
    assert fitted_line(f"next: {command}    shows it", 60) == [
        f"next: {command}",
        "          shows it",
    ]
    text = as_text(TextPage("", [("undo", command), ("said", "word " * 30)], []), 60)
    assert f"  undo  {command}" in text.splitlines()
    assert all(len(line) <= 60 for line in text.splitlines() if "memlab" not in line)


def test_wide_table_wraps_without_breaking_words() -> None:
    header = ("cap", "limits", "tokens at 95%", "would go", "written", "of it", "days", "more")
    rows = [
        (cap, "90.0% to 100.0%", 28_303 * cap, 61, "2026-06-30", "81%", 161, 9) for cap in (1, 22)
    ]
    text = as_text(TextPage("", [], [Table("", header, rows)]), 60)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert len(re.findall(r"^ +22 ", text, re.MULTILINE)) > 1, "with its first column"
    assert "90.0% to 100.0%" in text
    assert {*" ".join(header).split(), "28,303", "622,666", "2026-06-30"} <= set(text.split())
    path = "/srv/of-the-house/agent-7"
    words = "it is well-known that " * 4
    text = as_text(TextPage("", [("at", words + path)], [Table("", (), [(words, path)])]), 60)
    assert text.split().count(path) == 2, "broken only where it fits no line"


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ([], (r"references +none: too few", r"odek 5 +– +–")),
        (["e3"], (r"references +1: too few to tell", r"odek 5 +0 of 1", "next: memlab size ")),
    ],
    ids=len,
)
def test_compare_with_few_references_shows_counts(
    tmp_path: Path, named: list[str], words: tuple[str, ...]
) -> None:
    rows = episodes(40)
    rows[30]["evidence_refs_json"] = json.dumps(named)
    store = write_rows(tmp_path / "memory.db", rows)
    asked = ("compare", store, "--policy", "odek", "--keep-recent", 5)
    output = output_of(*asked)
    assert [pattern for pattern in words if not re.search(pattern, output)] == []
    assert "was applied after every" not in output
    assert "after every 7 memories" in output_of(*asked, "--every", 7)


def coloured(page: str) -> dict[str, list[str]]:
    """Return the lines of a page, grouped by colour code."""
    lines: dict[str, list[str]] = {}
    for line in output._styled(page).split("\n"):
        code = re.search(r"\x1b\[(3\d)m", line)
        lines.setdefault(code[1] if code else "", []).append(unstyle(line))
    return lines


YELLOW = "33"
RED = "31"
CYAN = "36"


@pytest.fixture
def with_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("with_colour")
def test_wrapped_warning_keeps_its_colour(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    health = memlab.doctor(store, backlog=9)
    page = as_text(health.sheet(), 60)
    lines = coloured(page)
    warned = page.partition("WARN memory_integrity")[2].partition("\n  OK ")[0].splitlines()
    assert len(warned) > 2
    first, *rest = (line for line in lines[YELLOW] if "memory_integrity" in line or rest_of(line))
    assert first.startswith("  WARN memory_integrity")
    assert set(rest) >= {line for line in warned[1:] if "memlab " not in line}
    assert not [line for line in lines[YELLOW] if line.startswith("  OK ")]


def rest_of(line: str) -> bool:
    return line.startswith(" " * 10)


@pytest.mark.usefixtures("with_colour")
def test_alerts_deletions_and_commands_are_coloured(store: Path) -> None:
    overview = coloured(as_text(memlab.show(store).sheet(), 100))
    assert any("never compacted" in line for line in overview[YELLOW])
    assert any(line.strip().startswith("memlab size") for line in overview[CYAN])
    plan = memlab.plan(store, memlab.KeepRecent(5))
    planned = coloured(f"{plan.effect}\n{as_text(plan.sheet(), 100)}")
    assert [line.split()[0] for line in planned[RED]] == ["Deletes", "deletes"]
    steps = output._styled("undo: memlab restore m.db latest    takes it back", is_page=False)
    assert steps == "undo: \x1b[36mmemlab restore m.db latest\x1b[0m    takes it back"


def test_help_groups_policy_options_separately() -> None:
    for arguments in (("compact",), ("rows",), ("compare",), ("fleet", "plan")):
        helped = output_of(*arguments, "--help")
        own_options = helped.partition("\nOptions:\n")[2].partition("\nPolicy options:\n")[0]
        of_policies = helped.partition("\nPolicy options:\n")[2].partition("\nPolicies:\n")[0]
        assert "--help" in own_options
        assert "--keep-recent" not in own_options
        assert "--policy" not in own_options
        assert "--policy" in of_policies
        assert "--keep-recent" in of_policies
        assert "--json" not in of_policies


def test_slow_commands_show_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    at: list[str] = []
    monkeypatch.setattr(output, "show_progress", at.append)
    output_of("compact", store, "--keep-recent", 9)
    planned = ["planning", "planning: read", "planning: decided"]
    assert at == [*planned, "reading the later references"]
    at.clear()
    output_of("compact", store, "--keep-recent", 9, "--apply")
    assert at[:5] == [*planned, "reading the later references", "applying"]
    assert "applying: archived" in at


# Completion


def offered(*words: object, beginning: str = "") -> list[str]:
    shell = BashComplete(main, {}, "memlab", "_MEMLAB_COMPLETE")
    return [
        completion.value for completion in shell.get_completions(list(map(str, words)), beginning)
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("comp", "compare"),
        ("size --tar", "--target"),
        ("report --chart grow", "growth-tokens"),
        ("compact --policy va", "value"),
    ],
)
def test_commands_options_and_names_complete(typed: str, meant: str) -> None:
    *arguments, beginning = typed.split()
    assert meant in offered(*arguments, beginning=beginning)


def test_digests_complete_from_the_archive(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    assert offered("restore", store) == []
    first = compacted(store, 6).digest[:12]
    last = planned(store, 3)
    leave_unfinished(store, last)
    assert offered("restore", store) == ["latest", last.digest[:12], first]
    assert offered("restore", store, beginning="la") == ["latest"]
    assert offered("restore", store, beginning=first[:6]) == [first]
    assert offered("archive", store, "--drop") == offered("archive", store, "--digest")
    assert first in offered("archive", store, "--drop")
    assert offered("apply", store) == [last.digest[:12]], "what is to be finished"
    store.with_name("memory.db.archive.db").write_text("no archive")
    for arguments in (("restore", store), ("restore", "no://store"), ("archive", "--drop")):
        assert offered(*arguments) == []


KNOWN = {
    "bash": "{line}; complete -p memlab",
    "zsh": "autoload -Uz compinit && compinit -u; {line}; print $_comps[memlab]",
    "fish": "{line}; complete -c memlab",
}
"""For each shell, a script that runs the startup line and prints the completion of memlab."""


@pytest.mark.parametrize("shell", KNOWN)
def test_documented_completion_line_works_in_each_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    page = Path(__file__).parents[2].joinpath("docs/reference/commands.md").read_text()
    line = next(line for line in page.splitlines() if f"{shell}_source" in line).partition("#")[0]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(tmp_path), "PATH": path}
    asked = [shell, "-c", KNOWN[shell].format(line=line.strip())]
    output = subprocess.run(
        asked, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "_memlab_completion" in output
