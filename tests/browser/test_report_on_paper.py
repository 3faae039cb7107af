"""A report on paper: charts are as wide as on a screen, and pages are full."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page
from shell import said


@pytest.mark.parametrize(("paper", "sheets"), [("A4", 6), ("Letter", 7)])
def test_the_bundled_report_takes_few_sheets(
    page: Page, tmp_path: Path, paper: str, sheets: int
) -> None:
    said("report", "-o", file := tmp_path / "page.html")
    page.set_content(file.read_text())
    printed = page.pdf(format=paper)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= sheets
