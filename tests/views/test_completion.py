"""Tab completion of results, and the overview of a frame."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from rlcompleter import Completer
from typing import Any, Final, NamedTuple

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import memlab
from memlab import columns as c
from memlab import fleet
from tests.support.properties import all_but

STORE = memlab.store_path("three_hundred_issues")


def plan_of_a_copy(folder: Path) -> memlab.Plan:
    path = memlab.copy_store(STORE, folder / "memory.db")
    return memlab.plan(path, memlab.KeepRecent(50))


def receipt_of_a_copy(folder: Path) -> memlab.Receipt:
    return memlab.apply(plan_of_a_copy(folder))


def fleet_plan_of_a_copy(folder: Path) -> fleet.FleetPlan:
    return fleet.plan([plan_of_a_copy(folder).store], policy=memlab.KeepRecent(50))


class Case(NamedTuple):
    """A maker of an object from an empty folder, and names that completion must offer."""

    make: Callable[[Path], Any]
    names: set[str]


CASES: Final = {
    "memlab": Case(lambda _: memlab, {"show", "size", "plan", "apply", "restore"}),
    "fleet": Case(lambda _: fleet, {"survey", "plan", "apply", "maintain"}),
    "plan": Case(plan_of_a_copy, {"deletes", "memories", "digest", "to_json"}),
    "receipt": Case(receipt_of_a_copy, {"deleted", "undo", "archive"}),
    "recommendation": Case(lambda _: memlab.size(STORE), {"answer", "advice", "curve", "save"}),
    "advice": Case(lambda _: memlab.recommend_cap(STORE), {"keep_recent", "likely", "command"}),
    "budget": Case(lambda _: memlab.size(STORE, unit="tokens").advice, {"max_tokens", "likely"}),
    "history": Case(lambda _: memlab.StoreHistory.of(STORE), {"rows", "past", "references"}),
    "browser": Case(lambda _: memlab.browse(STORE), {"selected", "show_period", "plan"}),
    "comparison": Case(lambda _: memlab.compare(STORE), {"answer", "table", "next_steps"}),
    "fleet_plan": Case(fleet_plan_of_a_copy, {"stores", "refused", "to_json"}),
    "cohort": Case(lambda _: fleet.cohort_of([STORE]), {"law", "stores", "weight_at"}),
    "fleet_findings": Case(lambda _: fleet.examine_fleet([STORE]), {"stores"}),
    "overview": Case(lambda _: memlab.show(STORE), {"alerts", "summary", "next_steps"}),
}


def from_dir(completed: Any) -> set[str]:
    return set(dir(completed))


def from_rlcompleter(completed: Any) -> set[str]:
    """Return the completions of Python's own prompt."""
    completer = Completer({"result": completed})
    names = set()
    for state in range(10_000):
        match = completer.complete("result.", state)
        if match is None:
            break
        names.add(match.removeprefix("result.").rstrip("()"))
    return names


def from_ipython(completed: Any, *, use_jedi: bool) -> set[str]:
    """Return the completions of IPython and notebooks."""
    shell = InteractiveShell()
    shell.Completer.use_jedi = use_jedi
    shell.push({"result": completed})
    with provisionalcompleter():
        completions = list(shell.Completer.completions("result.", len("result.")))
    return {completion.text.lstrip(".") for completion in completions}


COMPLETERS: Final = {
    "dir": from_dir,
    "rlcompleter": from_rlcompleter,
    "IPython": partial(from_ipython, use_jedi=False),
    "IPython with jedi": partial(from_ipython, use_jedi=True),
}


SLOW_COMPLETER = "IPython with jedi"


class Completed(NamedTuple):
    """An object, and names that completion must offer."""

    result: Any
    names: set[str]


@pytest.fixture(scope="module", params=CASES)
def completed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Completed:
    case = CASES[request.param]
    return Completed(case.make(tmp_path_factory.mktemp("store")), case.names)


@pytest.mark.parametrize("completer", all_but(COMPLETERS, [SLOW_COMPLETER]))
def test_completion_offers_the_public_names(completed: Completed, completer: str) -> None:
    offered = COMPLETERS[completer](completed.result)
    assert completed.names <= offered
    assert [name for name in offered if name.isupper()] == []


@pytest.mark.parametrize("completer", ["dir", "rlcompleter", "IPython"])
def test_policy_completion_omits_class_internals(completer: str) -> None:
    names = COMPLETERS[completer](memlab.KeepRecent(5))
    assert {"keep", "by", "evict", "name"} <= names
    assert names.isdisjoint({"runner", "population", "signals", "reads_bodies", "reason"})


def test_overview_keeps_indentation_in_html() -> None:
    page = memlab.show(STORE)._repr_html_()
    assert ">&emsp;decisions<" in page
    assert ">loaded at every start<" in page


def test_frame_has_the_alerts_of_its_memories() -> None:
    of_frame = memlab.show(memlab.load(STORE)).alerts
    of_store = memlab.show(STORE).alerts
    assert [alert.name for alert in of_frame] == ["never compacted"]
    assert [alert.tokens for alert in of_frame] == [alert.tokens for alert in of_store]
    assert "no cap is set" not in of_frame[0].message
    overview = memlab.show(memlab.load(STORE))
    page = f"{overview}{overview.next_steps()}"
    assert "never compacted" in page
    assert "memlab size " not in page
    assert "memlab.size of the same frame" in page


def test_frame_of_a_compacted_store_has_no_alert() -> None:
    frame = memlab.load(STORE)
    frame.attrs[c.HAS_PAST] = True
    assert memlab.show(frame).alerts == []


def test_browser_json_holds_shown_and_selected_ids() -> None:
    browser = memlab.browse(STORE)
    browser.grid.selected_rows = [0]
    fields = browser.to_dict()
    assert fields["selected"] == fields["shown"][:1]
    assert len(fields["shown"]) == len(browser.memories)
