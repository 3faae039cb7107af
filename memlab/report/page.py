"""A report as one HTML file: the answer, where it comes from, and the evidence."""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memlab.charts.figure import Chart
from memlab.charts.palette import DARK, LIGHT, roles
from memlab.extras import import_extra
from memlab.files import ANYBODY, Limit, write_whole
from memlab.report.answer import answer_of
from memlab.report.findings import Findings
from memlab.report.sections import Section, sections_of
from memlab.text import Table, for_terminal, reads_as_number

Progress = Callable[[str], None]
"""Called with what is written now."""


def write_report(
    output: Path,
    findings: Findings,
    *,
    limit: Limit = ANYBODY,
    progress: Progress | None = None,
) -> None:
    """Write what was found as one self-contained HTML file.

    The file holds its charts and styles, asks for nothing from anywhere, and appears whole or not
    at all.

    Parameters
    ----------
    output : Path
        The file to write; an existing one is replaced.
    findings : Findings
        As :func:`memlab.report.examine` returns it.
    limit : Limit
        Who may read the file at most, such as ``memlab.files.limit_like(store)``.
    progress : callable, optional
        Called with the title of each section before it is drawn.

    Raises
    ------
    MissingExtraError
        When the ``report`` extra is not installed.
    """
    write_whole(output, page_of(findings, progress=progress).encode(), limit=limit)


def page_of(findings: Findings, *, progress: Progress | None = None) -> str:
    """Return the report as one HTML page."""
    jinja2 = import_extra("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = []
    for section in sections_of(findings):
        if progress is not None:
            progress(section.title)
        sections.append(_shown(section))
    text: str = environment.get_template("page.html.jinja").render(
        findings=findings,
        store=for_terminal(findings.store),
        answer=answer_of(findings),
        sections=sections,
        version=version("memlab"),
        light=roles(LIGHT),
        dark=roles(DARK),
    )
    return text


def _shown(section: Section) -> dict[str, Any]:
    """Return a section as the template takes it."""
    drawn = [ax.figure for ax in section.charts]
    return {
        "anchor": section.anchor,
        "title": section.title,
        "words": section.words,
        "charts": [chart._repr_html_() for chart in drawn if isinstance(chart, Chart)],
        "tables": [_columns(table) for table in section.tables],
    }


def _columns(table: Table) -> dict[str, Any]:
    """Return a table's cells with the side each column is aligned to."""
    columns: Iterator[tuple[Any, ...]] = zip(*table.rows, strict=True)
    right = [all(reads_as_number(cell) for cell in column) for column in columns]
    return {
        "heading": table.heading,
        "header": list(zip(table.header, right, strict=False)),
        "rows": [list(zip(row, right, strict=True)) for row in table.rows],
        "remark": table.remark,
    }
