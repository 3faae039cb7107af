"""Charts as SVG that follows the reader's theme, whose text is text, and which fetches nothing."""

import re
from html import escape
from io import StringIO
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from memlab.charts.palette import DARK, LIGHT, roles

NAMESPACE: Final = 'xmlns="http://www.w3.org/2000/svg"'
_FONTS: Final = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
_HAIR: Final = 0.3
"""Points, of which a chart is 576 wide."""
_NAMES: Final = {
    colour: name for palette in (DARK, LIGHT) for name, colour in roles(palette).items()
}


def _variables(palette_name: str) -> str:
    palette = {"light": LIGHT, "dark": DARK}[palette_name]
    return "".join(f"--chart-{name}:{colour};" for name, colour in roles(palette).items())


_BY_SYSTEM: Final = (
    f".memlab-chart{{{_variables('light')}}}"
    f"@media screen and (prefers-color-scheme:dark){{.memlab-chart{{{_variables('dark')}}}}}"
)
_LIGHT_HOSTS: Final = (
    'body[data-jp-theme-light="true"]',
    "body.vscode-light",
    '[data-md-color-scheme="default"]',
)
_DARK_HOSTS: Final = (
    'body[data-jp-theme-light="false"]',
    "body.vscode-dark",
    '[data-md-color-scheme="slate"]',
)


def _under(hosts: tuple[str, ...], palette_name: str) -> str:
    chosen = ",".join(f"{host} .memlab-chart" for host in hosts)
    return f"{chosen}{{{_variables(palette_name)}}}"


STYLE: Final = (
    f"{_BY_SYSTEM}@media screen{{{_under(_LIGHT_HOSTS, 'light')}{_under(_DARK_HOSTS, 'dark')}}}"
    ".memlab-chart{container-type:inline-size;margin:0 0 1em;break-inside:avoid}"
    ".memlab-chart svg{display:block;max-width:100%;height:auto}"
    ".memlab-chart svg.narrow{display:none;width:100%}"
    "@container (max-width:580px){.memlab-chart svg.narrow{display:block}"
    ".memlab-chart svg.narrow~svg.wide{display:none}}"
)
"""What a page says once for all its charts: JupyterLab's, VS Code's and the site's own switch of
theme come before the system's, and paper is light."""


def as_svg(figure: Figure, *, title: str, alt: str) -> str:
    """Return a figure as one SVG element with its colours by name.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn in the colours of :class:`memlab.charts.palette.Palette`.
    title, alt : str
        What is seen: in a line, and in full.

    Returns
    -------
    str
        The same for the same figure. It may stand alone in a file, or in a page.
    """
    body = _drawn(figure)
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = body[body.index("<svg") :]
    head, body = body.split(">", 1)
    body = re.sub(r' d="([ML0-9.\-\s]+z?\s*)"', lambda d: f' d="{_thinned(d[1])}"', body)
    used = set(re.findall(r'(?:#|href="#)([\w-]+)', body))
    body = re.sub(r' id="([\w-]+)"', lambda m: m[0] if m[1] in used else "", body)
    body = re.sub(r"<[^>]+>", lambda tag: re.sub(r"#[0-9a-f]{6}\b", _by_name, tag[0]), body)
    body = body.replace("'DejaVu Sans'", _FONTS).replace("xlink:href", "href")
    body = re.sub(r">\s+<", "><", body)
    size = re.findall(r'(width|height)="([\d.]+)pt"', head)
    box = " ".join(value for _, value in sorted(size, key=lambda each: each[0], reverse=True))
    words = f"<title>{_harmless(title)}</title><desc>{_harmless(alt)}</desc>"
    sizes = " ".join(f'{name}="{value}pt"' for name, value in size)
    return (
        f'<svg {NAMESPACE} class="memlab-chart" role="img" {sizes} viewBox="0 0 {box}">'
        f"{words}<style>{_BY_SYSTEM}</style>{body.strip()}"
    )


def _drawn(figure: Figure) -> str:
    """Draw a figure once: `Figure.savefig` draws it a first time for a layout that it has."""
    drawn, canvas, dpi = StringIO(), figure.canvas, figure.dpi
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "memlab"}):
        figure.dpi = 72
        try:
            canvas_of_svg: Any = FigureCanvasSVG(figure)
            canvas_of_svg.print_svg(drawn, metadata={"Date": None, "Creator": None})
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
    return drawn.getvalue()


def as_html(drawings: dict[str, str]) -> str:
    """Return drawings of one chart, by the class of their width, as a piece of a page."""
    parts = [
        drawing.replace('class="memlab-chart"', f'class="{width}"', 1).replace(
            f"<style>{_BY_SYSTEM}</style>", "", 1
        )
        for width, drawing in sorted(drawings.items())
    ]
    return f'<div class="memlab-chart"><style>{STYLE}</style>{"".join(parts)}</div>'


def _thinned(path: str) -> str:
    """Leave out the points of a path that nobody could see: nearer to the last one than a hair."""
    kept: list[str] = []
    last = (0.0, 0.0)
    points = re.findall(r"([ML]) (-?[\d.]+) (-?[\d.]+)", path)
    for number, (command, across, down) in enumerate(points):
        x, y = float(across), float(down)
        moved = max(abs(x - last[0]), abs(y - last[1])) > _HAIR
        if command == "M" or moved or number == len(points) - 1:
            kept.append(f"{command}{x:.1f} {y:.1f}")
            last = (x, y)
    return "".join(kept) + ("z" if path.rstrip().endswith("z") else "")


def _by_name(found: re.Match[str]) -> str:
    name = _NAMES.get(found[0])
    return f"var(--chart-{name},{found[0]})" if name else found[0]


def _harmless(text: str) -> str:
    """Escape, and leave out what XML does not allow."""
    allowed = "".join(char for char in text if char in "\t\n" or ord(char) >= 32)
    return escape(allowed, quote=False)
