"""A read-only look at a store's health. A bad store is a result here, never an exception."""

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
from memlab.compaction.archive_check import compared
from memlab.compaction.reclaim import space
from memlab.compaction.wire import some_of
from memlab.errors import MemlabError, SettingsError, StoreError
from memlab.evidence.losses import losses_of
from memlab.frame.fields import retired_rows, rows_in_state
from memlab.frame.loading import load
from memlab.growth.alerts import is_uncapped
from memlab.items import REJECTED_PATH_TAG, MemoryKind, resembles
from memlab.sizing.in_force import effective_policy
from memlab.sources.archived import archive_meant, archives_of
from memlab.sources.base import Source, losses_unknown, read_consistent
from memlab.sources.capabilities import superseding_id
from memlab.sources.opening import SourceLike, open_kind, open_source, settings_of
from memlab.sources.readers import Key, Reader
from memlab.store import SqliteMemoryStore
from memlab.store.archive.identity import check_is_of
from memlab.store.archive.kind import noted_store
from memlab.store.archive.location import name_elsewhere
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import retired_in
from memlab.store.archive.schema import Entry
from memlab.store.archive.worktree import git_words
from memlab.store.database import HOW_TO_GO_ON, path_named, store_file, wal_fault
from memlab.store.snapshot import read_snapshot
from memlab.text import (
    DisplayMixin,
    TextPage,
    command,
    counted,
    in_bytes,
    in_shell,
    zoneless_in_words,
)
from memlab.views.glance import semantic_name

WORTH_RECLAIMING: Final = 1_000_000
"""Bytes of free pages below which rewriting a store is not worth a word."""
FORGE_LOOPS: Final = 50
"""Prunable memories above which forge-loop's own doctor warns."""
_NO_CAP: Final = (
    "no cap is set, so that no number is too many here; forge-loop, the agent whose stores have "
    f"this form, warns above {FORGE_LOOPS} in its own health check, as --backlog {FORGE_LOOPS} does"
)


class Status(StrEnum):
    """How a check ended."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    summary: str
    advice: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    details: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Diagnosis(DisplayMixin):
    """What :func:`doctor` found."""

    store: str
    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst of the checks."""
        return max((check.status for check in self.checks), key=list(Status).index)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        checks = [vars(check) | {"status": str(check.status)} for check in self.checks]
        return {"store": self.store, "status": str(self.status), "checks": checks}

    def sheet(self) -> TextPage:
        """Return what is printed."""
        facts = []
        for check in self.checks:
            facts.append((f"{check.status:<4} {check.name}", check.summary))
            facts += [("", detail) for detail in check.details]
            if check.advice:
                facts.append(("", f"-> {check.advice}"))
        return TextPage(f"{self.status}: {self.store}", facts)


def doctor(path: SourceLike, *, backlog: int | None = None) -> Diagnosis:
    """Look at a store's health, also of one that is absent or cannot be read. Reads only.

    Parameters
    ----------
    path : str, Path or Source
        The store; no open one.
    backlog : int, optional
        How many prunable memories are still all right; by default the cap that ``memlab.toml``
        remembers, and without one any number.
    """
    backlog = None if backlog is None else whole_number("backlog", backlog)
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
    if settings.not_obeyed:
        advice = "move it away, or take it over with chown; memlab maintain does nothing until then"
        checks.append(Check("settings", Status.WARN, settings.not_obeyed, advice))
    return Diagnosis(name, tuple(checks))


