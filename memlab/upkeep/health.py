"""Health checks of a store. They only read the store, and report faults as results."""

import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from os import PathLike
from os.path import lexists, realpath
from pathlib import Path
from stat import S_IMODE
from typing import Any, Final

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, whole_number
from memlab.clock import now_utc
from memlab.compaction.archive_check import check_against_store
from memlab.compaction.reclaim import space
from memlab.compaction.wire import some_of
from memlab.errors import MemlabError, SettingsError, StoreError, WrongArgumentError
from memlab.evidence.losses import losses_of
from memlab.evidence.past import LoadedHistory
from memlab.frame.fields import retired_rows, rows_in_state
from memlab.frame.loading import load
from memlab.growth.alerts import is_uncapped
from memlab.growth.context import FutureDates
from memlab.items import REJECTED_PATH_TAG, MemoryKind, resembles
from memlab.sizing.in_force import effective_policy
from memlab.sources.archived import archive_of_location, archives_of
from memlab.sources.base import Source, note_on_unknown_losses, read_consistent
from memlab.sources.capabilities import superseding_id
from memlab.sources.opening import SourceLike, open_kind, open_source, settings_of
from memlab.sources.readers import Key, Reader
from memlab.store import SqliteMemoryStore
from memlab.store.archive.identity import check_is_of_store
from memlab.store.archive.kind import noted_store
from memlab.store.archive.location import name_elsewhere
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import retired_in
from memlab.store.archive.schema import Entry
from memlab.store.archive.worktree import git_status_of
from memlab.store.database import DAMAGED_LOG_ADVICE, path_named, store_file, wal_fault
from memlab.store.snapshot import read_snapshot
from memlab.text import (
    DisplayMixin,
    TextPage,
    all_of,
    command,
    counted,
    in_bytes,
    in_shell,
    verb_for,
    zoneless_in_words,
)
from memlab.views.glance import semantic_name

MIN_RECLAIMABLE: Final = 1_000_000
"""Bytes of free pages below which a vacuum is not suggested."""
FORGE_LOOP_BACKLOG: Final = 50
"""Prunable memories above which forge-loop's own health check warns."""
_NO_CAP: Final = (
    "no cap is set, so the number of prunable memories is not checked. {with_backlog} warns above "
    f"{FORGE_LOOP_BACKLOG}, as the doctor of the agent system forge-loop does"
)


class Status(StrEnum):
    """How a check ended."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
        Name of the check, such as ``"archive"``.
    status : Status
        Whether the check passed.
    summary : str
        The finding in a sentence.
    advice : str
        An instruction to mend the fault; empty if there is nothing to do.
    counts : dict of str to int
        Numbers of the finding, by JSON key.
    details : tuple of str
        Lines with single faults, such as unreadable rows.
    """

    name: str
    status: Status
    summary: str
    advice: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    details: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Diagnosis(DisplayMixin):
    """The result of :func:`doctor`: the store's name and its checks."""

    store: str
    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst status of the checks."""
        return max((check.status for check in self.checks), key=list(Status).index)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values, by key."""
        checks = [vars(check) | {"status": str(check.status)} for check in self.checks]
        return {"store": self.store, "status": str(self.status), "checks": checks}

    def sheet(self) -> TextPage:
        """Return the diagnosis as a page."""
        facts = []
        for check in self.checks:
            facts.append((f"{check.status:<4} {check.name}", check.summary))
            facts += [("", detail) for detail in check.details]
            if check.advice:
                facts.append(("", f"-> {check.advice}"))
        return TextPage(f"{self.status}: {self.store}", facts)


