"""The conformance suite: tests that every adapter must pass, whatever store it reads.

A class of tests inherits from one of the suites and names the lab of the adapter. A lab
(:mod:`memlab.testing.labs`) writes a store and reads it back without the adapter.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner

import memlab
from memlab import compaction, errors
from memlab.cli import main
from memlab.compaction.archive_views import last_applied
from memlab.sources.base import Source, read_consistent
from memlab.sources.capabilities import require
from memlab.sources.conformance_record import TESTED, conformance_suite_running
from memlab.sources.opening import open_source, system_named
from memlab.sources.readers import Key, Reader, Rows
from memlab.sources.tables import AT_START, KEY, RETIRED, SCHEMA, SIGNALS, STATES
from memlab.store.records import fingerprint_of
from memlab.testing.forging import forge
from memlab.testing.labs import COUNT, MODES, Lab
from memlab.testing.steps import APPLY_STEPS, RESTORE_STEPS
from memlab.upkeep.health import doctor


class ReadingSuite:
    """Tests of an adapter that only reads.

    A class of tests inherits from this one and sets :attr:`lab_type`. The tests check the columns
    and their types, the order of memories, that records are canonical, that reading changes nothing
    and that a reader sees a single moment while a writer writes.

    Each test gets a new store of :data:`memlab.testing.COUNT` memories from the fixture ``lab``.

    Raises
    ------
    MissingExtraError
        If this class is imported from :mod:`memlab.testing` and pytest is not installed.

    Examples
    --------
    >>> from memlab.testing import Lab, ReadingSuite
    >>> class LinesLab(Lab):
    ...     where = "memory.txt"  # see Lab for the other methods
    >>> class TestLines(ReadingSuite):
    ...     lab_type = LinesLab
    """

    lab_type: ClassVar[type[Lab]]
    """Class of the lab of the adapter."""

    @pytest.fixture(autouse=True)
    def adapter_on_trial(self) -> Iterator[None]:
        """Let an installed adapter delete although it has not passed the suite yet."""
        with conformance_suite_running():
            yield

    @staticmethod
    def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program in a process of its own."""
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @pytest.fixture
    def lab(self, tmp_path: Path, request: pytest.FixtureRequest) -> Lab:
        """Return a lab with a new store of :data:`COUNT` memories."""
        lab: Lab = self.lab_type(tmp_path)
        lab.fill(COUNT)
        adapter = type(open_source(lab.name))
        request.node.user_properties.append((TESTED, f"{adapter.__module__}:{adapter.__name__}"))
        return lab

    def test_source_states_its_kind_and_limits(self, lab: Lab) -> None:
        source = open_source(lab.name)
        assert isinstance(source, Source)
        assert system_named(source.scheme) is not None
        assert open_source(source.name).archive_path == source.archive_path
        if source.native_cap is not None:
            assert "50" in source.native_cap.setting_for(50)
        if source.retirement is None:
            with pytest.raises(errors.MemlabError, match=r"retire|(load|keep) fewer"):
                memlab.plan(lab.name, memlab.KeepRecent(1), retire=True)
        if not source.is_native_format:
            with pytest.raises(
                errors.UnsafeDeletionError, match=r"nothing was written: .*--export"
            ):
                require(source, "store_making")

    # Reading

    def test_rows_have_required_columns_and_load_as_frame(self, lab: Lab) -> None:
        for with_body in (True, False):
            table = table_of(lab, with_body=with_body)
            state_names = [state.name for state in STATES]
            optional = {*SIGNALS.names, KEY, AT_START, RETIRED.name, *state_names}
            required = [name for name in SCHEMA.names if with_body or name != "body"]
            assert set(table.column_names) - optional == set(required)
            for name in required:
                expected_type = SCHEMA.field(name).type
                actual_type = table.schema.field(name).type
                is_parsed_time = name == "created_at" and actual_type == pa.timestamp("us", "UTC")
                assert actual_type == expected_type or is_parsed_time
            for name in ("active", "tags_json", "supersedes_json", "evidence_refs_json"):
                assert table[name].null_count == 0, name
            for name in set(table.column_names) & set(SIGNALS.names):
                assert table.schema.field(name).type == SIGNALS.field(name).type
        frame = memlab.load(lab.name, with_body=True)
        assert len(frame) == COUNT == len(lab.exactly())
        lengths = frame["title"].str.len() + frame["body"].str.len()
        assert frame["chars"].tolist() == lengths.tolist()
        assert memlab.load(lab.name)["chars"].tolist() == frame["chars"].tolist()
        assert frame["prunable"].sum() >= COUNT - 1  # a lab may write one decision

    def test_rows_are_in_insertion_order(self, lab: Lab) -> None:
        positions = table_of(lab)["position"].to_pylist()
        assert positions == sorted(set(positions))
        before = keys_of(lab)
        lab.add_pair(1)
        assert keys_of(lab)[: len(before)] == before
        assert set(table_of(lab)["title"].to_pylist()[len(before) :]) == {"pair 1"}

    def test_records_are_canonical_and_in_requested_order(self, lab: Lab) -> None:
        before = lab.exactly()
        keys = keys_of(lab)
        records = records_of(lab, keys)
        assert [key for key, _ in records] == keys
        assert records_of(lab, keys) == records
        unknown_key: Key = 10**12 if isinstance(keys[0], int) else "nobody of that name"
        assert records_of(lab, [unknown_key, *reversed(keys)]) == [*reversed(records)]
        assert records_of(lab, []) == []
        for _, record in records:
            assert isinstance(json.loads(record), dict)
            assert b"\n" not in record
        assert lab.exactly() == before

    def test_change_affects_only_its_own_record(self, lab: Lab) -> None:
        keys = keys_of(lab)
        before = dict(records_of(lab, keys))
        lab.change(keys[-1])
        after = dict(records_of(lab, keys))
        assert {key for key in keys if before[key] != after[key]} == {keys[-1]}

    def test_archived_records_reproduce_rows_and_facts(self, lab: Lab) -> None:
        source = open_source(lab.name)
        keys = keys_of(lab)
        for with_body in (True, False):
            table = table_of(lab, with_body=with_body)
            archived = concatenated(source.rows_of(records_of(lab, keys), with_body=with_body))
            for name in table.column_names:
                values = [None] * len(table)
                if name in archived.column_names:
                    values = archived[name].to_pylist()
                assert values == table[name].to_pylist(), name
        facts = [source.facts_of(record) for _, record in records_of(lab, keys)]
        for name in ("memory_id", "kind", "tags_json"):
            assert [getattr(fact, name) for fact in facts] == table[name].to_pylist()

    def test_non_canonical_record_is_rejected(self, lab: Lab) -> None:
        source = open_source(lab.name)
        ((key, record),) = records_of(lab, keys_of(lab)[1:2])
        parsed = json.loads(record)
        source.check_record(key, record, parsed)
        with pytest.raises(ValueError, match=r"."):
            source.check_record(key, record.replace(b":", b": ", 1), parsed)
        with pytest.raises(ValueError, match=r"."):
            source.check_record("nobody of that name", record, parsed)

    def test_missing_column_or_store_is_an_error(self, lab: Lab, tmp_path: Path) -> None:
        source = open_source(lab.name)
        # A store raises an error for an unknown column, or has no value in it.
        with suppress(errors.StoreError):
            assert set(memlab.load(lab.name, columns=["colour of it"])["colour of it"]) <= {None}
        if source.is_server:
            return
        before = sorted(tmp_path.iterdir())
        kind = cast("Callable[[Path], Source]", type(source))
        with pytest.raises(errors.StoreError, match="nothing"):
            memlab.load(kind(tmp_path / "nothing"))
        assert sorted(tmp_path.iterdir()) == before

    def test_reader_sees_one_state_during_writes(self, lab: Lab) -> None:
        lab.add_pair(0)
        stop = threading.Event()

        def write() -> None:
            for number in range(1, 100):  # a store without a limit would take ever longer to read
                if stop.wait(0.002):  # the pause lets a reader begin
                    return
                lab.add_pair(number)

        def check_pairs(reader: Reader) -> None:
            table = concatenated(reader.batches(with_body=False))
            keys = keys_in(table)
            assert set(dict(reader.records(keys))) == set(keys)
            active = table.filter(table["active"])["title"].to_pylist()
            pair_titles = [title for title in active if "pair" in title]
            pair_counts = set(Counter(pair_titles).values())
            allowed_counts = {2} if lab.in_one_step else {1, 2}
            assert pair_counts <= allowed_counts

        writer = threading.Thread(target=write)
        writer.start()
        try:
            successful_reads = 0
            while successful_reads < 8:
                with suppress(errors.ChangedWhileReadError):
                    read_consistent(open_source(lab.name), check_pairs)
                    successful_reads += 1
        finally:
            stop.set()
            writer.join()

    def test_open_reader_does_not_see_later_writes(self, lab: Lab) -> None:
        writer = threading.Thread(target=lab.add_pair, args=(1,))
        with suppress(errors.ChangedWhileReadError):  # raised for a store that cannot be locked
            with open_source(lab.name).reading() as reader:
                before = concatenated(reader.batches(with_body=False))["title"].to_pylist()
                writer.start()
                writer.join(timeout=0.5)  # it may have to wait until the reader is done
                after = concatenated(reader.batches(with_body=False))["title"].to_pylist()
            assert "pair 1" not in before
            assert after == before
        writer.join()
        assert table_of(lab)["title"].to_pylist().count("pair 1") == 2


