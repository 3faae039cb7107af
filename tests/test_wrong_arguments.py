"""Wrong arguments of public functions are explained with the intended call."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab import MemoryItem, MemoryKind, MemoryProvenance
from memlab.errors import MemlabError, WrongArgumentError
from tests.support.stores import episodes, write_rows

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOT_CALLED = {
    "MemlabError": "an error takes any message",
    "IndexPlan": "made by memlab.plan_index or IndexPlan.from_json",
    "IndexReceipt": "made by memlab.apply or IndexReceipt.from_json",
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
    "IndexPlan.from_json",
    "IndexReceipt.from_json",
    "Plan.from_json",
    "Receipt.from_json",
]
OTHERS_KNOW = {
    "on_step",
    "progress",
    "vectorise",
    "count_tokens",
    "with_body",
    "only_log",
    "maintenance",
}
"""Parameters without a check: flags, and functions."""


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a valid argument for each parameter without a default."""
    folder = tmp_path_factory.mktemp("right")
    path = write_rows(folder / "memory.db", episodes(12))
    frame = memlab.load(path)
    plan = memlab.plan(path, memlab.KeepRecent(3), now=NOW)
    provenance = MemoryProvenance(None, "me", source_task_ref="t")
    return {
        **dict.fromkeys(("path", "source", "store"), path),
        **dict.fromkeys(("title", "body", "authored_by", "source_task_ref"), "t"),
        **dict.fromkeys(("keep", "keep_recent", "max_items", "max_tokens"), 3),
        "by_memory_id": "e1",
        "entries": [{"memory_id": "e1", "at": NOW.isoformat()}],
        "frame": frame,
        "ids": ["e1"],
        "item": MemoryItem("m1", MemoryKind.EPISODIC, "t", "b", provenance),
        "kind": MemoryKind.EPISODIC,
        "memories": 100,
        "memory_id": "m1",
        "name": "two_years",
        "now": NOW,
        "older_than": timedelta(days=1),
        "plan": plan,
        "policies": [memlab.KeepRecent(3)],
        "policy": memlab.KeepRecent(3),
        "provenance": provenance,
        "receipt": memlab.apply(plan, now=NOW),
        "references": memlab.find_references(frame),
        "source_event": None,
        "target": folder / "copy.db",
        "text": plan.to_json(),
        "threshold": 0.5,
    }


def wrong_values(right: dict[str, Any]) -> Iterator[Any]:
    """Return wrong values of many types."""
    yield from (None, 50, -1, 3.5, float("nan"), True, "", "no such thing", b"bytes", [], [1], {})
    yield from ({"memory_id": "m1"}, object(), lambda: None, Path("nowhere.db"), timedelta(days=1))
    yield from (datetime(2026, 1, 1), memlab.KeepRecent, memlab.KeepRecent(3))  # noqa: DTZ001
    yield from (pd.DataFrame(), right["frame"]["title"])
    yield from (right[name] for name in ("frame", "references", "plan", "receipt", "item", "path"))


def outcome_of(call: Callable[..., Any], arguments: dict[str, Any], value: Any) -> str | None:
    """Return the fault in how a call ended; None for a result and for a proper error."""
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
    except Exception as error:  # noqa: BLE001 - any other error is a fault
        return f"{value!r:.40}: {type(error).__name__}: {error}"
    return None


def bound(name: str, folder: Path) -> Callable[..., Any]:
    """Return a public callable by dotted name; a method is bound to a new object in `folder`."""
    owner, _, method = name.partition(".")
    method_owner = getattr(memlab, owner)
    if method and owner not in {"IndexPlan", "IndexReceipt", "Plan", "Receipt"}:
        method_owner = method_owner(folder / f"{owner}.file")
    function: Callable[..., Any] = getattr(method_owner, method) if method else method_owner
    return function


DRAWING = {"report", "explore", "browse", "compare"}
"""Functions that draw or compute for about a second with valid arguments."""
NAMES = [
    pytest.param(name, marks=[pytest.mark.long] * (name in DRAWING)) for name in (*CALLS, *METHODS)
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_every_wrong_argument_gets_a_clear_error(
    name: str, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = bound(name, tmp_path)
    parameters = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    needed = {
        parameter.name: right[parameter.name]
        for parameter in parameters
        if parameter.default is parameter.empty
    }
    names = {parameter.name for parameter in parameters} - OTHERS_KNOW
    faults = []
    for parameter_name in names:
        for value in wrong_values(right):
            wrong = outcome_of(call, needed | {parameter_name: value}, value)
            if wrong is not None:
                faults.append(f"{name}({parameter_name}=...) {wrong}")
    assert faults == []


def test_pipeline_rejects_non_policies(right: dict[str, Any]) -> None:
    for value in wrong_values(right):
        if isinstance(value, memlab.Policy):
            continue
        for policies in ((value,), (right["policy"], value)):
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
    "memlab.fleet.plan(at.path, 50)": "as in memlab.KeepRecent(50)",
    "memlab.fleet.apply(memlab.KeepRecent(3))": "memlab.fleet.apply takes",
    "memlab.fleet.survey(7)": "memlab.fleet takes as sources a list of texts, not 7",
    "memlab.fleet.survey([7])": "memlab.fleet takes as one of sources text or a path, not 7",
}
"""A mistaken call, and the words that name the intended call."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("typed", "suggestion"), MEANT.items(), ids=MEANT)
def test_intended_call_is_suggested(right: dict[str, Any], typed: str, suggestion: str) -> None:
    with pytest.raises(WrongArgumentError) as refused:
        eval(typed, {"memlab": memlab, "at": SimpleNamespace(**right), "NOW": NOW})
    assert suggestion.format(path=right["path"]) in str(refused.value)