def doctor(path: SourceLike, *, backlog: int | None = None) -> Diagnosis:
    """Check the health of a store, which may be missing or unreadable. The store is only read.

    Parameters
    ----------
    path : str, Path or Source
        The store. An open ``SqliteMemoryStore`` is not accepted.
    backlog : int, optional
        Number of prunable memories above which the result is a warning. By default the cap in
        ``memlab.toml``; without a cap there is no warning.

    Returns
    -------
    Diagnosis
        The checks and their worst status. A fault is a check, and raises no error.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, or `backlog` is negative.

    Examples
    --------
    >>> import memlab
    >>> memlab.doctor(memlab.store_path("looked_up")).status
    <Status.OK: 'OK'>
    """
    backlog = None if backlog is None else whole_number("backlog", backlog)
    if isinstance(path, LoadedHistory):
        raise WrongArgumentError(
            "memlab.doctor checks the store as it is now, not a history of it: "
            "pass the store itself, such as memlab.doctor(history.name)"
        )
    if isinstance(path, SqliteMemoryStore):
        expect(path, PathLike, call="memlab.doctor", name="path")
    try:
        source = open_source(path)
        settings = settings_of(source)
    except SettingsError as error:
        advice = "nothing else was checked: mend that line, or move the file away"
        return Diagnosis(str(path), (Check("settings", Status.FAIL, str(error), advice),))
    except StoreError as error:
        check = Check("memory_integrity", Status.FAIL, str(error), "nothing else was checked")
        return Diagnosis(str(path), (check, *_documents(path)))
    name = str(path) if source.is_native_format else source.name
    checks = [*_checks(source, name, backlog), *_documents(path)]
    if settings.ignored_reason:
        advice = "move it away, or take it over with chown; memlab maintain does nothing until then"
        checks.append(Check("settings", Status.WARN, settings.ignored_reason, advice))
    return Diagnosis(name, tuple(checks))


def _checks(source: Source, name: str, threshold: int | None) -> Iterator[Check]:
    """Yield the checks of a store. A file in memlab's own format is checked as a database too."""
    file = path_named(source.name) if source.is_native_format else None
    if file is not None and not file.exists():
        advice = "check the path; there is no store before an agent writes its first memory"
        yield Check("memory_integrity", Status.WARN, f"there is no store at {name} yet", advice)
        return
    try:
        if file is not None:
            store_file(file)
        frame = load(source, on_bad_row="keep")
    except MemlabError as error:
        yield Check("memory_integrity", Status.FAIL, str(error), "nothing else was checked")
        if source.is_missing():
            yield from _lost(source)
        if file is not None:
            yield _guarded("sqlite_integrity", lambda: _sqlite_integrity(file))
        return
    effective = effective_policy(source)
    if threshold is None:
        threshold = effective.cap_or_saved(settings_of(source))
    yield _memory_integrity(source, frame, threshold)
    if effective.note:
        status = Status.OK if effective.policy else Status.WARN
        yield Check("number", status, effective.note)
    if file is not None:
        yield _guarded("sqlite_integrity", lambda: _sqlite_integrity(file))
    dates = FutureDates.of(frame[col.CREATED_AT].to_numpy("datetime64[us]"), now_utc())
    yield _classification(frame, dates, file, name)
    yield _tags(frame, source.protected)
    if file is not None:
        yield _guarded("supersession", lambda: _supersession(source, frame))
    yield _insertion_order(frame[~dates.left_out])
    yield from _future(frame, dates, file, name)
    for diagnostic in source.diagnostics():
        fault = diagnostic.summary if diagnostic.occurrences else ""
        yield _ok_or_warning(
            diagnostic.name,
            if_sound=diagnostic.summary,
            fault=fault,
            advice=diagnostic.advice,
            counts={"found": diagnostic.occurrences},
        )
    yield from _lost(source)
    note = source.external_history.note()
    if note:
        yield Check("past", Status.WARN, note)
    if file is not None:
        yield _guarded("space", lambda: _space(file))
    yield _guarded("archive", lambda: _archive(source))
    yield from _archive_file(source)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """Run a check that reads files; an error of memlab becomes a failed check."""
    try:
        return check()
    except MemlabError as error:
        return Check(name, Status.FAIL, str(error))


def _ok_or_warning(
    name: str, *, if_sound: str, fault: str, advice: str, counts: dict[str, int]
) -> Check:
    """Return a check with a warning and advice if `fault` is not empty, else with `if_sound`."""
    if fault:
        return Check(name, Status.WARN, fault, advice, counts)
    return Check(name, Status.OK, if_sound, counts=counts)