class DeletingSuite(ReadingSuite):
    """Tests of an adapter that deletes, in addition to those of :class:`ReadingSuite`.

    The tests delete and restore with the writer of the adapter, and with ``plan``, ``apply`` and
    ``restore``. They check that everything comes back to the byte, that a memory that has changed
    is not deleted, and that other files stay as they are. They kill a process after each step
    (:mod:`memlab.testing.steps`) and forge archives (:mod:`memlab.testing.forging`).

    The class is used like :class:`ReadingSuite`.

    Examples
    --------
    >>> from memlab.testing import DeletingSuite, Lab
    >>> class LinesLab(Lab):
    ...     where = "memory.txt"  # see Lab for the other methods
    >>> class TestLines(DeletingSuite):
    ...     lab_type = LinesLab
    """

    # A change, without an archive

    def test_delete_and_insert_restore_every_byte(self, lab: Lab) -> None:
        before = lab.exactly()
        keys = keys_of(lab)[1::2]
        records = records_of(lab, keys)
        steps: list[str] = []
        with open_source(lab.name).changing() as writer:
            assert writer.delete(fingerprints(records, lab), on_step=steps.append) == len(keys)
            assert list(writer.records(keys)) == []
            assert len(concatenated(writer.batches(with_body=False))) == COUNT - len(keys)
        assert lab.exactly() == {key: row for key, row in before.items() if key not in keys}
        assert put_back(lab, records, on_step=steps.append) == len(keys)
        assert lab.exactly() == before
        assert records_of(lab, keys) == records
        assert steps == ["deleted", "inserted"]

    @pytest.mark.parametrize("meanwhile", ["changed", "gone"])
    def test_changed_or_missing_memory_stops_a_deletion(self, lab: Lab, meanwhile: str) -> None:
        keys = keys_of(lab)
        records = records_of(lab, keys[1:4])
        if meanwhile == "changed":
            lab.change(keys[2])
        else:
            delete_all(lab, records[:1])
        before = lab.exactly()
        with pytest.raises(errors.StalePlanError):
            delete_all(lab, records)
        assert lab.exactly() == before

    def test_failed_change_is_rolled_back(self, lab: Lab) -> None:
        before = lab.exactly()
        if not is_atomic(lab):
            pytest.skip("a deletion here is no transaction")
        records = records_of(lab, keys_of(lab)[1:])
        with suppress(ZeroDivisionError), open_source(lab.name).changing() as writer:
            assert writer.delete(fingerprints(records, lab)) == len(records)
            raise ZeroDivisionError
        assert lab.exactly() == before

    # A plan and its archive

    def test_plan_is_applied_and_undone(self, lab: Lab) -> None:
        before = lab.exactly()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        positions = dict(zip(keys_of(lab), table_of(lab)["position"].to_pylist(), strict=True))
        receipt = memlab.apply(plan)
        assert receipt.deleted >= COUNT - 1 - 3
        remaining = lab.exactly()
        assert remaining == {key: row for key, row in before.items() if key in remaining}
        assert len(remaining) == COUNT - receipt.deleted
        assert [positions[key] for key in keys_of(lab)] == table_of(lab)["position"].to_pylist()
        assert memlab.restore(receipt).memories == receipt.deleted
        assert lab.exactly() == before
        with pytest.raises(errors.AlreadyAppliedError):
            memlab.apply(plan)

    def test_undo_keeps_later_edits_of_the_index(self, lab: Lab) -> None:
        before = lab.exactly()
        receipt = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(3)))
        edit = lab.edit_index()
        assert memlab.restore(receipt).memories == receipt.deleted
        after = lab.exactly()
        assert {key: after[key] for key in before} == before
        assert edit in lab.index()
        assert memlab.restore(receipt).memories == 0

    def test_other_files_are_never_changed(self, lab: Lab) -> None:
        source = open_source(lab.name)
        if source.is_server:
            return
        folder = lab.path if lab.path.is_dir() else lab.path.parent
        for number, (name, text) in enumerate(lab.others().items()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(MODES[number % 5])
            os.utime(path, ns=(10**18, 10**18 + number))

        def state() -> dict[str, tuple[bytes, int, int]]:
            states = {}
            for name in lab.others():
                path = folder / name
                status = path.stat()
                states[name] = (path.read_bytes(), status.st_mode, status.st_mtime_ns)
            return states

        before = state()
        ids = {str(name) for name in memlab.load(lab.name)["memory_id"]}
        assert len(ids) == COUNT
        assert ids.isdisjoint(lab.others())
        if source.is_copied:
            assert compaction.keep_copies(lab.name).counts.memories == COUNT
        receipt = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(0)), all_prunable=True)
        assert receipt.deleted >= COUNT - 1
        assert state() == before
        memlab.restore(receipt)
        assert state() == before

    def test_memories_deleted_by_others_are_recovered(self, lab: Lab) -> None:
        source = open_source(lab.name)
        before = lab.exactly()
        if not source.is_copied:
            reason = "copies are kept of folders and of memory_items"
            with pytest.raises(errors.StoreError, match=reason):
                compaction.keep_copies(lab.name)
            result = CliRunner().invoke(main, ["lost", lab.name], catch_exceptions=False)
            assert "nothing: the store is not in git, and memlab has no copies" in result.output
            return
        compaction.keep_copies(lab.name)
        keys = [memory.key for memory in memlab.plan(lab.name, memlab.KeepRecent(3)).memories]
        delete_all(lab, records_of(lab, keys))
        after_loss = lab.exactly()
        assert after_loss.keys() == before.keys() - set(keys)
        recovery = compaction.recover(lab.name)
        assert len(recovery.losses) == len(keys)
        assert lab.exactly() == before
        assert not len(memlab.lost(lab.name))
        assert doctor(lab.name).status in ("OK", "WARN")
        assert memlab.restore(recovery.digest, store=lab.name).memories == len(keys)
        assert lab.exactly() == after_loss

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("applies", "step"), [*product([True], APPLY_STEPS), *product([False], RESTORE_STEPS)]
    )
    def test_killed_process_loses_nothing(self, lab: Lab, applies: bool, step: str) -> None:
        was_atomic = is_atomic(lab)  # before opening, which may finish an interrupted change
        before = lab.exactly()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        deleted_keys = {memory.key for memory in plan.memories}
        remaining = {key: row for key, row in before.items() if key not in deleted_keys}
        if not applies:
            memlab.apply(plan)
        plan_or_digest = plan.to_json() if applies else plan.digest
        run = self.run_program(
            lab.registration_code + KILLED_PROGRAM, lab.name, plan_or_digest, step
        )
        assert run.returncode == -signal.SIGKILL, run.stderr
        after_kill = lab.exactly()
        assert after_kill == {key: row for key, row in before.items() if key in after_kill}
        if was_atomic:
            assert after_kill in (before, remaining)
        if applies:
            with suppress(errors.AlreadyAppliedError):
                memlab.apply(plan)
            assert lab.exactly() == remaining
        memlab.restore(plan.digest, store=lab.name)
        assert lab.exactly() == before

    @pytest.mark.long
    def test_forged_archive_leaves_store_unchanged(self, lab: Lab, tmp_path: Path) -> None:
        source = open_source(lab.name)
        erased = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(9)))
        receipts = [memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(n))) for n in (6, 3)]
        compaction.drop_archived(source, digest=erased.digest)
        assert len(memlab.load_past(source)) == COUNT  # the history counts erased memories
        groups = compaction.archived_rows(source).groupby("digest")["memory_id"]
        ids_by_digest = {digest: list(ids) for digest, ids in groups}
        (tmp_path / "victim.md").write_text("nobody's business")
        # A forged kind makes `source.archive_path` another path, so the path is held from here on.
        path = source.archive_path
        archive = path.read_bytes()
        before = lab.exactly()
        outside = files_outside(tmp_path, lab)
        for seed in range(FORGED_ARCHIVES):
            rng = random.Random(seed)
            path.write_bytes(archive)
            failure_message = f"seed {seed}: {forge(path, rng)}"
            forged = path.read_bytes()
            os.utime(path, (0, 0))  # a reader waits if the file was written just now
            for read in READING_CALLS:
                result_or_none(failure_message, read, source)
            assert lab.exactly() == before, failure_message
            assert path.read_bytes() == forged, failure_message
            for receipt in receipts:
                ids = rng.choice((None, rng.sample(ids_by_digest[receipt.digest], 2)))
                restored = result_or_none(
                    failure_message, memlab.restore, receipt, store=source, ids=ids
                )
                after = lab.exactly()
                earlier_rows = {key: row for key, row in after.items() if key in before}
                assert earlier_rows == before, failure_message
                restored_count = 0 if restored is None else restored.memories
                assert len(after) == len(before) + restored_count, failure_message
                assert files_outside(tmp_path, lab) == outside, failure_message
                restored_keys = after.keys() - before.keys()
                if restored_keys:
                    delete_all(lab, records_of(lab, list(restored_keys)))
            first, second = receipts
            result_or_none(failure_message, compaction.finish, source, first.digest)
            result_or_none(failure_message, compaction.drop_archived, source, digest=second.digest)
            assert lab.exactly() == before, failure_message


