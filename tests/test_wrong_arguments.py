"""A wrong argument of a public function is told in words: what it takes, and the call meant."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from stores import episodes, write_rows

import memlab
from memlab import MemoryItem, MemoryKind, MemoryProvenance
from memlab.errors import MemlabError, WrongArgumentError

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOT_CALLED = {
    "MemlabError": "an error takes any message",
    "MemoryKind": "an enumeration",
    "Plan": "made by memlab.plan or Plan.from_json",
    "Policy": "a base class",
    "Receipt": "made by memlab.apply or Receipt.from_json",
}
CALLS = [name for name in memlab.__all__ if name not in NOT_CALLED]

METHODS = [
    *(f"SqliteMemoryStore.{name}" for name in ("put", "get", "list_active", "supersede")),
    "SqliteMemoryStore.compact_episodic",
    *(f"LifecycleStore.{name}" for name in ("put", "get", "list_active", "supersede")),
    *(f"LifecycleStore.{name}" for name in ("touch", "expire", "compact_episodic")),
    *(f"AccessLog.{name}" for name in ("add", "extend")),
    *("Plan.from_json", "Receipt.from_json"),
]
OTHERS_KNOW = {
    *("watch", "progress", "vectorise", "count_tokens"),
    *("with_body", "only_log", "maintenance"),
}
"""Flags, where anything is true or false, and functions, which are called as they are."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One right argument of each kind."""
    folder = tmp_path_factory.mktemp("given")
    path = write_rows(folder / "memory.db", episodes(12))
    frame = memlab.load(path)
    made = memlab.plan(path, memlab.KeepRecent(3), now=NOW)
    item = MemoryItem(
        "m1", MemoryKind.EPISODIC, "t", "b", MemoryProvenance(None, "me", source_task_ref="t")
    )
    return SimpleNamespace(
        folder=folder,
        path=path,
        frame=frame,
        references=memlab.find_references(frame),
        plan=made,
        receipt=memlab.apply(made, now=NOW),
        item=item,
    )


def wrong_values(given: SimpleNamespace) -> Iterator[Any]:
    """Whatever somebody may hand over."""
    yield from (None, 50, -1, 3.5, float("nan"), True, "", "no such thing", b"bytes", [], [1], {})
    yield from ({"memory_id": "m1"}, object(), lambda: None, Path("nowhere.db"), timedelta(days=1))
    yield from (datetime(2026, 1, 1), memlab.KeepRecent, memlab.KeepRecent(3))  # noqa: DTZ001
    yield from (given.frame, pd.DataFrame(), given.frame["title"], given.references)
    yield from (given.plan, given.receipt, given.item, given.path)


def right_arguments(
    call: Callable[..., Any], given: SimpleNamespace, folder: Path
) -> dict[str, Any]:
    """Arguments with which a call works, for those parameters that have no default."""
    right = {
        "frame": given.frame,
        "references": given.references,
        "policies": [memlab.KeepRecent(3)],
        "policy": memlab.KeepRecent(3),
        "plan": given.plan,
        "receipt": given.receipt,
        "source": given.path,
        "path": given.path,
        "store": given.path,
        "target": folder / "copy.db",
        "now": NOW,
        "item": given.item,
        "name": "two_years",
        "memories": 100,
        "memory_id": "m1",
        "by_memory_id": "e1",
        "kind": MemoryKind.EPISODIC,
        "title": "t",
        "body": "b",
        "provenance": given.item.provenance,
        "source_event": None,
        "authored_by": "me",
        "source_task_ref": "t",
        "ids": ["e1"],
        "entries": [{"memory_id": "e1", "at": NOW.isoformat()}],
        "keep_recent": 3,
        "keep": 3,
        "max_items": 3,
        "max_tokens": 3,
        "threshold": 0.5,
        "older_than": timedelta(days=1),
        "text": given.plan.to_json(),
    }
    return {
        name: right[name]
        for name, each in inspect.signature(call).parameters.items()
        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
    }