def _memory_integrity(source: Source, frame: pd.DataFrame, threshold: int | None) -> Check:
    """Count the memories by kind, and compare the prunable ones with a threshold."""
    active = frame[frame[col.ACTIVE]]
    not_active = {
        "retired": int(retired_rows(frame).sum()),
        "reached": int(rows_in_state(frame, col.REACHED).sum()),
        "unlisted": int(rows_in_state(frame, col.UNLISTED).sum()),
    }
    doubtful = int(frame[col.DOUBT].notna().sum()) if col.DOUBT in frame else 0
    kinds = active[col.KIND].astype(str).value_counts()
    episodes = active[active[col.KIND] == MemoryKind.EPISODIC]
    counts = {
        "decisions": int(kinds.get(MemoryKind.SEMANTIC, 0)),
        "skills": int(kinds.get(MemoryKind.PROCEDURAL, 0)),
        "rejected_paths": sum(REJECTED_PATH_TAG in tags for tags in episodes[col.TAGS]),
        "episodes": int(kinds.get(MemoryKind.EPISODIC, 0)),
        "prunable": int(frame[col.PRUNABLE].sum()),
        "superseded": len(frame) - len(active) - sum(not_active.values()),
    }
    counts |= {name: count for name, count in not_active.items() if count}
    if doubtful:
        counts["doubtful"] = doubtful
    unit_of = {name: name.replace("_", " ") for name in counts}
    unit_of["decisions"] = semantic_name(source)
    summary = ", ".join(counted(count, unit_of[name]) for name, count in counts.items())
    if threshold is None or counts["prunable"] <= threshold:
        forge_loop_warns = source.is_native_format and counts["prunable"] > FORGE_LOOP_BACKLOG
        advice = ""
        if threshold is None and forge_loop_warns and is_uncapped(source):
            with_backlog = command("doctor", source.name, "--backlog", FORGE_LOOP_BACKLOG)
            advice = _NO_CAP.format(with_backlog=with_backlog)
        return Check("memory_integrity", Status.OK, summary, advice, counts)
    show_plan = command("compact", source.name, "--keep-recent", threshold)
    advice = f"more than {threshold:,} prunable: {show_plan} shows what would go"
    summary += f"; the cap is {threshold:,}"
    return Check("memory_integrity", Status.WARN, summary, advice, counts)


def _sqlite_integrity(file: Path) -> Check:
    """Run SQLite's integrity check on a consistent copy of the file."""

    def read(connection: sqlite3.Connection) -> list[str]:
        connection.text_factory = lambda text: text.decode(errors="replace")
        return [str(line) for (line,) in connection.execute("PRAGMA integrity_check(100)")]

    fault = wal_fault(file)
    if fault:
        advice = DAMAGED_LOG_ADVICE.format(log=f"{file}-wal")
        return Check("sqlite_integrity", Status.FAIL, fault, advice, {"faults": 1})
    messages = read_snapshot(store_file(file), read)
    if messages == ["ok"]:
        return Check("sqlite_integrity", Status.OK, "SQLite finds no fault in the file")
    summary = f"SQLite finds {counted(len(messages), 'faults')}: {some_of(messages)}"
    advice = "restore a backup, or copy what can be read with the sqlite3 shell's .recover"
    return Check("sqlite_integrity", Status.FAIL, summary, advice, {"faults": len(messages)})


def _classification(
    frame: pd.DataFrame, dates: FutureDates, file: Path | None, store: str
) -> Check:
    """List the rows that cannot be interpreted, each with the command that mends it."""
    unreadable = frame[frame[col.PROBLEM].notna()]
    zoneless = frame.attrs[col.WITHOUT_ZONE]
    times = f"; {zoneless_in_words(zoneless)}" if zoneless else ""
    if unreadable.empty:
        sound = f"all {len(frame):,} can be read{times}"
        return Check("rows", Status.OK, sound, counts={"unreadable": 0})
    described_rows = zip(
        unreadable[col.POSITION], unreadable[col.MEMORY_ID], unreadable[col.PROBLEM], strict=True
    )
    created = frame[~dates.ahead].set_index(col.POSITION)[col.CREATED_AT].dropna()
    details: list[str] = []
    for listed_count, (position, memory_id, problem) in enumerate(described_rows):
        if listed_count == _MAX_LISTED_ROWS:
            details.append(f"and {len(unreadable) - listed_count:,} more rows; mend these first")
            break
        details.append(f"row {position} ({memory_id!r}): {problem}")
        if file is not None:
            details += _mending_lines(store, int(position), str(problem), created)
    method = "as the lines above do" if file else "with the tools of the system that wrote them"
    return Check(
        name="rows",
        status=Status.FAIL,
        summary=f"{len(unreadable):,} of {len(frame):,} cannot be read{times}",
        advice=f"mend them {method}: until then other commands refuse the store",
        counts={"unreadable": len(unreadable)},
        details=tuple(details),
    )


