"""What each colour stands for, on light and on dark paper; one mark and dash a policy.

The hues stay apart in full protanopia, deuteranopia and tritanopia (Machado et al. 2009), with a
contrast of 3 or more, 4.5 as words (WCAG 2.2). Marks and dashes differ: nothing rests on colour.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple
from zlib import crc32

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from memlab.policies import NAMED


@dataclass(frozen=True, slots=True)
class Palette:
    """One paper and the inks on it, as ``#rrggbb``, no two the same: each has one meaning."""

    paper: str
    ink: str
    muted: str
    grey: str
    hairline: str
    load_bearing: str
    prunable: str
    likely: str
    safe: str
    by_age: str
    by_use: str
    load_bearing_words: str
    prunable_words: str
    likely_words: str
    safe_words: str
    by_age_words: str
    by_use_words: str

    def words(self, colour: str) -> str:
        """Return the colour for words about what is drawn in `colour`, dark enough to read."""
        if colour == self.grey:
            return self.muted
        by_hue = {getattr(self, hue): getattr(self, f"{hue}_words") for hue in HUES}
        return str(by_hue.get(colour, colour))


HUES: Final = ("load_bearing", "prunable", "likely", "safe", "by_age", "by_use")

_INKS: Final = {
    "paper": ("#ffffff", "#15181c"),
    "ink": ("#262626", "#e8eaed"),
    "muted": ("#5f6368", "#a8adb4"),
    "grey": ("#8a8d91", "#8a8d92"),
    "hairline": ("#e3e5e8", "#33373d"),
    "load_bearing": ("#1c8ff5", "#4c8cf6"),
    "prunable": ("#a82c10", "#cc6138"),
    "likely": ("#b78d29", "#ebae1c"),
    "safe": ("#036648", "#9dd9ae"),
    "by_age": ("#0d7a8c", "#43bedb"),
    "by_use": ("#5e238c", "#a44a9a"),
    "load_bearing_words": ("#0975d5", "#6ea3fa"),
    "prunable_words": ("#a82c11", "#dd7d59"),
    "likely_words": ("#876618", "#ebae1d"),
    "safe_words": ("#036649", "#9dd9af"),
    "by_age_words": ("#0d7a8d", "#43bedc"),
    "by_use_words": ("#5e238d", "#c377ba"),
}
"""What a colour stands for, with its hue on light paper and on dark."""

LIGHT: Final = Palette(**{name: on_light for name, (on_light, _) in _INKS.items()})
DARK: Final = Palette(**{name: on_dark for name, (_, on_dark) in _INKS.items()})


class Style(NamedTuple):
    """How a policy is drawn wherever it is drawn."""

    marker: str
    glyph: str
    dashed: bool = False
    goes_by: str = ""

    def of(self, paint: Palette) -> str:
        """Return the colour on one paper: what the policy goes by."""
        return {"age": paint.by_age, "use": paint.by_use}.get(self.goes_by, paint.muted)

    def drawn(self, paint: Palette, width: float) -> dict[str, Any]:
        """Return how its line and its marks are drawn, as matplotlib takes it."""
        return {
            "color": self.of(paint),
            "linewidth": width,
            "linestyle": (0, (4, 1.5)) if self.dashed else "-",
            "marker": self.marker,
            "markersize": 4 + width,
            "markeredgecolor": paint.paper,
            "markeredgewidth": 0.6,
        }


POLICY_STYLES: Final = {
    "recent": Style("o", "●"),
    "ttl": Style("s", "■", dashed=True),
    "tokens": Style("v", "▼", dashed=True),
    "odek": Style("P", "✚", dashed=True),
    "value": Style("^", "▲", dashed=True),
    "learned": Style("D", "◆"),
    "betterdb": Style("X", "✖", dashed=True),
    "budget": Style("h", "⬢"),
    "floor": Style("p", "⬟"),
    "dedup": Style("<", "◀"),
    "memforge": Style("*", "★"),
    "purge-superseded": Style(">", "▶"),
}
"""Marks of the policies that come with memlab, by their short name."""

_ORDERS: Final = {
    "dedup > ttl > recent": "odek",
    "floor > budget": "memforge",
    "ttl > value": "betterdb",
}
"""Policies in a row that have a name of their own."""

_OTHERS: Final = tuple(
    Style(marker, glyph, dashed=dashed)
    for marker, glyph in (("H", "⬣"), ("x", "×"), ("d", "♦"), ("+", "+"))
    for dashed in (False, True)
)
"""Marks of those of one's own."""


def style_of(policy: str, goes_by: str | None = None) -> Style:
    """Return how a policy is drawn: the same for the same name, whatever stands beside it.

    >>> style_of("recent 50").glyph, style_of("recent, by").glyph, style_of("value 200").glyph
    ('●', '●', '▲')
    """
    steps = [step.split(" ", 1)[0].rstrip(",") for step in policy.strip().split(" > ")]
    name = " > ".join(steps)
    name = _ORDERS.get(name, name)
    others = _OTHERS[crc32(name.encode("utf-8", "replace")) % len(_OTHERS)]
    if goes_by is None:
        goes_by = NAMED[name].goes_by if name in NAMED else ""
    return POLICY_STYLES.get(name, others)._replace(goes_by=goes_by)


def palette_of(ax: Axes) -> Palette:
    """Return the colours that suit the paper under `ax`: those for dark where it is dark."""
    figure = ax.figure.get_figure(root=True)
    red, green, blue = to_rgb(figure.get_facecolor()[:3])
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.4 else LIGHT


def roles(palette: Palette) -> dict[str, str]:
    """Return the name and the colour of everything on a palette."""
    return {each.name.replace("_", "-"): getattr(palette, each.name) for each in fields(palette)}
