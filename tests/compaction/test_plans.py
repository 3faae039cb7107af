"""Plans and receipts: contents, JSON round trips, digests, display."""

import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memlab.compaction import plan, plan_supersession
from memlab.compaction.diff import difference_of
from memlab.compaction.plans import ExpiryTime, Plan, Receipt
from memlab.errors import PlanError
from memlab.items import Size
from memlab.policies import Activation, KeepRecent, Policy
from memlab.store import SqliteMemoryStore
from tests.support.archives import NOON, compacted, planned
from tests.support.programs import environment
from tests.support.stores import episodes, files_in, row, run_sql, write_rows


def test_planning_leaves_the_store_unchanged(store: Path) -> None:
    before = files_in(store.parent)
    new_plan = planned(store)
    assert files_in(store.parent) == before
    with SqliteMemoryStore(store) as opened:
        assert plan(opened, KeepRecent(4), now=NOON) == new_plan
    assert [goes.memory_id for goes in new_plan.memories] == [f"e{n}" for n in range(1, 7)]
    assert [memory.memory_id for memory in new_plan.kept] == ["e7", "e8", "e9", "e10"]
    sizes = (new_plan.total, new_plan.boot_before, new_plan.boot_after, new_plan.floor)
    assert [size.memories for size in sizes] == [13, 12, 6, 2]


@pytest.mark.parametrize("policy", [KeepRecent(4), Activation(4)], ids=str)
def test_plan_digest_does_not_depend_on_the_name_of_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link.db"
    link.symlink_to(store)
    names = (store, store.name, link, store.as_uri())
    assert len({plan(name, policy, now=NOON).digest for name in names}) == 1


_ASK = """
import sys
from datetime import UTC, datetime
import memlab
from memlab.policies import KeepRecent, Activation, ValueCap

noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
for store in sys.argv[1:]:
    for policy in (KeepRecent(4), Activation(4), ValueCap(5)):
        print(memlab.plan(store, policy, now=noon).digest)
"""


@pytest.mark.long
def test_plan_digest_does_not_depend_on_environment(store: Path, tmp_path: Path) -> None:
    write_rows(store, [row(f"r{n}", evidence_refs_json=f'["e{n}"]') for n in range(1, 9)])
    (tmp_path / "link.db").symlink_to(store)

    def digests(*names: str, **variables: str) -> list[str]:
        command = [sys.executable, "-c", _ASK, *names]
        return subprocess.check_output(
            command, text=True, cwd=tmp_path, env=environment() | variables
        ).split()

    printed = digests(str(store), PYTHONHASHSEED="1")
    assert len(set(printed)) == 3
    run_sql(store, "PRAGMA journal_mode = DELETE")
    named = digests("memory.db", "link.db", store.as_uri(), PYTHONHASHSEED="2", TZ="Asia/Tokyo")
    assert named == 3 * printed


HOSTILE = ["nul \0", "\x1b[2J\x9b \x7f", "\u2028\u202e\ufeff", '" \\ \\u0000 \r\n', "é" * 20_000]
TEXT = st.text(max_size=12) | st.sampled_from(HOSTILE)
WHOLE = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(timezones=st.just(UTC))
SETTINGS = st.one_of(st.none(), st.booleans(), WHOLE, st.floats(allow_nan=False), TEXT)
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: WHOLE,
    int | str: WHOLE | TEXT,
    str: TEXT,
    str | None: st.none() | TEXT,
    bool: st.booleans(),
    datetime: MOMENTS,
    Size: st.builds(Size, WHOLE, WHOLE),
    Size | None: st.none() | st.builds(Size, WHOLE, WHOLE),
    Mapping[str, Any]: st.dictionaries(TEXT, SETTINGS, max_size=3),
    tuple[str, ...]: st.lists(TEXT, max_size=2).map(tuple),
}