_MAX_LISTED_ROWS: Final = 10
"""Maximum number of faulty rows that a check lists."""
_DEFAULTS: Final = {
    "kind": f"'{MemoryKind.SEMANTIC}'",
    "title": "ifnull(CAST(title AS TEXT), '')",
    "body": "ifnull(CAST(body AS TEXT), '')",
    "tags_json": "'[]'",
    "authored_by": "'unknown'",
    "confidence": "1.0",
    "created_at": "NULL",
    "supersedes_json": "'[]'",
    "evidence_refs_json": "'[]'",
    "superseded_by": "NULL",
    "source_event_id": "NULL",
    "source_sequence": "NULL",
    "source_task_ref": "NULL",
}
"""SQL of a valid value for each column. A memory of the default kind is load-bearing."""


def _mending_lines(
    store: str, position: int, problem: str, created: "pd.Series[pd.Timestamp]"
) -> list[str]:
    """Return the lines that mend a row: the command that sets its faulty columns to valid values.

    An invalid creation time is replaced by that of the nearest earlier row with a valid time, or
    else of the nearest later row. If no row has a valid time, a line asks for one. `created` has
    the valid creation times by row number, without times in the future.
    """
    values = []
    undated = ""
    for fault in problem.split("; "):
        column, _, reason = fault.partition(" ")
        if reason == "is not UTF-8" and column in _DEFAULTS:
            value = f"hex({column})"  # the bytes stay readable
        elif column == col.CREATED_AT:
            neighbour = _nearest(created.index, position)
            if neighbour is None:
                undated = (
                    f"-> set created_at of row {position} to when it was written, such as "
                    "'2026-01-31T12:00:00+00:00'"
                )
                continue
            value = _created_at_of(neighbour)
        elif column in _DEFAULTS:
            value = _DEFAULTS[column]
        else:
            continue
        values.append(f"{column} = {value}")
    lines = [_update(store, position, values)] if values else []
    if undated:
        lines.append(undated)
    return lines or ["-> set what is wrong in it with the sqlite3 shell"]


def _created_at_of(position: int) -> str:
    """Return SQL of the creation time of a row."""
    return f"(SELECT created_at FROM memory_items WHERE rowid = {position})"


def _update(store: str, position: int, values: Sequence[str]) -> str:
    """Return the command that sets columns of a row, each given as ``column = value``."""
    update = f"UPDATE memory_items SET {', '.join(values)} WHERE rowid = {position}"
    return f'sqlite3 {in_shell(store)} "{update}"'


def _nearest(positions: "pd.Index[int]", position: int) -> int | None:
    """Return the nearest smaller position, or else the nearest larger one; None without others."""
    before = positions[positions < position]
    after = positions[positions > position]
    if len(before):
        return int(before.max())
    if len(after):
        return int(after.min())
    return None


def _tags(frame: pd.DataFrame, protected: Collection[str]) -> Check:
    """Find misspelled tags, which resemble a protected tag but do not protect."""
    counts: Counter[str] = Counter()
    for tags_of_memory in frame.loc[frame[col.PRUNABLE], col.TAGS]:
        counts.update(set(tags_of_memory))
    protecting = sorted({REJECTED_PATH_TAG, *protected})
    misspelled = [
        (tag, protecting_tag)
        for tag in counts
        for protecting_tag in protecting
        if resembles(tag, protecting_tag)
    ]
    faults = [
        f"{counts[tag]:,} tagged {tag!r}, which is not {protecting_tag!r}"
        for tag, protecting_tag in misspelled
    ]
    fault = ""
    likely_tag = ""
    if misspelled:
        fault = f"ordinary episodes, which may be deleted: {some_of(faults)}"
        _, likely_tag = misspelled[0]
    return _ok_or_warning(
        "tags",
        if_sound="no tag looks like a misspelled protecting tag",
        fault=fault,
        advice=(
            f"write {likely_tag!r} if that is meant, or add the tag to protected_tags in "
            "memlab.toml"
        ),
        counts={"alike": sum(counts[tag] for tag, _ in misspelled)},
    )


