"""``memlab floor``: the load-bearing memories, what they cost, and which repeat another."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from stores import episodes, row, write_rows

import memlab
from memlab.cli import main
from memlab.policies.twins import load_bearing_twins

pytest.importorskip("sklearn")

TEXT = "the build cache lives beside the lock file and is never shared between two machines"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "memory.db",
        [
            row("d1", "semantic", title="cache", body=TEXT),
            row("s1", "procedural", title="cache", body=TEXT),
            row("d2", "semantic", title="cache", body=TEXT + " again"),
            row("d3", "semantic", title="cache", body=TEXT + " again"),
            row("d4", "semantic", title="tests", body="run the slow ones before a release " * 9),
            *episodes(5),
        ],
    )


def test_older_twins_of_one_kind_are_found_with_the_newest_that_repeats_them(store: Path) -> None:
    twins = load_bearing_twins(memlab.load(store, with_body=True))
    pairs = dict(zip(twins["memory_id"], twins["superseded_by"], strict=True))
    assert pairs == {"d1": "d3", "d2": "d3"}
    assert (twins["similarity"] > 0.9).all()
    assert twins["tokens"].is_monotonic_decreasing


def test_what_is_superseded_already_and_what_no_cap_spares_is_left_out(tmp_path: Path) -> None:
    store = write_rows(
        tmp_path / "memory.db",
        [
            row("d1", "semantic", body=TEXT, superseded_by="d2"),
            row("d2", "semantic", body=TEXT),
            *[row(f"e{n}", body=TEXT) for n in range(3)],
        ],
    )
    assert load_bearing_twins(memlab.load(store, with_body=True)).empty


def test_it_shows_the_costliest_and_the_call_that_supersedes_works(store: Path) -> None:
    shown = run("floor", store).output
    assert "5 memories" in shown
    assert shown.index("d4") < shown.index("Repeated by a newer one")
    call = "\n".join(re.findall(r"^  (with .*|    store\.supersede.*)$", shown, re.MULTILINE))
    exec(call, {"memlab": memlab})
    after = json.loads(run("floor", store, "--json").output)
    assert after["floor"]["items"] == 4
    assert len(after["twins"]) == 1


def test_looking_changes_nothing(store: Path) -> None:
    before = store.read_bytes()
    run("floor", store)
    assert store.read_bytes() == before


@pytest.mark.parametrize("count", [0, 1])
def test_a_store_without_a_floor_says_what_is_next(tmp_path: Path, count: int) -> None:
    shown = run("floor", write_rows(tmp_path / "memory.db", episodes(count)))
    assert shown.exit_code == 0
    assert "0 memories, 0 tokens" in shown.output
    assert "next: memlab size" in shown.output


def test_a_real_agents_store_has_a_floor(real_store: Callable[[str], Path]) -> None:
    assert "590 memories" in run("floor", real_store("agent-store1")).output
