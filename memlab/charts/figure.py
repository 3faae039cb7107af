"""The figure of a chart, its palettes, and its output as SVG, PNG and HTML.

The hues are distinguishable in full protanopia, deuteranopia and tritanopia (Machado et al. 2009).
Their contrast is at least 3 for marks and 4.5 for text (WCAG 2.2). Marks and dashes differ too, so
that no information depends on colour alone.
"""

import re
from collections.abc import Callable, Mapping
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

    def colour(self, palette: Palette) -> str:
        """Return the colour of the policy in a palette."""
        if self.ranks_by == "age":
            return palette.by_age
        if self.ranks_by == "use":
            return palette.by_use
        return palette.muted

    def line_options(self, palette: Palette, width: float) -> dict[str, Any]:
        """Return the style of a line and its marks, as keyword arguments of matplotlib."""
        return {
            "color": self.colour(palette),
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
    names_of_steps = [step.split(" ", 1)[0].rstrip(",") for step in policy.strip().split(" > ")]
    sequence = " > ".join(names_of_steps)
    name = _NAMED_SEQUENCES.get(sequence, sequence)
    style = POLICY_STYLES.get(name)
    if style is None:
        checksum = crc32(name.encode("utf-8", "replace"))
        style = _UNKNOWN_STYLES[checksum % len(_UNKNOWN_STYLES)]
    if ranks_by is None:
        ranks_by = NAMED[name].ranks_by if name in NAMED else ""
    return style._replace(ranks_by=ranks_by)


def palette_of(ax: Axes) -> Palette:
    """Return the palette that suits the background of `ax`: dark or light."""
    figure = ax.figure.get_figure(root=True)
    red, green, blue = to_rgb(figure.get_facecolor()[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return DARK if luminance < 0.4 else LIGHT


def css_colours(palette: Palette) -> dict[str, str]:
    """Return the colours of a palette by name, with hyphens in the names as in CSS."""
    return {name.replace("_", "-"): colour for name, colour in asdict(palette).items()}


_XMLNS: Final = 'xmlns="http://www.w3.org/2000/svg"'
_FONTS: Final = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
_MIN_DISTANCE: Final = 0.3
"""Distance in points below which two points of a path look the same; a chart is 576 wide."""
_NAME_OF_COLOUR: Final = {
    **{colour: name for name, colour in css_colours(DARK).items()},
    **{colour: name for name, colour in css_colours(LIGHT).items()},
}
"""The name of each colour of both palettes."""


def _colour_rule(palette: Palette, *hosts: str) -> str:
    """Return the CSS rule that sets a palette's colours.

    It applies to charts inside elements that the selectors `hosts` match, or to all charts if there
    are no `hosts`.
    """
    selector = ",".join(f"{host}.memlab-chart" for host in hosts or ("",))
    colours = "".join(f"--chart-{name}:{colour};" for name, colour in css_colours(palette).items())
    return f"{selector}{{{colours}}}"


_COLOURS_BY_SYSTEM: Final = (
    f"{_colour_rule(LIGHT)}@media screen and (prefers-color-scheme:dark){{{_colour_rule(DARK)}}}"
)
"""Colours by the theme of the reader's system."""
_COLOURS_BY_HOST: Final = _colour_rule(
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
"""Colours by the theme of JupyterLab, VS Code or the site."""
STYLE_SHEET: Final = (
    f"{_COLOURS_BY_SYSTEM}@media screen{{{_COLOURS_BY_HOST}}}"
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
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _svg_of(chart), flags=re.DOTALL)
    svg = with_areas(svg, chart.hover_values)
    _, _, from_start_tag = svg.partition("<svg")
    _, _, body = from_start_tag.partition(">")  # the content and the end tag
    body = re.sub(r' d="([ML0-9.\-\s]+z?\s*)"', _simplify_path, body)
    body = _with_hover_titles(body, chart.hover_titles)
    body = _without_unused_ids(body)
    body = re.sub(r"<[^>]+>", _with_css_variables, body)
    body = body.replace("'DejaVu Sans'", _FONTS)
    body = body.replace("xlink:href", "href")
    body = re.sub(r">\s+<", "><", body)
    width, height = 72 * chart.get_size_inches()
    size = f'width="{width:g}pt" height="{height:g}pt" viewBox="0 0 {width:g} {height:g}"'
    title = escape(chart.title, quote=False)
    alt = escape(chart.alt, quote=False)
    return (
        f'<svg {_XMLNS} class="{name}" role="img" {size}>'
        f"<title>{title}</title><desc>{alt}</desc>{style}{body.strip()}"
    )


def _svg_of(figure: Figure) -> str:
    """Return a figure as SVG, drawn once; `Figure.savefig` would draw it twice for its layout."""
    buffer = StringIO()
    canvas = figure.canvas
    dpi = figure.dpi
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "memlab"}):
        figure.dpi = 72
        try:
            svg_canvas: Any = FigureCanvasSVG(figure)
            svg_canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
    return buffer.getvalue()


def _simplify_path(attribute: re.Match[str]) -> str:
    """Return the attribute ``d`` of a path without points too near to the last one to be seen."""
    path = attribute[1]
    commands: list[str] = []
    last_point = (0.0, 0.0)
    points = re.findall(r"([ML]) (-?[\d.]+) (-?[\d.]+)", path)
    for number, (command, x_text, y_text) in enumerate(points):
        x = float(x_text)
        y = float(y_text)
        distance = max(abs(x - last_point[0]), abs(y - last_point[1]))
        is_last = number == len(points) - 1
        if command == "M" or distance > _MIN_DISTANCE or is_last:
            commands.append(f"{command}{x:.1f} {y:.1f}")
            last_point = (x, y)
    if path.rstrip().endswith("z"):
        commands.append("z")
    return f' d="{"".join(commands)}"'


def _with_hover_titles(body: str, hover_titles: Mapping[str, str]) -> str:
    """Return the SVG with a ``<title>`` in each mark that has a text on hover, by its ``gid``."""

    def add_title(start_tag: re.Match[str]) -> str:
        return f"<g><title>{escape(hover_titles[start_tag[1]])}</title>"

    return re.sub(r'<g id="(mark-\d+)">', add_title, body)


def _without_unused_ids(body: str) -> str:
    """Return the SVG without the ids that nothing refers to."""
    used_ids = set(re.findall(r"#([\w-]+)", body))

    def keep_if_used(attribute: re.Match[str]) -> str:
        return attribute[0] if attribute[1] in used_ids else ""

    return re.sub(r' id="([\w-]+)"', keep_if_used, body)


def _with_css_variables(tag: re.Match[str]) -> str:
    """Return a tag with CSS variables instead of colours."""
    return re.sub(r"#[0-9a-f]{6}\b", _as_css_variable, tag[0])


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
"""The ``gid`` of a text that is a subtitle or a footnote."""


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
        artists: list[Text] = []
        legend = ax.get_legend()
        if legend:
            artists += legend.get_texts()
        artists += ax.texts
        subtitles = []
        footnotes = []
        labels = []
        for artist in artists:
            text = " ".join(artist.get_text().split())
            if not text:
                continue
            if artist.get_gid() == SUBTITLE:
                subtitles.append(text)
            elif artist.get_gid() == FOOTNOTE:
                footnotes.append(text)
            elif text not in labels:
                labels.append(text)
        names_of_axes = [name for name in (ax.get_ylabel(), ax.get_xlabel()) if name]
        sentences = [self.title, *subtitles]
        if names_of_axes:
            sentences.append(f"Axes: {'; '.join(names_of_axes)}")
        if labels:
            sentences.append(f"Labels: {'; '.join(labels)}")
        sentences += footnotes
        return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)

    def svg(self) -> str:
        """Return the chart as an SVG file that follows the reader's theme; text stays text."""
        return as_svg(self, "memlab-chart", f"<style>{_COLOURS_BY_SYSTEM}</style>")

    def png(self, *, dpi: int = DPI) -> bytes:
        """Return the chart as a PNG file."""
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        return buffer.getvalue()

    def __repr__(self) -> str:
        return f"<chart: {self.alt}>"

    def _repr_html_(self) -> str:
        """Return the chart as HTML, narrow and wide; the page shows the one that fits.

        Without data, return a sentence on why there is none.
        """
        if self.nothing_to_show:
            return f"<p>{escape(self.nothing_to_show)}</p>"
        narrow = as_svg(self.at(width=NARROW), "narrow")
        wide = as_svg(self, "wide")
        return f'<div class="memlab-chart"><style>{STYLE_SHEET}</style>{narrow}{wide}</div>'


def on_own_figure(plot: Callable[P, Axes]) -> Callable[P, Axes]:
    """Decorate a plot function: called without axes, it draws on a new :class:`Chart`."""

    @wraps(plot)
    def plot_on_chart(*args: P.args, **kwargs: P.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return plot(*args, **kwargs)
        options = {name: value for name, value in kwargs.items() if name != "ax"}
        draw = partial(cast("Callable[..., Axes]", plot), *args, **options)
        return Chart(draw).axes[0]

    return plot_on_chart
