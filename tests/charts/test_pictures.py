"""Charts look as they looked when somebody last looked at them.

What is compared is a small picture of each, with matplotlib's own comparison. To draw them anew
after a change that was meant: ``MEMLAB_DRAW_PICTURES=1 pytest tests/charts/test_pictures.py``, then
look at every one that changed.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, row
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.testing.compare import compare_images
from PIL import Image
from PIL.ImageOps import posterize

import memlab
from memlab import charts
from memlab import columns as c
from memlab.charts.figure import NARROW, Chart
from memlab.charts.palette import DARK, LIGHT
from memlab.compaction.effects import survivors
from memlab.growth import boot_context
from memlab.sizing import Advice, Verdict
from memlab.sizing.advice import TradeEnd

PICTURES = Path(__file__).parent / "pictures"
DOTS_PER_INCH = 40
TOLERANCE = 2.0
"""Root mean square over all pixels: below what one line in another colour makes."""

ABOUT = {c.SOURCE: "memory.db", c.REFERENCES: 542, c.TOKEN_RULE: "characters / 4, an estimate"}


def mixed(episodes: int) -> pd.DataFrame:
    decisions = [row(f"d{n}", **{c.KIND: "semantic", c.TOKENS: 40}) for n in range(episodes // 4)]
    return make_frame(*decisions, *(f"e{n}" for n in range(episodes)))


def told(table: pd.DataFrame) -> pd.DataFrame:
    table.attrs = dict(ABOUT)
    return table


def growth(rows: int) -> Axes:
    frame = make_episodes(rows) if rows > 10 else mixed(rows)
    return charts.plot_growth(memlab.growth_curve(frame))


def before_after() -> Axes:
    frame = mixed(10)
    return charts.plot_before_after(boot_context(frame), boot_context(survivors(frame, 3)))


def age_ranks(count: int, *, advice: Advice | None = None) -> Axes:
    """References at even times, most of them near and some far."""
    written = np.linspace(1, 3 * count, count).astype(np.int64)
    far = 1 + (np.random.default_rng(0).pareto(0.7, count) * 8).astype(np.int64)
    ranks = told(pd.DataFrame({"written": written, "age_rank": np.minimum(far, written)}))
    edges = np.linspace(0, 3 * count, 6).astype(int)
    levels = {"first": edges[:-1], "last": edges[1:], "p50": [4, 9, 12, 11, 14]}
    quantiles = pd.DataFrame({**levels, "p90": [60, 110, 160, 200, 320]})
    return charts.plot_age_ranks(ranks, quantiles=quantiles, advice=advice)


def curve(most: int, floor: int) -> pd.DataFrame:
    """Every cap serves as much more as it is larger by ratio."""
    caps = np.unique(np.geomspace(1, most + 1, 400).astype(int) - 1)
    served = np.log1p(caps) / np.log1p(max(1, most))
    table = pd.DataFrame(index=pd.Index(caps, name="keep_recent"))
    table["served"], table["served_elsewhere"] = served, served**1.5
    table["served_own"] = served**0.8
    table["low"], table["high"] = served**1.4, served**0.7
    table["boot_tokens_p95"] = floor + 55.0 * caps
    return told(table)


def advised(**fields: Any) -> Advice:
    made = memlab.recommend_cap(make_episodes(40))
    known = {"verdict": Verdict.OK, "keep_recent": 357, "likely": 190, "weight": 0.6}
    return replace(made, **{**known, "boot_tokens_p95": 26_261, "trade": (), **fields})


def cap_curve(most: int) -> Axes:
    fits = TradeEnd(900, 0.95, (0.9, 0.99), 49_500, 49_500, 300.0)
    advice = advised(token_budget=50_000, within_budget=fits)
    return charts.plot_cap_curve(curve(most, 0), advice=advice, cap=50 if most else None)


def trade_off(most: int, floor: int) -> Axes:
    return charts.plot_trade_off(curve(most, floor), advice=advised(token_budget=30_000))


def boot_over_time() -> Axes:
    when = pd.date_range("2025-01-01", "2026-03-01", periods=200, tz="UTC")
    written = np.arange(200)
    parts = [
        pd.DataFrame({"keep_recent": cap, c.AT: when, c.TOKENS: np.minimum(written, most) * 70})
        for cap, most in ((None, 200), (50, 50), (120, 120))
    ]
    whole = pd.concat([part.astype({"keep_recent": "Int64"}) for part in parts], ignore_index=True)
    whole[c.MEMORIES] = whole[c.TOKENS] // 70
    return charts.plot_boot_over_time(told(whole), budget=10_000, advice=advised(keep_recent=120))


def track_record() -> Axes:
    table = pd.DataFrame(
        {
            "cut": [0.5, 0.6, 0.7, 0.8],
            "verdict": "ok",
            "keep_recent": pd.array([296, 411, 395, 346], dtype="Int64"),
            "needed": pd.array([260, 228, 520, None], dtype="Int64"),
            "target": 0.9,
            "achieved": pd.array([0.922, 0.962, 0.871, None], dtype="Float64"),
            "reached": pd.array([True, True, False, None], dtype="boolean"),
            "references": [115, 105, 102, 0],
        }
    )
    return charts.plot_backtest(told(table))


def comparison() -> Axes:
    """Two policies on one line, one beside it, and the price of keeping everything."""
    rows = []
    for family, gain in (("recent", 0.0), ("value", 0.0), ("ttl", -0.03), ("learned", 0.02)):
        for cap, cost, served in ((50, 6e3, 0.7), (200, 15e3, 0.84), (1_000, 48e3, 0.96)):
            setting = f"{cap // 5} d" if family == "ttl" else f"{cap}"
            price = cost * (1.1 if family == "ttl" else 1)
            rows.append((f"{family} {setting}", family, family, served + gain, price))
    rows.append(("all", "all", "all", 1.0, 83e3))
    names = ["label", "policy", "family", "served", "boot_tokens_mean"]
    table = pd.DataFrame(rows, columns=names).set_index("label")
    table["oracle"] = np.where(table["boot_tokens_mean"] < 10_000, 0.99, 1.0)
    return charts.plot_comparison(told(table))


def overlap() -> Axes:
    names = ["recent 500", "ttl 180 d", "mine 500, half_life=20 d"]
    values = [[1, 0.86, 0.4], [np.nan, np.nan, np.nan], [0.2, 0.05, 1]]
    return charts.plot_overlap(told(pd.DataFrame(values, index=names, columns=names)))


def fleet_tokens(count: int) -> Axes:
    tokens = (np.geomspace(200_000, 900, count)).astype(np.int64)
    stores = pd.DataFrame({"boot_tokens": tokens, "floor_tokens": tokens // 12, "error": None})
    return charts.plot_fleet_tokens(stores)


def fleet_caps() -> Axes:
    """Stores of every kind, some of which coincide."""
    sizes = {"boot_now": [9_000] * 12 + [900, 2_000, 4_000], "likely": 20}
    sizes |= {
        "boot_after": [2_000] * 12 + [900, 2_000, 3_900],
        "floor": [800] * 12 + [100, 90, 3_000],
    }
    sizes |= {"prunable": [90] * 13 + [9, 90], "error": [None] * 15}
    return charts.plot_fleet_caps(pd.DataFrame(sizes))


def regret() -> Axes:
    when = pd.date_range("2025-01-01", "2025-07-01", periods=120, tz="UTC")
    lost = {"recent 500": 5, "value 500": 5, "ttl 180 d": 9}
    return charts.plot_regret(
        {
            label: told(pd.DataFrame({c.AT: when, "lost": np.arange(120) // each}))
            for label, each in lost.items()
        }
    )


DRAWN: dict[str, Callable[[], Axes]] = {
    "growth-0": lambda: growth(0),
    "growth-1": lambda: growth(1),
    "growth-10": lambda: growth(10),
    "growth-100000": lambda: growth(100_000),
    "backlog": lambda: charts.plot_backlog(memlab.growth_curve(mixed(60)), cap=25),
    "boot-context": lambda: charts.plot_boot_context(boot_context(mixed(10))),
    "before-after": before_after,
    "age-ranks": lambda: age_ranks(500, advice=advised()),
    "age-ranks-100000": lambda: age_ranks(100_000),
    "boot-over-time": boot_over_time,
    "track-record": track_record,
    "cap-curve": lambda: cap_curve(3_000),
    "cap-curve-0": lambda: cap_curve(0),
    "trade-off": lambda: trade_off(3_000, 6_000),
    "trade-off-floor": lambda: trade_off(300, 60_000),
    "trade-off-100000": lambda: trade_off(100_000, 0),
    "comparison": comparison,
    "overlap": overlap,
    "regret": regret,
    "fleet-tokens": lambda: fleet_tokens(4),
    "fleet-tokens-5000": lambda: fleet_tokens(5_000),
    "fleet-caps": fleet_caps,
}
DARK_TOO = ("growth-10", "age-ranks", "cap-curve", "trade-off", "comparison", "overlap")
NARROW_TOO = ("boot-context", "trade-off", "comparison", "track-record")


@cache
def chart_named(name: str) -> Chart:
    """A picture's chart, drawn once for all tests; nobody changes it."""
    figure = DRAWN[name.removesuffix("-dark").removesuffix("-narrow")]().figure
    assert isinstance(figure, Chart)
    if name.endswith("-dark"):
        return figure.at(palette=DARK)
    return figure.at(width=NARROW) if name.endswith("-narrow") else figure