class ServerSuite(DeletingSuite):
    """Tests of an adapter of a server that counts uses, in addition to :class:`DeletingSuite`.

    An agent uses memories all the time, so that a plan must not depend on the usage fields that
    :meth:`memlab.sources.base.Source.without_usage` removes. The lab has one more method,
    ``use(key)``, which uses a memory as the agent does.

    Examples
    --------
    >>> from memlab.testing import Lab, ServerSuite
    >>> class CounterLab(Lab):
    ...     where = "server"  # see Lab for the other methods
    ...
    ...     def use(self, key):
    ...         self.client.hincrby(key, "access_count", 1)
    >>> class TestCounter(ServerSuite):
    ...     lab_type = CounterLab
    """

    def test_usage_does_not_invalidate_a_plan(self, lab: Any) -> None:
        source = open_source(lab.name)
        keys = keys_of(lab)
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        unused = records_of(lab, keys)
        for key in keys:
            lab.use(key)
        used = records_of(lab, keys)
        before = lab.exactly()
        assert not set(unused) & set(used)
        assert fingerprints(unused, lab) == fingerprints(used, lab)
        receipt = memlab.apply(plan)
        assert memlab.restore(receipt).memories == receipt.deleted == len(plan.memories)
        assert lab.exactly() == before
        key = keys[3]
        lab.change(key)
        record_before = dict(used)[key]
        record_after = dict(records_of(lab, keys))[key]
        assert source.without_usage(record_before) != source.without_usage(record_after)


