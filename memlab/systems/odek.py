"""odek's episodes: one Markdown file each, and ``index.json``; vectors are odek's to make anew.

odek's own lock is taken for a change; end a running odek of before August 2026 first, for it writes
its index back. The file goes before the index.
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
from memlab.sources.base import Key, Trouble, Writer, position_from_timestamp
from memlab.sources.folder.change import changed_folder
from memlab.sources.folder.files import FileCopy, Folder, is_file_name, opened_folder
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, FolderWriter, Found
from memlab.sources.reads import text as readable
from memlab.sources.recognition import Evidence, Strength
from memlab.store.archive.entries import check_depth
from memlab.store.shapes import fields, integer, list_of, non_empty, optional, raw_text, text
from memlab.text import command, counted, refused

INDEX: Final = "index.json"
EPISODES: Final = "episodes"
"""The folder below odek's memory folder that holds them, in versions that have one."""

_PLACE_OF_MEMORY: Final = (".odek", "memory")
LOCK: Final = "episodes.lock"
"""Beside the list; odek has it since its versions of August 2026."""
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATIENCE: Final = 30.0
"""Seconds for which odek's lock is waited for."""
_PAUSE: Final = 0.05

_APPROVED: Final = ("user_approved", "auto_approved")
"""Flags of an episode that odek recalls although its sources are not trusted."""
_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder(strict=False)

_NO_MORE: Final = ("before", "after", "head", "tail", "whole")
"""What older archives say of the layout of the list, which is odek's own."""
_SAID: Final = fields(
    {
        "at": integer(0, 2**31),
        "above": optional(text),
        "text": raw_text,
        **dict.fromkeys(_NO_MORE, raw_text),
    },
    absent={*_NO_MORE},
)
"""What :meth:`EpisodeIndex.said` says of an episode, once, in a file that may be anybody's."""
_PLACE: Final = fields({"position": integer(), "said": non_empty(list_of(_SAID))})


