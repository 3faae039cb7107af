"""The report page: answer first, self-contained, escaped; the decision record."""

import re
import shlex
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab import StoreHistory
from memlab.evidence.references import KIND_DESCRIPTIONS
from memlab.settings import Settings, Sized
from memlab.sizing import CurvePoint
from memlab.views.drawing import draw, draw_section
from memlab.views.findings import Findings, examine
from memlab.views.page import decision_record, page_of, sections_of, sentence
from tests.support.claude_store import realistic_folder
from tests.support.odek_store import write_odek
from tests.support.shell import output_of, run
from tests.support.stores import Row, episodes, row, write_rows

NOW = datetime(2026, 6, 30, 18, tzinfo=UTC)


def words_of(page: str, within: str = "") -> list[str]:
    """Return the texts of a page, or of its tables alone."""
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    text = re.sub(r'<span class="option">([^<]+)</span>', r"\1", text)
    parts = [unescape(part).strip() for part in re.findall(rf"{within}>([^<]+)", text)]
    return [part for part in parts if part]


@pytest.fixture(scope="module")
def past() -> pd.DataFrame:
    return memlab.load_past(memlab.store_path("two_years"))


@pytest.fixture(scope="module")
def findings(past: pd.DataFrame) -> Findings:
    return examine(past, now=NOW)


@pytest.fixture(scope="module")
def searched() -> Findings:
    """Findings on a store whose searches were logged."""
    store = memlab.store_path("looked_up")
    log = memlab.read_access_log(store.with_suffix(".searches.jsonl"))
    return examine(store, now=NOW, log=log)


@pytest.fixture(scope="module")
def page(findings: Findings) -> str:
    return page_of(findings)


def findings_on(tmp_path: Path, rows: list[Row], **options: Any) -> Findings:
    """Return the findings on a store of these rows."""
    store = write_rows(tmp_path / "memory.db", rows)
    return examine(memlab.load_past(store), now=NOW, **options)


def test_report_begins_with_the_number_and_its_evidence(page: str, findings: Findings) -> None:
    texts = words_of(page)
    first = " ".join(texts[: texts.index("About this report")])
    advice = findings.advice
    assert f"{advice.numbers}" in first
    assert advice.track_record in first
    assert f"{advice.weight:.0%}" in first
    assert f"165,169 → {advice.boot_tokens:,}" in first
    assert f"memlab compact two_years.db --keep-recent {advice.keep_recent}" in first
    assert "--apply" not in first
    assert "<svg" in page[: page.index("What to do next")]


def test_tables_hold_no_raw_names_or_numbers(page: str) -> None:
    cells = words_of(page, "<t[dh][^>]*")
    assert len(cells) > 40
    assert {cell for cell in cells if "_" in cell} == {"keep_recent"}
    assert set(cells).isdisjoint({"NaN", "nan", "<NA>", "None"})
    assert [cell for cell in cells if re.fullmatch(r"\d{4,}", cell)] == []


def test_cost_at_start_is_one_figure(findings: Findings, page: str) -> None:
    text = " ".join(words_of(page))
    now = findings.advice.boot_tokens
    p95 = findings.advice.boot_tokens_p95
    assert findings.effect is not None
    assert findings.effect.after.tokens == now
    figures = dict(findings.sheet().facts)
    deleted = findings.effect.deleted.memories
    assert figures["would be deleted"].startswith(f"{deleted:,} memories of ")
    assert f"{now:,}" in text
    assert p95 != now
    assert f"{p95:,}" not in text


def test_page_is_small_and_self_contained(page: str) -> None:
    assert "2026-06-30 18:00 UTC" in page
    assert f"memlab {memlab.__version__}" in page
    assert "<title>Memory report: two_years.db</title>" in page
    assert re.findall(r'<a href="#(\w+)">', page) == re.findall(r'<section id="(\w+)">', page)
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert not re.findall(r"@import|url\(\s*['\"]?(?:https?:)?//", page)
    assert page.count("<script") == 1  # that of the copy buttons
    assert len(page.encode()) < 1_500_000


def test_an_option_of_a_command_is_not_broken(page: str) -> None:
    assert re.search(r'two_years.db <span class="option">--keep-recent</span> \d+</pre>', page)
    assert ".short, .option { white-space: nowrap; }" in page


def test_a_command_in_a_table_looks_like_one(tmp_path: Path) -> None:
    rows = [row(f"e{number}", "episodic", "merged", body="x" * 4_000) for number in range(600)]
    findings = examine(write_rows(tmp_path / "memory.db", rows), now=NOW)
    assert len(findings.alerts) > 0
    assert re.search(r"<code>memlab size \S*memory.db</code>", page_of(findings))