def _checks(source: Source, name: str, threshold: int | None) -> Iterator[Check]:
    """Look at everything; at a file of memlab's own format also as at a database."""
    file = path_named(source.name) if source.is_native_format else None
    if file is not None and not file.exists():
        advice = "check the path; an agent that has remembered nothing has no store"
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
    found = effective_policy(source)
    threshold = found.keep(settings_of(source)) if threshold is None else threshold
    yield _memory_integrity(source, frame, threshold)
    if found.words:
        yield Check("number", Status.OK if found.policy else Status.WARN, found.words)
    if file is not None:
        yield _guarded("sqlite_integrity", lambda: _sqlite_integrity(file))
    yield _classification(frame, file, name)
    yield _tags(frame, source.protected)
    if file is not None:
        yield _guarded("supersession", lambda: _supersession(source, frame))
    yield _insertion_order(frame)
    for each in source.diagnostics():
        fault = each.summary if each.found else ""
        counts = {"found": each.found}
        yield _warned(each.name, each.summary, fault, each.advice, counts)
    yield from _lost(source)
    if note := source.external_history.note():
        yield Check("past", Status.WARN, note)
    if file is not None:
        yield _guarded("space", lambda: _space(file))
    yield _guarded("archive", lambda: _archive(source))
    yield from _archive_file(source)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """Make a check that reads files; what goes wrong while it reads is its result."""
    try:
        return check()
    except MemlabError as error:
        return Check(name, Status.FAIL, str(error))


def _warned(name: str, sound: str, fault: str, advice: str, counts: dict[str, int]) -> Check:
    """Return a check that warns of a fault, where there is one."""
    if fault:
        return Check(name, Status.WARN, fault, advice, counts)
    return Check(name, Status.OK, sound, counts=counts)


def _memory_integrity(source: Source, frame: pd.DataFrame, threshold: int | None) -> Check:
    active = frame[frame[col.ACTIVE]]
    others = {
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
        "superseded": len(frame) - len(active) - sum(others.values()),
    }
    counts |= {name: count for name, count in others.items() if count}
    if doubtful:
        counts["doubtful"] = doubtful
    named = {name: name.replace("_", " ") for name in counts}
    named["decisions"] = semantic_name(source)
    summary = ", ".join(counted(count, named[name]) for name, count in counts.items())
    if threshold is None or counts["prunable"] <= threshold:
        many = source.is_native_format and counts["prunable"] > FORGE_LOOPS
        advice = _NO_CAP if threshold is None and many and is_uncapped(source) else ""
        return Check("memory_integrity", Status.OK, summary, advice, counts)
    shown = command("compact", source.name, "--keep-recent", threshold)
    advice = f"more than {threshold:,} prunable: {shown} shows what would go"
    summary += f"; the cap is {threshold:,}"
    return Check("memory_integrity", Status.WARN, summary, advice, counts)


def _sqlite_integrity(file: Path) -> Check:
    def read(connection: sqlite3.Connection) -> list[str]:
        connection.text_factory = lambda text: text.decode(errors="replace")
        return [str(line) for (line,) in connection.execute("PRAGMA integrity_check(100)")]

    if fault := wal_fault(file):
        advice = HOW_TO_GO_ON.format(log=f"{file}-wal")
        return Check("sqlite_integrity", Status.FAIL, fault, advice, {"faults": 1})
    found = read_snapshot(store_file(file), read)
    if found == ["ok"]:
        return Check("sqlite_integrity", Status.OK, "SQLite finds the file sound")
    summary = f"SQLite finds {counted(len(found), 'faults')}: {some_of(found)}"
    advice = "restore a backup, or copy what can be read with the sqlite3 shell's .recover"
    return Check("sqlite_integrity", Status.FAIL, summary, advice, {"faults": len(found)})


def _classification(frame: pd.DataFrame, file: Path | None, store: str) -> Check:
    bad = frame[frame[col.PROBLEM].notna()]
    zoneless = frame.attrs[col.WITHOUT_ZONE]
    times = f"; {zoneless_in_words(zoneless)}" if zoneless else ""
    if bad.empty:
        sound = f"all {len(frame):,} can be read{times}"
        return Check("rows", Status.OK, sound, counts={"unreadable": 0})
    named = zip(bad[col.POSITION], bad[col.MEMORY_ID], bad[col.PROBLEM], strict=True)
    details: list[str] = []
    for position, memory_id, problem in named:
        if len(details) >= 2 * _ROWS_NAMED:
            details.append(f"and {len(bad) - _ROWS_NAMED:,} more rows; mend these first")
            break
        details.append(f"row {position} ({memory_id!r}): {problem}")
        if file is not None:
            details.append(_mending(store, int(position), str(problem)))
    with_what = "as the lines above do" if file else "with the tools of the system that wrote them"
    return Check(
        name="rows",
        status=Status.FAIL,
        summary=f"{len(bad):,} of {len(frame):,} cannot be read{times}",
        advice=f"mend them {with_what}: until then other commands refuse the store",
        counts={"unreadable": len(bad)},
        details=tuple(details),
    )