def _has_episodes(path: Path) -> bool:
    """Whether a folder has an ``index.json`` that is odek's, of which there are many others."""
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
    setting = '"memory": {"max_episodes": %d}'
    derived = ("episodes_vectors.gob", "episodes_embedder.gob", "episodes_index_meta.json")

    @classmethod
    def folder_meant(cls, path: Path) -> Path:
        """Return the folder of the index, to which no link below the path leads."""
        below = path / EPISODES
        is_below = not (path / INDEX).is_file() and (below / INDEX).is_file()
        return below if is_below and not below.is_symlink() else path

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the index."""
        is_below = not (path / INDEX).is_file() and (path / EPISODES / INDEX).is_file()
        return path / EPISODES if is_below else path

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the episodes of the index."""
        raw = b"" if moment.index is None else moment.index.data
        here = set(moment.names)
        found = []
        for key, said in EpisodeIndex.read(raw).said().items():
            name = self.file_of(key)
            place = {"position": _position(key, json.loads(said[-1]["text"], strict=False))}
            found.append(Found(key, name if name in here else "", said, place))
        return found

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return an episode as a row; its summary's first line is the title."""
        fields = json.loads(found.said[-1]["text"], strict=False)
        provenance = fields.get("provenance")
        flags = provenance if isinstance(provenance, dict) else {}
        text = (
            str(fields.get("summary") or "") if file is None else file.data.decode(errors="replace")
        )
        title, _, body = text.strip().partition("\n")
        created = fields.get("created_at")
        position = found.place["position"]
        is_dated = _microseconds(created) is not None
        fault = (position, "created_at", f"created_at {created!r:.80} is not a timestamp")
        return {
            "kind": "episodic",
            "title": readable(title),
            "body": readable(body),
            "tags_json": json.dumps(_tags(flags), ensure_ascii=False),
            "source_task_ref": found.key,
            "authored_by": "odek",
            "created_at": created if is_dated else None,
            "trusted": not flags.get("untrusted") or any(map(flags.get, _APPROVED)),
            "loaded_at_start": False,
            "faults": () if is_dated else (fault,),
        }

    def file_of(self, key: str) -> str:
        """Return the name of an episode's file; empty where the id could name one elsewhere."""
        return f"{key}.md" if is_session_id(key) else ""

    def key_of(self, name: str) -> str:
        """Return the session of an episode's file."""
        return name.removesuffix(".md")

    def check_place(self, found: Found) -> None:
        """Check what an archive's record says of an episode's entry in the list, and no other's."""
        super().check_place(found)
        for each in found.said:
            try:
                entries = _parsed(f"[{each['text']}]").entries
            except RecursionError:
                raise ValueError("its entry is nested too deep") from None
            if [entry.session_id for entry in entries] != [found.key]:
                raise ValueError(f"its entry in {INDEX} is of another episode")
            check_depth(entries[0].fields, 32)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the folder for a change that lasts when the block ends, and not where it raises.

        odek's own lock is held until it is over: a running odek waits with what it writes.
        """
        with _odek_held(self.path), changed_folder(self.path, self) as change:
            yield EpisodeWriter(self, change)

    def diagnostics(self) -> list[Trouble]:
        """Return which entries of the list have no file."""

        def look(moment: FolderMoment) -> tuple[int, list[str]]:
            found = self.memories(moment)
            return len(found), [each.key for each in found if not each.name]

        count, fileless = self.seen(look)
        words = ""
        if fileless:
            many = counted(len(fileless), "entries")
            words = f"{many} of {INDEX} without a file ({fileless[0]} first)"
        advice = (
            f"{command('restore', self.name, 'DIGEST')} puts back a file that memlab archived; "
            "odek drops the others when it prunes"
        )
        return [
            Trouble("entries", len(fileless), words or f"all {count:,} entries have a file", advice)
        ]

    def remove_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002 - episodes go by their ids
        """Return the list without some episodes."""
        index = EpisodeIndex.read(raw)
        kept = tuple(entry for entry in index.entries if entry.session_id not in said)
        if len(kept) == len(index.entries):
            return raw
        return EpisodeIndex(kept, index.end).to_bytes()

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002 - episodes go by their ids
        """Return the list with what it said of some episodes, each after the one before it."""
        index = EpisodeIndex.read(raw)
        listed = {entry.session_id for entry in index.entries}
        back = sorted(
            ((each, key) for key, places in said.items() if key not in listed for each in places),
            key=lambda pair: int(pair[0]["at"]),
        )
        if not back:
            return raw
        entries = list(index.entries)
        for each, key in back:
            ids = [entry.session_id for entry in entries]
            at = int(each["at"])
            above = each["above"]
            if at and ids[at - 1 : at] != [above]:  # others have come or gone
                at = ids.index(above) + 1 if above is not None and above in ids else len(ids)
            entries.insert(at, Entry(key, str(each["text"]), None))
        return EpisodeIndex(tuple(entries), index.end).to_bytes()


class EpisodeWriter(FolderWriter):
    """A folder of episodes that is locked and being changed."""

    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete episodes, where the list is laid out as odek leaves it after one."""
        moment = self._now()
        index = b"" if moment.index is None else moment.index.data
        parsed = EpisodeIndex.read(index)
        if parsed.entries and parsed.to_bytes() != index:
            raise StoreError(
                f"{self._change.folder.path / INDEX} is not laid out as odek writes it, so that "
                "nothing that is deleted could be put back byte for byte: let odek write one more "
                "episode first"
            )
        super()._delete(expected)


