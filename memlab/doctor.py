"""A read-only look at a store's health. A bad store is a result here, never an exception."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Final

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, whole_number
from memlab.compaction.comparing import compared
from memlab.compaction.locating import some_of
from memlab.compaction.reclaim import in_bytes, space
from memlab.compaction.words import command
from memlab.diagnosis import Check, Diagnosis, Status
from memlab.errors import MemlabError, SettingsError, UnfilledArchiveError
from memlab.frame.loading import load
from memlab.items import REJECTED_PATH_TAG, MemoryKind, resembles
from memlab.sources.abilities import Examined, Trouble
from memlab.sources.base import Reader, Source, archive_at, at_one_moment
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.store import SqliteMemoryStore
from memlab.store.archive import Archive
from memlab.store.archive_file import is_begun, read_archive
from memlab.store.archive_place import archive_path
from memlab.store.database import connect_reading, path_named, store_file
from memlab.store.identity import archive_of_other_name, check_is_of
from memlab.store.looking import read_store
from memlab.text import counted

WORTH_RECLAIMING: Final = 1_000_000
"""Bytes of free pages below which rewriting a store is not worth a word."""
_EMPTY: Final = "empty: no plan has taken anything out"
_NO_ARCHIVE: Final = "none: no plan has taken anything out"


def diagnose(path: SourceLike, *, threshold: int | None = None) -> Diagnosis:
    """Look at a store's health. Reads only, and leaves no trace.

    Parameters
    ----------
    path : str, Path or Source
        The store.
    threshold : int, optional
        How many prunable memories are still all right; by default the cap that ``memlab.toml``
        remembers, and without one any number.

    Returns
    -------
    Diagnosis
        Also of a store that is absent or cannot be read.

    Raises
    ------
    ValueError
        When `threshold` is not a whole number of 0 or more.
    WrongArgumentError
        When `path` is an open store, or nothing that names one.
    """
    threshold = None if threshold is None else whole_number("threshold", threshold)
    if isinstance(path, SqliteMemoryStore):
        expect(path, PathLike, call="memlab.diagnose", name="path")
    try:
        source = open_source(path)
        settings = settings_of(source)
    except SettingsError as error:
        advice = "nothing else was checked: mend that line, or move the file away"
        return Diagnosis(str(path), (Check("settings", Status.FAIL, str(error), advice),))
    threshold = settings.keep_recent if threshold is None else threshold
    if source.scheme != "file":
        return Diagnosis(source.name, tuple(_checks_elsewhere(source, threshold)))
    file = path_named(source.name)
    if not file.exists():
        absent = f"there is no store at {path} yet"
        advice = "check the path; an agent that has remembered nothing has no store"
        check = Check("memory_integrity", Status.WARN, absent, advice)
        return Diagnosis(str(path), (check,))
    try:
        store_file(file)
        frame = load(source, on_bad_row="keep")
    except MemlabError as error:
        checks = [Check("memory_integrity", Status.FAIL, str(error), "nothing else was checked")]
        checks += _guarded("sqlite_integrity", lambda: _sqlite_integrity(file))
        return Diagnosis(str(path), tuple(checks))
    return Diagnosis(str(path), tuple(_checks(source, file, frame, threshold)))


def _checks(
    source: Source, file: Path, frame: pd.DataFrame, threshold: int | None
) -> Iterator[Check]:
    yield _memory_integrity(file, frame, threshold)
    yield from _guarded("sqlite_integrity", lambda: _sqlite_integrity(file))
    yield _classification(frame)
    yield _tags(frame, source.protected)
    yield from _guarded("supersession", lambda: _supersession(file, frame))
    yield _insertion_order(frame)
    yield from _guarded("space", lambda: _space(file))
    yield from _guarded("archive", lambda: _archive(source))


def _checks_elsewhere(source: Source, threshold: int | None) -> Iterator[Check]:
    """Look at a store that is not a file of ours."""
    try:
        frame = load(source, on_bad_row="keep")
    except MemlabError as error:
        yield Check("memory_integrity", Status.FAIL, str(error), "nothing else was checked")
        return
    yield _memory_integrity(source.name, frame, threshold)
    yield _classification(frame, "with the tools of the system that wrote them")
    yield _tags(frame, source.protected)
    yield _insertion_order(frame)
    if isinstance(source, Examined):
        yield from (_of_trouble(each) for each in source.troubles())
    yield from _guarded("archive", lambda: _archive(source))


def _of_trouble(trouble: Trouble) -> Check:
    status = Status.WARN if trouble.found else Status.OK
    advice = trouble.advice if trouble.found else ""
    return Check(trouble.name, status, trouble.summary, advice, {"found": trouble.found})


def _guarded(name: str, check: Callable[[], Check]) -> list[Check]:
    """Make a check that reads files; what goes wrong while it reads is its result."""
    try:
        return [check()]
    except MemlabError as error:
        return [Check(name, Status.FAIL, str(error))]


def _memory_integrity(file: Path | str, frame: pd.DataFrame, threshold: int | None) -> Check:
    active = frame[frame[col.ACTIVE]]
    kinds = active[col.KIND].astype(str).value_counts()
    counts = {
        "decisions": int(kinds.get(MemoryKind.SEMANTIC, 0)),
        "skills": int(kinds.get(MemoryKind.PROCEDURAL, 0)),
        "rejected_paths": sum(REJECTED_PATH_TAG in tags for tags in active[col.TAGS]),
        "episodes": int(kinds.get(MemoryKind.EPISODIC, 0)),
        "prunable": int(frame[col.PRUNABLE].sum()),
        "superseded": len(frame) - len(active),
    }
    summary = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    if threshold is None or counts["prunable"] <= threshold:
        return Check("memory_integrity", Status.OK, summary, counts=counts)
    shown = command("compact", file, "--keep-recent", str(threshold))
    advice = f"more than {threshold:,} prunable: {shown} shows what would go"
    return Check("memory_integrity", Status.WARN, summary, advice, counts)


def _sqlite_integrity(file: Path) -> Check:
    def read(uri: str) -> list[str]:
        with closing(connect_reading(uri)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            return [str(line) for (line,) in connection.execute("PRAGMA integrity_check(100)")]

    found = read_store(store_file(file), read)
    if found == ["ok"]:
        return Check("sqlite_integrity", Status.OK, "SQLite finds the file sound")
    return Check(
        "sqlite_integrity",
        Status.FAIL,
        f"SQLite finds {len(found):,} faults: {some_of(found)}",
        "restore a backup, or copy what can be read with the sqlite3 shell's .recover",
        {"faults": len(found)},
    )


def _classification(frame: pd.DataFrame, how: str = "with the sqlite3 shell") -> Check:
    bad = frame[frame[col.PROBLEM].notna()]
    counts = {"unreadable": len(bad)}
    if bad.empty:
        return Check("rows", Status.OK, f"all {len(frame):,} can be read", counts=counts)
    listed = [
        f"row {position} ({memory_id!r}): {problem}"
        for position, memory_id, problem in zip(
            bad[col.POSITION], bad[col.MEMORY_ID], bad[col.PROBLEM], strict=True
        )
    ]
    return Check(
        "rows",
        Status.WARN,
        f"{len(bad):,} cannot be read: {some_of(listed)}",
        f"mend them {how}: until then they count as load-bearing, and plans and "
        "compaction may refuse the store",
        counts,
    )


def _tags(frame: pd.DataFrame, protected: Collection[str]) -> Check:
    """Look for tags that are meant to protect a memory, by the look of them, and do not."""
    tags = Counter(tag for each in frame.loc[frame[col.PRUNABLE], col.TAGS] for tag in set(each))
    wanted = sorted({REJECTED_PATH_TAG, *protected})
    alike = [(tag, real) for tag in tags for real in wanted if resembles(tag, real)]
    counts = {"alike": sum(tags[tag] for tag, _ in alike)}
    if not alike:
        return Check("tags", Status.OK, "none is nearly one that protects", counts=counts)
    said = [f"{tags[tag]:,} tagged {tag!r}, which is not {real!r}" for tag, real in alike]
    return Check(
        "tags",
        Status.WARN,
        f"ordinary episodes, which may be deleted: {some_of(said)}",
        f"write {alike[0][1]!r} where that is meant, or protect the tag by protected_tags in "
        "memlab.toml",
        counts,
    )


def _supersession(file: Path, frame: pd.DataFrame) -> Check:
    successor = frame[frame[col.SUPERSEDED_BY].notna()].set_index(col.MEMORY_ID)[col.SUPERSEDED_BY]
    links = dict(zip(successor.index, successor, strict=True))
    known = set(frame[col.MEMORY_ID].dropna())
    dangling = [old for old, new in links.items() if new not in known]
    archived = _archived_ids(file, {links[old] for old in dangling}) if dangling else set()
    lost = [old for old in dangling if links[old] not in archived]
    cyclic = _in_cycles(links)
    counts = {"dangling": len(lost), "archived": len(dangling) - len(lost), "cyclic": len(cyclic)}
    faults = (
        [f"{len(lost):,} replaced by a row that is not there ({some_of(lost)})"] if lost else []
    )
    if cyclic:
        faults.append(f"{len(cyclic):,} replace each other in a circle ({some_of(cyclic)})")
    if not links:
        return Check("supersession", Status.OK, "no row was replaced", counts=counts)
    if not faults:
        summary = f"all {len(links):,} replaced rows lead to one that is there or archived"
        return Check("supersession", Status.OK, summary, counts=counts)
    return Check(
        "supersession",
        Status.WARN,
        "; ".join(faults),
        "an agent loads none of them: set superseded_by to NULL for those it should",
        counts,
    )


def _in_cycles(links: dict[str, str]) -> list[str]:
    """Return the ids from which following the links leads back to themselves."""
    walk_of: dict[str, int] = {}
    found = []
    for walk, start in enumerate(links):
        here = start
        while here in links and here not in walk_of:
            walk_of[here] = walk
            here = links[here]
        if walk_of.get(here) == walk:
            entry = here
            while True:
                found.append(here)
                here = links[here]
                if here == entry:
                    break
    return found


def _archived_ids(file: Path, wanted: Collection[str]) -> set[str]:
    """Return which ids are among the archived rows."""
    if not archive_path(file).exists():
        return set()

    source = open_source(file)

    def read(archive: Archive) -> set[str]:
        records = (record for entry in archive.entries() for _, record in archive.records(entry))
        return {source.facts_of(record).memory_id or "" for record in records} & set(wanted)

    return read_archive(archive_at(source), read)


def _insertion_order(frame: pd.DataFrame) -> Check:
    created = frame[col.CREATED_AT].dropna()
    late = int((created < created.cummax()).sum())
    counts = {"out_of_order": late}
    if not late:
        return Check("insertion_order", Status.OK, "rows were inserted in order of time")
    return Check(
        "insertion_order",
        Status.WARN,
        f"{late:,} of {len(created):,} rows are older than a row inserted before them",
        "keep-newest goes by insertion: look at what a plan lists as newest before applying it",
        counts,
    )


def _space(file: Path) -> Check:
    found = space(file)
    counts = {name: size for name, size in found.to_dict().items() if isinstance(size, int)}
    summary = f"{in_bytes(found.file)}, of which {in_bytes(found.free)} are free pages"
    if found.free < WORTH_RECLAIMING or found.free < found.live:
        return Check("space", Status.OK, summary, counts=counts)
    shown = command("vacuum", file, "--apply")
    return Check("space", Status.WARN, summary, f"{shown} gives them back", counts)


def _archive(source: Source) -> Check:
    place = archive_at(source)
    nothing = Check("archive", Status.OK, _EMPTY if place.path.exists() else _NO_ARCHIVE)
    if not is_begun(place):
        if renamed := archive_of_other_name(place):
            return Check(
                "archive",
                Status.WARN,
                f"{renamed} is the archive of this store, which had another name",
                f"rename it to {place.path}: until then nothing is restored, and no number counts "
                "what was deleted",
            )
        return nothing

    def look(reader: Reader) -> Check:
        return read_archive(place, lambda archive: _against_store(reader, source, archive))

    try:
        return at_one_moment(source, look)
    except UnfilledArchiveError:
        return nothing


def _against_store(reader: Reader, source: Source, archive: Archive) -> Check:
    check_is_of(archive)
    found = compared(reader, source, archive)
    counts = {name: n for name, n in found._asdict().items() if name != "faults"}
    summary = f"{counted(found.memories, 'memories')} of {counted(found.plans, 'plans')}"
    if not found.faults:
        return Check("archive", Status.OK, f"{summary}, matching the store", counts=counts)
    words, advice = zip(*found.faults, strict=True)
    return Check("archive", Status.WARN, "; ".join(words), "; ".join(advice), counts)
