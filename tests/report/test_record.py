"""The decision record: what was decided, on which evidence, in Markdown."""

from datetime import UTC, datetime
from pathlib import Path

from stores import episodes, write_rows

import memlab
from memlab.report import decision_record

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def test_a_record_says_which_of_the_numbers_was_chosen_and_how_such_did(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("two_years"), tmp_path / "memory.db")
    advice = memlab.recommend_cap(store)
    for number, name in ((advice.keep_recent, "safe"), (advice.likely, "likely")):
        record = decision_record(advice, memlab.plan(store, memlab.KeepRecent(number)), now=NOW)
        assert f"| cap | `keep_recent = {number}`, the {name} one |" in record
        assert f"| track record | {advice.track_record} |" in record


def test_a_record_says_of_one_memory_that_it_is_one(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(2))
    plan = memlab.plan(store, memlab.KeepRecent(1))
    advice = memlab.recommend_cap(memlab.load_past(store))
    record = decision_record(advice, plan, now=NOW, receipt=memlab.apply(plan))
    assert "| deletes | 1 of 2 memories |" in record
    assert "→ 1 memory, " in record
    assert "| cap | `keep_recent = 1`, chosen by hand |" in record
    assert f"| by the evidence | {advice.numbers} |" in record
    assert (
        advice.numbers == f"keep_recent = {advice.keep_recent} is safe, {advice.likely} is likely"
    )
    assert "| track record | none |" in record
    assert " UTC, 1 memory deleted and archived; undo: " in record