_ROWS_NAMED: Final = 10
"""Maximum number of unreadable rows that are named."""
_SOUND_VALUES: Final = {
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
"""A value that can be read, by column. A memory of this kind is kept by every policy."""


def _mending(store: str, position: int, problem: str) -> str:
    """Return the command that gives the faulty columns of a row values that can be read."""
    values = []
    for fault in problem.split("; "):
        column, _, reason = fault.partition(" ")
        if reason == "is not UTF-8" and column in _SOUND_VALUES:
            value = f"hex({column})"  # the bytes stay readable
        elif column == col.CREATED_AT:
            earlier = f"rowid < {position} AND typeof(created_at) = 'text' ORDER BY rowid DESC"
            value = f"(SELECT created_at FROM memory_items WHERE {earlier} LIMIT 1)"
        elif column in _SOUND_VALUES:
            value = _SOUND_VALUES[column]
        else:
            continue
        values.append(f"{column} = {value}")
    if not values:
        return "-> set what is wrong in it with the sqlite3 shell"
    update = f"UPDATE memory_items SET {', '.join(values)} WHERE rowid = {position}"
    return f'sqlite3 {in_shell(store)} "{update}"'


def _tags(frame: pd.DataFrame, protected: Collection[str]) -> Check:
    """Look for tags that are meant to protect a memory, by the look of them, and do not."""
    tags = Counter(tag for each in frame.loc[frame[col.PRUNABLE], col.TAGS] for tag in set(each))
    wanted = sorted({REJECTED_PATH_TAG, *protected})
    alike = [(tag, real) for tag in tags for real in wanted if resembles(tag, real)]
    said = [f"{tags[tag]:,} tagged {tag!r}, which is not {real!r}" for tag, real in alike]
    meant = alike[0][1] if alike else ""
    return _warned(
        "tags",
        "none is nearly one that protects",
        f"ordinary episodes, which may be deleted: {some_of(said)}" if said else "",
        f"write {meant!r} where that is meant, or protect the tag by protected_tags in memlab.toml",
        {"alike": sum(tags[tag] for tag, _ in alike)},
    )


def _supersession(source: Source, frame: pd.DataFrame) -> Check:
    successor = frame[frame[col.SUPERSEDED_BY].notna()].set_index(col.MEMORY_ID)[col.SUPERSEDED_BY]
    links = dict(zip(successor.index, successor, strict=True))
    known = set(frame[col.MEMORY_ID].dropna())
    dangling = [old for old, new in links.items() if new not in known]
    archived = _archived_ids(source, {links[old] for old in dangling}) if dangling else set()
    lost = [old for old in dangling if links[old] not in archived]
    cyclic = _in_cycles(links)
    faults = []
    if lost:
        faults.append(f"{len(lost):,} superseded by a memory that is not there ({some_of(lost)})")
    if cyclic:
        faults.append(f"{len(cyclic):,} supersede each other in a circle ({some_of(cyclic)})")
    all_lead = f"all {len(links):,} superseded memories lead to one that is there or archived"
    sound = all_lead if links else "no memory is superseded"
    advice = "an agent loads none of them: set superseded_by to NULL for those it should"
    counts = {"dangling": len(lost), "archived": len(dangling) - len(lost), "cyclic": len(cyclic)}
    return _warned("supersession", sound, "; ".join(faults), advice, counts)


def _in_cycles(links: Mapping[str, str]) -> list[str]:
    """Return the ids from which following the links leads back: what is left of all others."""
    leading = Counter(links.values())
    loose = [start for start in links if start not in leading]
    for start in loose:  # which grows meanwhile
        leading[end := links[start]] -= 1
        if not leading[end] and end in links:
            loose.append(end)
    return sorted(links.keys() - set(loose))


def _archived_ids(source: Source, wanted: Collection[str]) -> set[str]:
    def read(archive: OpenArchive) -> set[str]:
        records = (record for entry in archive.entries() for _, record in archive.records(entry))
        return {source.facts_of(record).memory_id or "" for record in records} & set(wanted)

    archive = source.archive
    return archive.read(read) if archive.exists else set()


def _insertion_order(frame: pd.DataFrame) -> Check:
    created = frame[col.CREATED_AT].dropna()
    late = int((created < created.cummax()).sum())
    older = f"{late:,} of {len(created):,} rows are older than a row inserted before them"
    sound = "rows were inserted in order of time"
    advice = "keep-newest goes by insertion: look at what a plan lists as newest before applying it"
    return _warned("insertion_order", sound, older if late else "", advice, {"out_of_order": late})


def _lost(source: Source) -> Iterator[Check]:
    """Say what somebody else deleted; nothing where nothing is lost, or nobody would know."""
    with suppress(MemlabError), warnings.catch_warnings(action="ignore"):  # of the archive
        if unknown := losses_unknown(source):
            copied = command("archive", source.name, "--copy")
            yield Check("lost", Status.OK, unknown, f"{copied} keeps copies, so that it is known")
            return
        found = losses_of(source, own=False)
        if not len(found.frame):
            return
        summary = found.title
        asked = f"{summary}, {found.asked:,} of them asked for since"
        listed = f"{command('lost', source.name)} lists them; --restore all brings them back"
        status = Status.WARN if found.asked or found.unlisted else Status.OK
        yield Check("lost", status, asked, listed, {"lost": len(found.frame), "asked": found.asked})


def _space(file: Path) -> Check:
    found = space(file)
    counts = {name: size for name, size in found.to_dict().items() if isinstance(size, int)}
    summary = f"{in_bytes(found.file)}, of which {in_bytes(found.free)} are free pages"
    enough = found.free >= max(WORTH_RECLAIMING, found.live)
    gives = f"{command('vacuum', file, '--apply')} gives them back"
    return _warned("space", summary, summary if enough else "", gives, counts)


def _archive(source: Source) -> Check:
    archive = source.archive
    what = "empty" if lexists(archive.path) else "none"
    nothing = Check("archive", Status.OK, f"{what}: no plan has taken anything out")
    if not archive.exists:
        renamed = archive.former_name()
        left = archive.of_missing_folders() if source.is_folder else []
        if renamed is not None:
            fault = f"{renamed} is the archive of this store, which had another name"
        elif left:
            renamed = left[0]
            fault = (
                f"{renamed} is the archive of {noted_store(renamed)}, which is not there any more"
            )
        else:
            return nothing
        until = "until then nothing is restored, and no number counts what was deleted"
        advice = f"rename it to {archive.path}: {until}"
        if left:
            advice = f"if that was this folder, {advice}"
        return Check("archive", Status.WARN, fault, advice)

    def look(reader: Reader) -> Check:
        return archive.read(lambda opened: _against_store(reader, source, opened))

    return read_consistent(source, look)


def _documents(path: SourceLike) -> Iterator[Check]:
    """Say which deleted or retired files are no memories: an earlier version took them for some."""
    with suppress(MemlabError, OSError, ValueError), warnings.catch_warnings(action="ignore"):
        meant = archive_meant(path)
        for place in [] if meant is None else archives_of(meant.folder, meant.scheme):
            opened = open_kind(place.scheme, str(place.folder))
            source = opened.putting_back(place.folder, place.path)
            deleted = source.archive.read(partial(documents_in, source))
            yield from _documents_checks(place.folder, deleted, f"taken out of {place.folder}")
            retired = _retired_documents(source)
            yield from _documents_checks(place.folder, retired, f"retired in {place.folder}")


def _documents_checks(
    folder: Path, found: Mapping[Entry, Sequence[str]], what_happened: str
) -> Iterator[Check]:
    """Warn of documents that plans deleted or retired, each plan with the command that undoes it.

    Parameters
    ----------
    folder : Path
        The folder of the store.
    found : mapping of Entry to sequence of str
        The names of the documents by plan.
    what_happened : str
        What the plans did with them, as a participle.
    """
    for entry, names in found.items():
        summary = (
            f"{counted(len(names), 'files')} that are no memories were {what_happened} on "
            f"{entry.archived_at:%Y-%m-%d}: {some_of(names)}"
        )
        undo = command("restore", folder, entry.digest[:12])
        advice = f"{undo} brings back all that went then"
        counts = {"documents": len(names)}
        yield Check("documents", Status.WARN, summary, advice, counts)


def documents_in(source: Source, archive: OpenArchive) -> dict[Entry, list[str]]:
    """Return by deletion the archived files that are no memories and are not there."""
    found = dict[Entry, list[str]]()
    folder = source.permissions_template
    for entry in archive.entries():
        if entry.recovers or folder is None:
            continue
        for copies in archive.batches(entry):
            for copy, record in copies:
                is_away = copy.restored_at is None and not lexists(folder / str(copy.key))
                if is_away and source.is_document(copy.key, record):
                    found.setdefault(entry, []).append(str(copy.key))
    return found


def _retired_documents(source: Source) -> dict[Entry, list[str]]:
    """Return by plan the files that are no memories and are retired.

    The archive notes by which plan. The store shows whether a file is retired, and what is in it.
    """
    if source.is_missing() or source.retirement is None:
        return {}

    def noted(archive: OpenArchive) -> dict[Key, Entry]:
        plans = {entry.apply: entry for entry in archive.entries()}
        retired = retired_in(archive)
        return {key: plans[note.apply] for key, note in retired.items() if note.apply in plans}

    def look(reader: Reader) -> dict[Entry, list[str]]:
        found = dict[Entry, list[str]]()
        for key, record in reader.records(plan_of):
            if superseding_id(source, record) and source.is_document(key, record):
                found.setdefault(plan_of[key], []).append(str(key))
        return found

    plan_of = source.archive.read(noted)
    return read_consistent(source, look)


def _archive_file(source: Source) -> Iterator[Check]:
    """Say where the archive is, who may read it, and what git makes of it; nothing without one."""
    with suppress(MemlabError, OSError):
        archive = source.archive
        if archive.exists:
            place = archive.location
            words, is_left_out = git_words(place.path)
            summary = f"{place.path}, permissions {S_IMODE(place.path.stat().st_mode):o}"
            chosen = settings_of(source).archive_folder
            if chosen is not None and not place.is_chosen and place.like is not None:
                new = chosen / name_elsewhere(realpath(place.like))
                advice = f"move it there: {in_shell('mv', str(place.path), str(new))}"
                fault = f"{place.path} lies beside the store, and archive_folder is {chosen}"
                yield Check("archive_file", Status.WARN, fault, advice)
            elif is_left_out:
                yield Check("archive_file", Status.OK, "; ".join(filter(None, (summary, words))))
            else:
                yield Check("archive_file", Status.WARN, summary, words)


def _against_store(reader: Reader, source: Source, archive: OpenArchive) -> Check:
    check_is_of(archive)
    archive.check_entries()
    found = compared(reader, source, archive)
    counts = {name: n for name, n in found._asdict().items() if name != "faults"}
    summary = f"{counted(found.memories)} of {counted(found.plans, 'plans')}"
    fault, advice = ("; ".join(each[part] for each in found.faults) for part in (0, 1))
    return _warned("archive", f"{summary}, matching the store", fault, advice, counts)