@pytest.mark.usefixtures("no_charts")
def test_words_on_a_chart_are_left_out_without_it(tmp_path: Path, findings: Findings) -> None:
    words = words_by_section(findings)
    assert "At each of these moments" in words["record"]
    assert "The age rank of a memory" in words["references"]
    words = words_by_section(findings_on(tmp_path, episodes(5)))
    assert "moments" not in words["record"]
    assert "age rank" not in words["references"]


def words_by_section(findings: Findings) -> dict[str, str]:
    return {section.anchor: " ".join(section.paragraphs) for section in sections_of(findings)}


def test_small_store_shows_what_a_start_loads_first(tmp_path: Path) -> None:
    html = page_of(findings_on(tmp_path, episodes(5)))
    before_steps, _, after = html.partition("What to do next")
    assert "a start takes only" in before_steps
    assert "An agent starts with 5 memories" in before_steps
    assert "An agent starts with 5 memories" not in after
    assert "The chart of tokens assumes" in html
    assert "95 of 100" not in html


def test_arguments_reach_every_section(past: pd.DataFrame) -> None:
    findings = examine(past, now=NOW, keep_recent=321, target=0.8, token_budget=60_000)
    facts = dict(findings.sheet().facts)
    assert facts["target"].startswith("80% ")
    assert facts["figures below"].startswith("keep_recent = 321, which serves ")
    assert "--keep-recent 321" in findings.next_steps()[0]
    texts = {}
    for section in sections_of(findings):
        parts = [section.title]
        parts += [chart.alt for chart in draw_section(section.anchor, findings)]
        parts += [str(table) for table in section.tables]
        texts[section.anchor] = " ".join(parts)
    for anchor in ("effect", "references", "served"):
        assert "321" in texts[anchor], anchor
    for anchor in ("served", "record"):
        assert "80%" in texts[anchor], anchor
    assert texts["served"].count("budget") > 1


def test_log_is_used_in_answer_and_references(past: pd.DataFrame, tmp_path: Path) -> None:
    reads = past.iloc[100:110][["memory_id"]].assign(at=NOW - timedelta(days=1))
    log = tmp_path / "reads.csv"
    reads.to_csv(log, index=False)
    findings = examine(past, now=NOW, log=log)
    assert findings.advice.references == examine(past, now=NOW).advice.references + 10
    section = section_of(findings, "references")
    assert ("read", KIND_DESCRIPTIONS["log"][1], 10) in section.tables[0].rows
    assert "Reads come from reads.csv." in section.paragraphs


def section_of(findings: Findings, anchor: str) -> Any:
    """Return the section of a report with this anchor."""
    (section,) = [section for section in sections_of(findings) if section.anchor == anchor]
    return section


@pytest.mark.usefixtures("no_charts")
def test_reads_add_a_section_on_age_or_use(findings: Findings, searched: Findings) -> None:
    section = section_of(searched, "usage")
    assert section.paragraphs == [sentence(searched.usage.answer)]
    assert ("age or use", searched.usage.answer) in searched.sheet().facts
    panel = memlab.explore(searched.evidence.past, searched.evidence.references)
    assert searched.usage.answer in panel.text
    assert "usage" not in {section.anchor for section in sections_of(findings)}
    assert findings.usage.answer not in str(findings)


def test_use_verdict_recommends_retirement(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("looked_up"), tmp_path / "looked_up.db")
    log = str(memlab.store_path("looked_up").with_suffix(".reads.jsonl"))
    lines = output_of("size", store, "--log", log).splitlines()
    (verdict,) = [line for line in lines if line.startswith("Retiring by use cuts ")]
    (step,) = [line for line in lines if line.startswith("next: ")]
    command = step.partition("    ")[0]
    findings = examine(store, log=log)
    anchors = [section.anchor for section in sections_of(findings)]
    assert findings.sheet().title == verdict
    assert findings.next_steps()[0].startswith(command)
    assert "effect" not in anchors
    assert len(anchors) < 9
    history = StoreHistory.from_frame(findings.evidence.past, log=findings.evidence.log)
    of_a_frame = replace(findings, evidence=history)
    assert of_a_frame.sheet().title.startswith("Keep all for now: ")


def test_law_chart_matches_the_kind_of_evidence(findings: Findings, searched: Findings) -> None:
    assert draw("law", findings).axes[0].get_ylabel() == "cap that serves 90% of references"
    assert draw("law", searched).axes[0].get_ylabel() == "cap that serves 90% of reads"


