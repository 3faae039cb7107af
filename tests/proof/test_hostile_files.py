"""Whatever a store's file holds, memlab ends with a result or one of its errors."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from programs import Children, forked

from proof import examining
from proof.examining import Examiner
from proof.readers import READERS, Store

FILES = int(os.environ.get("MEMLAB_HOSTILE_FILES", "300"))
"""How many mutated stores are used, from seed 0 on: more of them are a night's work."""
SPOILT = FILES if "MEMLAB_HOSTILE_FILES" in os.environ else 60
"""How many times files of each reader are spoilt."""


@pytest.fixture(scope="module")
def examiners() -> Iterator[Children]:
    with forked("proof.test_hostile_files") as made:
        yield made


def verdicts(
    examiner_in: Callable[[Path], Any], seeds: range, scratch: Path, examiners: Children
) -> list[str]:
    """Have seeds examined; return what is wrong with some of them, a child's death too."""
    found = []
    while seeds:
        told = {"examiner_in": examiner_in, "seeds": seeds[:500], "folder": scratch}
        ended = examiners.run(examining.examine, **told)
        if ended.code:
            died = int((scratch / examining.SEED).read_text())
            found.append(f"seed {died}: the process ended with {ended.code}")
            seeds = seeds[seeds.index(died) + 1 :]
            continue
        assert ended.error is None
        found += ended.result
        seeds = seeds[500:]
    return found


@pytest.mark.parametrize("reader", READERS)
def test_every_hostile_file_ends_in_a_result_or_an_error(
    reader: str, scratch: Path, examiners: Children
) -> None:
    seeds = range(FILES if reader == Store.name else SPOILT)
    assert verdicts(partial(Examiner, reader), seeds, scratch, examiners) == []


@pytest.mark.parametrize("reader", READERS)
def test_what_nobody_spoilt_is_read_and_changed(reader: str, tmp_path: Path) -> None:
    made = READERS[reader](tmp_path)
    made.make()
    for use in (*made.looks(), *made.changes()):
        use()
    made.check()
