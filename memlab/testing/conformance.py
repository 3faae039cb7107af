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
from memlab.sources.conformance_record import TESTED, on_trial
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
        """Let the adapter of an installed package delete before there is a record of it."""
        with on_trial():
            yield

    @staticmethod
    def run_program(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in a process of its own."""
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @pytest.fixture
    def lab(self, tmp_path: Path, request: pytest.FixtureRequest) -> Lab:
        """A lab with a new store of :data:`COUNT` memories."""
        made: Lab = self.lab_type(tmp_path)
        made.fill(COUNT)
        adapter = type(open_source(made.name))
        request.node.user_properties.append((TESTED, f"{adapter.__module__}:{adapter.__name__}"))
        return made

    def test_it_says_what_it_is_and_what_it_does_not_do(self, lab: Lab) -> None:
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

    def test_rows_have_the_columns_of_every_source_and_make_a_frame(self, lab: Lab) -> None:
        for with_body in (True, False):
            table = table_of(lab, with_body=with_body)
            kept = {*SIGNALS.names, KEY, AT_START, RETIRED.name, *(each.name for each in STATES)}
            own = [name for name in SCHEMA.names if with_body or name != "body"]
            assert set(table.column_names) - kept == set(own)
            for name in own:
                wanted = SCHEMA.field(name).type
                found = table.schema.field(name).type
                assert found == wanted or (name, found) == ("created_at", pa.timestamp("us", "UTC"))
            for name in ("active", "tags_json", "supersedes_json", "evidence_refs_json"):
                assert table[name].null_count == 0, name
            for name in set(table.column_names) & set(SIGNALS.names):
                assert table.schema.field(name).type == SIGNALS.field(name).type
        frame = memlab.load(lab.name, with_body=True)
        assert len(frame) == COUNT == len(lab.exactly())
        lengths = frame["title"].str.len() + frame["body"].str.len()
        assert frame["chars"].tolist() == lengths.tolist()
        assert memlab.load(lab.name)["chars"].tolist() == frame["chars"].tolist()
        assert frame["prunable"].sum() >= COUNT - 1

    def test_the_order_is_that_of_insertion(self, lab: Lab) -> None:
        positions = table_of(lab)["position"].to_pylist()
        assert positions == sorted(set(positions))
        before = keys_of(lab)
        lab.add_pair(1)
        assert keys_of(lab)[: len(before)] == before
        assert set(table_of(lab)["title"].to_pylist()[len(before) :]) == {"pair 1"}

    def test_records_are_canonical_in_the_order_asked_and_change_nothing(self, lab: Lab) -> None:
        before = lab.exactly()
        keys = keys_of(lab)
        first = records_of(lab, keys)
        assert [key for key, _ in first] == keys
        assert records_of(lab, keys) == first
        nobody: Key = 10**12 if isinstance(keys[0], int) else "nobody of that name"
        assert records_of(lab, [nobody, *keys[::-1]]) == first[::-1]
        assert records_of(lab, []) == []
        for _, record in first:
            assert isinstance(json.loads(record), dict)
            assert b"\n" not in record
        assert lab.exactly() == before

    def test_a_change_shows_in_the_record_of_that_memory_alone(self, lab: Lab) -> None:
        keys = keys_of(lab)
        before = dict(records_of(lab, keys))
        lab.change(keys[-1])
        after = dict(records_of(lab, keys))
        assert {key for key in keys if before[key] != after[key]} == {keys[-1]}

    def test_archived_records_give_back_the_rows_and_facts_that_were_there(self, lab: Lab) -> None:
        source = open_source(lab.name)
        keys = keys_of(lab)
        for with_body in (True, False):
            there = table_of(lab, with_body=with_body)
            back = together(source.rows_of(records_of(lab, keys), with_body=with_body))
            for name in there.column_names:
                came = back[name].to_pylist() if name in back.column_names else [None] * len(there)
                assert came == there[name].to_pylist(), name
        facts = [source.facts_of(record) for _, record in records_of(lab, keys)]
        for name in ("memory_id", "kind", "tags_json"):
            assert [getattr(each, name) for each in facts] == there[name].to_pylist()

    def test_a_record_is_held_to_how_records_are_written(self, lab: Lab) -> None:
        source = open_source(lab.name)
        ((key, record),) = records_of(lab, keys_of(lab)[1:2])
        parsed = json.loads(record)
        source.check_record(key, record, parsed)
        with pytest.raises(ValueError, match=r"."):
            source.check_record(key, record.replace(b":", b": ", 1), parsed)
        with pytest.raises(ValueError, match=r"."):
            source.check_record("nobody of that name", record, parsed)

    def test_what_is_not_there_is_said_and_nothing_is_made(self, lab: Lab, tmp_path: Path) -> None:
        source = open_source(lab.name)
        with suppress(errors.StoreError):  # a store of any columns has none of this one
            assert set(memlab.load(lab.name, columns=["colour of it"])["colour of it"]) <= {None}
        if source.is_server:
            return
        before = sorted(tmp_path.iterdir())
        kind = cast("Callable[[Path], Source]", type(source))
        with pytest.raises(errors.StoreError, match="nothing"):
            memlab.load(kind(tmp_path / "nothing"))
        assert sorted(tmp_path.iterdir()) == before

    def test_a_reader_sees_one_moment_while_a_writer_writes(self, lab: Lab) -> None:
        lab.add_pair(0)
        stop = threading.Event()

        def write() -> None:
            for number in range(1, 100):  # what grows for ever is read ever more slowly
                if stop.wait(0.002):  # a reader comes in between
                    return
                lab.add_pair(number)

        def look(reader: Reader) -> None:
            table = together(reader.batches(with_body=False))
            keys = keys_in(table)
            assert set(dict(reader.records(keys))) == set(keys)
            active = table.filter(table["active"])["title"].to_pylist()
            pairs = {*Counter(title for title in active if "pair" in title).values()}
            assert pairs <= ({2} if lab.in_one_step else {1, 2})

        writer = threading.Thread(target=write)
        writer.start()
        try:
            looks = 0
            while looks < 8:
                with suppress(errors.ChangedWhileReadError):
                    read_consistent(open_source(lab.name), look)
                    looks += 1
        finally:
            stop.set()
            writer.join()

    def test_what_is_written_after_a_reader_began_is_not_seen_by_it(self, lab: Lab) -> None:
        writer = threading.Thread(target=lab.add_pair, args=(1,))
        looks: list[list[str]] = []
        with suppress(errors.ChangedWhileReadError):  # of one that cannot be held still
            with open_source(lab.name).reading() as reader:
                looks.append(together(reader.batches(with_body=False))["title"].to_pylist())
                writer.start()
                writer.join(timeout=0.5)  # it may have to wait until the reader is done
                looks.append(together(reader.batches(with_body=False))["title"].to_pylist())
            assert "pair 1" not in looks[0]
            assert looks[0] == looks[1]
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

    def test_what_is_deleted_and_put_back_is_the_same_to_the_byte(self, lab: Lab) -> None:
        before = lab.exactly()
        keys = keys_of(lab)[1::2]
        records = records_of(lab, keys)
        steps: list[str] = []
        with open_source(lab.name).changing() as writer:
            assert writer.delete(prints(records, lab), watch=steps.append) == len(keys)
            assert list(writer.records(keys)) == []
            assert len(together(writer.batches(with_body=False))) == COUNT - len(keys)
        assert lab.exactly() == {key: row for key, row in before.items() if key not in keys}
        assert put_back(lab, records, watch=steps.append) == len(keys)
        assert lab.exactly() == before
        assert records_of(lab, keys) == records
        assert steps == ["deleted", "inserted"]

    @pytest.mark.parametrize("meanwhile", ["changed", "gone"])
    def test_what_is_not_as_it_was_stops_a_deletion(self, lab: Lab, meanwhile: str) -> None:
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

    def test_a_change_that_fails_leaves_the_store_as_it_was(self, lab: Lab) -> None:
        before = lab.exactly()
        if not is_atomic(lab):
            pytest.skip("a deletion here is no transaction")
        records = records_of(lab, keys_of(lab)[1:])
        with suppress(ZeroDivisionError), open_source(lab.name).changing() as writer:
            assert writer.delete(prints(records, lab)) == len(records)
            raise ZeroDivisionError
        assert lab.exactly() == before

    # A plan and its archive

    def test_a_plan_is_applied_and_taken_back(self, lab: Lab) -> None:
        before = lab.exactly()
        made = memlab.plan(lab.name, memlab.KeepRecent(3))
        places = dict(zip(keys_of(lab), table_of(lab)["position"].to_pylist(), strict=True))
        receipt = memlab.apply(made)
        assert receipt.deleted >= COUNT - 1 - 3
        left = lab.exactly()
        assert left == {key: row for key, row in before.items() if key in left}
        assert len(left) == COUNT - receipt.deleted
        assert [places[key] for key in keys_of(lab)] == table_of(lab)["position"].to_pylist()
        assert memlab.restore(receipt).memories == receipt.deleted
        assert lab.exactly() == before
        with pytest.raises(errors.AlreadyAppliedError):
            memlab.apply(made)

    def test_undo_after_the_index_was_edited_keeps_the_edit(self, lab: Lab) -> None:
        before = lab.exactly()
        receipt = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(3)))
        edit = lab.edit_index()
        assert memlab.restore(receipt).memories == receipt.deleted
        after = lab.exactly()
        assert {key: after[key] for key in before} == before
        assert edit in lab.index()
        assert memlab.restore(receipt).memories == 0

    def test_file_that_is_no_memory_is_never_touched(self, lab: Lab) -> None:
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
            there = {name: (folder / name).stat() for name in lab.others()}
            return {
                name: ((folder / name).read_bytes(), found.st_mode, found.st_mtime_ns)
                for name, found in there.items()
            }

        before = state()
        ids = {str(name) for name in memlab.load(lab.name)["memory_id"]}
        assert len(ids) == COUNT
        assert ids.isdisjoint(lab.others())
        if source.is_copied:
            assert compaction.keep_copies(lab.name).counts[0] == COUNT
        receipt = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(0)), all_prunable=True)
        assert receipt.deleted >= COUNT - 1
        assert state() == before
        memlab.restore(receipt)
        assert state() == before

    def test_what_somebody_else_deletes_is_lost_and_comes_back(self, lab: Lab) -> None:
        source = open_source(lab.name)
        before = lab.exactly()
        if not source.is_copied:
            words = "copies are kept of folders and of memory_items"
            with pytest.raises(errors.StoreError, match=words):
                compaction.keep_copies(lab.name)
            told = CliRunner().invoke(main, ["lost", lab.name], catch_exceptions=False)
            assert "nothing: there is neither git nor a copy" in told.output
            return
        compaction.keep_copies(lab.name)
        keys = [memory.key for memory in memlab.plan(lab.name, memlab.KeepRecent(3)).memories]
        delete_all(lab, records_of(lab, keys))
        taken = lab.exactly()
        assert taken.keys() == before.keys() - set(keys)
        done = compaction.recover(lab.name)
        assert len(done.kept) == len(keys)
        assert lab.exactly() == before
        assert not len(memlab.lost(lab.name))
        assert doctor(lab.name).status in ("OK", "WARN")
        assert memlab.restore(done.digest, store=lab.name).memories == len(keys)
        assert lab.exactly() == taken

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("applies", "step"), [*product([True], APPLY_STEPS), *product([False], RESTORE_STEPS)]
    )
    def test_killed_it_loses_nothing_and_finishes(self, lab: Lab, applies: bool, step: str) -> None:
        was_atomic = is_atomic(lab)  # asked first, because opening may finish what was interrupted
        before = lab.exactly()
        made = memlab.plan(lab.name, memlab.KeepRecent(3))
        gone = {memory.key for memory in made.memories}
        left = {key: row for key, row in before.items() if key not in gone}
        if not applies:
            memlab.apply(made)
        what = made.to_json() if applies else made.digest
        run = self.run_program(lab.known_by + KILLED, lab.name, what, step)
        assert run.returncode == -signal.SIGKILL, run.stderr
        there = lab.exactly()
        assert there == {key: row for key, row in before.items() if key in there}
        if was_atomic:
            assert there in (before, left)
        if applies:
            with suppress(errors.AlreadyAppliedError):
                memlab.apply(made)
            assert lab.exactly() == left
        memlab.restore(made.digest, store=lab.name)
        assert lab.exactly() == before

    @pytest.mark.long
    def test_a_forged_archive_leaves_nothing_half_done(self, lab: Lab, tmp_path: Path) -> None:
        source = open_source(lab.name)
        dropped = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(9)))
        receipts = [memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(n))) for n in (6, 3)]
        compaction.drop_archived(source, digest=dropped.digest)
        assert len(memlab.load_past(source)) == COUNT  # which counts what was dropped
        found = compaction.archived_rows(source).groupby("digest")["memory_id"]
        named = {digest: list(ids) for digest, ids in found}
        (tmp_path / "victim.md").write_text("nobody's business")
        # A forged kind makes `source.archive_path` another path, so the path is held from here on.
        path = source.archive_path
        archive = path.read_bytes()
        before = lab.exactly()
        outside = files_outside(tmp_path, lab)
        for seed in range(FORGED):
            rng = random.Random(seed)
            path.write_bytes(archive)
            what = f"seed {seed}: {forge(path, rng)}"
            forged = path.read_bytes()
            os.utime(path, (0, 0))  # who reads waits for what was just written to settle
            for look in LOOKS:
                ended(what, look, source)
            assert (lab.exactly(), path.read_bytes()) == (before, forged), what
            for receipt in receipts:
                ids = rng.choice((None, rng.sample(named[receipt.digest], 2)))
                back = ended(what, memlab.restore, receipt, store=source, ids=ids)
                after = lab.exactly()
                assert {key: row for key, row in after.items() if key in before} == before, what
                restored = 0 if back is None else back.memories
                assert len(after) == len(before) + restored, what
                assert files_outside(tmp_path, lab) == outside, what
                if came := after.keys() - before.keys():
                    delete_all(lab, records_of(lab, list(came)))
            ended(what, compaction.finish, source, receipts[0].digest)
            ended(what, compaction.drop_archived, source, digest=receipts[1].digest)
            assert lab.exactly() == before, what


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

    def test_use_changes_nothing_that_lasts_and_leaves_a_plan_fresh(self, lab: Any) -> None:
        source = open_source(lab.name)
        keys = keys_of(lab)
        made = memlab.plan(lab.name, memlab.KeepRecent(3))
        unused = records_of(lab, keys)
        for key in keys:
            lab.use(key)
        used = records_of(lab, keys)
        before = lab.exactly()
        assert not set(unused) & set(used)
        assert prints(unused, lab) == prints(used, lab)
        receipt = memlab.apply(made)
        assert memlab.restore(receipt).memories == receipt.deleted == len(made.memories)
        assert lab.exactly() == before
        lab.change(keys[3])
        each = (source.without_usage(dict(now)[keys[3]]) for now in (used, records_of(lab, keys)))
        assert len({*each}) == 2


FORGED = int(os.environ.get("MEMLAB_HOSTILE_FILES", "80")) // 8
"""Archives of each kind of store: some records are forged, and a table or a plan now and then."""


def _sized(source: Source) -> None:
    past = memlab.load_past(source, on_bad_row="keep")
    memlab.recommend_cap(past, memlab.find_references(past))


def _exported(source: Source) -> None:
    for end in ("jsonl", "parquet"):
        compaction.export_archived(source, path := source.archive_path.with_name(f"x.{end}"))
        path.unlink()


LATER = datetime(2100, 1, 1, tzinfo=UTC)
LOOKS: tuple[Callable[[Source], object], ...] = (
    _sized,
    _exported,
    compaction.archived_plans,
    compaction.dropped_plans,
    last_applied,
    lambda source: compaction.archived_rows(source, search="2"),
    lambda source: compaction.plan_erasure(source, before=LATER, facts_too=True),
    lambda source: str(doctor(source)),
)
"""What looks into an archive and changes nothing."""


def ended(what: str, use: Callable[..., Any], *given: Any, **how: Any) -> Any:
    """Return a result; None where an error of memlab says why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DamagedArchiveWarning)
        try:
            return use(*given, **how)
        except errors.MemlabError:
            return None
        except Exception as error:
            raise AssertionError(what) from error


