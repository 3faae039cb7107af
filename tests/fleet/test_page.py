"""The fleet page: bounded size, self-contained, hostile names escaped."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab.charts import plot_fleet_caps, plot_fleet_growth, plot_fleet_tokens
from memlab.compaction.reclaim import space
from memlab.fleet import FleetFindings, Serial, examine_fleet, write_fleet_report
from memlab.fleet.page import MAX_ROWS, fleet_page
from memlab.store.archive.location import archive_path
from tests.support.fleets import NOW, agent_store, mixed_fleet
from tests.support.stores import row, write_rows


def tags_in(page: str) -> set[str]:
    return set(re.findall(r"<([a-z]\w*)", page))


def attributes_in(page: str, *names: str) -> set[str]:
    return set(re.findall(rf'\b(?:{"|".join(names)})="([^"]*)"', page))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> FleetFindings:
    """Return findings on a fleet; a cap helps one store, and two cannot be read."""
    folder = tmp_path_factory.mktemp("few")
    large = agent_store(folder / "large.db", 900)
    return examine_fleet([large, *mixed_fleet(folder)], now=NOW, runner=Serial())


def repeated(findings: FleetFindings, count: int) -> FleetFindings:
    """Repeat the findings up to a number of stores."""
    names = [f"/srv/tenants/{number:06}/memory.db" for number in range(count)]
    places = np.arange(count) % len(findings.stores)
    stores = findings.stores.iloc[places].reset_index(drop=True).assign(store=names)
    sizes = findings.sizes.iloc[places].reset_index(drop=True).assign(store=names)
    return replace(findings, stores=stores, sizes=sizes)


@pytest.mark.usefixtures("no_rendering")
@pytest.mark.parametrize("count", [10, pytest.param(100_000, marks=pytest.mark.long)])
def test_fleet_page_is_bounded_and_reports_omissions(few: FleetFindings, count: int) -> None:
    findings = repeated(few, count)
    page = fleet_page(findings)
    assert len(page) < 1_000_000
    assert re.search(r"keep_recent = [\d,]+ is safe, [\d,]+ is likely: [\d,]+ tokens fewer", page)
    assert re.search(r"<h1>The safe caps of [\d,]+ stores cut their starts today from ", page)
    anchors = attributes_in(page, "id")
    listed = [anchor for anchor in anchors if re.fullmatch(r"s\d+", anchor)]
    assert len(listed) == min(MAX_ROWS, count - findings.failed)
    assert ("more; memlab fleet show --csv lists them all" in page) == (count > MAX_ROWS)


def test_fleet_page_is_self_contained_with_valid_links(few: FleetFindings) -> None:
    page = fleet_page(repeated(few, 100))
    links = attributes_in(page, "href", "src")
    assert "script" not in tags_in(page)
    assert {link for link in links if not link.startswith("#")} == set()
    links_to_stores = {link for link in links if link.startswith("#s")}
    assert {link.removeprefix("#") for link in links_to_stores} <= attributes_in(page, "id")
    assert len(links) > 10
    assert "url(" not in page.replace("url(#", "")


def test_hostile_names_and_titles_are_escaped(tmp_path: Path) -> None:
    hostile = '"><script>alert(1)</script>\x1b[31m'.replace("/", "-")
    write_rows(tmp_path / f"{hostile}.db", [row("<img src=x>", title="<b>"), row("two")])
    (tmp_path / "<i>bad</i>.db".replace("/", "-")).write_text("none")
    findings = examine_fleet(sorted(tmp_path.iterdir()), now=NOW, runner=Serial())
    page = fleet_page(findings)
    assert tags_in(page).isdisjoint({"script", "img", "i", "b"})
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.usefixtures("no_rendering")
def test_fleet_page_agrees_with_the_tables(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    findings = examine_fleet([*names, names[0]], now=NOW, runner=Serial())
    page = write_fleet_report(tmp_path / "fleet.html", findings).read_text()
    assert ", of 14 stores." in page
    assert "2 could not be read" in page
    assert "1 name meant a store that was named before" in page
    assert findings.weeks["memories"].sum() == findings.stores["memories"].sum()
    assert findings.weeks["load_bearing"].sum() == findings.stores["floor_memories"].sum()


def test_fleet_growth_falls_in_the_week_of_a_deletion(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / f"{number}.db", 40) for number in range(2)]
    before = examine_fleet(names, now=NOW, runner=Serial()).weeks
    memlab.apply(memlab.plan(names[0], memlab.KeepRecent(5), now=NOW), now=NOW)
    after = examine_fleet(names, now=NOW, runner=Serial()).weeks
    pd.testing.assert_frame_equal(after.iloc[:-2], before)
    week_before = [pd.Timestamp("2026-06-18", tz="UTC"), 0, 0]
    week_of_deletion = [pd.Timestamp("2026-06-25", tz="UTC"), -35, 0]
    assert after.iloc[-2:].to_numpy().tolist() == [week_before, week_of_deletion]
    archive_path(names[0]).write_bytes(b"torn")
    assert examine_fleet(names, now=NOW, runner=Serial()).weeks["memories"].sum() == 6 + 41


@pytest.mark.usefixtures("no_rendering")
def test_fleet_page_counts_free_and_reclaimable_space(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 900)
    memlab.apply(memlab.plan(store, memlab.KeepRecent(500), now=NOW))
    findings = examine_fleet(store, now=NOW, runner=Serial())
    (sized,) = findings.sizes.to_dict("records")
    used = space(store).live + space(store).wal
    assert sized["deletes"] > 0
    assert findings.space_freed == pytest.approx(used * sized["deletes"] / 501)
    free = space(store).free / 1e6
    assert f"{free + findings.space_freed / 1e6:,.1f} MB" in fleet_page(findings)
    assert f"{free:,.1f} MB are free now" in fleet_page(findings)


def test_fleet_charts_without_data_have_a_message(few: FleetFindings) -> None:
    unreadable_stores = few.stores[few.stores["error"].notna()]
    unreadable_sizes = few.sizes[few.sizes["error"].notna()]
    for ax in (plot_fleet_tokens(unreadable_stores), plot_fleet_caps(unreadable_sizes)):
        assert [text.get_text() for text in ax.texts] == ["No store could be read"]
    assert "within a week" in plot_fleet_growth(few.weeks.head(1)).texts[0].get_text()


def test_fleet_chart_explains_how_zero_is_drawn() -> None:
    stores = pd.DataFrame({"boot_tokens": [900, 80], "floor_tokens": [0, 20], "error": [None] * 2})
    assert plot_fleet_tokens(stores).texts[-1].get_text() == "Zero is drawn as 1."
    without_zero = plot_fleet_tokens(stores.assign(floor_tokens=7))
    assert not any("drawn as" in text.get_text() for text in without_zero.texts)
