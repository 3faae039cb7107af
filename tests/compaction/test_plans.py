"""Plans as data: written, read, named, shown."""

import hashlib
import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.compaction.plans import Group, KeptMemory, Plan, PlannedMemory
from memlab.compaction.wire import as_data, in_words
from memlab.errors import PlanError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e\0&'\""

TEXT = st.text(max_size=12)
COUNT = st.integers(0, 2**63 - 1)
POSITION = st.integers(-(2**63), 2**63 - 1)
GROUPS = st.builds(Group, st.booleans(), TEXT, TEXT, TEXT, COUNT, COUNT)
KEY = POSITION | TEXT
PLANNED = st.builds(PlannedMemory, KEY, POSITION, TEXT, TEXT, TEXT, TEXT, COUNT, TEXT, TEXT)
KEPT = st.builds(KeptMemory, KEY, TEXT, TEXT)
SETTINGS = st.one_of(st.none(), st.booleans(), COUNT, st.floats(allow_nan=False), TEXT)
MOMENTS = st.datetimes(timezones=st.just(UTC))
PLANS = st.builds(
    Plan,
    store=TEXT,
    made_at=MOMENTS,
    policy=st.dictionaries(TEXT, SETTINGS, max_size=3),
    token_rule=TEXT,
    groups=st.lists(GROUPS, max_size=4).map(tuple),
    memories=st.lists(PLANNED, max_size=25).map(tuple),
    kept=st.lists(KEPT, max_size=4).map(tuple),
)


def planned(position: int, **fields: object) -> PlannedMemory:
    return PlannedMemory(
        position, position, f"e{position}", "episodic", "a title", "beyond-newest", 10,
        NOON.isoformat(), f"{position:032x}",
    )._replace(**fields)  # fmt: skip


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


class TestJson:
    @given(plan=PLANS)
    def test_a_digest_is_of_the_json_that_the_file_says(self, plan: Plan) -> None:
        content = json.loads(plan.to_json())
        assert content.pop("memlab_plan") == 2
        assert content.pop("digest") == plan.digest
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == plan.digest
        lines = {json.dumps(memory._asdict()) for memory in plan.memories}
        assert lines <= {line.strip().rstrip(",") for line in plan.to_json().splitlines()}

    @given(plan=PLANS)
    def test_a_plan_comes_back_as_it_was_written(self, plan: Plan) -> None:
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.digest == plan.digest
        assert again.to_json() == plan.to_json()

    @given(plan=PLANS)
    def test_a_compact_plan_is_the_same_plan_on_one_line(self, plan: Plan) -> None:
        text = replace(plan).to_json(compact=True)  # whose digest nobody has asked for yet
        assert json.loads(text) == json.loads(plan.to_json())
        assert Plan.from_json(text) == plan
        assert "\n" not in text

    @given(plan=PLANS)
    def test_plans_pickle(self, plan: Plan) -> None:
        assert pickle.loads(pickle.dumps(plan)) == plan

    def test_every_memory_has_a_line_of_its_own(self) -> None:
        lines = plan_of(planned(1), planned(2)).to_json().splitlines()
        (line,) = [line for line in lines if '"e1"' in line]
        assert line == (
            ' {"key": 1, "position": 1, "memory_id": "e1", "kind": "episodic", "title": "a title", '
            '"reason": "beyond-newest", "tokens": 10, "created_at": "2026-03-01T12:00:00+00:00", '
            '"fingerprint": "00000000000000000000000000000001"},'
        )

    def test_two_plans_differ_in_the_lines_of_the_memories_that_differ(self) -> None:
        one = plan_of(*map(planned, range(1, 40))).to_json().splitlines()
        other = plan_of(*map(planned, range(1, 41))).to_json().splitlines()
        changed = {line.rstrip(",") for line in one} ^ {line.rstrip(",") for line in other}
        digests = [line for line in changed if line.startswith('"digest"')]
        counts = [line for line in changed if '"memories": ' in line and "label" in line]
        rows = [line for line in changed if '"position": 40' in line]
        assert (len(digests), len(counts), len(rows), len(changed)) == (2, 2, 1, 5)

    def test_the_text_cannot_steer_a_terminal(self) -> None:
        text = plan_of(planned(1, memory_id=HOSTILE, title=HOSTILE)).to_json()
        assert text.isascii()
        assert all(char.isprintable() or char == "\n" for char in text)


