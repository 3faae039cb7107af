"""Phrases that readers stumbled over are said plainly, on stores that once produced them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import memlab
from memlab.growth.summary import Pace, _pace_in_words
from tests.support.claude_store import memory, project_folder, write_index, write_memory
from tests.support.shell import run, said
from tests.support.stores import episodes, row, write_rows

NEVER: tuple[str, ...] = (
    "without a zone",
    "in the plan's memories",
    "whole until something is written",
    "forge-loop's own doctor",
    "last 1 window",
    "1 links",
    "1 memory stay:",
    "name a file that does not",
    "found a second time",
    "serve half the references",
    "loaded never",
    "nothing is remembered of",
    "found out by looking",
    "It is meant that",
    "spoke until",
    ".reads.log",
    "is 0.02 meant",
)
"""Phrases of earlier versions."""

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
)


@pytest.fixture
def zoneless(tmp_path: Path) -> Path:
    """A store whose dates have no time zone, and in which memories refer to each other twice."""
    twice = {"supersedes_json": '["e1"]', "evidence_refs_json": '["e1", "e1"]'}
    rows = [
        *(each | {"created_at": f"2026-03-{day:02} 12:00:00"} for day, each in days()),
        row("late", **twice, created_at="2026-03-28 12:00:00"),
    ]
    return write_rows(tmp_path / "memory.db", rows)


def days() -> list[tuple[int, dict[str, object]]]:
    return list(enumerate(episodes(20), start=1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of Claude Code whose user and feedback notes link to each other."""
    where = project_folder(tmp_path)
    write_memory(where, "one.md", memory("one", "feedback", body="See [two](two.md)."))
    write_memory(where, "two.md", memory("two", "user", body="Nothing else."))
    write_index(where, ["- [One](one.md)", "- [Two](two.md)"])
    return where


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("kind", ["zoneless", "folder"])
def test_no_command_says_an_old_phrase(
    kind: str, words: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(kind)
    done = run(*(word.format(store) for word in words.split()))
    assert [phrase for phrase in NEVER if phrase in done.output] == []


def test_no_help_says_an_old_phrase() -> None:
    for name in ("show", "size", "compact", "harvest", "apply", "doctor", "rows", "maintain"):
        helped = " ".join(said(name, "--help").split())
        assert [phrase for phrase in NEVER if phrase in helped] == []


def test_dates_without_a_zone_are_counted_in_a_sentence(zoneless: Path) -> None:
    sentence = "21 dates have no time zone; read as UTC"
    for words in (("show", zoneless), ("size", zoneless), ("doctor", zoneless)):
        assert sentence in said(*words)


def test_a_repeated_mention_is_called_one(zoneless: Path) -> None:
    explained = said("size", zoneless, "--explain")
    assert "repeats of a reference that is counted already" in explained


def test_one_link_is_one(folder: Path) -> None:
    assert "1 link;" in f"{said('size', folder, '--explain')};".replace("\n", ";")


def test_user_and_feedback_notes_are_no_decisions(folder: Path) -> None:
    for words in (("show", folder), ("doctor", folder)):
        done = said(*words)
        assert "decision" not in done
        assert "facts" in done
    assert "decision" in said("show", memlab.store_path("two_years"))


def test_what_goes_last_says_how_long_an_undo_is_exact(zoneless: Path) -> None:
    done = said("compact", zoneless, "--keep-recent", 0, "--all")
    assert "exact until the agent writes again" in done


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("--confidence", "2", ""),
        ("--confidence", "90", "; is 0.9 meant?"),
        ("--target", "90", "; is 0.9 meant?"),
        ("--target", "2", "; is 0.02 meant?"),
    ],
)
def test_a_hint_offers_only_what_is_accepted(
    zoneless: Path, option: str, value: str, meant: str
) -> None:
    done = run("size", zoneless, option, value)
    assert done.exit_code == 2
    assert ("meant?" in done.output) == bool(meant)
    assert meant in done.output


def test_a_file_that_exists_asks_for_a_new_one(zoneless: Path) -> None:
    done = run("compact", zoneless, "--keep-recent", 3, "--save-plan", zoneless)
    assert done.exit_code == 2
    assert "exists" in done.output
    assert "name a file that does not" not in done.output


def test_a_pace_says_its_days() -> None:
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


def test_size_explains_how_log_lines_become_needs() -> None:
    store = memlab.store_path("looked_up")
    found = said("size", store, "--log", store.with_suffix(".reads.jsonl"))
    (line,) = [line for line in found.splitlines() if line.startswith("  reads ")]
    assert "lines in the log, " in line
    assert "of them later needs" in line
    assert "at most one a day for each memory, tell whether age or use says more" in line


def test_a_deletion_between_copies_of_a_minute_has_one_time() -> None:
    from memlab.evidence.losses import _between

    seen = datetime(2026, 3, 1, 14, 34, tzinfo=UTC)
    assert _between(seen, seen + timedelta(seconds=20)) == "2026-03-01 14:34"
    assert _between(seen, seen + timedelta(minutes=9)) == "2026-03-01 14:34 to 14:43"
    assert _between(seen, seen + timedelta(days=2)) == "2026-03-01 to 2026-03-03"