FORGED_ARCHIVES = int(os.environ.get("MEMLAB_HOSTILE_FILES", "80")) // 8
"""Number of archives that the test of forged archives makes for each kind of store."""


def _recommend_cap(source: Source) -> None:
    """Load the history of a store and recommend a cap from it."""
    past = memlab.load_past(source, on_bad_row="keep")
    memlab.recommend_cap(past, memlab.find_references(past))


def _export(source: Source) -> None:
    """Export the archive of a store in both formats, and remove the files."""
    for suffix in ("jsonl", "parquet"):
        path = source.archive_path.with_name(f"x.{suffix}")
        compaction.export_archived(source, path)
        path.unlink()


LATER = datetime(2100, 1, 1, tzinfo=UTC)
READING_CALLS: tuple[Callable[[Source], object], ...] = (
    _recommend_cap,
    _export,
    compaction.archived_plans,
    compaction.dropped_plans,
    last_applied,
    lambda source: compaction.archived_rows(source, search="2"),
    lambda source: compaction.plan_erasure(source, before=LATER, facts_too=True),
    lambda source: str(doctor(source)),
)
"""Functions that read an archive and change nothing."""


def result_or_none(
    failure_message: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Return the result of a call; None if it raises an error of memlab.

    Any other error fails the test with `failure_message`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DamagedArchiveWarning)
        try:
            return call(*arguments, **options)
        except errors.MemlabError:
            return None
        except Exception as error:
            raise AssertionError(failure_message) from error