class TestNames:
    def test_the_digest_depends_on_everything(self) -> None:
        plan = plan_of(planned(1))
        others = [
            replace(plan, store="/srv/other.db"),
            replace(plan, made_at=NOON + timedelta(seconds=1)),
            replace(plan, policy={"policy": "recent", "keep": 3}),
            replace(plan, memories=(planned(1, fingerprint="ff"),)),
            replace(plan, kept=()),
        ]
        assert len({each.digest for each in [plan, *others]}) == 6

    def test_the_fingerprint_depends_on_the_memories_alone(self) -> None:
        plan = plan_of(planned(1))
        assert replace(plan, made_at=NOON + timedelta(1)).fingerprint == plan.fingerprint
        assert (
            replace(plan, memories=(planned(1, fingerprint="f"),)).fingerprint != plan.fingerprint
        )
        assert replace(plan, kept=plan.kept[1:]).fingerprint != plan.fingerprint

    def test_a_plan_is_frozen(self) -> None:
        with pytest.raises(FrozenInstanceError):
            plan_of().store = "elsewhere"  # type: ignore[misc]

    def test_plans_can_be_members_of_a_set(self) -> None:
        plan = plan_of(planned(1))
        assert len({plan, plan_of(planned(1)), plan_of(planned(2))}) == 2


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


class TestReadingBadFiles:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "this is not a plan: it is not JSON"),
            ("[" * 100_000, "this is not a plan: it is not JSON"),
            (b"\xff\xfe\xfa", "this is not a plan: it is not JSON"),
            ("[]", "this is not a plan: it has no 'memlab_plan'"),
            ('{"memlab_receipt": 1}', "this is not a plan: it has no 'memlab_plan'"),
            ('{"memlab_plan": 3}', "this plan has format 3 and this memlab reads 2; make"),
            ('{"memlab_plan": 2}', "this is not a whole plan: 'store'; make a new one"),
            ('{"memlab_plan": 1}', "this plan has format 1 and this memlab reads 2; make"),
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
            ("kept", [{"key": True, "memory_id": "k", "fingerprint": ""}]),
            ("groups", None),
            ("made_at", "0001-01-01T00:00:00+23:59"),
            ("made_at", "9999-12-31T23:59:59-12:00"),
            ("store", "\ud800"),
            ("policy", {"policy": "\udfff"}),
            ("kept", [{"key": 2**63, "memory_id": "k", "fingerprint": ""}]),
            ("kept", [{"key": -(2**63) - 1, "memory_id": "k", "fingerprint": ""}]),
            ("kept", [{"key": 1, "memory_id": "\udc80", "fingerprint": ""}]),
            ("policy", {"policy": nested(400)}),
            ("policy", {"policy": nested(60)}),
        ],
    )
    def test_a_field_of_the_wrong_type_is_refused(self, field: str, value: object) -> None:
        content = json.loads(plan_of(planned(1)).to_json())
        with pytest.raises(PlanError, match="this is not a whole plan"):
            Plan.from_json(json.dumps(content | {field: value}))

    def test_an_edited_plan_is_refused(self) -> None:
        text = plan_of(planned(1), planned(2)).to_json()
        with pytest.raises(PlanError, match="edited after it was made"):
            Plan.from_json(text.replace('"e2"', '"decision-1"'))


