"""odek's episodes: one Markdown file per episode, listed in ``index.json``.

A change holds odek's lock. Versions of odek before August 2026 have no lock and overwrite the list:
stop them first. Files are deleted before their entries. odek rebuilds its vectors itself.
"""

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from memlab.clock import moment_of
from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import make_like
from memlab.sources.base import Diagnostic, position_from_timestamp
from memlab.sources.capabilities import NativeCap
from memlab.sources.folder.change import changed_folder
from memlab.sources.folder.files import FileCopy, Folder, is_file_name, opened_folder
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderMemory, FolderSource, FolderWriter
from memlab.sources.readers import Fault, Key, Writer
from memlab.sources.reads import text as readable
from memlab.sources.recognition import Evidence, Strength
from memlab.store.archive.schema import check_depth
from memlab.store.shapes import fields, integer, list_of, non_empty, optional, raw_text, text
from memlab.text import all_of, command, counted, failure_message, verb_for

INDEX: Final = "index.json"
EPISODES: Final = "episodes"
"""The subfolder of odek's memory folder that holds the episodes in some versions."""

_PLACE_OF_MEMORY: Final = (".odek", "memory")
LOCK: Final = "episodes.lock"
"""Lock file beside the list, in odek since August 2026."""
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_TIMEOUT: Final = 30.0
"""Timeout in seconds for odek's lock."""
_PAUSE: Final = 0.05
"""Seconds between two attempts to take the lock."""

_APPROVED: Final = ("user_approved", "auto_approved")
"""Flags with which odek recalls an episode of untrusted sources."""
_MAX_INDEX_BYTES: Final = 2**24
"""Maximum size in bytes of a list that is read to recognise a folder."""
_SPACE: Final = " \t\r\n"
"""White space of JSON."""
_DECODER: Final = json.JSONDecoder(strict=False)

_OBSOLETE_FIELDS: Final = ("before", "after", "head", "tail", "whole")
"""Fields in older archives that describe the layout of the list. They are no longer used."""
_ENTRY_SHAPE: Final = fields(
    {
        "at": integer(0, 2**31),
        "above": optional(text),
        "text": raw_text,
        **dict.fromkeys(_OBSOLETE_FIELDS, raw_text),
    },
    may_be_absent={*_OBSOLETE_FIELDS},
)
"""Shape of an entry of :meth:`EpisodeIndex.entries_by_key` in an archive, which is untrusted."""
_PLACE: Final = fields({"position": integer(), "said": non_empty(list_of(_ENTRY_SHAPE))})


def _has_episodes(path: Path) -> bool:
    """Return whether a folder has an ``index.json`` that lists episodes of odek."""
    with suppress(StoreError), opened_folder(path) as folder:
        files = folder.listing().files
        return INDEX in files and _lists_episodes(folder, files[INDEX].size)
    return False


EVIDENCE: Final = (
    Evidence(
        Strength.TRACE,
        "has an index.json, there or in episodes, whose entries have session_id and a summary or "
        "created_at; an empty one counts in episodes and in .odek/memory",
        _has_episodes,
    ),
)


