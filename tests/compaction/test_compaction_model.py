"""Whatever the order of plans, stops, finishes and restores, no row is lost and none is made up."""

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from archives import APPLY_STEPS, RESTORE_STEPS
from compaction.operations import StoppedError, stop_at
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from invariants import Row, assert_nothing_lost, assert_sound, copies_of, rows_of
from stores import row, run_sql, write_rows

from memlab.compaction.applier import apply
from memlab.compaction.contents import archived_plans
from memlab.compaction.planner import plan
from memlab.compaction.plans import Plan
from memlab.compaction.restorer import restore
from memlab.errors import AlreadyAppliedError, ArchiveError, StalePlanError
from memlab.policies import KeepRecent

START = datetime(2026, 3, 1, tzinfo=UTC)


class CompactionUnderStops(RuleBasedStateMachine):
    """Keeps every version of every row that a plan ever took out."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = write_rows(self.folder / "memory.db", [row("d0", "semantic"), row("e0")])
        self.plans: list[Plan] = []
        self.taken_out: set[Row] = set()
        self.written = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(kind=st.sampled_from(["episodic", "episodic", "semantic"]), count=st.integers(1, 4))
    def put(self, kind: str, count: int) -> None:
        write_rows(self.store, [row(f"m{self.written + n}", kind) for n in range(count)])
        self.written += count

    @rule(number=st.integers(0, 30), column=st.sampled_from(["title", "superseded_by"]))
    def change(self, number: int, column: str) -> None:
        run_sql(
            self.store, f"UPDATE memory_items SET {column} = 'd0' WHERE memory_id = 'm{number}'"
        )

    @rule(keep=st.integers(0, 6))
    def make_plan(self, keep: int) -> None:
        moment = START + timedelta(minutes=len(self.plans))
        self.plans.append(plan(self.store, KeepRecent(keep), now=moment))

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), stop=st.none() | st.sampled_from(APPLY_STEPS))
    def apply_plan(self, data: st.DataObject, stop: str | None) -> None:
        chosen = data.draw(st.sampled_from(self.plans))
        before = rows_of(self.store)
        committed = stop in {None, "committed", "recorded"}
        try:
            apply(chosen, watch=stop_at(stop))
        except StoppedError:
            pass
        except (StalePlanError, AlreadyAppliedError):
            committed = False
        # Where a plan was carried out and not noted, new rows may have the places that it freed.
        there = {(position, found[1].decode()) for position, found in before.items()}
        named = {(each.position, each.memory_id) for each in chosen.memories}
        positions = {position for position, _ in named & there} if committed else set()
        expected = {p: found for p, found in before.items() if p not in positions}
        assert rows_of(self.store) == expected
        self.taken_out |= {before[p] for p in positions & before.keys()}
        assert_nothing_lost(before, self.store)

    @rule(data=st.data(), stop=st.none() | st.sampled_from(RESTORE_STEPS))
    def restore_plan(self, data: st.DataObject, stop: str | None) -> None:
        if not self.taken_out:
            return
        entry = data.draw(st.sampled_from(archived_plans(self.store)))
        before = rows_of(self.store)
        try:
            count = restore(entry.digest, store=self.store, watch=stop_at(stop))
        except ArchiveError:
            assert rows_of(self.store) == before
            return
        except StoppedError:
            count = None
        after = rows_of(self.store)
        back = {p: found for p, found in after.items() if p not in before}
        assert {p: found for p, found in after.items() if p in before} == before
        assert set(back.values()) <= self.taken_out
        assert count is None or count == len(back)

    @invariant()
    def what_was_taken_out_is_in_the_archive(self) -> None:
        assert self.taken_out <= {
            each for found in copies_of(self.store).values() for each in found
        }

    @invariant()
    def the_store_is_sound(self) -> None:
        assert_sound(self.store)
        assert "d0" in {found[1].decode() for found in rows_of(self.store).values()}


TestCompactionUnderStops = CompactionUnderStops.TestCase
TestCompactionUnderStops.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
