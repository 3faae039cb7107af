"""Forged plans and receipts are checked against the store and memory limits."""

import base64
import hashlib
import json
import os
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memlab.compaction import plan_supersession, restore
from memlab.compaction.applier import apply
from memlab.compaction.diff import difference_of
from memlab.compaction.planner import plan
from memlab.compaction.plans import Group, Plan, PlannedLink, PlannedMemory, Receipt
from memlab.compaction.recorded_change import Merge
from memlab.compaction.wire import canonical
from memlab.errors import CompactionError, PlanError
from memlab.policies import KeepRecent, PurgeSuperseded
from memlab.testing.forging import mutated
from tests.support.archives import NOON, compacted, planned
from tests.support.invariants import archive_of, assert_load_bearing_rows_stay, result_of, rows_of
from tests.support.programs import run_program
from tests.support.stores import row, run_sql, write_rows

PURGE = PurgeSuperseded(timedelta())


def assert_rejected(store: Path, plan: Plan, message: str) -> None:
    before = rows_of(store)
    with pytest.raises((PlanError, CompactionError), match=message):
        apply(Plan.from_json(plan.to_json()))
    assert rows_of(store) == before
    assert not archive_of(store).exists()


def with_matching_groups(plan: Plan) -> Plan:
    """Return a plan with consistent groups."""
    kinds = {memory.kind for memory in plan.memories}
    groups = [group for group in plan.groups if not group.deleted]
    for kind in sorted(kinds):
        memories = [memory for memory in plan.memories if memory.kind == kind]
        group = Group(
            deleted=True,
            label="prunable",
            kind=kind,
            reason=memories[0].reason,
            memories=len(memories),
            tokens=sum(memory.tokens for memory in memories),
        )
        groups.append(group)
    return replace(plan, groups=tuple(groups))


def decision(store: Path, planned: PlannedMemory) -> PlannedMemory:
    """Return a planned episode replaced by a decision that claims to be an episode."""
    (d1,) = plan_supersession(store, {"d1": "s1"}, now=NOON).supersedes
    return planned._replace(
        key=d1.key,
        position=d1.position,
        memory_id=d1.memory_id,
        title=d1.title,
        fingerprint=d1.fingerprint,
    )


def deleting(store: Path) -> list[tuple[str, Plan]]:
    """Return deleting plans with a false claim, each with the reason of its rejection."""
    plan = planned(store)
    first, *other_memories = plan.memories
    first_kept, *other_kept = plan.kept
    (deleted_group,) = [group for group in plan.groups if group.deleted]
    kept_groups = [group for group in plan.groups if not group.deleted]

    def listing(*memories: PlannedMemory) -> Plan:
        return with_matching_groups(replace(plan, memories=memories))

    def counting(*groups: Group) -> Plan:
        return replace(plan, groups=(*kept_groups, *groups))

    harmless = "gives 'e1' the title 'harmless', but its title is 'title of e1'"
    somebody = first_kept._replace(memory_id="somebody")
    another_group = Group(
        deleted=False, label="prunable", kind="episodic", reason="kept", memories=3, tokens=3
    )
    return [
        ("'d1', which is load-bearing", listing(decision(store, first), *other_memories)),
        ("name of 'd1'", listing(first._replace(memory_id="d1"), *other_memories)),
        (harmless, listing(first._replace(title="harmless"), *other_memories)),
        (
            "by the name of 'e1', semantic",
            listing(first._replace(kind="semantic"), *other_memories),
        ),
        ("position 7", listing(first._replace(position=7), *other_memories)),
        ("names a memory twice", listing(*plan.memories, first)),
        ("leave no prunable", replace(planned(store, 0), policy={"policies": [1]})),
        ("by the name of 'somebody'", replace(plan, kept=(somebody, *other_kept))),
        ("do not add up", counting(deleted_group._replace(label="load-bearing"))),
        ("do not add up", counting(deleted_group._replace(memories=1))),
        ("do not add up", counting(deleted_group._replace(tokens=1))),
        ("do not add up", counting()),
        ("do not add up", counting(deleted_group, another_group)),
    ]