class Odek(FolderSource):
    """A folder of odek's episodes."""

    scheme = "odek"
    default_locations = ("", ".odek/memory")
    evidence = EVIDENCE
    index_name = INDEX
    place = staticmethod(_PLACE)
    native_cap = NativeCap('"memory": {"max_episodes": %d}')
    derived = ("episodes_vectors.gob", "episodes_embedder.gob", "episodes_index_meta.json")

    @classmethod
    def evidence_folder(cls, path: Path) -> Path:
        """Return the folder of the index: the path, or its subfolder if that is not a link."""
        folder = cls.folder_in(path)
        if folder != path and folder.is_symlink():
            return path
        return folder

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the index: the path or its subfolder."""
        if (path / INDEX).is_file() or not (path / EPISODES / INDEX).is_file():
            return path
        return path / EPISODES

    def memories(self, moment: FolderMoment) -> list[FolderMemory]:
        """Return the episodes of the index."""
        raw = b"" if moment.index is None else moment.index.data
        file_names = set(moment.names)
        episodes = []
        for key, entries in EpisodeIndex.read(raw).entries_by_key().items():
            name = self.file_of(key)
            if name not in file_names:
                name = ""
            place = {"position": _position(key, json.loads(entries[-1]["text"], strict=False))}
            episodes.append(FolderMemory(key, name, entries, place))
        return episodes

    def row(self, memory: FolderMemory, file: FileCopy | None) -> dict[str, Any]:
        """Return an episode as a row; the first line of its text is the title."""
        fields = json.loads(memory.index_entries[-1]["text"], strict=False)
        provenance = fields.get("provenance")
        flags = provenance if isinstance(provenance, dict) else {}
        if file is None:
            text = str(fields.get("summary") or "")
        else:
            text = file.data.decode(errors="replace")
        title, _, body = text.strip().partition("\n")
        created = fields.get("created_at")
        position = memory.place["position"]
        is_dated = _microseconds(created) is not None
        faults = []
        if not is_dated:
            reason = f"created_at {created!r:.80} is not a timestamp"
            faults.append(Fault(position, "created_at", reason))
        is_approved = any(flags.get(name) for name in _APPROVED)
        return {
            "kind": "episodic",
            "title": readable(title),
            "body": readable(body),
            "tags_json": json.dumps(_tags(flags), ensure_ascii=False),
            "source_task_ref": memory.key,
            "authored_by": "odek",
            "created_at": created if is_dated else None,
            "trusted": is_approved or not flags.get("untrusted"),
            "loaded_at_start": False,
            "faults": faults,
        }

    def file_of(self, key: str) -> str:
        """Return the name of an episode's file; empty if the id is no valid file name."""
        return f"{key}.md" if is_session_id(key) else ""

    def key_of(self, name: str) -> str:
        """Return the session id of an episode's file."""
        return name.removesuffix(".md")

    def check_place(self, memory: FolderMemory) -> None:
        """Check that an archived record has list entries of its own episode only."""
        super().check_place(memory)
        for entry in memory.index_entries:
            try:
                entries = _parsed(f"[{entry['text']}]").entries
            except RecursionError:
                raise ValueError("its entry is nested too deep") from None
            if [parsed.session_id for parsed in entries] != [memory.key]:
                raise ValueError(f"its entry in {INDEX} is of another episode")
            check_depth(entries[0].fields, 32)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the folder for a change that is durable when the block ends.

        If the block raises, the folder is unchanged. odek's lock is held during the block, so that
        a running odek waits.
        """
        with _holding_odek_lock(self.path), changed_folder(self.path, self) as change:
            yield EpisodeWriter(self, change)

    def diagnostics(self) -> list[Diagnostic]:
        """Return the diagnostic of list entries without a file."""
        episodes = self.read_moment(self.memories)
        count = len(episodes)
        fileless = [episode.key for episode in episodes if not episode.name]
        summary = f"{all_of(count, 'entries')} {verb_for(count, 'have')} a file"
        if fileless:
            entries = counted(len(fileless), "entries")
            summary = f"{entries} of {INDEX} without a file ({fileless[0]} first)"
        advice = (
            f"{command('restore', self.name, 'DIGEST')} puts back a file that memlab archived; "
            "odek drops the others when it prunes"
        )
        return [
            Diagnostic(name="entries", occurrences=len(fileless), summary=summary, advice=advice),
        ]

    def remove_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the list without the episodes in `index_entries`."""
        index = EpisodeIndex.read(raw)
        kept = tuple(entry for entry in index.entries if entry.session_id not in index_entries)
        if len(kept) == len(index.entries):
            return raw
        return EpisodeIndex(kept, index.end).to_bytes()

    def insert_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the list with the missing entries, each after its former predecessor."""
        index = EpisodeIndex.read(raw)
        listed = {entry.session_id for entry in index.entries}
        missing: list[_MissingEntry] = []
        for key, entries_of_key in index_entries.items():
            if key not in listed:
                missing += [_MissingEntry(key, entry) for entry in entries_of_key]
        if not missing:
            return raw
        missing.sort(key=lambda entry: entry.former_place)
        entries = list(index.entries)
        for key, stored_entry in missing:
            place = _place_for(stored_entry, [entry.session_id for entry in entries])
            entries.insert(place, Entry(key, str(stored_entry["text"]), None))
        return EpisodeIndex(tuple(entries), index.end).to_bytes()


class _MissingEntry(NamedTuple):
    """An entry that the list lacks: the episode's key, and the entry as it was stored."""

    key: str
    stored: Mapping[str, Any]

    @property
    def former_place(self) -> int:
        """The place of the entry in the former list."""
        return int(self.stored["at"])


