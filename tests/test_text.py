"""What shows itself does so the same way in a REPL, printed and in a notebook."""

import pkgutil
from dataclasses import dataclass
from importlib import import_module

import pytest

import memlab
from memlab.text import Sheet, Shown, Table

for each in pkgutil.walk_packages(memlab.__path__, "memlab."):
    if not each.name.endswith("__main__"):
        import_module(each.name)

SHOWN = {each for each in Shown.__subclasses__() if each.__module__.startswith("memlab.")}


@dataclass(frozen=True, repr=False)
class Page(Shown):
    title: str

    def sheet(self) -> Sheet:
        facts = [("who", "<b>somebody</b>"), ("how many", "3")]
        return Sheet(self.title, facts, [Table("listed", ("name", "n"), [("a\x1b[31m", 1200)])])


def test_every_answer_shows_itself() -> None:
    assert {each.__name__ for each in SHOWN} == {
        "Advice",
        "BudgetAdvice",
        "CapEffect",
        "CapElsewhere",
        "CutLosses",
        "Diagnosis",
        "Difference",
        "Drop",
        "FleetPlan",
        "Harvest",
        "IndexFacts",
        "Inventory",
        "Maintenance",
        "ObservationFacts",
        "Plan",
        "Receipt",
        "Replay",
        "ServiceFacts",
        "Space",
        "StoreSummary",
        "Vacuumed",
    }


@pytest.mark.parametrize("name", ["__repr__", "__str__", "_repr_html_"])
def test_none_has_a_way_of_its_own(name: str) -> None:
    assert {getattr(each, name) for each in SHOWN} == {getattr(Shown, name)}


def test_echoed_and_printed_are_the_same_page() -> None:
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


def test_a_notebook_sees_text_as_text() -> None:
    page = Page("<script>one</script>")._repr_html_()
    assert "<script>" not in page
    assert "&lt;b&gt;somebody&lt;/b&gt;" in page
    assert "1,200" in page
    assert "\x1b" not in page
