"""``memlab size``: the recommendation, its table and the next command."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from tests.support.shell import output_of, run
from tests.support.stores import Row, episodes, row, write_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the two-year store that the tests only read."""
    folder = tmp_path_factory.mktemp("two years")
    return memlab.copy_store(memlab.store_path("two_years"), folder / "my memory.db")


@pytest.fixture(scope="module")
def frame(store: Path) -> pd.DataFrame:
    return memlab.load(store)


def test_printed_caps_agree_with_the_curve(store: Path, frame: pd.DataFrame) -> None:
    curve = memlab.sizing.cap_curve(frame)
    advice = memlab.recommend_cap(frame)
    output = output_of("size", store, "--explain")
    lines = re.findall(r"^[>~ ]+([\d,]+ +[\d.]+% +.+)$", output, re.MULTILINE)
    table: dict[int, list[str]] = {}
    for line in lines:
        cap, *cells = line.split()
        table[int(cap.replace(",", ""))] = cells
    assert {advice.keep_recent, advice.likely} <= set(table)
    assert min(table) == 0
    assert max(table) == advice.prunable
    for cap, cells in table.items():
        at_cap = curve.loc[cap]
        assert cells[0] == f"{at_cap['served']:.1%}"
        assert cells[4] == f"{at_cap['served_own']:.1%}"
        assert cells[5] == f"{at_cap['served_elsewhere']:.1%}"
        assert f"{at_cap['boot_tokens']:,.0f}" in cells


def test_size_json_holds_advice_table_and_working_command(
    store: Path, frame: pd.DataFrame, tmp_path: Path
) -> None:
    sized = json.loads(output_of("size", store, "--target", 0.8, "--json"))
    advice = json.loads(memlab.recommend_cap(frame, target=0.8).to_json())
    del advice["store"]  # a frame has the name of its store without the folder
    assert {name: sized[name] for name in advice} == advice
    assert sized["store"] == str(store)
    curve = memlab.sizing.cap_curve(frame)
    for line in sized["caps"]:
        assert line["boot_tokens"] == curve.loc[line["keep_recent"], "boot_tokens"]
    assert len(sized["backtest"]) == 4
    copy = memlab.copy_store(store, tmp_path / "copy.db")
    arguments = shlex.split(sized["command"].replace(str(store), str(copy)))
    assert run(*arguments[1:]).exit_code == 0
    assert memlab.load(copy)["prunable"].sum() == sized["keep_recent"]


def test_size_recommends_retirement_if_use_predicts_better(tmp_path: Path) -> None:
    bundled = memlab.store_path("looked_up")
    store = memlab.copy_store(bundled, tmp_path / "m.db")
    log = bundled.with_suffix(".searches.jsonl")
    lines = output_of("size", store, "--log", log).splitlines()
    answer = re.match(
        r"Retiring by use cuts a start today from 25,005 to at most (?P<tokens>[\d,]+) tokens .*\. "
        r"Within as many tokens, it would have served (?P<served>9\d)% of the past reads "
        r"\(\d+% to \d+%\), and keeping the newest memories (?P<served_by_newest>\d+)%",
        lines[0],
    )
    assert answer is not None
    assert int(answer["served_by_newest"]) < int(answer["served"])
    sized = json.loads(output_of("size", store, "--log", log, "--json"))
    by_use = sized["by_use"]
    assert f"{by_use['likely']:,}" == answer["tokens"]
    assert by_use["likely"] in [budget["tokens"] for budget in by_use["budgets"]]
    (step,) = [line for line in lines if line.startswith("next: ")]
    arguments = shlex.split(step.removeprefix("next: memlab ").partition("    ")[0])
    assert sized["command"] == f"{shlex.join(['memlab', *arguments])} --apply"
    max_tokens = answer["tokens"].replace(",", "")
    assert arguments[-5:] == ["--max-tokens", max_tokens, "--retire", "--log", str(log)]
    explained = output_of("size", store, "--log", log, "--explain").splitlines()
    compact_lines = [line for line in explained if "memlab compact" in line]
    assert len(compact_lines) > 0
    assert all(f"--log {log}" in line for line in compact_lines)

    def retired(*arguments: object) -> Any:
        return json.loads(output_of(*arguments, "--json"))["retires"]

    by_reads = retired(*arguments)
    without_log = arguments[:-2]
    assert by_reads != retired(*without_log)
    output_of(*arguments, "--save")
    assert retired("compact", store) == by_reads


def test_suggested_logging_code_works(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    sized = output_of("size", store, "--explain")
    lines = re.findall(r"^    (log.*)$", sized, re.MULTILINE)
    for memory_id in ("e1", "e2"):
        exec("\n".join(lines), {"memlab": memlab, "memory_id": memory_id})
    (log,) = re.findall(r"memlab size .* --log (\S+)", sized)
    sized = output_of("size", store, "--explain", "--log", log)
    assert "2 read" in sized
    assert "harvest" not in sized
    assert "size" not in re.findall(rf"memlab (\w+) .*--log {log}", sized)
    for command in ("show", "size", "compare"):
        assert f"memlab size {store} --log {log}" in output_of(command, store, "--log", log)


NINE_DECISIONS = [row(f"d{number}", "semantic") for number in range(9)]


@pytest.mark.parametrize("unit", ["memories", "tokens"])
@pytest.mark.parametrize("rows", [[], NINE_DECISIONS], ids=["empty", "decisions"])
def test_size_without_prunable_memories_gives_no_number(
    tmp_path: Path, unit: str, rows: list[Row]
) -> None:
    store = write_rows(tmp_path / "memory.db", rows)
    sized = run("size", store, "--unit", unit, "--save")
    assert sized.exit_code == 1
    assert "nothing-prunable: " in sized.output
    assert "= 0" not in sized.output
    assert "served " not in sized.stdout.replace("references served", "")
    assert "next: memlab doctor" in sized.stdout
    assert "nothing was saved" in sized.stderr
    assert not (tmp_path / "memlab.toml").exists()


def test_shares_can_be_given_in_per_cent(store: Path) -> None:
    shares = run("size", store, "--target", 0.8, "--confidence", 0.75, "--json").output
    assert run("size", store, "--target", "80%", "--confidence", "75%", "--json").output == shares
    assert json.loads(shares)["target"] == 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--log {log}", "line 2: at 'yesterday' is not a timestamp"),
        ("--only-log", "needs a log: give one as log (--log FILE)"),
        ("--target 90", "is not between 0 and 1; is 0.9 meant?"),
        ("--target most", "could not convert string to float"),
        ("--token-budget -5", "is not in the range x>=0"),
    ],
)
def test_invalid_size_option_is_explained(
    store: Path, tmp_path: Path, arguments: str, message: str
) -> None:
    log = tmp_path / "reads.csv"
    log.write_text("memory_id,at\na,yesterday\n")
    result = run("size", store, *arguments.format(log=log).split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