def _supersession(source: Source, frame: pd.DataFrame) -> Check:
    """Find superseded memories without an existing successor, or in a cycle of successors."""
    successor = frame[frame[col.SUPERSEDED_BY].notna()].set_index(col.MEMORY_ID)[col.SUPERSEDED_BY]
    links = dict(zip(successor.index, successor, strict=True))
    ids_in_store = set(frame[col.MEMORY_ID].dropna())
    dangling = [old for old, new in links.items() if new not in ids_in_store]
    archived = _archived_ids(source, {links[old] for old in dangling}) if dangling else set()
    missing = [old for old in dangling if links[old] not in archived]
    cyclic = _ids_in_cycles(links)
    faults = []
    if missing:
        ids = some_of(missing)
        faults.append(f"{len(missing):,} superseded by a memory that is not there ({ids})")
    if cyclic:
        faults.append(f"{len(cyclic):,} supersede each other in a circle ({some_of(cyclic)})")
    sound = "no memory is superseded"
    if links:
        superseded = all_of(len(links), "superseded memories")
        sound = f"{superseded} {verb_for(len(links), 'lead')} to one that is there or archived"
    return _ok_or_warning(
        "supersession",
        if_sound=sound,
        fault="; ".join(faults),
        advice="an agent loads none of them: set superseded_by to NULL for those it should",
        counts={
            "dangling": len(missing),
            "archived": len(dangling) - len(missing),
            "cyclic": len(cyclic),
        },
    )


def _ids_in_cycles(links: Mapping[str, str]) -> list[str]:
    """Return the ids that are on a cycle of links from each memory to its successor.

    Memories without a predecessor are removed until every remaining memory has one (topological
    sorting, Kahn 1962).
    """
    predecessors = Counter(links.values())
    removed = [memory_id for memory_id in links if memory_id not in predecessors]
    for memory_id in removed:  # the loop also visits the ids that it appends
        successor = links[memory_id]
        predecessors[successor] -= 1
        if not predecessors[successor] and successor in links:
            removed.append(successor)
    return sorted(links.keys() - set(removed))


def _archived_ids(source: Source, searched_ids: Collection[str]) -> set[str]:
    """Return those of the ids that belong to an archived memory."""

    def read(archive: OpenArchive) -> set[str]:
        ids = set()
        for entry in archive.entries():
            for _, record in archive.records(entry):
                ids.add(source.facts_of(record).memory_id or "")
        return ids & set(searched_ids)

    archive = source.archive
    if not archive.exists:
        return set()
    return archive.read(read)


def _insertion_order(frame: pd.DataFrame) -> Check:
    """Find rows that were created before a row that was inserted earlier."""
    created = frame[col.CREATED_AT].dropna()
    late = int((created < created.cummax()).sum())
    memories = counted(len(created))
    fault = ""
    if late:
        pronoun = "it" if late == 1 else "them"
        fault = (
            f"{late:,} of {memories} {verb_for(late, 'are')} older than a memory inserted before "
            f"{pronoun}"
        )
    return _ok_or_warning(
        "insertion_order",
        if_sound="the memories are in the order in which they were written",
        fault=fault,
        advice=(
            "a cap keeps what was inserted last: check which memories a plan keeps before you "
            "apply it"
        ),
        counts={"out_of_order": late},
    )


def _future(
    frame: pd.DataFrame, dates: FutureDates, file: Path | None, store: str
) -> Iterator[Check]:
    """Yield a check if there are rows dated in the future, each with the command that mends it."""
    count = int(dates.ahead.sum())
    if not count:
        return
    consequence = "until then the span of the store and its pace are wrong"
    advice = f"set created_at to when each was written: {consequence}"
    details: list[str] = []
    if dates.is_wrong_clock:
        advice = f"set the clock, or created_at of these rows: {consequence}"
    elif file is not None:
        rows = frame.set_index(col.POSITION)[col.CREATED_AT]
        usable = rows[~dates.ahead].dropna()
        for position in rows.index[dates.ahead][:_MAX_LISTED_ROWS]:
            neighbour = _nearest(usable.index, int(position))
            if neighbour is not None:
                value = f"created_at = {_created_at_of(neighbour)}"
                details.append(_update(store, int(position), [value]))
        if details:
            advice = (
                "set created_at to when each was written, or to the date of a row beside it, as "
                f"the lines above do: {consequence}"
            )
    yield Check(
        name="future",
        status=Status.WARN,
        summary=dates.in_words([str(memory_id) for memory_id in frame[col.MEMORY_ID]]),
        advice=advice,
        counts={"future": count},
        details=tuple(details),
    )