def files_outside(folder: Path, lab: Lab) -> dict[Path, bytes]:
    """Return the content of each file below a folder, except the files of the store and archive."""
    source = open_source(lab.name)
    archive = str(source.archive_path)
    store = str(source.local_path or archive)  # a server has no file
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not str(path).startswith((store, archive))
    }


KILLED_PROGRAM = """
import os, signal, sys
from memlab.compaction import Plan, apply, restore
from memlab.sources import conformance_record
conformance_record._is_suite_running = True
name, plan_or_digest, last_step = sys.argv[1:]
def on_step(step):
    if step == last_step:
        os.kill(os.getpid(), signal.SIGKILL)
if plan_or_digest.startswith("{"):
    apply(Plan.from_json(plan_or_digest), store=name, on_step=on_step)
else:
    restore(plan_or_digest, store=name, on_step=on_step)
"""


def concatenated(batches: Iterable[Rows]) -> Any:
    """Return the batches as one table."""
    return pa.concat_tables([rows.table for rows in batches], promote_options="default")


def source_of(lab: Lab | Path) -> Source:
    """Return the source of a lab, or of the store at a path."""
    return open_source(lab if isinstance(lab, Path) else lab.name)


def is_atomic(lab: Lab) -> bool:
    """Return whether a deletion is one transaction."""
    with source_of(lab).changing() as writer:
        return writer.atomic