def files_outside(folder: Path, lab: Lab) -> dict[Path, bytes]:
    """Every file that is neither the store's nor its archive."""
    source = open_source(lab.name)
    own = (str(source.permissions_template or source.archive_path), str(source.archive_path))
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not str(path).startswith(own)
    }


KILLED = """
import os, signal, sys
from memlab.compaction import Plan, apply, restore
from memlab.sources import conformance_record
conformance_record._on_trial = True
name, what, last = sys.argv[1:]
watch = lambda step: step == last and os.kill(os.getpid(), signal.SIGKILL)
if what.startswith("{"):
    apply(Plan.from_json(what), store=name, watch=watch)
else:
    restore(what, store=name, watch=watch)
"""


def together(batches: Iterable[Rows]) -> Any:
    """One table of some rows."""
    return pa.concat_tables([rows.table for rows in batches], promote_options="default")


def source_of(lab: Lab | Path) -> Source:
    return open_source(lab if isinstance(lab, Path) else lab.name)


def is_atomic(lab: Lab) -> bool:
    """Whether a deletion is one transaction."""
    with source_of(lab).changing() as writer:
        return writer.atomic


def table_of(lab: Lab | Path, *, with_body: bool = False) -> Any:
    return read_consistent(source_of(lab), lambda each: together(each.batches(with_body=with_body)))


def keys_in(table: Any) -> list[Key]:
    return list(table[KEY if KEY in table.column_names else "position"].to_pylist())


def keys_of(lab: Lab | Path) -> list[Key]:
    return keys_in(table_of(lab))


def records_of(lab: Lab | Path, keys: list[Key]) -> list[tuple[Key, bytes]]:
    return read_consistent(source_of(lab), lambda reader: list(reader.records(keys)))


def prints(records: list[tuple[Key, bytes]], lab: Lab | Path) -> dict[Key, str]:
    """Return the fingerprints that a plan compares memories with, by key."""
    source = source_of(lab)
    return {
        key: fingerprint_of(source.without_usage(record) if source.is_server else record)
        for key, record in records
    }


def delete_all(lab: Lab | Path, records: list[tuple[Key, bytes]], **watched: Any) -> int:
    """Delete memories that are as in their records, without an archive."""
    with source_of(lab).changing() as writer:
        return writer.delete(prints(records, lab), **watched)


def put_back(lab: Lab | Path, records: list[tuple[Key, bytes]], **watched: Any) -> int:
    """Put memories back that :func:`delete_all` deleted."""
    with source_of(lab).changing() as writer:
        assert writer.conflicts(records) == []
        return writer.insert(records, **watched)
