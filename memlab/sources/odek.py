"""odek's episodes: one Markdown file each, and ``index.json``.

odek takes an episode's file away before it writes the index, and marks its vectors as old after;
a deletion here keeps that order and removes the vectors, which odek makes anew. An id that could
name a file outside the folder is an entry without a file, as odek has it. A running odek keeps the
index in memory and writes it back at its next episode: end it before a deletion is applied.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.moments import moment_of as moment_of_text
from memlab.sources.base import place_of
from memlab.sources.folder import FileCopy, is_file_name
from memlab.sources.folder_journal import Index
from memlab.sources.folder_moment import FolderMoment
from memlab.sources.folder_source import FolderSource, Found, Kind
from memlab.sources.odek_index import INDEX, EpisodeIndex

EPISODES: Final = "episodes"
"""The folder below odek's memory folder that holds them, in versions that have one."""

DERIVED: Final = ("episodes_vectors.gob", "episodes_embedder.gob", "episodes_index_meta.json")

_APPROVED: Final = ("user_approved", "auto_approved")
_FLAGS: Final = ("untrusted", *_APPROVED)


class Odek(FolderSource):
    """A folder of odek's episodes.

    Parameters
    ----------
    where : str or Path
        The folder that ``index.json`` lies in, or the one above it, as in ``odek:~/.odek/memory``.
    watch : callable, optional
        Called with each :class:`memlab.sources.folder_change.Step` of a change.
    """

    scheme: ClassVar[str] = "odek"

    @property
    def recall_log(self) -> str | None:
        """Say that there is none."""
        return "odek writes down no recalls"

    @property
    def kind(self) -> Kind:
        """What odek's folders are like."""
        return OdekFolder()

    @property
    def path(self) -> Path:
        """The folder of the index, with links followed."""
        folder = super().path
        below = folder / EPISODES
        with suppress(ValueError):
            if not (folder / INDEX).is_file() and (below / INDEX).is_file():
                return below
        return folder

    def cap_setting(self, keep: int) -> str | None:
        """Return odek's own cap, as its configuration has it."""
        return f'"memory": {{"max_episodes": {keep}}}'


class OdekFolder:
    """What odek's folders are like."""

    derived: ClassVar[tuple[str, ...]] = DERIVED

    @property
    def index(self) -> Index:
        """The list of episodes."""
        return _Index()

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the episodes of the index, the oldest first."""
        raw = b"" if moment.index is None else moment.index.data
        here = set(moment.names)
        found = []
        for session_id, said in EpisodeIndex.read(raw).said().items():
            name = self.name_of(session_id)
            position = _position(session_id, json.loads(said[-1]["text"], strict=False))
            found.append(
                Found(session_id, name if name in here else "", said, {"position": position})
            )
        return sorted(found, key=lambda each: int(each.place["position"]))

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return an episode as a row; its summary's first line is the title."""
        fields = json.loads(found.said[-1]["text"], strict=False)
        provenance = fields.get("provenance")
        flags = provenance if isinstance(provenance, dict) else {}
        text = (
            str(fields.get("summary") or "") if file is None else file.data.decode(errors="replace")
        )
        title, _, body = text.strip().partition("\n")
        created, position = fields.get("created_at"), found.place["position"]
        is_dated = isinstance(created, str) and _microseconds(created) is not None
        trusted = is_trusted(flags)
        return {
            "position": position,
            "key": found.key,
            "memory_id": found.key,
            "kind": "episodic",
            "title": _readable(title),
            "body": _readable(body),
            "tags_json": json.dumps(_tags(flags), ensure_ascii=False),
            "source_task_ref": found.key,
            "authored_by": "odek",
            "created_at": created if is_dated else None,
            "confidence": 1.0,
            "trusted": trusted,
            "loaded_at_start": trusted,
            "faults": ()
            if is_dated
            else ((position, "created_at", f"created_at {created!r:.80} is not a timestamp"),),
        }

    def name_of(self, key: str) -> str:
        """Return the name of an episode's file; empty where the id could name one elsewhere."""
        return f"{key}.md" if is_session_id(key) else ""


class _Index:
    """odek's index, edited."""

    name = INDEX
    first = False

    def without(self, raw: bytes, gone: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002 - episodes go by their ids
        """Return the list without some episodes."""
        index = EpisodeIndex.read(raw)
        named = any(entry.session_id in gone for entry in index.entries)
        return index.without(gone).to_bytes() if named else raw

    def with_back(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002 - episodes go by their ids
        """Return the list with what it said of some episodes."""
        index = EpisodeIndex.read(raw)
        back = index.with_said(said)
        return raw if back is index else back.to_bytes()


def is_session_id(text: str) -> bool:
    r"""Whether odek takes a text for a session's id: it names a file, and none elsewhere.

    Examples
    --------
    >>> [is_session_id(text) for text in ("20260101-a", "../victim", "a\\b", ".", "")]
    [True, False, False, False, False]
    """
    return is_file_name(f"{text}.md") and bool(text) and text != "." and not _unsafe(text)


def _unsafe(text: str) -> bool:
    return ".." in text or "\\" in text


def is_trusted(provenance: Mapping[str, Any]) -> bool:
    """Whether odek recalls an episode: trusted, or approved by somebody."""
    return not provenance.get("untrusted") or any(provenance.get(flag) for flag in _APPROVED)


def _tags(provenance: Mapping[str, Any]) -> list[str]:
    sources = provenance.get("sources")
    flags = [flag.replace("_", "-") for flag in _FLAGS if provenance.get(flag)]
    named = sources if isinstance(sources, list) else []
    return flags + [_readable(str(each)) for each in named]


def _position(session_id: str, fields: Mapping[str, Any]) -> int:
    """Return where an episode stands by its time of writing, which is all that odek goes by."""
    created = fields.get("created_at")
    at = _microseconds(created) if isinstance(created, str) else None
    if at is None:
        return place_of(0, session_id)
    own = place_of(0, session_id) & 0x3FF
    return place_of(at // 1_000, (at % 1_000) << 10 | own)


def _microseconds(text: str) -> int | None:
    try:
        moment = moment_of_text(text)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _readable(text: str) -> str:
    return text.encode(errors="replace").decode()
