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
    environment = os.environ | {"TERM": "vt100"} | variables
    environment.pop("COLUMNS", None)
    arguments = ["-c", 'exec "$@" 2>/dev/null', "sh", sys.executable, "-m", "memlab"]
    arguments += map(str, words)
    terminal = pexpect.spawn(
        "sh",
        arguments,
        timeout=300,
        encoding="utf-8",
        env=environment,
        dimensions=(40, width),
    )
    output = terminal.read()
    terminal.close()
    assert terminal.exitstatus == 0, output
    return output.replace("\r\n", "\n").removesuffix("\x1b[0m").split("\n")


@pytest.mark.parametrize("width", [60, pytest.param(120, marks=pytest.mark.long)])
def test_no_output_line_is_wider_than_the_terminal(
    store: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.chdir(store.parent)
    wide = run("size", store.name, "--explain").output
    assert max(map(len, wide.splitlines())) > 100  # lines are not wrapped
    assert "\x1b" not in wide
    lines = list(map(unstyle, on_a_terminal(width, "size", store.name, "--explain")))
    breakable = [line for line in lines if not re.match(r"\s*(next: )?\s*memlab ", line)]
    assert max(map(len, breakable)) <= width
    assert numbers_in(wide) <= numbers_in(" ".join(lines))


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,.%]*", text))


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
    explain = " ".join(f"memlab size memory.db {arguments} --explain".split())
    assert any(" ".join(line.split()).startswith(explain) for line in lines)


def test_answer_is_coloured_if_the_terminal_supports_it(store: Path) -> None:
    lines = on_a_terminal(80, "size", store)
    coloured_lines = [line for line in lines if "\x1b" in line]
    commands = [line for line in coloured_lines if "memlab " in line]
    assert commands[0].startswith("next: \x1b[36mmemlab compact ")
    *answer, likely, safe = [line for line in coloured_lines if line not in commands]
    assert unstyle(answer[0]).startswith("Compacting to the newest 531 episodes")
    for line in answer:
        assert line.startswith("\x1b[1m")
    assert likely.startswith("\x1b[33m     ")
    assert unstyle(likely).strip().startswith("~ 177   90.0")
    assert safe.startswith("\x1b[32m\x1b[1m")
    assert unstyle(safe).strip().startswith("> 531   99.3")
    for line in (*answer, likely, safe):
        assert line.endswith("\x1b[0m")
    assert "\x1b" not in run("size", store).output


NO_COLOUR_WANTED = [{"NO_COLOR": "1"}, {"TERM": "dumb"}]


@pytest.mark.long
@pytest.mark.parametrize("variables", NO_COLOUR_WANTED, ids=str)
def test_answer_is_not_coloured_if_colour_is_not_wanted(
    store: Path, variables: dict[str, str]
) -> None:
    coloured_lines = on_a_terminal(80, "size", store)
    assert on_a_terminal(80, "size", store, **variables) == list(map(unstyle, coloured_lines))


WORDS = st.lists(st.sampled_from(["memory", "a", "keep_recent", "  ", "12,345", ":"]))


