"""Confusing phrases of earlier versions appear nowhere in the output."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import memlab
from memlab.cli import COMMANDS as COMMANDS_BY_NAME
from memlab.growth.summary import Pace, _pace_in_words
from tests.support.claude_store import memory, project_folder, write_index, write_memory
from tests.support.shell import output_of, run
from tests.support.stores import episodes, row, write_rows

NEVER: tuple[str, ...] = (
    "times without a zone",
    "in the plan's memories",
    "whole until something is written",
    "takes the place of the newest",
    "forge-loop's own doctor",
    "last 1 window",
    "windows of 1 days",
    "window of 1 days",
    "1 links",
    "1 memory stay:",
    "name a file that does not",
    "found a second time",
    "serve half the references",
    "loaded never",
    "a store that nothing ever goes from",
    "no longer fits the store is refused",
    "is none: ",
    "Not all at once, unsaid",
    "is until when it speaks",
    "What comes back takes up",
    "no store says by itself",
    "found out by looking",
    "It is meant that",
    "spoke until",
    ".reads.log",
    "is 0.02 meant",
    "What it keeps",
    "so that no number is too many",
    "which writes down no reads",
    "none is nearly one that protects",
    "what memlab.toml remembers",
    "boot context",
    "boot tokens",
)
"""Confusing phrases of earlier versions."""

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "docs" / "how").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "memlab").rglob("*.jinja")),
    *sorted((ROOT / "memlab").rglob("*.js")),
]
"""Documentation pages for users."""

COMMANDS = (
    "show {}",
    "size {}",
    "size {} --explain",
    "doctor {}",
    "rows {}",
    "compact {} --keep-recent 3",
    "compact {} --keep-recent 0 --all",
    "maintain {}",
    "floor {}",
    "archive {}",
    "lost {}",
    "init {}",
    "vacuum {}",
    "harvest {}",
    "rows {} --by need",
    "compare {} --policy recent --keep-recent 5",
    "fleet show {}",
    "fleet size {}",
)


@pytest.fixture
def zoneless(tmp_path: Path) -> Path:
    """Make a store of dates without a time zone and with repeated references."""
    rows = episodes(20)
    for day, columns in enumerate(rows, start=1):
        columns["created_at"] = f"2026-03-{day:02} 12:00:00"
    late = row(
        "late",
        supersedes_json='["e1"]',
        evidence_refs_json='["e1", "e1"]',
        created_at="2026-03-28 12:00:00",
    )
    return write_rows(tmp_path / "memory.db", [*rows, late])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a Claude Code folder of user and feedback notes that link to each other."""
    where = project_folder(tmp_path)
    write_memory(where, "one.md", memory("one", "feedback", body="See [two](two.md)."))
    write_memory(where, "two.md", memory("two", "user", body="Nothing else."))
    write_index(where, ["- [One](one.md)", "- [Two](two.md)"])
    return where


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("kind", ["zoneless", "folder"])
def test_no_command_prints_an_old_phrase(
    kind: str, arguments: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(kind)
    result = run(*arguments.format(store).split())
    assert [phrase for phrase in NEVER if phrase in result.output] == []


@pytest.mark.parametrize("name", sorted(COMMANDS_BY_NAME))
def test_no_help_text_has_an_old_phrase(name: str) -> None:
    help_text = " ".join(output_of(name, "--help").split())
    assert [phrase for phrase in NEVER if phrase in help_text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_documentation_page_has_an_old_phrase(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert [phrase for phrase in NEVER if phrase in text] == []


def test_no_message_has_an_old_phrase() -> None:
    forbidden = [phrase for phrase in NEVER if phrase != ".reads.log"]  # old logs are still read
    occurrences = []
    for file in sorted((ROOT / "memlab").rglob("*.py")):
        for text in texts_of(ast.parse(file.read_text(encoding="utf-8"))):
            occurrences += [(file.name, phrase) for phrase in forbidden if phrase in text]
    assert occurrences == []


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Yield the text literals of a module, with a mark for each formatted value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "0" for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def test_phrase_check_joins_split_strings() -> None:
    source = 'words = f"it {1} spoke " "until 764"'
    assert any("spoke until" in text for text in texts_of(ast.parse(source)))


def test_report_has_no_old_phrase(zoneless: Path, tmp_path: Path) -> None:
    output_of("report", zoneless, "-o", tmp_path / "page.html")
    text = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert [phrase for phrase in NEVER if phrase in text] == []


def test_dates_without_a_zone_are_counted_in_a_sentence(zoneless: Path) -> None:
    sentence = "21 dates have no time zone; read as UTC"
    for arguments in (("show", zoneless), ("size", zoneless), ("doctor", zoneless)):
        assert sentence in output_of(*arguments)


def test_repeated_mention_is_described_as_repeat(zoneless: Path) -> None:
    explained = output_of("size", zoneless, "--explain")
    assert "repeats of a reference that is counted already" in explained


def test_single_link_uses_the_singular(folder: Path) -> None:
    output = output_of("size", folder, "--explain")
    assert re.search("1 link(;|$)", output, re.MULTILINE)


def test_user_and_feedback_notes_are_not_called_decisions(folder: Path) -> None:
    for arguments in (("show", folder), ("doctor", folder)):
        output = output_of(*arguments)
        assert "decision" not in output
        assert "facts" in output
    assert "decision" in output_of("show", memlab.store_path("two_years"))


def test_plan_states_how_long_the_undo_is_exact(zoneless: Path) -> None:
    output = output_of("compact", zoneless, "--keep-recent", 0, "--all")
    assert "exact until the agent writes again" in output


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--confidence", "90", "; is 0.9 meant?"),
        ("--target", "90", "; is 0.9 meant?"),
        ("--target", "2", "; is 0.02 meant?"),
    ],
)
def test_invalid_share_has_a_hint(zoneless: Path, option: str, value: str, hint: str) -> None:
    assert hint in output_of("size", zoneless, option, value, code=2)


def test_hint_offers_only_accepted_values(zoneless: Path) -> None:
    assert "meant?" not in output_of("size", zoneless, "--confidence", "2", code=2)


def test_existing_plan_file_asks_for_a_new_name(zoneless: Path) -> None:
    result = run("compact", zoneless, "--keep-recent", 3, "--save-plan", zoneless)
    assert result.exit_code == 2
    assert "exists" in result.output
    assert "name a file that does not" not in result.output


def test_pace_states_its_days() -> None:
    last = datetime(2026, 3, 1, tzinfo=UTC)
    of_a_day = Pace(
        median=3.0,
        low=3.0,
        high=3.0,
        mean=3.0,
        while_active=3.0,
        windows=1,
        window_days=1.0,
        last_at=last,
    )
    assert _pace_in_words(of_a_day) == (
        "3.0 episodes a day (3.0 to 3.0 in the last day), the last on 2026-03-01"
    )


def test_pace_of_few_memories_is_a_count() -> None:
    last = datetime(2026, 3, 1, tzinfo=UTC)
    few = Pace(
        median=0.0,
        low=0.0,
        high=0.3,
        mean=2 / 56,
        while_active=0.1,
        windows=8,
        window_days=7,
        last_at=last,
    )
    pace = "2 episodes in the last 56 days, none in most weeks, the last on 2026-03-01"
    assert _pace_in_words(few) == pace


def test_size_explains_how_log_lines_become_needs() -> None:
    store = memlab.store_path("looked_up")
    output = output_of("size", store, "--log", store.with_suffix(".reads.jsonl"))
    (line,) = [line for line in output.splitlines() if line.startswith("  reads ")]
    assert "lines in the log, " in line
    assert "of them later needs" in line
    assert re.search(
        r"; age and use are compared on \d+ of these, at most one a day for each memory", line
    )


def test_deletion_within_one_minute_has_one_time() -> None:
    from memlab.evidence.losses import _deletion_time

    deleted_at = datetime(2026, 3, 1, 14, 34, tzinfo=UTC)
    assert _deletion_time(deleted_at, deleted_at + timedelta(seconds=20)) == "2026-03-01 14:34"
    later = deleted_at + timedelta(minutes=9)
    assert _deletion_time(deleted_at, later) == "2026-03-01 14:34 to 14:43"
    assert _deletion_time(deleted_at, deleted_at + timedelta(days=2)) == "2026-03-01 to 2026-03-03"
