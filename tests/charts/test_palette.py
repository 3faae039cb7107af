"""Colours stay apart for every kind of sight, can be read on their paper, and follow the paper."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

from memlab.charts.palette import (
    DARK,
    HUES,
    LIGHT,
    POLICY_STYLES,
    Palette,
    palette_of,
    roles,
    style_of,
)

BOTH = pytest.mark.parametrize("paint", [LIGHT, DARK], ids=["light", "dark"])
Colour = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# Ottosson (2020)
TO_LMS = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def linear(colour: str) -> Colour:
    rgb = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Colour) -> Colour:
    """A colour where distances are as they look; black and white are 1 apart."""
    return np.array(TO_LAB) @ np.cbrt(TO_LMS @ np.clip(rgb, 0, 1))


def apart(one: str, other: str) -> float:
    """How far two colours are apart for the sight that tells them apart least."""
    return min(
        float(np.linalg.norm(oklab(sight @ linear(one)) - oklab(sight @ linear(other))))
        for sight in SIGHTS.values()
    )


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2.2, from 1 to 21."""
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(c)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@BOTH
def test_policies_compared_by_default_stay_far_apart_for_every_sight(paint: Palette) -> None:
    for one, other in itertools.combinations(("recent", "ttl", "value", "learned"), 2):
        styles = style_of(one), style_of(other)
        if styles[0].goes_by == styles[1].goes_by:
            assert styles[0].dashed != styles[1].dashed
        else:
            assert apart(*(style.of(paint) for style in styles)) > 0.15, (one, other)


@BOTH
def test_hues_stay_apart_for_every_sight_and_far_where_they_stand_side_by_side(
    paint: Palette,
) -> None:
    assert apart(paint.likely, paint.safe) > 0.12
    assert apart(paint.load_bearing, paint.prunable) > 0.15
    hues = [getattr(paint, hue) for hue in HUES]
    every = [*itertools.combinations(hues, 2), *itertools.product(hues, (paint.ink, paint.grey))]
    for one, other in every:
        assert apart(one, other) > 0.08, (one, other)


@BOTH
def test_marks_and_words_stand_out_from_their_paper(paint: Palette) -> None:
    for hue in HUES:
        colour = getattr(paint, hue)
        assert contrast(colour, paint.paper) >= 3, hue
        assert contrast(paint.words(colour), paint.paper) >= 4.5, hue
    for colour in (paint.ink, paint.muted, paint.words(paint.grey)):
        assert contrast(colour, paint.paper) >= 4.5


@BOTH
def test_every_colour_of_a_palette_says_what_it_stands_for(paint: Palette) -> None:
    assert len(set(roles(paint).values())) == len(roles(paint))


def test_no_two_policies_share_colour_and_mark() -> None:
    looks = [(style.goes_by, style.marker) for style in POLICY_STYLES.values()]
    assert len(set(looks)) == len(looks)
    assert len({style.glyph for style in POLICY_STYLES.values()}) == len(looks)


def test_settings_make_no_difference_to_a_style() -> None:
    assert style_of("mine 3, tau=1 d") == style_of("mine 700")
    assert style_of("dedup 0.8 > ttl > recent 500, by=created_at") == style_of("odek 500")


def test_every_mark_has_a_glyph_in_the_font_of_the_charts() -> None:
    known = FT2Font(findfont("DejaVu Sans")).get_charmap()
    drawn = [*POLICY_STYLES, *(f"mine{number}" for number in range(100))]
    assert {
        style_of(name).glyph for name in drawn if ord(style_of(name).glyph) not in known
    } == set()


def test_colours_follow_the_paper() -> None:
    for face, paint in (("white", LIGHT), ("#eeeeee", LIGHT), ("black", DARK), ("#111111", DARK)):
        assert palette_of(Figure(facecolor=face).add_subplot()) is paint