@given(words=WORDS, width=st.integers(40, 120))
def test_wrapping_keeps_all_words(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = fitted_line(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width for line in lines)


def test_command_is_never_wrapped() -> None:
    command = f"memlab compact {'/a/long/path' * 10}.db --keep-recent 50"
    assert fitted_line(f"next: {command}    shows it", 60) == [
        f"next: {command}",
        "          shows it",
    ]
    text = as_text(TextPage("", [("undo", command), ("said", "word " * 30)], []), 60)
    assert f"  undo  {command}" in text.splitlines()
    other_lines = [line for line in text.splitlines() if "memlab" not in line]
    assert max(map(len, other_lines)) <= 60


def test_wide_table_wraps_without_breaking_words() -> None:
    header = ("cap", "limits", "tokens at 95%", "would go", "written", "of it", "days", "more")
    rows = [
        (1, "90.0% to 100.0%", 28_303, 61, "2026-06-30", "81%", 161, 9),
        (22, "90.0% to 100.0%", 622_666, 61, "2026-06-30", "81%", 161, 9),
    ]
    text = as_text(TextPage("", [], [Table("", header, rows)]), 60)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert len(re.findall(r"^ +22 ", text, re.MULTILINE)) > 1, "with its first column"
    assert "90.0% to 100.0%" in text
    words = text.split()
    assert set(" ".join(header).split()) <= set(words)
    assert "28,303" in words
    assert "622,666" in words
    assert "2026-06-30" in words


def test_path_is_broken_only_if_it_fits_no_line() -> None:
    path = "/srv/of-the-house/agent-7"
    words = "it is well-known that " * 4
    text = as_text(TextPage("", [("at", words + path)], [Table("", (), [(words, path)])]), 60)
    assert text.split().count(path) == 2


@pytest.mark.parametrize(
    ("references", "patterns"),
    [
        ([], (r"references +none: too few", r"odek 5 +– +–")),
        (
            ["e3"],
            (r"references +1 later need: too few to tell", r"odek 5 +0 of 1", "next: memlab size "),
        ),
    ],
    ids=["no reference", "one reference"],
)
def test_compare_with_few_references_shows_counts(
    tmp_path: Path, references: list[str], patterns: tuple[str, ...]
) -> None:
    rows = episodes(40)
    rows[30]["evidence_refs_json"] = json.dumps(references)
    store = write_rows(tmp_path / "memory.db", rows)
    compare = ("compare", store, "--policy", "odek", "--keep-recent", 5)
    output = output_of(*compare)
    assert [pattern for pattern in patterns if not re.search(pattern, output)] == []
    assert "was applied after every" not in output
    assert "after every 7 memories" in output_of(*compare, "--every", 7)


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
    yellow_lines = coloured(page)[YELLOW]
    warning = page.partition("WARN memory_integrity")[2].partition("\n  OK ")[0]
    continuation = warning.splitlines()[1:]
    assert len(continuation) > 1
    (first,) = [line for line in yellow_lines if "memory_integrity" in line]
    assert first.startswith("  WARN memory_integrity")
    yellow_continuation = yellow_lines[yellow_lines.index(first) + 1 :]
    assert set(yellow_continuation) >= {line for line in continuation if "memlab " not in line}
    assert not [line for line in yellow_lines if line.startswith("  OK ")]


@pytest.mark.usefixtures("with_colour")
@pytest.mark.parametrize("variables", NO_COLOUR_WANTED, ids=str)
def test_page_is_not_styled_if_colour_is_not_wanted(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "A title\n  WARN a warning\nnext: memlab show memory.db"
    assert output._styled(page) != page
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert output._styled(page) == page


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
    for command in ("compact", "rows", "compare", "fleet plan"):
        help_text = output_of(*command.split(), "--help")
        after_options = help_text.partition("\nOptions:\n")[2]
        own_options, _, after_own = after_options.partition("\nPolicy options:\n")
        policy_options = after_own.partition("\nPolicies:\n")[0]
        assert "--help" in own_options
        assert "--keep-recent" not in own_options
        assert "--policy" not in own_options
        assert "--policy" in policy_options
        assert "--keep-recent" in policy_options
        assert "--json" not in policy_options


def test_slow_commands_show_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    steps: list[str] = []
    monkeypatch.setattr(output, "show_progress", steps.append)
    output_of("compact", store, "--keep-recent", 9)
    dry_run = [
        "planning",
        "planning: read",
        "planning: decided",
        "reading the later references",
    ]
    assert steps == dry_run
    steps.clear()
    output_of("compact", store, "--keep-recent", 9, "--apply")
    assert steps[:5] == [*dry_run, "applying"]
    assert "applying: archived" in steps


# Completion


def completions(*words: object, beginning: str = "") -> list[str]:
    """List the completions of the beginning of a word, after other words of a command."""
    shell = BashComplete(main, {}, "memlab", "_MEMLAB_COMPLETE")
    arguments = [str(word) for word in words]
    return [completion.value for completion in shell.get_completions(arguments, beginning)]


@pytest.mark.parametrize(
    ("typed", "completion"),
    [
        ("comp", "compare"),
        ("size --tar", "--target"),
        ("report --chart grow", "growth-tokens"),
        ("compact --policy va", "value"),
    ],
)
def test_commands_options_and_names_complete(typed: str, completion: str) -> None:
    *words, beginning = typed.split()
    assert completion in completions(*words, beginning=beginning)


def test_digests_complete_from_the_archive(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    assert completions("restore", store) == []
    applied = compacted(store, 6).digest[:12]
    unfinished_plan = planned(store, 3)
    leave_unfinished(store, unfinished_plan)
    unfinished = unfinished_plan.digest[:12]
    assert completions("restore", store) == ["latest", unfinished, applied]
    assert completions("restore", store, beginning="la") == ["latest"]
    assert completions("restore", store, beginning=applied[:6]) == [applied]
    assert completions("archive", store, "--drop") == completions("archive", store, "--digest")
    assert applied in completions("archive", store, "--drop")
    assert completions("apply", store) == [unfinished]
    store.with_name("memory.db.archive.db").write_text("no archive")
    assert completions("restore", store) == []
    assert completions("restore", "no://store") == []
    assert completions("archive", "--drop") == []


PRINT_COMPLETION = {
    "bash": "{line}; complete -p memlab",
    "zsh": "autoload -Uz compinit && compinit -u; {line}; print $_comps[memlab]",
    "fish": "{line}; complete -c memlab",
}
"""For each shell, a script that runs the startup line and prints the completion of memlab."""


@pytest.mark.parametrize("shell", PRINT_COMPLETION)
def test_documented_completion_line_works_in_each_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    page = Path(__file__).parents[2].joinpath("docs/reference/commands.md").read_text()
    (documented,) = [line for line in page.splitlines() if f"{shell}_source" in line]
    line = documented.partition("#")[0].strip()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [shell, "-c", PRINT_COMPLETION[shell].format(line=line)],
        env=os.environ | {"HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_memlab_completion" in result.stdout
