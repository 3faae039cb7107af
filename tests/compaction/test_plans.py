"""Plans and receipts as data: written, read, named, shown."""

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from archives import NOON
from hypothesis import assume, example, given
from hypothesis import strategies as st

from memlab.compaction.plans import Expiring, Group, KeptMemory, Plan, PlannedMemory, Receipt
from memlab.errors import PlanError
from memlab.items import Size

TEXT = st.text(max_size=12)
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
    Mapping[str, Any]: st.dictionaries(TEXT, SETTINGS, max_size=3),
    tuple[str, ...]: st.lists(TEXT, max_size=2).map(tuple),
}


def any_of(record: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records with anything in them that is of the types they declare."""
    for name, kind in record.__annotations__.items():
        if kind not in KINDS and name not in given:
            given[name] = rows_of(any_of(get_args(kind)[0]))
    return st.builds(record, **{n: KINDS.get(k) for n, k in record.__annotations__.items()} | given)


def rows_of(row: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(row, max_size=4).map(tuple)


EXPIRING = any_of(Expiring, expires_at=MOMENTS.map(lambda moment: moment.isoformat()))
PLANS = any_of(Plan, expires=rows_of(EXPIRING))


def planned(position: int, **changed: object) -> PlannedMemory:
    return PlannedMemory(
        position, position, f"e{position}", "episodic", "a title", "beyond-newest", 10,
        NOON.isoformat(), f"{position:032x}",
    )._replace(**changed)  # fmt: skip


def plan_of(*memories: PlannedMemory) -> Plan:
    return Plan(
        store="/srv/memory.db",
        made_at=NOON,
        policy={"policy": "recent", "keep": 2, "by": "position"},
        token_rule="characters / 4, an estimate",
        groups=(
            Group(False, "load-bearing", "semantic", "load-bearing", 3, 90),
            Group(False, "prunable", "episodic", "kept", 2, 20),
            Group(False, "superseded", "episodic", "superseded", 4, 40),
            Group(True, "prunable", "episodic", "beyond-newest", len(memories), 10 * len(memories)),
        ),
        memories=memories,
        kept=(KeptMemory(901, "k1", "aa"), KeptMemory(902, "k2", "bb")),
    )


def receipt(**changed: object) -> Receipt:
    made = Receipt(
        digest="0123456789abcdef" * 4,
        store="/srv/my memory.db",
        archive="/srv/my memory.db.archive.db",
        policy={"policy": "recent", "keep": 2, "by": "position"},
        made_at=NOON,
        applied_at=NOON,
        deleted=1,
        boot_before=Size(6, 120),
        boot_after=Size(5, 110),
        token_rule="characters / 4, an estimate",
    )
    return replace(made, **changed)  # type: ignore[arg-type]


HOSTILE = ["nul \0", "\x1b[2J\x9b \x7f", "\u2028\u202e\ufeff", '" \\ \\u0000 \r\n', "é" * 20_000]


class TestJson:
    @given(plan=PLANS)
    @example(plan_of(*(planned(n, title=text, memory_id=text) for n, text in enumerate(HOSTILE))))
    def test_a_plan_comes_back_as_it_was_written_under_the_digest_of_what_it_says(
        self, plan: Plan
    ) -> None:
        assume(-(2**63) <= plan.total.tokens < 2**63)
        text = plan.to_json()
        again = Plan.from_json(text)
        assert (again, again.digest, again.to_json()) == (plan, plan.digest, text)
        assert pickle.loads(pickle.dumps(plan)) == plan
        assert text.isascii()
        assert text.replace("\n", "").isprintable()
        lines = {json.dumps(memory._asdict()) for memory in plan.memories}
        assert lines <= {line.strip().rstrip(",") for line in text.splitlines()}
        content = json.loads(text)
        compact = replace(plan).to_json(compact=True)  # whose digest nobody has asked for yet
        assert json.loads(compact) == content
        assert Plan.from_json(compact) == plan
        assert "\n" not in compact
        assert content.pop("memlab_plan") == 2
        assert content.pop("digest") == plan.digest
        hashed = json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(hashed.encode()).hexdigest() == plan.digest

    @given(receipt=any_of(Receipt))
    @example(receipt(store=HOSTILE[0], archive=HOSTILE[1], finished=tuple(HOSTILE)))
    def test_a_receipt_comes_back_as_it_was_written(self, receipt: Receipt) -> None:
        text = receipt.to_json()
        assert Receipt.from_json(text) == receipt
        assert text.isascii()


class TestNames:
    def test_the_digest_depends_on_everything(self) -> None:
        plan = plan_of(planned(1))
        others = [
            replace(plan, store="/srv/other.db"),
            replace(plan, made_at=NOON + timedelta(seconds=1)),
            replace(plan, policy={"policy": "recent", "keep": 3}),
            replace(plan, memories=(planned(1, fingerprint="ff"),)),
            replace(plan, kept=plan.kept[1:]),
        ]
        assert len({each.digest for each in [plan, *others]}) == 6

    def test_both_are_frozen(self) -> None:
        for each in (plan_of(planned(1)), receipt()):
            with pytest.raises(FrozenInstanceError):
                each.store = "elsewhere"  # type: ignore[misc]


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
            ('{"memlab_plan": 3}', "this plan has format 3 and this memlab reads 2; make"),
            ('{"memlab_plan": 2}', "this is not a whole plan: 'store'; make a new one"),
            ('{"memlab_plan": 2, "groups": [1]}', "this is not a whole plan:"),
        ],
    )
    def test_what_is_no_plan_is_refused_in_words(self, text: str | bytes, words: str) -> None:
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
            ("made_at", "0001-01-01T00:00:00+23:59"),
            ("store", "\ud800"),
            ("policy", {"policy": "\udfff"}),
            ("kept", kept(2**63)),
            ("kept", kept(-(2**63) - 1)),
            ("kept", kept(1, "\udc80")),
            ("policy", {"policy": json.loads("[" * 60 + "]" * 60)}),
        ],
    )
    def test_a_field_of_the_wrong_type_is_refused(self, field: str, value: object) -> None:
        content = json.loads(plan_of(planned(1)).to_json())
        with pytest.raises(PlanError, match="this is not a whole plan"):
            Plan.from_json(json.dumps(content | {field: value}))

    @pytest.mark.parametrize("field", [each.name for each in fields(Receipt)])
    def test_a_field_of_a_receipt_of_the_wrong_type_is_refused(self, field: str) -> None:
        content = json.loads(receipt().to_json())
        with pytest.raises(PlanError, match="this is not a whole receipt"):
            Receipt.from_json(json.dumps(content | {field: [1]}))

    def test_an_edited_plan_is_refused(self) -> None:
        text = plan_of(planned(1), planned(2)).to_json()
        with pytest.raises(PlanError, match="edited after it was made"):
            Plan.from_json(text.replace('"e2"', '"decision-1"'))


class TestShowing:
    def test_a_plan_prints_what_a_reviewer_asks(self) -> None:
        plan = plan_of(planned(1), planned(2, reason="expired"))
        shown = {" ".join(line.split()) for line in str(plan).splitlines()}
        assert shown >= {
            f"plan {plan.digest[:12]} for /srv/memory.db",
            "policy recent(keep=2, by='position')",
            "made 2026-03-01 12:00 UTC",
            "deletes 2 of 11 memories (18.2%), 20 of 170 tokens (11.8%)",
            "floor 3 load-bearing memories, 90 tokens",
            "boot context 7 memories, 130 tokens -> 5 memories, 110 tokens",
            "tokens characters / 4, an estimate",
            "prunable episodic beyond-newest 2 20",
            "superseded episodic superseded 4 40",
            "2 2026-03-01 10 expired e2 a title",
        }

    def test_a_plan_that_deletes_nothing_says_so_of_an_empty_store_too(self) -> None:
        plan = replace(plan_of(), groups=plan_of().groups[:3])
        assert "deletes       0 of 9 memories (0.0%), 0 of 150 tokens (0.0%)" in str(plan)
        assert "\ndeletes\n  nothing\n" in str(plan)
        assert "0 of 0 memories (0.0%)" in str(replace(plan_of(), groups=(), kept=()))

    def test_a_large_plan_lists_ten_memories_and_counts_the_rest(self) -> None:
        text = str(plan_of(*map(planned, range(1, 1001))))
        assert len(text.splitlines()) == 31
        assert "and 990 more between them, all in the plan's memories" in text
        assert [name in text for name in ("e5 ", "e996 ", "e6 ")] == [True, True, False]

    def test_a_receipt_prints_how_to_take_it_back_where_there_is_something(self) -> None:
        shown = receipt()
        assert shown.undo == "memlab restore '/srv/my memory.db' 0123456789ab"
        assert f"undo          {shown.undo}" in str(shown)
        assert "deleted       1 memory" in str(shown)
        assert "expired       2 memories since the plan was made" in str(receipt(expired=2))
        text = str(receipt(archive=None))
        assert "none: there was nothing to delete" in text
        assert "undo" not in text