def _lost(source: Source) -> Iterator[Check]:
    """Yield a check if other programs deleted memories, or if deletions cannot be detected."""
    # another check reports a broken archive
    with suppress(MemlabError), warnings.catch_warnings(action="ignore"):
        unknown = note_on_unknown_losses(source)
        if unknown:
            copy_command = command("archive", source.name, "--copy")
            advice = f"{copy_command} keeps copies, which show later deletions"
            yield Check("lost", Status.OK, unknown, advice)
            return
        losses = losses_of(source, with_memlab_deletions=False)
        if not len(losses.frame):
            return
        status = Status.OK
        if losses.asked or losses.unlisted:
            status = Status.WARN
        yield Check(
            name="lost",
            status=status,
            summary=f"{losses.title}, {losses.asked:,} of them asked for since",
            advice=f"{command('lost', source.name)} lists them; --restore all brings them back",
            counts={"lost": len(losses.frame), "asked": losses.asked},
        )


def _space(file: Path) -> Check:
    """Check whether a vacuum would at least halve the file, and free enough bytes to matter."""
    sizes = space(file)
    summary = f"{in_bytes(sizes.file)}, of which {in_bytes(sizes.free)} are free pages"
    is_worth_it = sizes.free >= max(MIN_RECLAIMABLE, sizes.live)
    fault = summary if is_worth_it else ""
    return _ok_or_warning(
        "space",
        if_sound=summary,
        fault=fault,
        advice=f"{command('vacuum', file, '--apply')} gives them back",
        counts={name: size for name, size in sizes.to_dict().items() if isinstance(size, int)},
    )


def _archive(source: Source) -> Check:
    """Compare the archive with the store. Without an archive, look for that of a former name."""
    archive = source.archive
    if not archive.exists:
        return _missing_archive(source)

    def read(reader: Reader) -> Check:
        return archive.read(lambda opened: _against_store(reader, source, opened))

    return read_consistent(source, read)


def _missing_archive(source: Source) -> Check:
    """Check whether a store without an archive was renamed or moved without its archive."""
    archive = source.archive
    former_archive = archive.former_archive()
    candidate_archives = archive.archives_of_missing_folders() if source.is_folder else []
    if former_archive is not None:
        fault = f"{former_archive} is the archive of this store, which had another name"
    elif candidate_archives:
        former_archive = candidate_archives[0]
        store = noted_store(former_archive)
        fault = f"{former_archive} is the archive of {store}, which is not there any more"
    else:
        state = "empty" if lexists(archive.path) else "none"
        return Check("archive", Status.OK, f"{state}: memlab has deleted nothing")
    consequence = "until then nothing is restored, and no number counts what was deleted"
    advice = f"rename it to {archive.path}: {consequence}"
    if candidate_archives:
        advice = f"if that was this folder, {advice}"
    return Check("archive", Status.WARN, fault, advice)


def _documents(path: SourceLike) -> Iterator[Check]:
    """Yield a check for each plan that deleted or retired documents, which are no memories.

    An earlier version of memlab took documents in a folder for memories.
    """
    with suppress(MemlabError, OSError, ValueError), warnings.catch_warnings(action="ignore"):
        intended = archive_of_location(path)
        if intended is None:
            return
        for archived in archives_of(intended.folder, intended.scheme):
            folder = archived.folder
            source = open_kind(archived.scheme, str(folder)).for_restore(folder, archived.path)
            deleted = source.archive.read(partial(documents_in, source))
            yield from _documents_checks(folder, deleted, f"taken out of {folder}")
            retired = _retired_documents(source)
            yield from _documents_checks(folder, retired, f"retired in {folder}")