def outcome_of(call: Callable[..., Any], arguments: dict[str, Any], value: Any) -> str | None:
    """What is wrong about how a call ended; None for a result and for words."""
    try:
        call(**arguments)
    except (MemlabError, ValueError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if "/memlab/" in last.filename:
            return None
        return f"{value!r:.40}: {type(error).__name__} from {last.filename}: {error}"
    except KeyError as error:
        if getattr(call, "__name__", "") == "supersede" and isinstance(value, str):
            return None  # an id that is not in the store
        return f"{value!r:.40}: {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no word to a person
        return f"{value!r:.40}: {type(error).__name__}: {error}"
    return None


def bound(name: str, folder: Path) -> Callable[..., Any]:
    """A public callable by its dotted name; a method of a fresh object in `folder`."""
    owner, _, method = name.partition(".")
    made = getattr(memlab, owner)
    if method and owner not in {"Plan", "Receipt"}:
        made = made(folder / f"{owner}.file")
    found: Callable[..., Any] = getattr(made, method) if method else made
    return found


DRAWING = {"report", "explore", "compare"}
"""What takes about a second each time that an argument is no fault."""
NAMES = [
    pytest.param(name, marks=[pytest.mark.long] * (name in DRAWING)) for name in (*CALLS, *METHODS)
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_no_wrong_argument_ends_in_an_error_without_words(
    name: str, given: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = bound(name, tmp_path)
    parameters = [
        each.name
        for each in inspect.signature(call).parameters.values()
        if each.name not in OTHERS_KNOW and each.kind is not each.VAR_POSITIONAL
    ]
    right = right_arguments(call, given, tmp_path)
    faults = []
    for parameter in parameters:
        for value in wrong_values(given):
            wrong = outcome_of(call, right | {parameter: value}, value)
            if wrong is not None:
                faults.append(f"{name}({parameter}=...) {wrong}")
    assert faults == []


def test_a_pipeline_of_what_is_no_policy_is_told_in_words(given: SimpleNamespace) -> None:
    right = memlab.KeepRecent(3)
    for value in wrong_values(given):
        for policies in ((value,), (right, value)):
            if isinstance(value, memlab.Policy):
                assert value in memlab.Pipeline(*policies).policies
                continue
            with pytest.raises(MemlabError, match="Pipeline takes"):
                memlab.Pipeline(*policies)


FRAME = "name the store that the frame was loaded from"
MEANT = {
    "memlab.plan(at.path, 50)": "as in memlab.KeepRecent(50)",
    "memlab.plan(at.path, memlab.KeepRecent)": "make one of it, as in KeepRecent(...)",
    "memlab.plan(at.frame, memlab.KeepRecent(3))": FRAME,
    "memlab.load(at.frame)": FRAME,
    "memlab.recommend_cap(3)": "a frame, as memlab.load returns it or a store: its path, its URL",
    "memlab.decide(at.path, memlab.KeepRecent(3), now=NOW)": "memlab.load('{path}')",
    "memlab.decide(at.frame, 50, now=NOW)": "as in memlab.KeepRecent(50)",
    "memlab.compare(at.frame, [memlab.KeepRecent(3)])": "memlab.find_references(frame)",
    "memlab.compare(at.frame, at.path, [])": "memlab.find_references('{path}')",
    "memlab.compare(at.frame, at.references, memlab.KeepRecent(3))": (
        "a list of policies, such as [memlab.KeepRecent(200), memlab.KeepRecent(500)]"
    ),
    "memlab.TimeToLive(30)": "timedelta",
    "memlab.apply(at.path)": "memlab.plan('{path}', memlab.KeepR",
    "memlab.restore(at.plan)": "apply it first: memlab.restore(memlab.apply(plan))",
    "memlab.restore(at.path)": "memlab.restore(DIGEST, store='{path}')",
    "memlab.restore(at.receipt, ids='e1')": "put it into a list: ['e1']",
    "memlab.doctor(memlab.SqliteMemoryStore(':memory:'))": "name its file: store.path",
    "memlab.SqliteMemoryStore(':memory:').put({'memory_id': 'm1'})": (
        "memlab.MemoryItem(memory_id=..., kind=..., ...)"
    ),
    "memlab.find_references(at.frame, 'reads.log')": "memlab.read_access_log('reads.log')",
}
"""What somebody types, and the call that was meant."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("typed", "words"), MEANT.items(), ids=MEANT)
def test_the_call_that_was_meant_is_named(given: SimpleNamespace, typed: str, words: str) -> None:
    with pytest.raises(WrongArgumentError) as told:
        eval(typed, {"memlab": memlab, "at": given, "NOW": NOW})
    assert words.format(path=given.path) in str(told.value)