def superseding(store: Path) -> list[tuple[str, Plan]]:
    """Return superseding plans with a false claim, each with the reason of its rejection."""
    write_rows(store, [row("d2", "semantic")])
    run_sql(store, "UPDATE memory_items SET superseded_by = '' WHERE memory_id = 'e3'")
    new_plan = plan_supersession(store, {"d1": "d2", "s1": "d2"}, now=NOON)
    (superseded,) = [memory for memory in plan(store, PURGE).memories if memory.memory_id == "e3"]
    episode = planned(store).memories[0]
    d1, s1 = new_plan.supersedes
    of_episode = d1._replace(
        key=episode.key, memory_id=episode.memory_id, fingerprint=episode.fingerprint
    )
    by_s1 = d1._replace(by_key=s1.key, by_memory_id="s1", by_fingerprint=s1.fingerprint)
    by_superseded = d1._replace(
        by_key=superseded.key, by_memory_id="e3", by_fingerprint=superseded.fingerprint
    )
    forgeries: dict[str, list[PlannedLink]] = {
        "which is not load-bearing": [of_episode],
        "names a memory twice": [by_s1, s1],
        "by the name of 'e3'": [d1._replace(by_memory_id="e3")],
        "gives 'd1' the title 'harmless'": [d1._replace(title="harmless"), s1],
        "lets stand 'e3', which is not loaded": [by_superseded],
    }
    return [
        (claim, replace(new_plan, supersedes=tuple(links))) for claim, links in forgeries.items()
    ]


def retiring(store: Path) -> list[tuple[str, Plan]]:
    """Return retiring plans with a false claim, each with the reason of its rejection."""
    run_sql(store, "UPDATE memory_items SET superseded_by = 'e10' WHERE memory_id = 'e10'")
    old, e10 = plan(store, PURGE).memories
    new_plan = plan(store, KeepRecent(4), retire=True, now=NOON)
    first, *other_rows = new_plan.retires
    forgeries: dict[str, dict[str, Any]] = {
        "mixes deleting, superseding and retiring": {"memories": planned(store, 3).memories},
        "names a memory twice": {"retires": (first, first)},
        "do not add up": {"retires": tuple(other_rows)},
        "'d1', which is load-bearing": {"retires": (decision(store, first), *other_rows)},
        "retires 'old', which is not loaded": {"retires": (old, *new_plan.retires)},
        "returns 'e10', which no plan retired": {"returns": (e10,)},
    }
    return [(claim, replace(new_plan, **fields)) for claim, fields in forgeries.items()]


@pytest.mark.parametrize("make", [deleting, superseding, retiring])
def test_plan_with_false_claims_is_rejected(
    store: Path, make: Callable[[Path], list[tuple[str, Plan]]]
) -> None:
    for claim, forged in make(store):
        assert_rejected(store, forged, claim)


# Mutated plans and receipts

EXAMPLES = int(os.environ.get("MEMLAB_HOSTILE_FILES", "60"))


def signed(content: dict[str, Any]) -> str:
    """Return the text of a plan with a valid digest of its content."""
    hashed = {
        name: value for name, value in content.items() if name not in ("memlab_plan", "digest")
    }
    digest = hashlib.sha256(canonical(hashed).encode()).hexdigest()
    return json.dumps({**content, "digest": digest})


def forged_text(text: str, seed: int) -> str:
    """Change a text at random: some values, its digest, or its nesting."""
    rng = random.Random(seed)
    content = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = mutated(content, rng)
    if isinstance(content, dict) and rng.random() < 0.9:
        return signed(content)
    unsigned = json.dumps(content)
    if rng.random() < 0.5:
        return unsigned
    depth = rng.choice((2, 9000))
    return unsigned.replace("1", "[" * depth, 1)


def test_mutated_plan_never_deletes_more_than_it_lists(store: Path, tmp_path: Path) -> None:
    run_sql(store, f"UPDATE memory_items SET title = '{'long ' * 40}' WHERE memory_id = 'e1'")
    assert apply(planned(store, 9)).deleted == 1  # a plan holds only the start of a title
    archive_of(store).unlink()
    text = planned(store).to_json()
    original = store.read_bytes()
    before = rows_of(store)
    other = planned(store)
    for seed in range(EXAMPLES):
        forged = result_of(partial(Plan.from_json, forged_text(text, seed)))
        if forged is None:
            continue
        assert Plan.from_json(forged.to_json()) == forged
        assert Plan.from_json(forged.to_json(compact=True)) == forged
        str(forged)
        forged._repr_html_()
        str(difference_of(other, forged))
        copy = tmp_path / f"{seed}.db"
        copy.write_bytes(original)
        receipt = result_of(partial(apply, forged, store=copy))
        after = rows_of(copy)
        assert_load_bearing_rows_stay(before, after)
        if receipt is None:
            assert after == before, seed
            assert not archive_of(copy).exists()
        else:
            assert before.keys() - after.keys() <= {memory.key for memory in forged.memories}
            assert receipt.store == str(copy)
            str(receipt)
            parsed_receipt = Receipt.from_json(receipt.to_json())
            if receipt.deleted:
                assert restore(parsed_receipt).memories == receipt.deleted
            assert rows_of(copy) == before


