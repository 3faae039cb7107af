"""The figure that a chart makes for itself, as SVG or PNG, for any theme and width; its colours.

The hues stay apart in full protanopia, deuteranopia and tritanopia (Machado et al. 2009), with a
contrast of 3 or more, 4.5 as words (WCAG 2.2). Marks and dashes differ: nothing rests on colour.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, wraps
from html import escape
from io import BytesIO, StringIO
from typing import Any, Final, NamedTuple, ParamSpec, cast
from zlib import crc32

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

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
        by_hue = {getattr(self, hue): getattr(self, f"{hue}_words") for hue in HUES}
        return str({self.grey: self.muted, **by_hue}.get(colour, colour))


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
    "activation": Style("D", "◆"),
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
    return {name.replace("_", "-"): colour for name, colour in asdict(palette).items()}


NAMESPACE: Final = 'xmlns="http://www.w3.org/2000/svg"'
_FONTS: Final = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
_HAIR: Final = 0.3
"""Points, of which a chart is 576 wide."""
_NAMES: Final = {
    colour: name for palette in (DARK, LIGHT) for name, colour in roles(palette).items()
}


def _coloured(palette: Palette, *hosts: str) -> str:
    """Return the rule that gives charts, below certain hosts or anywhere, a palette's colours."""
    chosen = ",".join(f"{host}.memlab-chart" for host in hosts or ("",))
    colours = "".join(f"--chart-{name}:{colour};" for name, colour in roles(palette).items())
    return f"{chosen}{{{colours}}}"


_BY_SYSTEM: Final = (
    f"{_coloured(LIGHT)}@media screen and (prefers-color-scheme:dark){{{_coloured(DARK)}}}"
)
_BY_HOST: Final = _coloured(
    LIGHT,
    'body[data-jp-theme-light="true"] ',
    "body.vscode-light ",
    '[data-md-color-scheme="default"] ',
) + _coloured(
    DARK,
    'body[data-jp-theme-light="false"] ',
    "body.vscode-dark ",
    '[data-md-color-scheme="slate"] ',
)
STYLE: Final = (
    f"{_BY_SYSTEM}@media screen{{{_BY_HOST}}}"
    ".memlab-chart{container-type:inline-size;margin:0 0 1em;break-inside:avoid}"
    ".memlab-chart svg{display:block;max-width:100%;height:auto}"
    ".memlab-chart svg.narrow{display:none;width:100%}"
    "@container (max-width:580px){.memlab-chart svg.narrow{display:block}"
    ".memlab-chart svg.narrow~svg.wide{display:none}}"
)
"""What a page says once for all its charts: JupyterLab's, VS Code's and the site's own switch of
theme come before the system's, and paper is light."""


def as_svg(chart: "Chart", name: str, style: str = "") -> str:
    """Return a chart as one SVG element of the class `name`, its colours by name."""
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _drawn(chart), flags=re.DOTALL)
    body = body.partition("<svg")[2].partition(">")[2]
    body = re.sub(r' d="([ML0-9.\-\s]+z?\s*)"', lambda d: f' d="{_thinned(d[1])}"', body)
    used = set(re.findall(r'(?:#|href="#)([\w-]+)', body))
    body = re.sub(r' id="([\w-]+)"', lambda m: m[0] if m[1] in used else "", body)
    body = re.sub(r"<[^>]+>", lambda tag: re.sub(r"#[0-9a-f]{6}\b", _by_name, tag[0]), body)
    body = body.replace("'DejaVu Sans'", _FONTS).replace("xlink:href", "href")
    body = re.sub(r">\s+<", "><", body)
    wide, high = 72 * chart.get_size_inches()
    size = f'width="{wide:g}pt" height="{high:g}pt" viewBox="0 0 {wide:g} {high:g}"'
    title, alt = (escape(words, quote=False) for words in (chart.title, chart.alt))
    words = f"<title>{title}</title><desc>{alt}</desc>"
    return f'<svg {NAMESPACE} class="{name}" role="img" {size}>{words}{style}{body.strip()}'


def _drawn(figure: Figure) -> str:
    """Draw a figure once: `Figure.savefig` draws it a first time for a layout that it has."""
    drawn = StringIO()
    canvas = figure.canvas
    dpi = figure.dpi
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "memlab"}):
        figure.dpi = 72
        try:
            canvas_of_svg: Any = FigureCanvasSVG(figure)
            canvas_of_svg.print_svg(drawn, metadata={"Date": None, "Creator": None})
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
    return drawn.getvalue()