def draw(figure: Chart, path: Path) -> None:
    """Draw a picture, small, and in few shades so that it takes little room."""
    with Image.open(BytesIO(figure.png(dpi=DOTS_PER_INCH))) as image:
        posterize(image.convert("RGB"), 4).save(path, optimize=True)


@pytest.mark.parametrize(
    "name",
    [
        *DRAWN,
        *(f"{name}-dark" for name in DARK_TOO),
        *(f"{name}-narrow" for name in NARROW_TOO),
    ],
)
def test_a_chart_looks_as_it_did(name: str, tmp_path: Path) -> None:
    stored, drawn = PICTURES / f"{name}.png", tmp_path / f"{name}.png"
    draw(chart_named(name), drawn)
    if "MEMLAB_DRAW_PICTURES" in os.environ:
        PICTURES.mkdir(exist_ok=True)
        stored.write_bytes(drawn.read_bytes())
    found = compare_images(str(stored), str(drawn), tol=TOLERANCE)
    assert found is None, found


MEANS = {
    "load_bearing": "load.bearing|floor",
    "prunable": "prunable",
    "likely": "likely|estimated|limits|law|^[0-9,]+$",
    "safe": "safe|lower limit|chosen|^[0-9,]+$",
    "by_age": "age|recent|ttl|^[0-9,]+( d)?$",
    "by_use": "use|value|learned|^[0-9,]+$",
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_colour_means_one_thing_in_every_chart(name: str) -> None:
    ax = chart_named(name).axes[0]
    legend = ax.get_legend()
    keys = zip(legend.get_texts(), legend.legend_handles, strict=True) if legend else ()
    said = [(text.get_text(), text.get_color()) for text in ax.texts]
    said += [(str(line.get_label()), line.get_color()) for line in ax.lines]
    said += [(str(each.get_label()), colour) for each in ax.collections for colour in each.get_fc()]
    said += [
        (text.get_text(), handle.get_color()) for text, handle in keys if isinstance(handle, Line2D)
    ]
    for words, colour in said:
        for role, means in MEANS.items():
            hues = {getattr(LIGHT, role), getattr(LIGHT, f"{role}_words")}
            if to_hex(colour) in hues and not words.startswith("_"):
                assert re.search(means, words), f"{words} is drawn as {role}"


def test_another_colour_would_be_seen(tmp_path: Path) -> None:
    figure = chart_named("growth-10").at()
    for line in figure.axes[0].lines:
        line.set_color(DARK.safe)
    other = tmp_path / "growth-10.png"
    draw(figure, other)
    assert compare_images(str(PICTURES / "growth-10.png"), str(other), tol=TOLERANCE) is not None