class TestShowing:
    def test_a_plan_prints_what_a_reviewer_asks(self) -> None:
        plan = plan_of(planned(1), planned(2, reason="expired"))
        assert str(plan) == (
            f"plan {plan.digest[:12]} for /srv/memory.db\n"
            "  policy        recent(keep=2, by='position')\n"
            "  made          2026-03-01 12:00 UTC\n"
            "  deletes       2 of 11 memories (18.2%), 20 of 170 tokens (11.8%)\n"
            "  floor         3 load-bearing memories, 90 tokens\n"
            "  boot context  7 memories, 130 tokens -> 5 memories, 110 tokens\n"
            "  tokens        characters / 4, an estimate\n"
            "\n"
            "deletes\n"
            "  label     kind      reason         memories  tokens\n"
            "  prunable  episodic  beyond-newest         2      20\n"
            "\n"
            "keeps\n"
            "  label         kind      reason        memories  tokens\n"
            "  load-bearing  semantic  load-bearing         3      90\n"
            "  prunable      episodic  kept                 2      20\n"
            "  superseded    episodic  superseded           4      40\n"
            "\n"
            "what it deletes, oldest first\n"
            "  position  created     tokens  reason         id  title\n"
            "         1  2026-03-01      10  beyond-newest  e1  a title\n"
            "         2  2026-03-01      10  expired        e2  a title"
        )

    def test_a_plan_that_deletes_nothing_says_so(self) -> None:
        plan = replace(plan_of(), groups=plan_of().groups[:3])
        assert "deletes       0 of 9 memories (0.0%), 0 of 150 tokens (0.0%)" in str(plan)
        assert "\ndeletes\n  nothing\n" in str(plan)

    def test_a_plan_for_an_empty_store_prints(self) -> None:
        assert "0 of 0 memories (0.0%)" in str(replace(plan_of(), groups=(), kept=()))

    def test_a_large_plan_lists_ten_memories_and_counts_the_rest(self) -> None:
        text = str(plan_of(*map(planned, range(1, 1001))))
        assert len(text.splitlines()) == 31
        assert "and 990 more between them, all in the plan's memories" in text
        assert "e5 " in text
        assert "e996 " in text
        assert "e6 " not in text

    @pytest.mark.parametrize("field", ["memory_id", "title", "reason", "kind", "created_at"])
    def test_hostile_text_steers_neither_terminal_nor_page(self, field: str) -> None:
        plan = plan_of(planned(1, **{field: HOSTILE}))
        plan = replace(
            plan, store=HOSTILE, token_rule=HOSTILE, policy={"policy": HOSTILE, HOSTILE: HOSTILE}
        )
        assert all(char.isprintable() or char == "\n" for char in str(plan))
        page = plan._repr_html_()
        assert "<script" not in page
        assert all(char.isprintable() for char in page)

    def test_ten_megabytes_of_one_character_print_as_a_line(self) -> None:
        plan = plan_of(planned(1, memory_id="x" * 10_000_000))
        assert max(map(len, str(plan).splitlines())) < 200
        assert len(plan._repr_html_()) < 10_000


@dataclass(frozen=True)
class Nested:
    half_life: timedelta
    inner: object
    address = "nested"


class TestPolicyAsData:
    def test_a_policy_becomes_its_name_and_its_settings(self) -> None:
        policy = Nested(timedelta(days=7), (Nested(timedelta(0), None), len, "x", 0.5))
        assert as_data(policy) == {
            "policy": "nested",
            "half_life": "7 days, 0:00:00",
            "inner": [
                {"policy": "nested", "half_life": "0:00:00", "inner": None},
                "builtins.len",
                "x",
                0.5,
            ],
        }

    def test_nothing_of_an_unknown_object_but_its_type_is_written(self) -> None:
        assert as_data(object()) == "builtins.object"

    def test_it_reads_as_a_line(self) -> None:
        data = as_data(Nested(timedelta(days=1), (Nested(timedelta(0), 1),)))
        assert in_words(data) == (
            "nested(half_life='1 day, 0:00:00', inner=[nested(half_life='0:00:00', inner=1)])"
        )