def _thinned(path: str) -> str:
    """Leave out the points of a path that nobody could see: nearer to the last one than a hair."""
    kept: list[str] = []
    last = (0.0, 0.0)
    points = re.findall(r"([ML]) (-?[\d.]+) (-?[\d.]+)", path)
    for number, (command, across, down) in enumerate(points):
        x = float(across)
        y = float(down)
        moved = max(abs(x - last[0]), abs(y - last[1])) > _HAIR
        if command == "M" or moved or number == len(points) - 1:
            kept.append(f"{command}{x:.1f} {y:.1f}")
            last = (x, y)
    return "".join(kept) + ("z" if path.rstrip().endswith("z") else "")


def _by_name(found: re.Match[str]) -> str:
    name = _NAMES.get(found[0])
    return f"var(--chart-{name},{found[0]})" if name else found[0]


P = ParamSpec("P")

WIDTH: Final = 8.0
"""Inches: the width of a notebook's output at 100%."""
NARROW: Final = 4.0
"""Inches: the width of a telephone, and of a column."""
PAD: Final = 0.1
"""Inches around what is drawn."""
AROUND: Final[dict[str, Any]] = {"w_pad": PAD, "h_pad": PAD}
DPI: Final = 100
SUBTITLE: Final = "subtitle"
FOOTNOTE: Final = "footnote"
"""What a text on a chart is, as its ``gid``; the others are labels."""


class Chart(Figure):
    """A figure with one chart, which can be drawn again on other paper."""

    def __init__(
        self, draw: Callable[..., Axes], *, width: float = WIDTH, palette: Palette = LIGHT
    ) -> None:
        super().__init__(figsize=(width, width / 2), dpi=DPI, facecolor=palette.paper)
        self.set_layout_engine("constrained", **AROUND)
        FigureCanvasAgg(self)
        self.again = draw
        self.nothing_to_show = ""
        """Why there is nothing to draw; empty where there is something."""
        draw(ax=self.add_subplot())

    def at(self, *, width: float = WIDTH, palette: Palette = LIGHT) -> "Chart":
        """Return the same chart drawn anew at another width, on other paper."""
        return Chart(self.again, width=width, palette=palette)

    @property
    def title(self) -> str:
        """What is said above the chart, on one line."""
        return " ".join(self.axes[0].get_title(loc="left").split())

    @property
    def alt(self) -> str:
        """What is to be seen, in words: everything written on the chart but the ticks."""
        ax = self.axes[0]
        legend = ax.get_legend()
        texts: list[Text] = [*(legend.get_texts() if legend else []), *ax.texts]
        said: dict[str | None, list[str]] = {}
        for text in texts:
            said.setdefault(text.get_gid(), []).append(" ".join(text.get_text().split()))
        axes = [name for name in (ax.get_ylabel(), ax.get_xlabel()) if name]
        labels = dict.fromkeys(label for label in said.get(None, []) if label)
        parts = [
            self.title,
            *said.get(SUBTITLE, []),
            f"Axes: {'; '.join(axes)}" if axes else "",
            f"Labels: {'; '.join(labels)}" if labels else "",
            *said.get(FOOTNOTE, []),
        ]
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)

    def svg(self) -> str:
        """Return an SVG file that is light or dark as its reader's system is; text stays text."""
        return as_svg(self, "memlab-chart", f"<style>{_BY_SYSTEM}</style>")

    def png(self, *, dpi: int = DPI) -> bytes:
        """Return a PNG file."""
        drawn = BytesIO()
        self.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
        return drawn.getvalue()

    def __repr__(self) -> str:
        return f"<chart: {self.alt}>"

    def _repr_html_(self) -> str:
        """Show the chart wide and narrow; the page shows the one that fits.

        Where there is nothing to draw a sentence says why, and no chart is shown.
        """
        if self.nothing_to_show:
            return f"<p>{escape(self.nothing_to_show)}</p>"
        drawings = as_svg(self.at(width=NARROW), "narrow"), as_svg(self, "wide")
        return f'<div class="memlab-chart"><style>{STYLE}</style>{"".join(drawings)}</div>'


def on_its_own(plot: Callable[P, Axes]) -> Callable[P, Axes]:
    """Give a chart that is called without axes a :class:`Chart` to draw on."""

    @wraps(plot)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return plot(*args, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name != "ax"}
        return Chart(partial(cast("Callable[..., Axes]", plot), *args, **rest)).axes[0]

    return drawn