def _documents_checks(
    folder: Path, documents: Mapping[Entry, Sequence[str]], what_happened: str
) -> Iterator[Check]:
    """Yield a warning for each plan, with the command that undoes it.

    Parameters
    ----------
    folder : Path
        The folder of the store.
    documents : mapping of Entry to sequence of str
        The names of the documents by plan.
    what_happened : str
        Text about the action of the plans, such as ``"retired in FOLDER"``.
    """
    for entry, names in documents.items():
        kind = "that is no memory was" if len(names) == 1 else "that are no memories were"
        summary = (
            f"{counted(len(names), 'files')} {kind} {what_happened} on "
            f"{entry.archived_at:%Y-%m-%d}: {some_of(names)}"
        )
        undo = command("restore", folder, entry.digest[:12])
        advice = f"{undo} restores all that was deleted then"
        yield Check("documents", Status.WARN, summary, advice, {"documents": len(names)})


def documents_in(source: Source, archive: OpenArchive) -> dict[Entry, list[str]]:
    """Return the archived files that are no memories and are not in the folder, by deletion."""
    documents = dict[Entry, list[str]]()
    folder = source.local_path
    for entry in archive.entries():
        if entry.is_recovery or folder is None:
            continue
        for copies in archive.batches(entry):
            for copy, record in copies:
                is_deleted = copy.restored_at is None and not lexists(folder / str(copy.key))
                if is_deleted and source.is_document(copy.key, record):
                    documents.setdefault(entry, []).append(str(copy.key))
    return documents


def _retired_documents(source: Source) -> dict[Entry, list[str]]:
    """Return the files that are no memories and are retired, by the plan that retired them.

    The archive names the plan; the store shows whether a file is retired, and its text.
    """
    if source.is_missing() or source.retirement is None:
        return {}

    def read_plans(archive: OpenArchive) -> dict[Key, Entry]:
        plans = {entry.number: entry for entry in archive.entries()}
        plan_of_key = {}
        for key, retired in retired_in(archive).items():
            if retired.entry_number in plans:
                plan_of_key[key] = plans[retired.entry_number]
        return plan_of_key

    plan_of = source.archive.read(read_plans)

    def read_documents(reader: Reader) -> dict[Entry, list[str]]:
        documents = dict[Entry, list[str]]()
        for key, record in reader.records(plan_of):
            if superseding_id(source, record) and source.is_document(key, record):
                documents.setdefault(plan_of[key], []).append(str(key))
        return documents

    return read_consistent(source, read_documents)


def _archive_file(source: Source) -> Iterator[Check]:
    """Yield checks of the archive's folder: its permissions, and whether git ignores it."""
    with suppress(MemlabError, OSError):
        archive = source.archive
        if not archive.exists:
            return
        location = archive.location
        git_status = git_status_of(location.path)
        summary = f"{location.path}, permissions {S_IMODE(location.path.stat().st_mode):o}"
        folder = settings_of(source).archive_folder
        store = location.store_path
        if folder is not None and store is not None and not location.is_in_archive_folder:
            new_path = folder / name_elsewhere(realpath(store))
            advice = f"move it there: {in_shell('mv', str(location.path), str(new_path))}"
            fault = f"{location.path} lies beside the store, and archive_folder is {folder}"
            yield Check("archive_file", Status.WARN, fault, advice)
        elif git_status.stays_out:
            if git_status.message:
                summary = f"{summary}; {git_status.message}"
            yield Check("archive_file", Status.OK, summary)
        else:
            yield Check("archive_file", Status.WARN, summary, git_status.message)


def _against_store(reader: Reader, source: Source, archive: OpenArchive) -> Check:
    """Check that an archive belongs to the store, and compare its entries with the store."""
    check_is_of_store(archive)
    archive.check_entries()
    comparison = check_against_store(reader, source, archive)
    counts = comparison._asdict()
    faults = counts.pop("faults")
    summary = f"{counted(comparison.memories)} of {counted(comparison.plans, 'plans')}"
    return _ok_or_warning(
        "archive",
        if_sound=f"{summary}, matching the store",
        fault="; ".join(fault for fault, _ in faults),
        advice="; ".join(advice for _, advice in faults),
        counts=counts,
    )