def table_of(lab: Lab | Path, *, with_body: bool = False) -> Any:
    """Return the rows of a store as a table."""

    def read(reader: Reader) -> Any:
        return concatenated(reader.batches(with_body=with_body))

    return read_consistent(source_of(lab), read)


def keys_in(table: Any) -> list[Key]:
    """Return the keys of the rows; the position is the key of a store without a key column."""
    column = KEY if KEY in table.column_names else "position"
    return list(table[column].to_pylist())


def keys_of(lab: Lab | Path) -> list[Key]:
    """Return the keys of the memories of a store, in order of position."""
    return keys_in(table_of(lab))


def records_of(lab: Lab | Path, keys: list[Key]) -> list[tuple[Key, bytes]]:
    """Return the key and the record of each memory that exists, in the order of `keys`."""
    return read_consistent(source_of(lab), lambda reader: list(reader.records(keys)))


def fingerprints(records: list[tuple[Key, bytes]], lab: Lab | Path) -> dict[Key, str]:
    """Return the fingerprints that a plan compares memories with, by key."""
    source = source_of(lab)
    by_key = {}
    for key, record in records:
        compared = source.without_usage(record) if source.is_server else record
        by_key[key] = fingerprint_of(compared)
    return by_key


def delete_all(lab: Lab | Path, records: list[tuple[Key, bytes]], **options: Any) -> int:
    """Delete memories that are unchanged since their records were read, without an archive."""
    with source_of(lab).changing() as writer:
        return writer.delete(fingerprints(records, lab), **options)


def put_back(lab: Lab | Path, records: list[tuple[Key, bytes]], **options: Any) -> int:
    """Put memories back that :func:`delete_all` deleted."""
    with source_of(lab).changing() as writer:
        assert writer.conflicts(records) == []
        return writer.insert(records, **options)