def test_infeasible_token_budget_is_named(past: pd.DataFrame) -> None:
    findings = examine(past, now=NOW, token_budget=5_000)
    assert findings.sheet().title.startswith("Load-bearing memories take 6,491 tokens")
    assert findings.next_steps()[0].startswith("next: memlab floor two_years.db ")
    assert "effect" not in {section.anchor for section in sections_of(findings)}
    findings = examine(past, now=NOW, token_budget=10_000)
    assert findings.sheet().title.startswith("No cap meets both the target and the limit")
    assert dict(findings.sheet().facts)["token budget"].startswith("10,000; caps up to ")
    assert f"--keep-recent {findings.advice.budget_cap} " in findings.next_steps()[0]


def test_likely_cap_is_offered_if_safe_cap_has_no_effect(tmp_path: Path) -> None:
    long_rows = [row(f"e{number}", "episodic", body="word " * 40) for number in range(60)]
    findings = findings_on(tmp_path, long_rows, until=2.0)
    advice = findings.advice
    explanation, likely_step = findings.next_steps()
    assert advice.likely < 60
    assert advice.keep_recent >= 60
    assert "memlab size memory.db --until 2.0 --explain" in explanation
    assert f"memlab compact memory.db --keep-recent {advice.likely} " in likely_step


@pytest.mark.usefixtures("no_charts")
def test_store_texts_are_escaped_in_the_page(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    findings = findings_on(tmp_path, [row(hostile, "semantic", title=hostile), *episodes(5)])
    reads = pd.DataFrame({"memory_id": ["e1"], "at": [NOW]})
    history = copy(findings.evidence)
    history.name = hostile
    vars(history)["_reads"] = (reads, Path(hostile))
    page = page_of(replace(findings, evidence=history))
    assert page.count("<script") == 1  # that of the copy buttons
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(
    "name",
    [
        "odek:there/episodes",
        pytest.param("there/a b.db", marks=pytest.mark.long),
        pytest.param("there/notes", marks=pytest.mark.long),
        pytest.param("{folder}/there/notes", marks=pytest.mark.long),
    ],
)
def test_next_steps_run_in_the_folder_of_the_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "there" / "a b.db")
    summaries = [f"issue {number} was mended" for number in range(30)]
    write_odek(tmp_path / "there" / "episodes", summaries)
    (tmp_path / "reads.csv").write_text("memory_id,at\n")
    realistic_folder(tmp_path / "there" / "notes", files=40)
    (tmp_path / "pages").mkdir()
    options = ("--keep-recent", 5, "--log", "reads.csv", "-o", "pages/report.html")
    output_of("report", name.format(folder=tmp_path), *options)
    texts = words_of((tmp_path / "pages" / "report.html").read_text())
    assert str(tmp_path) not in " ".join(texts)
    assert "In the folder of this page." in texts
    commands = [word for word in texts if word.startswith("memlab ")]
    assert len(commands) > 0
    monkeypatch.chdir(tmp_path / "pages")
    for command in commands:
        result = run(*shlex.split(command)[1:])
        if result.exit_code != 0:  # the folder has no transcripts to harvest
            assert "there are no transcripts in" in result.output


@pytest.mark.usefixtures("no_charts")
def test_store_far_from_the_page_is_named_without_folders(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(5))
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    output_of("report", store, "-o", folder / "report.html")
    texts = words_of((folder / "report.html").read_text())
    assert "In the folder that holds memory.db." in texts
    assert not [word for word in texts if "../" in word]


def test_bars_link_to_lists_of_their_memories(page: str, findings: Findings) -> None:
    lists = set(re.findall(r'<div id="(list-[\w-]+)">', page))
    assert set(re.findall(r'<a href="#(list-[\w-]+)"', page)) == lists
    assert lists == {"list-decisions", "list-skills", "list-rejected-paths", "list-episodes"}
    costliest = findings.present[findings.present["prunable"]].nlargest(1, "tokens")
    assert costliest["memory_id"].item() in words_of(page[page.index('id="list-episodes"') :])


def test_marks_show_values_on_hover(page: str, findings: Findings) -> None:
    titles = re.findall(r"<g><title>([^<]+)</title>", page)
    episodes_now = findings.summary.boot.prunable.memories
    safe = findings.advice.keep_recent
    assert any(title.startswith(f"episodes: {episodes_now:,} memories · ") for title in titles)
    assert any(title.startswith(f"safe {safe:,}: serves ") for title in titles)


