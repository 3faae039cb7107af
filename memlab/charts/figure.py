"""The figure of a chart, its palettes, and its output as SVG, PNG and HTML.

The hues are distinguishable in full protanopia, deuteranopia and tritanopia (Machado et al. 2009).
Their contrast is at least 3 for marks and 4.5 for text (WCAG 2.2). Marks and dashes differ too, so
that no information depends on colour alone.
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

from memlab.charts.hover import HoverValues, with_areas
from memlab.policies import NAMED
from memlab.replay.candidates import RULES


@dataclass(frozen=True, slots=True)
class Palette:
    """The background and the colours on it, as ``#rrggbb``; each colour has one meaning."""

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

    def text_colour(self, colour: str) -> str:
        """Return the legible variant of a mark's colour, for text about the mark."""
        if colour == self.grey:
            return self.muted
        for hue in HUES:
            if colour == getattr(self, hue):
                return str(getattr(self, f"{hue}_words"))
        return colour


HUES: Final = ("load_bearing", "prunable", "likely", "safe", "by_age", "by_use")

_COLOURS: Final = {
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
"""The meaning of each colour, with its value on a light and on a dark background."""

_ON_LIGHT: Final = {name: on_light for name, (on_light, _) in _COLOURS.items()}
_ON_DARK: Final = {name: on_dark for name, (_, on_dark) in _COLOURS.items()}
LIGHT: Final = Palette(**_ON_LIGHT)
DARK: Final = Palette(**_ON_DARK)


class Style(NamedTuple):
    """The marker, glyph and line of a policy in all charts.

    `ranks_by` is ``"age"``, ``"use"`` or empty, and selects the colour.
    """

    marker: str
    glyph: str
    dashed: bool = False
    ranks_by: str = ""

    def of(self, palette: Palette) -> str:
        """Return the colour of the policy on a palette."""
        if self.ranks_by == "age":
            return palette.by_age
        if self.ranks_by == "use":
            return palette.by_use
        return palette.muted

    def drawn(self, palette: Palette, width: float) -> dict[str, Any]:
        """Return the style of its line and marks, as keyword arguments of matplotlib."""
        return {
            "color": self.of(palette),
            "linewidth": width,
            "linestyle": (0, (4, 1.5)) if self.dashed else "-",
            "marker": self.marker,
            "markersize": 4 + width,
            "markeredgecolor": palette.paper,
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
"""Styles of memlab's policies, by their short name."""

_NAMED_SEQUENCES: Final = {
    "dedup > ttl > recent": "odek",
    "floor > budget": "memforge",
    "ttl > value": "betterdb",
}
"""Sequences of policies that have a name of their own."""

HOLLOW_GLYPHS: Final = {"●": "○", "◆": "◇", "■": "□", "▲": "△", "▼": "▽", "★": "☆"}
"""Glyphs of marks that are drawn hollow."""

_UNKNOWN_STYLES: Final = tuple(
    Style(marker, glyph, dashed=dashed)
    for marker, glyph in (("H", "⬣"), ("x", "×"), ("d", "♦"), ("+", "+"))
    for dashed in (False, True)
)
"""Styles of policies that memlab does not know."""


def style_of(policy: str, ranks_by: str | None = None) -> Style:
    """Return the style of a policy, which depends on its name alone.

    >>> style_of("recent 50").glyph, style_of("recent, by").glyph, style_of("value 200").glyph
    ('●', '●', '▲')
    >>> style_of("by use 900 tokens, retired").glyph, style_of("newest (forge-loop) 50").glyph
    ('◆', '●')
    """
    for rule in RULES:
        # A rule of a comparison has another name than its policy, and may have settings behind it.
        if re.match(rf"{re.escape(rule.name)}(?:[ ,]|$)", policy):
            policy = rule.policy_name
    steps = [step.split(" ", 1)[0].rstrip(",") for step in policy.strip().split(" > ")]
    name = " > ".join(steps)
    name = _NAMED_SEQUENCES.get(name, name)
    unknown_style = _UNKNOWN_STYLES[crc32(name.encode("utf-8", "replace")) % len(_UNKNOWN_STYLES)]
    if ranks_by is None:
        ranks_by = NAMED[name].ranks_by if name in NAMED else ""
    return POLICY_STYLES.get(name, unknown_style)._replace(ranks_by=ranks_by)


def palette_of(ax: Axes) -> Palette:
    """Return the palette that suits the background of `ax`: dark or light."""
    figure = ax.figure.get_figure(root=True)
    red, green, blue = to_rgb(figure.get_facecolor()[:3])
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.4 else LIGHT


def roles(palette: Palette) -> dict[str, str]:
    """Return the colours of a palette by name, with hyphens as in CSS."""
    return {name.replace("_", "-"): colour for name, colour in asdict(palette).items()}


NAMESPACE: Final = 'xmlns="http://www.w3.org/2000/svg"'
_FONTS: Final = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
_MIN_DISTANCE: Final = 0.3
"""Distance in points below which two points of a path look the same; a chart is 576 wide."""
_NAME_OF_COLOUR: Final = {
    colour: name for palette in (DARK, LIGHT) for name, colour in roles(palette).items()
}


def _colour_rule(palette: Palette, *hosts: str) -> str:
    """Return the CSS rule that sets a palette's colours.

    It applies to charts inside elements that the selectors `hosts` match, or to all charts if there
    are no `hosts`.
    """
    selector = ",".join(f"{host}.memlab-chart" for host in hosts or ("",))
    colours = "".join(f"--chart-{name}:{colour};" for name, colour in roles(palette).items())
    return f"{selector}{{{colours}}}"


_BY_SYSTEM: Final = (
    f"{_colour_rule(LIGHT)}@media screen and (prefers-color-scheme:dark){{{_colour_rule(DARK)}}}"
)
_BY_HOST: Final = _colour_rule(
    LIGHT,
    'body[data-jp-theme-light="true"] ',
    "body.vscode-light ",
    '[data-md-color-scheme="default"] ',
) + _colour_rule(
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
"""Style sheet of all charts on a page. The theme of JupyterLab, VS Code or the site takes
precedence over the system's, and print is light."""


def as_svg(chart: "Chart", name: str, style: str = "") -> str:
    """Return a chart as one SVG element of the class `name`, with colours as CSS variables.

    Matplotlib's output is shortened: without metadata, ids that nothing refers to, invisible steps
    of paths, and white space between elements. Marks, and places along the lines, get their text on
    hover as a ``<title>``.
    """
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _svg_of(chart), flags=re.DOTALL)
    body = with_areas(body, chart.hover_values)
    body = body.partition("<svg")[2].partition(">")[2]
    body = re.sub(
        r' d="([ML0-9.\-\s]+z?\s*)"', lambda d: f' d="{_without_close_points(d[1])}"', body
    )
    body = re.sub(
        r'<g id="(mark-\d+)">',
        lambda mark: f"<g><title>{escape(chart.hover_titles[mark[1]])}</title>",
        body,
    )
    used_ids = set(re.findall(r'(?:#|href="#)([\w-]+)', body))
    body = re.sub(r' id="([\w-]+)"', lambda match: match[0] if match[1] in used_ids else "", body)
    body = re.sub(r"<[^>]+>", lambda tag: re.sub(r"#[0-9a-f]{6}\b", _as_css_variable, tag[0]), body)
    body = body.replace("'DejaVu Sans'", _FONTS).replace("xlink:href", "href")
    body = re.sub(r">\s+<", "><", body)
    wide, high = 72 * chart.get_size_inches()
    size = f'width="{wide:g}pt" height="{high:g}pt" viewBox="0 0 {wide:g} {high:g}"'
    title = escape(chart.title, quote=False)
    alt = escape(chart.alt, quote=False)
    title_and_alt = f"<title>{title}</title><desc>{alt}</desc>"
    return f'<svg {NAMESPACE} class="{name}" role="img" {size}>{title_and_alt}{style}{body.strip()}'


def _svg_of(figure: Figure) -> str:
    """Return a figure as SVG, drawn once; `Figure.savefig` would draw it twice for its layout."""
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


def _without_close_points(path: str) -> str:
    """Return a path without points that are too near to the last one to be seen."""
    commands: list[str] = []
    last_point = (0.0, 0.0)
    points = re.findall(r"([ML]) (-?[\d.]+) (-?[\d.]+)", path)
    for number, (command, across, down) in enumerate(points):
        x = float(across)
        y = float(down)
        moved = max(abs(x - last_point[0]), abs(y - last_point[1])) > _MIN_DISTANCE
        if command == "M" or moved or number == len(points) - 1:
            commands.append(f"{command}{x:.1f} {y:.1f}")
            last_point = (x, y)
    return "".join(commands) + ("z" if path.rstrip().endswith("z") else "")


def _as_css_variable(match: re.Match[str]) -> str:
    """Return the CSS variable of a colour, with the colour as its fallback."""
    colour = match[0]
    name = _NAME_OF_COLOUR.get(colour)
    return f"var(--chart-{name},{colour})" if name else colour


P = ParamSpec("P")

WIDTH: Final = 8.0
"""Width in inches of a notebook's output at 100%."""
NARROW: Final = 4.0
"""Width in inches of a phone, and of a column."""
PAD: Final = 0.1
"""Margin in inches around the chart."""
LAYOUT_MARGINS: Final[dict[str, Any]] = {"w_pad": PAD, "h_pad": PAD}
DPI: Final = 100
SUBTITLE: Final = "subtitle"
FOOTNOTE: Final = "footnote"
"""The ``gid`` of a text that is a subtitle or a footnote; texts without one are labels."""


class Chart(Figure):
    """A figure with one chart, which can be drawn again with another width or palette."""

    def __init__(
        self, draw: Callable[..., Axes], *, width: float = WIDTH, palette: Palette = LIGHT
    ) -> None:
        super().__init__(figsize=(width, width / 2), dpi=DPI, facecolor=palette.paper)
        self.set_layout_engine("constrained", **LAYOUT_MARGINS)
        FigureCanvasAgg(self)
        self.redraw = draw
        self.hover_titles: dict[str, str] = {}
        """The text that a mark shows on hover, by the ``gid`` of the mark."""
        self.hover_values: HoverValues | None = None
        """The values of the lines, which the places along them show on hover."""
        self.nothing_to_show = ""
        """Why there is no data to draw; empty if there is some."""
        draw(ax=self.add_subplot())

    def at(self, *, width: float = WIDTH, palette: Palette = LIGHT) -> "Chart":
        """Return the same chart with another width or palette."""
        return Chart(self.redraw, width=width, palette=palette)

    @property
    def title(self) -> str:
        """The title of the chart, on one line."""
        return " ".join(self.axes[0].get_title(loc="left").split())

    @property
    def alt(self) -> str:
        """The text alternative of the chart: everything written on it except the tick labels."""
        ax = self.axes[0]
        texts: list[Text] = []
        legend = ax.get_legend()
        if legend:
            texts += legend.get_texts()
        texts += ax.texts
        words_by_gid: dict[str | None, list[str]] = {}
        for text in texts:
            line = " ".join(text.get_text().split())
            words_by_gid.setdefault(text.get_gid(), []).append(line)
        axes = [name for name in (ax.get_ylabel(), ax.get_xlabel()) if name]
        labels = dict.fromkeys(label for label in words_by_gid.get(None, []) if label)
        sentences = [self.title, *words_by_gid.get(SUBTITLE, [])]
        if axes:
            sentences.append(f"Axes: {'; '.join(axes)}")
        if labels:
            sentences.append(f"Labels: {'; '.join(labels)}")
        sentences += words_by_gid.get(FOOTNOTE, [])
        return " ".join(f"{part.rstrip('.')}." for part in sentences if part)

    def svg(self) -> str:
        """Return the chart as an SVG file that follows the reader's theme; text stays text."""
        return as_svg(self, "memlab-chart", f"<style>{_BY_SYSTEM}</style>")

    def png(self, *, dpi: int = DPI) -> bytes:
        """Return the chart as a PNG file."""
        drawn = BytesIO()
        self.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
        return drawn.getvalue()

    def __repr__(self) -> str:
        return f"<chart: {self.alt}>"

    def _repr_html_(self) -> str:
        """Return the chart as HTML, narrow and wide; the page shows the one that fits.

        Without data it is a sentence on why there is none.
        """
        if self.nothing_to_show:
            return f"<p>{escape(self.nothing_to_show)}</p>"
        narrow = as_svg(self.at(width=NARROW), "narrow")
        wide = as_svg(self, "wide")
        return f'<div class="memlab-chart"><style>{STYLE}</style>{narrow}{wide}</div>'


def on_own_figure(plot: Callable[P, Axes]) -> Callable[P, Axes]:
    """Return a plot function that draws on a new :class:`Chart` if it is called without axes."""

    @wraps(plot)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return plot(*args, **kwargs)
        settings = {name: value for name, value in kwargs.items() if name != "ax"}
        return Chart(partial(cast("Callable[..., Axes]", plot), *args, **settings)).axes[0]

    return drawn