@contextmanager
def _odek_held(folder: Path) -> Iterator[None]:
    """Hold the lock under which odek writes, promotes, discards and prunes episodes.

    An odek that takes it leaves its file there for good: where there is none, no such odek has
    written yet, and the folder is left as it is.
    """
    lock = folder / LOCK
    try:
        descriptor = os.open(lock, _LOCK_FLAGS)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        what = f"{lock} cannot be opened, nothing was changed"
        raise StoreError(refused(what, error, "the path and its permissions")) from error
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{lock} is no ordinary file; nothing was changed: move it away")
        _wait_for(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, lock: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise StoreError(
                    f"odek is writing: it holds {lock}; nothing was changed: try again when it is "
                    "done, or end it"
                ) from error
            time.sleep(_PAUSE)


class Entry(NamedTuple):
    """An episode in the list."""

    session_id: str | None
    text: str
    fields: Any


@dataclass(frozen=True)
class EpisodeIndex:
    """The list, taken apart."""

    entries: tuple[Entry, ...]
    end: str
    """What stands behind it."""

    @classmethod
    def read(cls, raw: bytes) -> "EpisodeIndex":
        """Take a list apart; an empty file and ``null``, as Go writes no list, are empty ones."""
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
        """Return the list as odek lays it out."""
        texts = ",\n  ".join(entry.text for entry in self.entries)
        whole = f"[\n  {texts}\n]" if texts else "[]"
        return f"{whole}{self.end}".encode("utf-8", "surrogateescape")

    def said(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the list says of each episode and where, as JSON values."""
        said: dict[str, list[dict[str, Any]]] = {}
        above: str | None = None
        for at, entry in enumerate(self.entries):
            if (key := entry.session_id) is not None:
                said.setdefault(key, []).append({"at": at, "text": entry.text, "above": above})
            above = entry.session_id
        return said


def _parsed(text: str) -> EpisodeIndex:
    if text.lstrip(_SPACE)[:1] != "[":
        raise ValueError("it does not begin with [")
    entries: list[Entry] = []
    ends = text.index("[") + 1
    for _ in _DECODER.decode(text):
        at = next(at for at in range(ends, len(text)) if text[at] not in f"{_SPACE},")
        fields, ends = _DECODER.raw_decode(text, at)
        entries.append(Entry(_id_of(fields), text[at:ends], fields))
    return EpisodeIndex(tuple(entries), text[ends:].partition("]")[2])


def _id_of(fields: Any) -> str | None:
    found = fields.get("session_id") if isinstance(fields, dict) else None
    is_text = isinstance(found, str) and not any("\ud800" <= c <= "\udfff" for c in found)
    return found if is_text else None


def _lists_episodes(folder: Folder, size: int) -> bool:
    """Whether an ``index.json`` lists episodes."""
    try:
        index = EpisodeIndex.read(folder.read(INDEX).data if size <= 2**24 else b"x")
    except (StoreError, ChangedWhileReadError, FileNotFoundError):
        return False
    if not index.entries:
        return folder.path.name == EPISODES or folder.path.parts[-2:] == _PLACE_OF_MEMORY
    return all(
        entry.session_id is not None and {"summary", "created_at"} & entry.fields.keys()
        for entry in index.entries
    )


def is_session_id(text: str) -> bool:
    r"""Whether odek takes a text for a session's id: it names a file, and none elsewhere.

    >>> [is_session_id(text) for text in ("20260101-a", "../victim", "a\\b", ".", "")]
    [True, False, False, False, False]
    """
    is_elsewhere = text in ("", ".") or ".." in text or "\\" in text
    return is_file_name(f"{text}.md") and not is_elsewhere


def _tags(provenance: Mapping[str, Any]) -> list[str]:
    sources = provenance.get("sources")
    named = sources if isinstance(sources, list) else []
    flags = [flag for flag in ("untrusted", *_APPROVED) if provenance.get(flag)]
    return [flag.replace("_", "-") for flag in flags] + [readable(str(each)) for each in named]


def _position(session_id: str, fields: Mapping[str, Any]) -> int:
    """Return where an episode stands by its time of writing, which is all that odek goes by."""
    at = _microseconds(fields.get("created_at"))
    if at is None:
        return position_from_timestamp(0, session_id)
    own = position_from_timestamp(0, session_id) & 0x3FF
    return position_from_timestamp(at // 1_000, (at % 1_000) << 10 | own)


def _microseconds(created: object) -> int | None:
    try:
        moment = moment_of(created) if isinstance(created, str) else None
    except ValueError:
        return None
    return None if moment is None else int(moment.timestamp()) * 1_000_000 + moment.microsecond
