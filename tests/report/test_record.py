"""The decision record: what was decided, on which evidence, in Markdown."""

from datetime import UTC, datetime
from pathlib import Path

from stores import episodes, write_rows

import memlab
from memlab.report import decision_record

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def test_a_record_says_of_one_memory_that_it_is_one(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(2))
    plan = memlab.plan(store, memlab.KeepRecent(1))
    advice = memlab.recommend_cap(memlab.load_past(store))
    record = decision_record(advice, plan, now=NOW, receipt=memlab.apply(plan))
    assert "| deletes | 1 of 2 memories |" in record
    assert "→ 1 memory, " in record
    assert " UTC, 1 memory deleted and archived; undo: " in record