AREA = re.compile(r'<path d="M[^"]+"><title>([^<]+)</title></path>')


def test_lines_show_values_on_hover(page: str, findings: Findings) -> None:
    titles = "\n".join(unescape(title) for title in AREA.findall(page))
    boot = findings.summary.boot
    now = f"{boot.prunable.memories:,} prunable, {boot.load_bearing.memories:,} load-bearing"
    assert re.search(rf"^2026-06-\d\d: {now}, ", titles, re.MULTILINE)
    assert re.search(r"^2025-[\d-]+; no cap: [\d,]+ tokens; ", titles, re.MULTILINE)
    assert re.search(r"^keep_recent = \d+ serves \d+", titles, re.MULTILINE)


def test_hover_values_are_at_most_a_tenth_of_the_report(page: str) -> None:
    areas = "".join(match[0] for match in AREA.finditer(page))
    assert 0 < len(areas) <= 0.1 * (len(page) - len(areas))
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert len(AREA.findall(drawing)) <= 70


def test_similar_charts_are_folded(page: str) -> None:
    served = page[page.index('<section id="served">') : page.index('<section id="record">')]
    folded = served[served.index("<details") :]
    assert "What an agent would have loaded at every start" in folded
    assert served.index("<svg") < served.index("<details")


def test_small_store_page_has_no_false_claims(tmp_path: Path) -> None:
    page = page_of(findings_on(tmp_path, episodes(3)))
    text = " ".join(words_of(page))
    assert "would be deleted nothing" in text
    assert "that memlab deleted" not in text
    assert "0.0%" not in text.partition("About this report")[0]


@pytest.mark.usefixtures("no_charts")
def test_uncut_index_has_no_section_on_the_cut(tmp_path: Path) -> None:
    folder = realistic_folder(tmp_path / "memory")
    page = page_of(examine(memlab.load_past(str(folder)), now=NOW))
    assert "Reads of memories that the cut index does not load" not in page


@pytest.mark.parametrize("count", [0, 1, 12])
def test_small_store_page_has_no_empty_chart(tmp_path: Path, count: int) -> None:
    page = page_of(findings_on(tmp_path, episodes(count)))
    figures = re.findall(r"<figure[^>]*>.*?</figure>", page, re.DOTALL)
    assert all("<svg" in figure for figure in figures)


@pytest.mark.usefixtures("no_charts")
def test_page_shows_when_it_was_made(tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    output_of("report", "-o", file)
    texts = words_of(file.read_text())
    assert texts[texts.index("made") + 1].startswith(f"{datetime.now(UTC):%Y-%m-%d}")
    assert texts[texts.index("as of") + 1].startswith("2026-06-30")


def test_searched_store_is_not_described_as_loaded(tmp_path: Path) -> None:
    write_odek(tmp_path / "odek", [f"fact {number}" for number in range(40)])
    findings = examine(memlab.load_past(f"odek:{tmp_path}/odek"), now=NOW, keep_recent=5)
    page = page_of(findings)
    assert "nothing is loaded at start" in page
    for phrase in ("at every start", "that are loaded at start", "An agent starts with"):
        assert phrase not in page, phrase
    assert "What an agent recalls from" in page
    assert "An agent recalls from 40 memories" in page


def test_decision_record_uses_the_singular_for_one_memory(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(2))
    plan = memlab.plan(store, memlab.KeepRecent(1))
    advice = memlab.recommend_cap(memlab.load_past(store))
    record = decision_record(advice, plan, now=NOW, receipt=memlab.apply(plan))
    for phrase in (
        "| deletes | 1 of 2 memories |",
        "→ 1 memory, ",
        "| cap | `keep_recent = 1`, chosen by hand |",
        f"| by the evidence | {advice.numbers} |",
        "| track record | none |",
        " UTC, 1 memory deleted and archived; undo: ",
    ):
        assert phrase in record
    for number, name in {advice.likely: "likely", advice.keep_recent: "safe"}.items():
        record = decision_record(advice, memlab.plan(store, memlab.KeepRecent(number)), now=NOW)
        assert f"| cap | `keep_recent = {number}`, the {name} one |" in record
    saved = Settings({"name": "recent", "keep": 1, "sized": Sized(NOW, 2, 4)})
    record = decision_record(advice, plan, now=NOW, settings=saved)
    assert "= 1`, found on 2026-06-30 and " in record
    fits = replace(advice, within_budget=CurvePoint(1, 0.5, (0.4, 0.6), 9, 9, 1.0))
    assert "= 1`, the largest within the token budget" in decision_record(fits, plan, now=NOW)
