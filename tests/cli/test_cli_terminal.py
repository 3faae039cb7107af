"""On a terminal output fits its width; for a pipe it is plain; shells complete commands."""

import json
import os
import re
import sys
import time
from io import StringIO
from pathlib import Path
from typing import ClassVar

import pexpect
import pytest
from click import unstyle
from hypothesis import given
from hypothesis import strategies as st
from shell import run
from stores import episodes, write_rows

import memlab
from memlab.cli import main, output
from memlab.cli.output import Working
from memlab.compaction.contents import archived_plans
from memlab.text import Sheet, Table, as_text, fitted_line

MEMLAB = (sys.executable, "-m", "memlab")
COMMAND = re.compile(r"\s*(next: )?\s*memlab ")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t") / "memory.db"
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), path)


def on_a_terminal(width: int, *words: object, **variables: str) -> list[str]:
    """What a command leaves on a terminal so wide, line by line."""
    given = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    asked = ["-c", 'exec "$@" 2>/dev/null', "sh", *MEMLAB, *map(str, words)]
    how = {"env": given | {"TERM": "vt100"} | variables, "dimensions": (40, width)}
    terminal = pexpect.spawn("sh", asked, timeout=300, encoding="utf-8", **how)
    written = terminal.read()
    terminal.close()
    assert terminal.exitstatus == 0, written
    return written.replace("\r\n", "\n").removesuffix("\x1b[0m").split("\n")


def test_a_terminal_shows_no_line_wider_than_it_is(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    wide = run("size", store.name, "--explain").output
    assert max(map(len, wide.splitlines())) > 100  # as long as they are
    assert "\x1b" not in wide
    for width in (60, 120):
        lines = list(map(unstyle, on_a_terminal(width, "size", store.name, "--explain")))
        assert [line for line in lines if len(line) > width and not COMMAND.match(line)] == []
        assert numbers(wide) <= numbers(" ".join(lines))


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,.%]*", text))


@pytest.mark.parametrize(
    "words", ["", "--unit tokens", "--token-budget 15000", "--unit tokens --token-budget 12000"]
)
def test_a_size_and_the_prompt_after_it_fit_a_screen(
    store: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 80)
    lines = run("size", store.name, *words.split()).output.splitlines()
    assert len(lines) < 24
    by = "--unit tokens " if "--unit" in words else ""
    explain = f"memlab size memory.db {by}--explain".split()
    assert any(line.split()[: len(explain)] == explain for line in lines)


def test_the_answer_stands_out_where_colour_is_wanted(store: Path) -> None:
    lines = on_a_terminal(80, "size", store)
    marked = {unstyle(line).strip()[:12]: line for line in lines if "\x1b" in line}
    assert list(marked) == ["keep_recent ", "rests on is ", "~ 178   90.0", "> 529   99.2"]
    colours = ["\x1b[1mkeep", "\x1b[1mrests", "\x1b[33m     ", "\x1b[32m\x1b[1m"]
    for line, colour in zip(marked.values(), colours, strict=True):
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
def test_a_line_keeps_its_words_in_any_width(line: str, width: int) -> None:
    lines = fitted_line(line, width)
    assert " ".join(lines).split() == line.split()
    assert all(len(each) <= width for each in lines)


def test_a_command_is_never_broken() -> None:
    command = f"next: memlab compact {'/a/long/path' * 10}.db --keep-recent 50"
    assert fitted_line(command, 60) == [command]
    assert fitted_line(f"{command}    shows it", 60) == [command, "          shows it"]


def test_a_command_among_facts_is_not_broken_either() -> None:
    command = f"memlab restore {'/a/long/path' * 6}.db f9ceaaa451a3"
    shown = as_text(Sheet("", [("undo", command), ("said", "word " * 30)], []), 60)
    assert f"  undo  {command}" in shown.splitlines()
    assert all(len(line) <= 60 for line in shown.splitlines() if "memlab" not in line)