def any_of(record: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of records with any values of the declared types."""
    for name, kind in record.__annotations__.items():
        if kind not in KINDS and name not in given:
            given[name] = rows_of(any_of(get_args(kind)[0]))
    return st.builds(record, **{n: KINDS.get(k) for n, k in record.__annotations__.items()} | given)


def rows_of(row: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(row, max_size=4).map(tuple)


EXPIRING = any_of(ExpiryTime, expires_at=MOMENTS.map(lambda moment: moment.isoformat()))


@given(plan=any_of(Plan, expires=rows_of(EXPIRING), added=st.just({}), start=st.none()))
def test_plan_round_trips_through_json(plan: Plan) -> None:
    assume(-(2**63) <= plan.total.tokens < 2**63)
    text = plan.to_json()
    parsed = Plan.from_json(text)
    assert parsed == plan
    assert parsed.digest == plan.digest
    assert parsed.to_json() == text
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    lines = {json.dumps(memory._asdict()) for memory in plan.memories}
    assert lines <= {line.strip().rstrip(",") for line in text.splitlines()}
    content = json.loads(text)
    compact = replace(plan).to_json(compact=True)  # its digest is not computed yet
    assert json.loads(compact) == content
    assert Plan.from_json(compact) == plan
    assert "\n" not in compact
    assert content.pop("memlab_plan") == 2
    assert content.pop("readable_from") == 2
    assert content.pop("digest") == plan.digest
    hashed = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(hashed.encode()).hexdigest() == plan.digest


@given(receipt=any_of(Receipt))
def test_receipt_round_trips_through_json(receipt: Receipt) -> None:
    text = receipt.to_json()
    assert Receipt.from_json(text) == receipt
    assert text.isascii()


def test_digest_covers_every_field_and_records_are_frozen(store: Path) -> None:
    plan = planned(store)
    first, *rest = plan.memories
    changed_plans = [
        replace(plan, store="/srv/other.db"),
        replace(plan, made_at=NOON + timedelta(seconds=1)),
        replace(plan, policy={"policy": "recent", "keep": 3}),
        replace(plan, memories=(first._replace(fingerprint="ff"), *rest)),
        replace(plan, kept=plan.kept[1:]),
    ]
    assert len({other.digest for other in [plan, *changed_plans]}) == 6
    for record in (plan, compacted(store)):
        with pytest.raises(FrozenInstanceError):
            record.store = "elsewhere"  # type: ignore[misc]


def kept(key: object, memory_id: str = "k") -> list[dict[str, object]]:
    return [{"key": key, "memory_id": memory_id, "fingerprint": ""}]


class TestReadingBadFiles:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "this is not a plan: it is not JSON"),
            ("[" * 100_000, "this is not a plan: it is not JSON"),
            (b"\xff\xfe\xfa", "this is not a plan: it is not JSON"),
            ("[]", "this is not a plan: it has no 'memlab_plan'"),
            ('{"memlab_plan": 3}', "this plan was written by a newer memlab, in format 3"),
            ('{"memlab_plan": 2}', "this is not a whole plan: 'store'; make a new one"),
            ('{"memlab_plan": 2, "groups": [1]}', "this is not a whole plan:"),
        ],
    )
    def test_text_that_is_no_plan_is_rejected(self, text: str | bytes, words: str) -> None:
        with pytest.raises(PlanError) as caught:
            Plan.from_json(text)
        assert str(caught.value).startswith(words)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("store", 1),
            ("made_at", "yesterday"),
            ("made_at", "2026-03-01T12:00:00"),
            ("policy", []),
            ("memories", {}),
            ("memories", ["e1"]),
            ("memories", [{"position": 1}]),
            ("kept", kept(True)),
            ("groups", None),
            ("last_goes", 1),
            ("expires", [{"key": 1, "expires_at": "soon"}]),
            ("token_rule", "\ud800"),
            ("policy", {"policy": "\udfff"}),
            ("kept", kept(2**63)),
            ("kept", kept(-(2**63) - 1)),
            ("kept", kept(1, "\udc80")),
            ("policy", {"policy": json.loads("[" * 60 + "]" * 60)}),
        ],
    )
    def test_plan_field_of_the_wrong_type_is_rejected(
        self, store: Path, field: str, value: object
    ) -> None:
        content = json.loads(planned(store).to_json())
        with pytest.raises(PlanError, match="this is not a whole plan"):
            Plan.from_json(json.dumps(content | {field: value}))

    def test_receipt_field_of_the_wrong_type_is_rejected(self, store: Path) -> None:
        content = json.loads(compacted(store).to_json())
        for field in fields(Receipt):
            with pytest.raises(PlanError, match="this is not a whole receipt"):
                Receipt.from_json(json.dumps(content | {field.name: [1]}))

    def test_edited_plan_is_rejected(self, store: Path) -> None:
        with pytest.raises(PlanError, match="edited after it was made"):
            Plan.from_json(planned(store).to_json().replace('"e2"', '"decision-1"'))


class TestShowing:
    def test_printed_plan_shows_groups_and_tokens(self, store: Path) -> None:
        plan = planned(store)
        lines = {" ".join(line.split()) for line in str(plan).splitlines()}
        assert lines >= {
            f"plan {plan.digest[:12]} for {store}",
            "policy --keep-recent 4",
            "made 2026-03-01 12:00 UTC",
            "deletes 6 of 13 memories (46.2%), 36 of 78 tokens (46.2%)",
            "floor 2 load-bearing memories, 12 tokens",
            "a start 12 memories, 72 tokens -> 6 memories, 36 tokens",
            "tokens estimate: characters / 4, rounded up",
            "prunable episodic beyond-newest 6 36",
            "superseded episodic superseded 1 6",
            "5 2026-03-01 6 e2 title of e2",
        }
        nothing = planned(store, 10)
        assert "deletes  0 of 13 memories (0.0%), 0 of 78 tokens (0.0%)" in str(nothing)
        assert "\ndeletes\n  nothing\n" in str(nothing)
        assert "0 of 0 memories (0.0%)" in str(replace(nothing, groups=(), kept=()))

    def test_large_plan_lists_ten_memories_and_counts_the_rest(self, store: Path) -> None:
        write_rows(store, episodes(990, start=11))
        text = str(planned(store, 0))
        assert text.count("beyond-newest") == 1
        assert text.count("title of e") == 10
        assert (
            "and 990 more between them; --save-plan FILE, or plan.to_json(), lists them all" in text
        )
        assert [name in text for name in ("e5 ", "e996 ", "e6 ")] == [True, True, False]

    def test_printed_receipt_shows_the_undo_command(self, store: Path) -> None:
        receipt = compacted(store.rename(store.with_name("my memory.db")), 9)
        assert receipt.undo == f"memlab restore '{receipt.store}' {receipt.digest[:12]}"
        assert f"undo     {receipt.undo}" in str(receipt)
        assert "deleted  1 memory" in str(receipt)
        assert "expired  2 memories since the plan was made" in str(replace(receipt, expired=2))
        text = str(replace(receipt, archive=None))
        assert "none: there was nothing to delete" in text
        assert "undo" not in text


class TestComparing:
    def test_difference_lists_links_of_only_one_plan(self, store: Path) -> None:
        first, second = (plan_supersession(store, {old: "e1"}, now=NOON) for old in ("d1", "s1"))
        same = difference_of(first, replace(first))
        assert not same.differs
        assert ("superseded", "the same memories, for the same reasons") in same.sheet().facts
        difference = difference_of(first, second)
        assert difference.differs
        assert [link["by_memory_id"] for link in difference.to_dict()["supersedes"]["added"]] == [
            "e1"
        ]
        added, removed = difference.sheet().tables
        assert added.heading == "only the second supersedes: 1"
        assert "s1" in added.rows[0]
        assert removed.heading == "only the first supersedes: 1"
        assert "d1" in removed.rows[0]
        tables = difference_of(planned(store), first).sheet().tables
        assert {table.heading for table in tables} == {
            "only the first deletes: 6",
            "only the second supersedes: 1",
        }

    def test_difference_shows_a_changed_successor(self, store: Path) -> None:
        first, second = (plan_supersession(store, {"d1": by}, now=NOON) for by in ("e1", "e2"))
        difference = difference_of(first, second)
        (rewritten,) = difference.to_dict()["supersedes"]["rewritten"]
        assert rewritten["before"]["by_memory_id"] == "e1"
        assert rewritten["after"]["by_memory_id"] == "e2"
        ((cells,),) = (table.rows for table in difference.sheet().tables)
        assert {"d1", "e1 -> e2"} <= set(cells)
        run_sql(store, "UPDATE memory_items SET title = 'another' WHERE memory_id = 'e1'")
        difference = difference_of(first, plan_supersession(store, {"d1": "e1"}, now=NOON))
        assert [after.memory_id for _, after in difference.changes["supersedes"].rewritten] == [
            "d1"
        ]
        assert difference.differs
