"""Results display alike in a REPL, in print and in a notebook."""

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import pytest

import memlab
from memlab.text import DisplayMixin, Table, TextPage, for_terminal

for module in pkgutil.walk_packages(memlab.__path__, "memlab."):
    if not module.name.endswith("__main__"):
        import_module(module.name)


def subclasses_of(base: type) -> Iterator[type]:
    """Yield all direct and indirect subclasses."""
    for subclass in base.__subclasses__():
        yield subclass
        yield from subclasses_of(subclass)


RESULT_CLASSES = {
    subclass
    for subclass in subclasses_of(DisplayMixin)
    if subclass.__module__.startswith("memlab.")
}


RESULT_CLASS_NAMES = """
About Advice AgeOrUse ArchiveErasure ArchiveListing ArchiveUpgrade BudgetAdvice BudgetByUse
CapEffect Comparison Copies Cost CutLosses Diagnosis Difference Findings FleetPlan Harvest IndexPlan
IndexReceipt IndexRestored Inventory
LoadBearing Losses Maintenance MemoryBrowser Overview Plan PriorCap Receipt Recommendation Recovery
Replay Report Restored Space StoreHistory StoreSummary Vacuumed
"""


@dataclass(frozen=True, repr=False)
class Page(DisplayMixin):
    title: str

    def sheet(self) -> TextPage:
        facts = [("who", "<b>somebody</b>"), ("how many", "3")]
        return TextPage(self.title, facts, [Table("listed", ("name", "n"), [("a\x1b[31m", 1200)])])


def test_every_result_class_is_displayable() -> None:
    names = {result_class.__name__ for result_class in RESULT_CLASSES}
    assert {name for name in names if not name.startswith("_")} == set(RESULT_CLASS_NAMES.split())


@pytest.mark.parametrize("name", ["__repr__", "__str__", "_repr_html_"])
def test_no_result_class_overrides_the_display_methods(name: str) -> None:
    methods = {getattr(result_class, name) for result_class in RESULT_CLASSES}
    assert methods == {getattr(DisplayMixin, name)}


def test_repr_and_str_are_the_same_page() -> None:
    page = Page("one page")
    assert repr(page) == str(page)
    assert str(page).splitlines() == [
        "one page",
        "  who       <b>somebody</b>",
        "  how many  3",
        "",
        "listed",
        "  name           n",
        "  a\\x1b[31m  1,200",
    ]


def test_html_escapes_text_and_aligns_columns() -> None:
    page = Page("<script>one</script>")._repr_html_()
    assert "<script>" not in page
    assert "&lt;b&gt;somebody&lt;/b&gt;" in page
    assert "<th style='text-align:left'>name</th>" in page
    assert "<th style='text-align:right'>n</th>" in page
    assert "<td style='text-align:left'>a\\x1b[31m</td>" in page
    assert "<td style='text-align:right'>1,200</td>" in page


def test_joiners_are_escaped_except_in_emoji_and_scripts() -> None:
    for text in ("a family \U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e"):
        assert for_terminal(text) == text
    assert for_terminal("rejected\u200d-path\u200b \u202e\u200dx") == (
        "rejected\\u200d-path\\u200b \\u202e\\u200dx"
    )