def test_a_table_too_wide_goes_on_below_with_its_first_column() -> None:
    header = ("cap", *(f"number {letter}" for letter in "abcdefgh"))
    rows = [(cap, *range(1_000_000 * cap, 1_000_000 * cap + 8)) for cap in (1, 22)]
    shown = as_text(Sheet("", [], [Table("", header, rows)]), 60)
    assert all(len(line) <= 60 for line in shown.splitlines())
    assert len(re.findall(r"^ +22 ", shown, re.MULTILINE)) > 1
    for row in rows:
        assert all(f"{cell:,}" in shown for cell in row)


def test_a_table_breaks_no_number_no_date_and_no_word_of_its_header() -> None:
    header = ("keep_recent", "limits", "tokens at 95%", "would go", "written", "of it", "days")
    rows = [(531, "90.0% to 100.0%", 28_303, 61, "2026-06-30", "81% / 0%", 161)] * 2
    shown = as_text(Sheet("", [], [Table("", header, rows)]), 60)
    assert all(len(line) <= 60 for line in shown.splitlines())
    words = shown.split()
    for word in " ".join((*header, "90.0% to 100.0% 28,303 2026-06-30 161")).split():
        assert word in words
    assert "90.0% to 100.0%" in shown


def test_what_takes_long_says_so_and_leaves_nothing_behind(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.cli.output.PATIENCE", 0.01)
    working = Working("sizing")
    working.start()
    until = time.monotonic() + 30
    said = ""
    while "sizing …" not in said and time.monotonic() < until:
        time.sleep(0.01)
        said += capfd.readouterr().err
    working.stop()
    said += capfd.readouterr().err
    assert re.search(r"\rsizing … \d+ s", said)
    assert said.endswith("\r")
    assert said.split("\r")[-2].strip() == ""


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ([], (r"references +none: too few", r"odek 5 +– +–")),
        (["e3"], (r"references +1: too few to tell", r"odek 5 +0 of 1", "next: memlab size ")),
    ],
    ids=len,
)
def test_a_comparison_says_too_few_references_as_counts_and_how_often_policies_are_applied(
    tmp_path: Path, named: list[str], words: tuple[str, ...]
) -> None:
    rows = episodes(40)
    rows[30]["evidence_refs_json"] = json.dumps(named)
    path = write_rows(tmp_path / "memory.db", rows)
    asked = ("compare", path, "--policy", "odek", "--keep-recent", "5")
    shown = run(*asked).output
    assert [each for each in words if not re.search(each, shown)] == []
    assert "was applied after every" not in shown
    assert "after every 7 memories" in run(*asked, "--every", 7).output


class Watched(Working):
    """Keeps what it says in place of writing it."""

    said: ClassVar[list[str]] = []

    def start(self) -> None:
        pass

    def __setattr__(self, name: str, value: object) -> None:
        if name == "doing":
            self.said.append(str(value))
        super().__setattr__(name, value)


def said_by(monkeypatch: pytest.MonkeyPatch, *words: object) -> list[str]:
    """What a command says on a terminal while it works."""

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(output, "Working", Watched)
    monkeypatch.setattr(sys, "stderr", Terminal())
    Watched.said.clear()
    main([str(word) for word in words], standalone_mode=False)
    assert not output._running
    return Watched.said.copy()


def test_commands_that_may_take_minutes_say_on_a_terminal_what_they_are_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(30))
    (tmp_path / "memlab.toml").write_text('protected_tags = ["kept"]\n')
    planning = ["working", "planning", "planning: read", "planning: decided"]
    capped = ("compact", path, "--keep-recent", "9")
    costing = "looking at what was referred to later"
    shown = said_by(monkeypatch, *capped, "--save-plan", tmp_path / "plan.json")
    assert shown == [*planning, costing]
    shown = said_by(monkeypatch, *capped, "--apply")
    assert shown[:5] == [*planning, "applying"]
    assert "applying: archived" in shown
    digest = archived_plans(path)[-1].digest
    shown = said_by(monkeypatch, "restore", path, digest)
    assert shown[:3] == ["working", "restoring", "restoring: locked"]
    assert said_by(monkeypatch, "size", path)[1:] == ["reading the store and sizing it"]
