"""Harvest Codex's citations, in which the model names the threads whose memory it used."""

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memlab.errors import MemlabError
from memlab.sources import reads
from memlab.sources.reads import OWN_SESSION, READ, Asked, Found, LineReader, Read, mapping
from memlab.sources.sqlite_rows import tables_of

_FOLDERS: Final = ("sessions", "archived_sessions")
"""Folders of Codex's home that hold the sessions."""
_BLOCK: Final = re.compile(r"<oai-mem-citation>(.*?)</oai-mem-citation>", re.DOTALL)
_IDS: Final = re.compile(r"<(rollout|thread)_ids>(.*?)</\1_ids>", re.DOTALL)

WITHOUT_THREAD: Final = "citations that name no thread"
WITHOUT_TIME: Final = "citations without a time"
COPIES: Final = "copies of a citation that is counted"


_Session = tuple[str, str, list[Read]]
"""Id of the session of a rollout file, id of the session it was forked from, and citations."""


def recognises(asked: Asked) -> bool:
    """Return whether the source is Codex's folder, its sessions, or its database of memories."""
    path = asked.path
    if path.is_dir():
        return bool(_sessions(path)) and any(_rollouts(path))
    return "stage1_outputs" in tables_of(path)


def find(asked: Asked) -> Found:
    """Return the citations of threads as reads."""
    found = Found()
    home = asked.path if asked.path.is_dir() else asked.path.resolve().parent
    files = list(_rollouts(asked.transcripts or home))
    if not files:
        raise MemlabError(
            f"there are no sessions in {asked.transcripts or home}; name the folder they lie in "
            "with --transcripts, such as ~/.codex/sessions"
        )
    lines = LineReader(files, asked.progress, found)
    _keep_each_once([_session(file, lines, found) for file in lines.files], found)
    found.notes.append("a citation is the model's own word that a memory was of use")
    return found


def _session(file: Path, lines: LineReader, found: Found) -> _Session:
    """Return the session of a rollout file. The ids of its citations lack the session."""
    session = file.stem
    forked_from = ""
    occurrences: Counter[str] = Counter()
    citations: list[Read] = []
    for line in lines.objects(file, _is_of_interest):
        payload = mapping(line.get("payload"))
        if line.get("type") == "session_meta" and session == file.stem:
            session = reads.text(payload.get("id")) or file.stem
            forked_from = reads.text(payload.get("forked_from_id"))
            continue
        message = _message(line, payload)
        if not message:
            continue
        threads = _threads(message, found)
        digest = sha256(message.encode()).hexdigest()[:16]
        occurrences[digest] += 1
        at = reads.moment(line.get("timestamp"), found)
        if at is None:
            found.left_out[WITHOUT_TIME] += len(threads)
            continue
        for thread in threads:
            read_id = f"{digest}:{occurrences[digest]}:{thread}"
            citations.append(Read(thread, at, read_id, "citation"))
    return session, forked_from, citations


def _is_of_interest(line: bytes) -> bool:
    """Return whether a line may hold a citation or the metadata of a session."""
    return b"-citation" in line or b'"session_meta"' in line


def _keep_each_once(sessions: list[_Session], found: Found) -> None:
    """Add each citation once, with the session that made it; a fork repeats its parent's."""
    parents = {session: forked_from for session, forked_from, _ in sessions}
    kept: dict[str, Read] = {}
    for session, _, citations in sessions:
        root = _root(session, parents)
        for citation in citations:
            read_id = f"codex:{root}:{citation.id}"
            kind = OWN_SESSION if citation.memory_id == session else READ
            known = kept.get(read_id)
            if known is not None:
                found.left_out[COPIES] += 1
            if known is None or citation.at < known.at:
                kept[read_id] = citation._replace(id=read_id, session=session, kind=kind)
    for read in sorted(kept.values(), key=lambda read: read.at):
        if read.kind == READ:
            found.reads.append(read)
        else:
            found.apart.append(read)


def _root(session: str, parents: dict[str, str]) -> str:
    """Return the session from which a session was forked first, or itself."""
    visited = {session}
    parent = parents.get(session)
    while parent and parent not in visited:
        session = parent
        visited.add(parent)
        parent = parents.get(session)
    return session


def _message(line: dict[str, Any], payload: dict[str, Any]) -> str:
    """Return the assistant's message of a line; empty for another line.

    Codex itself resumes a session from these lines.
    """
    kind = line.get("type"), payload.get("type"), payload.get("role")
    if kind != ("response_item", "message", "assistant"):
        return ""
    parts = map(mapping, reads.sequence(payload.get("content")))
    return "".join(reads.text(part.get("text")) for part in parts)


def _threads(message: str, found: Found) -> list[str]:
    """Return the threads that a message cites, without duplicates."""
    threads: dict[str, None] = {}
    for block in _BLOCK.finditer(message):
        ids: list[str] = []
        for match in _IDS.finditer(block[1]):
            ids += filter(None, map(str.strip, match[2].split("\n")))
        if not ids:
            found.left_out[WITHOUT_THREAD] += 1
        threads.update(dict.fromkeys(ids))
    return list(threads)


def _sessions(path: Path) -> list[Path]:
    """Return the folders of sessions in Codex's home, or the path if it is such a folder."""
    folders = [path / name for name in _FOLDERS if (path / name).is_dir()]
    if folders:
        return folders
    return [path] if path.name in _FOLDERS else []


def _rollouts(path: Path) -> Iterator[Path]:
    """Yield the rollout files in Codex's home, in its sessions, or in another folder."""
    for folder in _sessions(path) or [path]:
        yield from folder.rglob("rollout-*.jsonl")
