"""The sizing panel in Python: every control updates numbers, charts and command."""

import re
import shlex
import sys
from base64 import b64decode
from datetime import UTC, datetime
from html import unescape
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from traitlets import TraitError

import memlab
from memlab import columns as c
from memlab.errors import MissingExtraError
from memlab.fleet import Serial, size
from memlab.sizing import Advice, Sizing, prepare_sizing
from memlab.sources.opening import open_source, settings_of
from memlab.views.panel import Mark, Picture, Plot, SizingPanel, cap_steps, explore
from tests.support.frames import make_episodes
from tests.support.stores import episodes, row, write_rows

STORE = memlab.store_path("two_years")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return memlab.load(STORE)


@pytest.fixture(scope="module")
def sizing(frame: pd.DataFrame) -> Sizing:
    """Return the sizing shared by every panel of the bundled store."""
    return prepare_sizing(frame)


class Blank(Picture):
    """A picture on which nothing is drawn."""

    def __init__(self, plot: Plot, mark: Mark, curve: pd.DataFrame) -> None:
        self.title = ""

    def png(self, *, advice: Advice, cap: int) -> bytes:
        return b""


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures in a panel, for tests that look at its words and numbers alone."""
    monkeypatch.setattr("memlab.views.panel.Picture", Blank)


@pytest.fixture
def drawn_panel(sizing: Sizing, frame: pd.DataFrame) -> SizingPanel:
    """Return a panel of the bundled store."""
    return SizingPanel(sizing, frame, store=str(STORE), target=0.9, token_budget=None)


@pytest.fixture
def panel(no_pictures: None, drawn_panel: SizingPanel) -> SizingPanel:
    """Return a panel of the bundled store without its pictures."""
    return drawn_panel


def facts(panel: SizingPanel) -> dict[str, str]:
    """Return the table of numbers as a dictionary."""
    cells = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", panel.numbers.value)
    return {unescape(name): unescape(value) for name, value in cells}


def alt(html: str) -> str:
    """Return the text alternative of the picture."""
    (alternative,) = re.findall(r'<img alt="([^"]+)"', html)
    return unescape(alternative)


def words_of(html: str) -> str:
    """Return the text of HTML without its tags."""
    return unescape(re.sub(r"</?(?:pre|span|p)>", "", html))


def test_option_of_the_command_is_in_one_piece(panel: SizingPanel) -> None:
    assert "<span>--keep-recent</span> " in panel.command.value
    assert panel.command_line.count("--keep-recent") == 1


def test_panel_opens_at_the_recommended_cap(panel: SizingPanel, frame: pd.DataFrame) -> None:
    advice = memlab.recommend_cap(frame)
    assert explore(STORE).text == panel.text
    assert panel.keep_recent.value == advice.keep_recent
    assert str(advice).splitlines()[0] in unescape(panel.recommendation.value)
    assert panel.advice == advice
    assert "these lines are about" not in panel.recommendation.value


def test_panel_says_which_lines_are_about_another_cap(panel: SizingPanel) -> None:
    recommended = panel.advice.keep_recent
    panel.keep_recent.value = 1
    note = f"about the recommended cap, {recommended:,}; the figures and the command, about 1"
    assert note in panel.recommendation.value


def test_panel_numbers_equal_the_curve(panel: SizingPanel, sizing: Sizing) -> None:
    for cap in (0, 1, 137, 250, 2_864):
        panel.keep_recent.value = cap
        at_cap = sizing.curve.loc[cap]
        assert facts(panel) == {
            "keep_recent": f"{cap:,}",
            "references served": (
                f"{at_cap['served']:.1%} (limits {at_cap['low']:.1%} to {at_cap['high']:.1%})"
            ),
            "other projects alone": f"{at_cap['served_elsewhere']:.1%}",
            "this store alone": f"{at_cap['served_own']:.1%}",
            "in the past": f"{at_cap['served_observed']:.1%}",
            "a start": (
                f"{at_cap['boot_memories']:,.0f} memories, {at_cap['boot_tokens']:,.0f} tokens "
                f"under that cap, {panel.advice.loaded:,} now"
            ),
            "over the history": f"{at_cap['boot_tokens_p95']:,.0f} tokens in 95% of starts at most",
            "prunable share": (
                f"{at_cap['prunable_share']:.1%} of memories, "
                f"{at_cap['prunable_share_tokens']:.1%} of tokens"
            ),
            "would go now": f"{at_cap['pruned']:,.0f} of 2,864 prunable memories",
            "memory kept": f"{at_cap['days']:,.1f} days",
        }


def test_slider_and_box_move_together_and_update_the_panel(drawn_panel: SizingPanel) -> None:
    advice = drawn_panel.advice
    assert drawn_panel.slider.value == advice.keep_recent
    assert drawn_panel.keep_recent.value == advice.keep_recent
    curve_before = drawn_panel.curve_picture.value
    trade_off_before = drawn_panel.trade_off_picture.value
    drawn_panel.slider.value = 250
    assert drawn_panel.keep_recent.value == 250
    assert drawn_panel.command_line in words_of(drawn_panel.command.value)
    assert drawn_panel.curve_picture.value != curve_before
    assert drawn_panel.trade_off_picture.value != trade_off_before
    for picture in (drawn_panel.curve_picture, drawn_panel.trade_off_picture):
        description = alt(picture.value)
        assert "keep_recent = 250 serves 87.1%" in description
        assert f"{advice.keep_recent:,} is safe, {advice.likely:,} is likely" in description
        assert "target 90%" in description
    drawn_panel.keep_recent.value = 253
    assert drawn_panel.slider.value == 253
    assert drawn_panel.keep_recent.value == 253
    texts = dict(zip(drawn_panel.slider.values, drawn_panel.slider.texts, strict=True))
    assert texts[253] == "253"
    assert list(texts) == sorted(texts)


def test_target_and_budget_change_the_recommendation(
    panel: SizingPanel, frame: pd.DataFrame
) -> None:
    cap = panel.keep_recent.value
    panel.target.value = 0.8
    advice = memlab.recommend_cap(frame, target=0.8)
    assert panel.advice == advice
    assert f"Compacting to the newest {advice.keep_recent} episodes" in panel.text
    assert panel.keep_recent.value == cap
    assert cap != advice.keep_recent
    panel.use_recommended.click()
    assert panel.keep_recent.value == advice.keep_recent
    panel.token_budget.value = 5_000
    assert panel.advice == memlab.recommend_cap(frame, target=0.8, token_budget=5_000)
    assert panel.use_recommended.disabled
    panel.token_budget.value = None
    assert panel.advice == advice
    assert not panel.use_recommended.disabled
    assert panel.token_budget.nothing == "no budget"


@pytest.mark.usefixtures("no_pictures")
def test_panel_opens_with_the_settings_of_the_store(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(60))
    settings = tmp_path / "memlab.toml"
    settings.write_text('log = ["reads.jsonl"]\ntarget = 0.8\ntoken_budget = 40_000\n')
    log = memlab.AccessLog(tmp_path / "reads.jsonl")
    for number in range(30):
        year = 2026 if number % 3 else 2100
        log.add(f"e{number}", datetime(year, 6, 1, number % 24, tzinfo=UTC), f"s{number}")
    (line,) = size(path, runner=Serial()).to_dict("records")
    advice = explore(path).advice
    assert advice.references == line["references"]
    assert advice.keep_recent == line["keep_recent"]
    assert advice.target == 0.8
    assert advice.token_budget == 40_000
    settings.write_text("target = 0.3\n")
    assert explore(path).advice.target == 0.5


def test_command_is_withheld_with_a_reason(panel: SizingPanel) -> None:
    panel.keep_recent.value = 2_864
    assert panel.command_line == ""
    assert panel.no_command_reason == "no command: that cap deletes nothing today"
    panel.keep_recent.value = 735
    panel.token_budget.value = 20_000
    assert "takes more than 20,000 tokens at start" in panel.no_command_reason
    assert "memlab compact" not in panel.text
    panel.keep_recent.value = 249
    assert "fits today, but over 5% of past starts would have taken more" in panel.no_command_reason
    assert "memlab compact" not in panel.text
    panel.token_budget.value = 5_000
    assert "load-bearing" in panel.command.value
    panel.token_budget.value = None
    panel.keep_recent.value = 735
    assert panel.command_line.endswith("--keep-recent 735")


def test_number_box_clamps_and_validates_input(panel: SizingPanel) -> None:
    panel.keep_recent.value = 10**7
    assert panel.keep_recent.value == 2_864
    panel.keep_recent.value = None
    assert panel.keep_recent.value == 2_864
    with pytest.raises(TraitError):
        panel.keep_recent.value = "many"


def test_chart_does_not_keep_earlier_marks(
    drawn_panel: SizingPanel, sizing: Sizing, frame: pd.DataFrame
) -> None:
    fresh = SizingPanel(sizing, frame, store=str(STORE), target=0.9, token_budget=None)
    for cap in (5, 900, 40):
        drawn_panel.keep_recent.value = cap
    drawn_panel.token_budget.value = 12_000
    drawn_panel.token_budget.value = None
    fresh.keep_recent.value = 40
    for picture in ("curve_picture", "trade_off_picture"):
        assert getattr(drawn_panel, picture).value == getattr(fresh, picture).value
    (content,) = re.findall(r'src="data:image/png;base64,([^"]+)"', fresh.curve_picture.value)
    assert imread(BytesIO(b64decode(content))).shape[1:] == (540, 4)


@pytest.mark.usefixtures("no_pictures")
def test_explore_accepts_a_frame_with_references(frame: pd.DataFrame) -> None:
    references = memlab.find_references(frame).iloc[:10]
    panel = explore(frame, references)
    assert "from-other-projects" in panel.text
    own_part = "8% from 10 later needs seen in this store"
    assert f"{own_part}, 92% from the data of nine other projects" in panel.text
    assert panel.command_line == ""
    assert "no command: these memories are a frame" in panel.text


@pytest.mark.parametrize(
    ("count", "verdict"), [(0, "nothing-prunable"), (1, "from-other-projects")]
)
def test_explore_works_with_almost_no_rows(tmp_path: Path, count: int, verdict: str) -> None:
    panel = explore(write_rows(tmp_path / "memory.db", episodes(count)))
    assert verdict in panel.text
    assert "this store alone" not in facts(panel)
    assert panel.use_recommended.disabled == (count == 0)
    panel.slider.value = 0
    panel.target.value = 0.95
    panel.token_budget.value = 10
    assert facts(panel)["would go now"] == f"{count} of {count} prunable memories"


def test_store_texts_are_escaped_in_the_panel(tmp_path: Path) -> None:
    hostile = row("<img src=x onerror=alert(1)>", "semantic", title="<script>alert(1)</script>")
    path = write_rows(tmp_path / "my 'odd' <b>.db", [hostile, *episodes(100)])
    panel = explore(path)
    panel.keep_recent.value = 5
    assert shlex.split(panel.command_line)[:3] == ["memlab", "compact", str(path)]
    assert panel.command_line in words_of(panel.command.value)
    assert_no_markup_of_memories(panel)
    panel.token_budget.value = 1
    assert "floor-exceeds-budget" in panel.recommendation.value
    assert_no_markup_of_memories(panel)


def assert_no_markup_of_memories(panel: SizingPanel) -> None:
    for html in (panel.numbers, panel.recommendation, panel.command, panel.deleted_memories):
        assert not re.search("<script|<img|<b>", html.value)
    for html in (panel.curve_picture, panel.trade_off_picture):
        assert html.value.count("<") == 1


def test_notebook_output_holds_text_and_widget_view(panel: SizingPanel) -> None:
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == panel.text
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert panel.text.splitlines()[-1] == panel.command_line


def test_static_page_shows_the_tables(panel: SizingPanel) -> None:
    page = panel._repr_mimebundle_()["text/html"]
    assert f"<td>{panel.cap:,}</td>" in page
    assert panel.command_line in words_of(page)
    assert panel.deleted_memories.value in page
    assert not re.search("<script|<img", page)


def test_costliest_memories_to_be_deleted_are_listed(
    panel: SizingPanel, frame: pd.DataFrame
) -> None:
    panel.keep_recent.value = 2_000
    deleted = memlab.rows(frame, memlab.KeepRecent(2_000), where="not-kept", by="tokens")
    listed = re.findall(r"<tr><td>(.*?)</td><td>([\d,]+)</td>", panel.deleted_memories.value)
    assert len(listed) == 20
    assert [int(tokens) for _, tokens in listed] == deleted["tokens"].head(20).tolist()
    assert {memory_id for memory_id, _ in listed} <= set(frame["memory_id"][:-2_000])
    assert "864 memories would go" in panel.deleted_memories.value
    panel.keep_recent.value = 2_864
    assert not panel.deleted_memories.value


@pytest.mark.usefixtures("no_pictures")
def test_save_button_writes_the_settings_file(tmp_path: Path) -> None:
    path = memlab.copy_store(STORE, tmp_path / "memory.db")
    panel = explore(path, token_budget=60_000)
    panel.save.click()
    settings = settings_of(open_source(path))
    assert settings.keep_recent == panel.advice.keep_recent
    assert settings.target == 0.9
    assert settings.token_budget == 60_000
    assert settings.sized is not None
    assert settings.sized.until == panel.advice.until
    assert str(tmp_path / "memlab.toml") in panel.saved.value
    panel.keep_recent.value = 250
    assert not panel.saved.value
    panel.save.click()
    settings = settings_of(open_source(path))
    assert settings.keep_recent == 250
    assert settings.sized is None  # a chosen number has no horizon
    (tmp_path / "memlab.toml").chmod(0o666)
    panel.save.click()
    assert "chmod go-w" in panel.saved.value
    assert explore(make_episodes(3)).save.disabled


@pytest.mark.usefixtures("no_pictures")
def test_save_button_keeps_an_automatic_number(tmp_path: Path) -> None:
    path = memlab.copy_store(STORE, tmp_path / "memory.db")
    (tmp_path / "memlab.toml").write_text('policy = {name = "recent", keep = "auto"}\n')
    panel = explore(path, target=0.8)
    panel.save.click()
    settings = settings_of(open_source(path))
    assert settings.is_auto
    assert settings.target == 0.8
    assert "its number stays &quot;auto&quot;" in panel.saved.value
    panel.keep_recent.value = 250
    panel.save.click()
    assert settings_of(open_source(path)).keep_recent == 250


@pytest.mark.usefixtures("no_pictures")
def test_answer_compares_with_the_window_of_the_settings(tmp_path: Path) -> None:
    path = memlab.copy_store(STORE, tmp_path / "memory.db")
    (tmp_path / "memlab.toml").write_text("context_window = 400_000\n")
    assert " of 400,000)" in explore(path).recommendation.value
    for memories in (path, memlab.StoreHistory(path)):
        assert " of 400,000)" in memlab.recommend_cap(memories).answer


@pytest.mark.usefixtures("no_pictures")
def test_panel_warns_of_a_start_above_the_context_window(frame: pd.DataFrame) -> None:
    panel = explore(frame.assign(tokens=frame["tokens"] * 20))
    assert "but a start still exceeds the context window of 200,000" in panel.recommendation.value


def test_explore_writes_nothing_and_accepts_any_valid_target(tmp_path: Path) -> None:
    path = memlab.copy_store(STORE, tmp_path / "memory.db")
    before = path.read_bytes()
    panel = explore(path, target=0.925)
    assert panel.target.value == 0.925
    assert panel.advice.target == 0.925
    assert "92.5% of later needs are served" in panel.text
    panel.slider.value = 100
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]
    with pytest.raises(ValueError, match=r"target must lie between 0\.5 and 0\.99, not 0\.3"):
        explore(path, target=0.3)


@given(most=st.integers(1, 2_000_000))
def test_cap_steps_cover_the_range_in_small_strides(most: int) -> None:
    steps = cap_steps(most)
    assert steps[0] == 0
    assert steps[-1] == most
    assert (np.diff(steps) > 0).all()
    strides = np.diff(steps)[10:] / steps[10:-1]
    assert (strides <= 0.1).all()
    assert len(steps) < 700


def test_missing_ipywidgets_names_the_package(
    sizing: Sizing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(MissingExtraError, match="-m pip install 'anywidget"):
        SizingPanel(sizing, make_episodes(1), store="", target=0.9, token_budget=None)


def test_a_searched_store_is_described_by_recall() -> None:
    frame = make_episodes(40)
    frame.attrs[c.RECALLED] = True
    panel = explore(frame)
    assert {"to recall from", "over the history"} <= set(facts(panel))
    panel.token_budget.value = 10
    assert not re.search(r"boot|start", panel.text + alt(panel.trade_off_picture.value))
