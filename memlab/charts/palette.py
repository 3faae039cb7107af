"""Colours for light and for dark paper, and what each stands for; one mark and colour a policy.

The hues were chosen by search, so that no two are mistaken for each other with normal sight or
with full protanopia, deuteranopia or tritanopia (Machado et al. 2009), least of all those of the
policies that people compare most. Each has a contrast to its paper of 3 or more, 4.5 as words (WCAG
2.2). Marks differ too, so that nothing rests on colour alone.
"""

from dataclasses import dataclass, fields
from typing import Final, NamedTuple
from zlib import crc32

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb


@dataclass(frozen=True, slots=True)
class Palette:
    """One paper and the inks on it, as ``#rrggbb``; every colour of every chart is one of these.

    No two are the same, so that a colour in a picture says what it stands for: a hue and its words
    differ in the last digit at least.
    """

    paper: str
    ink: str
    muted: str
    grey: str
    hairline: str
    blue: str
    rust: str
    green: str
    gold: str
    teal: str
    purple: str
    blue_words: str
    rust_words: str
    green_words: str
    gold_words: str
    teal_words: str
    purple_words: str

    @property
    def load_bearing(self) -> str:
        """Decisions, skills and rejected paths."""
        return self.blue

    @property
    def prunable(self) -> str:
        """Episodes that a cap may delete."""
        return self.rust

    @property
    def superseded(self) -> str:
        """Memories that another one replaced."""
        return self.grey

    @property
    def cap(self) -> str:
        """A cap somebody looks at, and any other line that is set and not measured."""
        return self.ink

    @property
    def recommended(self) -> str:
        """The cap that is recommended."""
        return self.green

    @property
    def budget(self) -> str:
        """A budget of tokens."""
        return self.purple

    @property
    def series(self) -> tuple[str, ...]:
        """Colours for lines without a meaning of their own, in the order to take them."""
        return (self.blue, self.gold, self.rust, self.teal, self.purple, self.green, self.ink)

    def words(self, colour: str) -> str:
        """Return the colour for words about what is drawn in `colour`, dark enough to read."""
        if colour == self.grey:
            return self.muted
        by_hue = {getattr(self, hue): getattr(self, f"{hue}_words") for hue in HUES}
        return str(by_hue.get(colour, colour))


HUES: Final = ("blue", "rust", "green", "gold", "teal", "purple")

LIGHT: Final = Palette(
    paper="#ffffff",
    ink="#262626",
    muted="#5f6368",
    grey="#8a8d91",
    hairline="#e3e5e8",
    blue="#3188fc",
    rust="#983c1d",
    green="#53855a",
    gold="#c68722",
    teal="#0a5d66",
    purple="#985eab",
    blue_words="#1767cd",
    rust_words="#983c1e",
    green_words="#45744c",
    gold_words="#8f5d0c",
    teal_words="#0a5d67",
    purple_words="#8c509f",
)
DARK: Final = Palette(
    paper="#15181c",
    ink="#e8eaed",
    muted="#a8adb4",
    grey="#8a8d92",
    hairline="#33373d",
    blue="#4c8cf6",
    rust="#cc6138",
    green="#86ff8f",
    gold="#f9b22a",
    teal="#3ad0d8",
    purple="#9c77a8",
    blue_words="#6ea3fa",
    rust_words="#dd7d59",
    green_words="#86ff90",
    gold_words="#f9b22b",
    teal_words="#3ad0d9",
    purple_words="#b795c2",
)


class Style(NamedTuple):
    """How a policy is drawn wherever it is drawn.

    Attributes
    ----------
    hue : str
        A field of :class:`Palette`.
    marker : str
        As matplotlib names it.
    glyph : str
        The same mark as a character, for labels.
    """

    hue: str
    marker: str
    glyph: str

    def of(self, paint: Palette) -> str:
        """Return the colour on one paper."""
        return str(getattr(paint, self.hue))


POLICY_STYLES: Final = {
    "recent": Style("blue", "o", "●"),
    "ttl": Style("gold", "s", "■"),
    "value": Style("rust", "^", "▲"),
    "learned": Style("ink", "D", "◆"),
    "budget": Style("teal", "v", "▼"),
    "floor": Style("purple", "p", "⬟"),
    "dedup": Style("green", "<", "◀"),
    "odek": Style("purple", "P", "✚"),
    "memforge": Style("teal", "*", "★"),
    "betterdb": Style("green", "X", "✖"),
    "purge-superseded": Style("grey", ">", "▶"),
}
"""The policies that come with memlab, by their short name."""

_ORDERS: Final = {
    "dedup > ttl > recent": "odek",
    "floor > budget": "memforge",
    "ttl > value": "betterdb",
}
"""Policies in a row that have a name of their own."""

_OTHERS: Final = tuple(
    Style(hue, marker, glyph)
    for marker, glyph in (("h", "⬢"), ("H", "⬣"), ("x", "×"))
    for hue in HUES
)


def style_of(policy: str) -> Style:
    """Return how a policy is drawn: the same for the same name, whatever stands beside it.

    Parameters
    ----------
    policy : str
        Its name, its family or its label: settings make no difference.

    Examples
    --------
    >>> style_of("recent 50").glyph, style_of("recent, by").glyph, style_of("value 200").glyph
    ('●', '●', '▲')
    """
    steps = [step.split(" ", 1)[0].rstrip(",") for step in policy.strip().split(" > ")]
    name = " > ".join(steps)
    others = _OTHERS[crc32(name.encode("utf-8", "replace")) % len(_OTHERS)]
    return POLICY_STYLES.get(_ORDERS.get(name, name), others)


def palette_of(ax: Axes) -> Palette:
    """Return the colours that suit the paper under `ax`: those for dark where it is dark."""
    figure = ax.figure.get_figure(root=True)
    red, green, blue = to_rgb(figure.get_facecolor()[:3])
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.4 else LIGHT


def roles(palette: Palette) -> dict[str, str]:
    """Return the name and the colour of everything on a palette."""
    return {each.name.replace("_", "-"): getattr(palette, each.name) for each in fields(palette)}