def _place_for(stored_entry: Mapping[str, Any], ids: list[str | None]) -> int:
    """Return the place at which to insert a stored entry into a list with these session ids.

    It is the entry's former place if its former predecessor is still just before that place.
    Otherwise it is the place after the predecessor, or the end if the predecessor is missing.
    """
    former_place = int(stored_entry["at"])
    predecessor = stored_entry["above"]
    # The slice is empty if the list is shorter now.
    if former_place == 0 or ids[former_place - 1 : former_place] == [predecessor]:
        return former_place
    if predecessor is not None and predecessor in ids:
        return ids.index(predecessor) + 1
    return len(ids)


class EpisodeWriter(FolderWriter):
    """Writer of a locked folder of episodes."""

    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete episodes if the list has odek's layout, so that a restore is exact."""
        moment = self._now()
        index = b"" if moment.index is None else moment.index.data
        parsed = EpisodeIndex.read(index)
        if parsed.entries and parsed.to_bytes() != index:
            raise StoreError(
                f"{self._change.folder.path / INDEX} is not laid out as odek writes it, so a "
                "deletion could not be undone byte for byte: let odek write one more "
                "episode first"
            )
        super()._delete(expected)


@contextmanager
def _holding_odek_lock(folder: Path) -> Iterator[None]:
    """Hold the lock that odek holds while it writes, promotes, discards or prunes episodes.

    odek makes the lock file with its first change and never removes it. If there is none yet,
    memlab makes it, so that an odek that begins meanwhile waits, and removes it afterwards.
    """
    lock = folder / LOCK
    is_new = False
    try:
        descriptor = _open_existing(lock)
        if descriptor is None:
            is_new = _make_lock(lock)
            descriptor = os.open(lock, _LOCK_FLAGS)
    except FileNotFoundError:  # there is no folder, which the change itself reports
        yield
        return
    except OSError as error:
        problem = f"{lock} cannot be opened, nothing was changed"
        raise StoreError(failure_message(problem, error, "the path and its permissions")) from error
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{lock} is not an ordinary file; nothing was changed: move it away")
        _wait_for(descriptor, lock)
        yield
    finally:
        if is_new:
            with suppress(OSError):
                lock.unlink()
        os.close(descriptor)


def _open_existing(lock: Path) -> int | None:
    """Return the descriptor of the lock file; None if there is no such file."""
    try:
        return os.open(lock, _LOCK_FLAGS)
    except FileNotFoundError:
        return None


def _make_lock(lock: Path) -> bool:
    """Make the lock file, for the owner of the folder; return False if another program did."""
    try:
        descriptor = os.open(lock, _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        folder = lock.parent.stat()
        make_like(descriptor, (folder.st_uid, folder.st_gid), 0o600)
    finally:
        os.close(descriptor)
    return True


def _wait_for(descriptor: int, lock: Path) -> None:
    """Take the lock of an open file; raise StoreError after a timeout."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"odek is writing: it holds {lock}; nothing was changed: try again when it is "
                    "done, or end it"
                ) from error
            time.sleep(_PAUSE)
        else:
            return


class Entry(NamedTuple):
    """An entry of the list.

    Attributes
    ----------
    session_id : str or None
        Id of the session; None for an entry without a valid one.
    text : str
        The JSON text of the entry.
    fields : object
        The parsed entry.
    """

    session_id: str | None
    text: str
    fields: Any


@dataclass(frozen=True)
class EpisodeIndex:
    """The parsed list of episodes."""

    entries: tuple[Entry, ...]
    end: str
    """The text after the list."""

    @classmethod
    def read(cls, raw: bytes) -> "EpisodeIndex":
        """Return the parsed list. An empty file and ``null``, Go's nil slice, are empty lists."""
        text = raw.decode("utf-8", "surrogateescape")
        if text.strip(_SPACE) in ("", "null"):
            return cls((), "")
        try:
            return _parsed(text)
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{INDEX} is not odek's list of episodes ({error}); odek cannot read it either: "
                "restore a backup of it"
            ) from error

    def to_bytes(self) -> bytes:
        """Return the list in odek's layout."""
        entries = ",\n  ".join(entry.text for entry in self.entries)
        text = f"[\n  {entries}\n]" if entries else "[]"
        return f"{text}{self.end}".encode("utf-8", "surrogateescape")

    def entries_by_key(self) -> dict[str, list[dict[str, Any]]]:
        """Return the entries and places of each episode in the list, as JSON values."""
        entries: dict[str, list[dict[str, Any]]] = {}
        above: str | None = None
        for at, entry in enumerate(self.entries):
            key = entry.session_id
            if key is not None:
                entries.setdefault(key, []).append({"at": at, "text": entry.text, "above": above})
            above = key
        return entries


