"""Real histories, written as they were, sized and compacted ten times on the way."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bench.bench_rounds import rounds_of


@pytest.mark.parametrize("name", ["history-arrow-rs", "history-uv", "history-bevy", "history-deno"])
def test_ten_rounds_choose_the_caps_of_the_history_that_was_never_compacted(
    real_store: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    rounds = list(rounds_of(real_store(name), tmp_path))
    assert len(rounds) == 10
    assert [one.cap for one in rounds] == [one.uncompacted for one in rounds]
    assert all(one.cap is not None for one in rounds)
    assert sum(one.deleted for one in rounds) > rounds[-1].written / 10
    references = sum(one.references for one in rounds[1:])
    assert sum(one.missed for one in rounds) < 0.1 * references
