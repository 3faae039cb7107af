"""Tab completion of results, and the overview of a frame."""

from collections.abc import Callable
from pathlib import Path
from rlcompleter import Completer
from typing import Any, Final

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import memlab
from memlab import columns as c
from memlab import fleet

STORE = memlab.store_path("three_hundred_issues")


def plan_of_a_copy(folder: Path) -> memlab.Plan:
    path = memlab.copy_store(STORE, folder / "memory.db")
    return memlab.plan(path, memlab.KeepRecent(50))


USED: Final[dict[str, tuple[Callable[[Path], Any], set[str]]]] = {
    "memlab": (lambda _: memlab, {"show", "size", "plan", "apply", "restore"}),
    "fleet": (lambda _: fleet, {"survey", "plan", "apply", "maintain"}),
    "plan": (plan_of_a_copy, {"deletes", "memories", "digest", "to_json"}),
    "receipt": (
        lambda folder: memlab.apply(plan_of_a_copy(folder)),
        {"deleted", "undo", "archive"},
    ),
    "recommendation": (lambda _: memlab.size(STORE), {"answer", "advice", "curve", "save"}),
    "advice": (lambda _: memlab.recommend_cap(STORE), {"keep_recent", "likely", "command"}),
    "budget": (lambda _: memlab.size(STORE, unit="tokens").advice, {"max_tokens", "likely"}),
    "history": (lambda _: memlab.StoreHistory.of(STORE), {"rows", "past", "references"}),
    "browser": (lambda _: memlab.browse(STORE), {"selected", "show_period", "plan"}),
    "comparison": (lambda _: memlab.compare(STORE), {"answer", "table", "next_steps"}),
    "fleet_plan": (
        lambda folder: fleet.plan([plan_of_a_copy(folder).store], policy=memlab.KeepRecent(50)),
        {"stores", "refused", "to_json"},
    ),
    "cohort": (lambda _: fleet.cohort_of([STORE]), {"law", "stores", "weight_at"}),
    "fleet_findings": (lambda _: fleet.examine_fleet([STORE]), {"stores"}),
    "overview": (lambda _: memlab.show(STORE), {"alerts", "summary", "next_steps"}),
}
"""Results of public functions, each with names that completion must offer."""


def from_dir(completed: Any) -> set[str]:
    return set(dir(completed))


def from_rlcompleter(completed: Any) -> set[str]:
    """Return the completions of Python's own prompt."""
    completer = Completer({"shown": completed})
    names = set()
    for state in range(10_000):
        match = completer.complete("shown.", state)
        if match is None:
            break
        names.add(match.removeprefix("shown.").rstrip("()"))
    return names


def from_ipython(completed: Any, *, use_jedi: bool) -> set[str]:
    """Return the completions of IPython and notebooks."""
    shell = InteractiveShell()
    shell.Completer.use_jedi = use_jedi
    shell.push({"shown": completed})
    with provisionalcompleter():
        offered = list(shell.Completer.completions("shown.", len("shown.")))
    return {completion.text.lstrip(".") for completion in offered}


COMPLETERS: Final = {
    "dir": from_dir,
    "rlcompleter": from_rlcompleter,
    "IPython": lambda shown: from_ipython(shown, use_jedi=False),
    "IPython with jedi": lambda shown: from_ipython(shown, use_jedi=True),
}


@pytest.fixture(scope="module", params=USED)
def used(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, set[str]]:
    make, names = USED[request.param]
    return make(tmp_path_factory.mktemp("store")), names


@pytest.mark.parametrize("completer", COMPLETERS)
def test_completion_offers_the_public_names(used: tuple[Any, set[str]], completer: str) -> None:
    completed, names = used
    offered = COMPLETERS[completer](completed)
    assert names <= offered
    assert not [name for name in offered if name.isupper()]


@pytest.mark.parametrize("completer", ["dir", "rlcompleter", "IPython"])
def test_policy_completion_omits_class_internals(completer: str) -> None:
    names = COMPLETERS[completer](memlab.KeepRecent(5))
    assert {"keep", "by", "evict", "name"} <= names
    assert not names & {"runner", "population", "signals", "reads_bodies", "reason"}


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