def test_mutated_receipt_restores_all_or_nothing(store: Path) -> None:
    before = rows_of(store)
    text = apply(planned(store)).to_json()
    archive = archive_of(store).read_bytes()
    after = store.read_bytes()
    rows_after_deletion = rows_of(store)
    for seed in range(EXAMPLES):
        store.write_bytes(after)
        archive_of(store).write_bytes(archive)
        forged = result_of(partial(Receipt.from_json, forged_text(text, seed)))
        if forged is None:
            continue
        str(forged)
        forged._repr_html_()
        assert isinstance(forged.undo, str)
        restored = result_of(partial(restore, forged, store=store))
        if restored is not None and restored.memories:
            assert rows_of(store) == before
        else:
            assert rows_of(store) == rows_after_deletion


# Stored plans that are small on disk and huge when unpacked

ROOM = 300 * 2**20
NOISE = base64.b64encode(random.Random(1).randbytes(2**20))
"""Incompressible text, which raises the allowed unpacked size."""

LIMITED = """
import resource, sys
from pathlib import Path
from memlab.compaction import finish
from memlab.compaction.plans import Plan
from memlab.errors import MemlabError
from memlab.fleet.change import unpacked
path, where, room = sys.argv[1:]
taken = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmSize" in line)
resource.setrlimit(resource.RLIMIT_AS, [taken * 1024 + int(room)] * 2)
try:
    if where == "fleet":
        unpacked(Path(path).read_bytes())
    else:
        finish(path, where)
except MemlabError as error:
    print(error)
"""

BOMBS = {
    "spaces": (b'{"memlab_plan": 2', b" ", b"}"),
    "lists": (b'{"memlab_plan": 2, "memories": [', b"[],", b"[]]}"),
    "memories": (b'{"memlab_plan": 2, "memories": [', b'{"key":1},', b"{}]}"),
    "deep": (b'{"memlab_plan": 2, "memories": ', b"[", b"}"),
}
"""Start, repeated part and end of each text; an empty list takes twenty times its text."""


def bomb_of(kind: str, size: int, noise: bytes = b"") -> list[bytes]:
    head, piece, tail = BOMBS[kind]
    head = head.replace(b"2", b'2, "token_rule": "%s"' % noise, 1)
    block = piece * (2**20 // len(piece))
    blocks = [block] * (size // len(block))
    return [head, *blocks, tail]


def with_zlib(pieces: list[bytes]) -> bytes:
    compressor = zlib.compressobj(1)
    compressed = b"".join(compressor.compress(piece) for piece in pieces)
    return compressed + compressor.flush()


def with_zstd(pieces: list[bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for piece in pieces:
            stream.write(piece)
    return sink.getvalue().to_pybytes()


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of memory to be set")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["beyond", *BOMBS])
@pytest.mark.parametrize("keeper", ["archive", "fleet"])
def test_decompression_bomb_in_a_stored_plan_is_rejected(
    store: Path, keeper: str, kind: str
) -> None:
    if kind == "beyond":
        text = bomb_of("spaces", 2**29)
    elif keeper == "archive":
        text = bomb_of(kind, 15 * 2**20, NOISE)
    else:
        text = bomb_of(kind, 60 * 2**20, NOISE)
    if keeper == "fleet":
        file = store.with_name("plan.zst")
        archive_folder = keeper
        file.write_bytes(with_zstd(text))
        assert file.stat().st_size < 2**21
    else:
        file = store
        archive_folder = compacted(store).digest
        bomb = with_zlib(text)
        assert len(bomb) < 2**22
        run_sql(archive_of(store), f"UPDATE applies SET plan_json_zlib = x'{bomb.hex()}'")
    run = run_program(LIMITED, file, archive_folder, ROOM)
    assert run.returncode == 0, run.stderr[-500:]
    assert "plan" in run.stdout
    if keeper == "archive":
        assert restore(archive_folder, store=store).memories == 6


NO_MERGES = {
    "no JSON": "merged",
    "nested too deeply": "[" * 100_000,
    "no object": "[]",
    "of another version": '{"memlab_merge": 2, "from": "a", "relies_on": []}',
    "without the marker": '{"from": "a", "relies_on": []}',
    "without its origin": '{"memlab_merge": 1, "relies_on": []}',
    "without the memories that stand for others": '{"memlab_merge": 1, "from": "a"}',
    "from a number": '{"memlab_merge": 1, "from": 1, "relies_on": []}',
    "relying on a text": '{"memlab_merge": 1, "from": "a", "relies_on": "b.md"}',
}
"""Texts in an archive that describe no merge, by what is wrong with them."""


@pytest.mark.parametrize("text", NO_MERGES.values(), ids=NO_MERGES)
def test_forged_text_is_not_a_merge(text: str) -> None:
    assert Merge.from_json(text) is None


def test_merge_is_read_as_it_was_written() -> None:
    merge = Merge(origin="a folder", relies_on=frozenset({"b.md", "a.md"}))
    assert Merge.from_json(merge.to_json()) == merge