def _parsed(text: str) -> EpisodeIndex:
    """Return a parsed list; raise ValueError if the text is no list in JSON."""
    if text.lstrip(_SPACE)[:1] != "[":
        raise ValueError("it does not begin with [")
    entries: list[Entry] = []
    end = text.index("[") + 1  # where the previous entry ends
    # The whole list is parsed first, to check it and to count its entries.
    for _ in _DECODER.decode(text):
        start = end
        while text[start] in f"{_SPACE},":
            start += 1
        fields, end = _DECODER.raw_decode(text, start)
        entries.append(Entry(_id_of(fields), text[start:end], fields))
    _, _, text_after_list = text[end:].partition("]")
    return EpisodeIndex(tuple(entries), text_after_list)


def _id_of(fields: Any) -> str | None:
    """Return the session id of a parsed entry; None for none or one with lone surrogates."""
    session_id = fields.get("session_id") if isinstance(fields, dict) else None
    if not isinstance(session_id, str):
        return None
    if any("\ud800" <= character <= "\udfff" for character in session_id):
        return None
    return session_id


def _lists_episodes(folder: Folder, size: int) -> bool:
    """Return whether the ``index.json`` of a folder lists episodes."""
    if size > _MAX_INDEX_BYTES:
        return False
    try:
        index = EpisodeIndex.read(folder.read(INDEX).data)
    except (StoreError, ChangedWhileReadError, FileNotFoundError):
        return False
    if not index.entries:
        return folder.path.name == EPISODES or folder.path.parts[-2:] == _PLACE_OF_MEMORY
    return all(
        entry.session_id is not None and {"summary", "created_at"} & entry.fields.keys()
        for entry in index.entries
    )


def is_session_id(text: str) -> bool:
    r"""Return whether odek accepts a text as a session id: it names a file of the folder.

    >>> [is_session_id(text) for text in ("20260101-a", "../victim", "a\\b", ".", "")]
    [True, False, False, False, False]
    """
    if text in ("", ".") or ".." in text or "\\" in text:
        return False
    return is_file_name(f"{text}.md")


def _tags(provenance: Mapping[str, Any]) -> list[str]:
    """Return the flags and the sources of an episode as tags."""
    flags = [flag for flag in ("untrusted", *_APPROVED) if provenance.get(flag)]
    tags = [flag.replace("_", "-") for flag in flags]
    sources = provenance.get("sources")
    if isinstance(sources, list):
        tags += [readable(str(source)) for source in sources]
    return tags


def _position(session_id: str, fields: Mapping[str, Any]) -> int:
    """Return the position of an episode: by its time of writing, then by its session id."""
    at = _microseconds(fields.get("created_at"))
    if at is None:
        return position_from_timestamp(0, session_id)
    # The low bits of a position order memories of one millisecond: here by their microsecond, then
    # by ten bits of the session id.
    milliseconds, micros = divmod(at, 1_000)
    bits_of_id = position_from_timestamp(0, session_id) & 0x3FF  # the lowest ten
    return position_from_timestamp(milliseconds, micros << 10 | bits_of_id)


def _microseconds(created: object) -> int | None:
    """Return a timestamp in microseconds since 1970; None if it is not valid."""
    if not isinstance(created, str):
        return None
    try:
        moment = moment_of(created)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond
