"""Completion offers what a user calls; a frame's overview has indentation and alerts."""

import memlab
from memlab import columns as c

STORE = memlab.store_path("three_hundred_issues")


def test_advice_offers_no_constants() -> None:
    names = dir(memlab.recommend_cap(STORE))
    assert "keep_recent" in names
    assert not [name for name in names if name.isupper()]


def test_a_policy_offers_its_settings_and_none_of_its_class() -> None:
    names = set(dir(memlab.KeepRecent(5)))
    assert {"keep", "by", "evict", "name"} <= names
    assert not names & {"runner", "population", "signals", "reads_bodies", "reason"}


def test_an_overview_keeps_its_indentation_in_a_notebook() -> None:
    page = memlab.show(STORE)._repr_html_()
    assert ">&emsp;decisions<" in page
    assert ">loaded at every start<" in page


def test_a_frame_has_the_alerts_of_its_memories() -> None:
    of_frame = memlab.show(memlab.load(STORE)).alerts
    of_store = memlab.show(STORE).alerts
    assert [alert.name for alert in of_frame] == ["never compacted"]
    assert [alert.tokens for alert in of_frame] == [alert.tokens for alert in of_store]
    assert "no cap is set" not in of_frame[0].what


def test_a_frame_of_a_compacted_store_is_not_never_compacted() -> None:
    frame = memlab.load(STORE)
    frame.attrs[c.HAS_PAST] = True
    assert memlab.show(frame).alerts == []


def test_a_browser_is_the_ids_that_it_shows_in_json() -> None:
    browser = memlab.browse(STORE)
    browser.grid.selected_rows = [0]
    fields = browser.to_dict()
    assert fields["selected"] == fields["shown"][:1]
    assert len(fields["shown"]) == len(browser.memories)
