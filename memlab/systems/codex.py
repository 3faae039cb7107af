"""Codex: citations, in which the model says which remembered threads it used."""

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
_BLOCK: Final = re.compile(r"<oai-mem-citation>(.*?)</oai-mem-citation>", re.DOTALL)
_IDS: Final = re.compile(r"<(rollout|thread)_ids>(.*?)</\1_ids>", re.DOTALL)

WITHOUT_THREAD: Final = "citations that name no thread"
WITHOUT_TIME: Final = "citations without a time"
COPIES: Final = "copies of a citation that is counted"


_Session = tuple[str, str, list[Read]]
"""Who speaks in a rollout file, from whose history it was forked, and what it cites."""


def recognises(asked: Asked) -> bool:
    """Whether the source is Codex's folder, its sessions, or its database of memories."""
    path = asked.path
    if path.is_dir():
        return bool(_sessions(path)) and any(_rollouts(path))
    return "stage1_outputs" in tables_of(path)


def find(asked: Asked) -> Found:
    """Return the threads that were cited."""
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
    """Return whose file it is, and what it cites; ids still lack the session."""
    session = file.stem
    forked_from = ""
    said: Counter[str] = Counter()
    cited: list[Read] = []
    for line in lines.objects(file, lambda each: b"-citation" in each or b'"session_meta"' in each):
        payload = mapping(line.get("payload"))
        if line.get("type") == "session_meta" and session == file.stem:
            session = reads.text(payload.get("id")) or file.stem
            forked_from = reads.text(payload.get("forked_from_id"))
        elif message := _message(line, payload):
            threads = _threads(message, found)
            told = sha256(message.encode()).hexdigest()[:16]
            said[told] += 1
            at = reads.moment(line.get("timestamp"), found)
            if at is None:
                found.left_out[WITHOUT_TIME] += len(threads)
                continue
            name = f"{told}:{said[told]}"
            cited += [Read(each, at, f"{name}:{each}", "citation") for each in threads]
    return session, forked_from, cited


def _keep_each_once(sessions: list[_Session], found: Found) -> None:
    """Give each citation to the session that made it; forks repeat the history they come from."""
    parents = {session: forked_from for session, forked_from, _ in sessions}
    kept: dict[str, Read] = {}
    for session, _, cited in sessions:
        root = _root(session, parents)
        for read in cited:
            name = f"codex:{root}:{read.id}"
            kind = OWN_SESSION if read.memory_id == session else READ
            whole = read._replace(id=name, session=session, kind=kind)
            before = kept.get(name)
            found.left_out[COPIES] += before is not None
            if before is None or read.at < before.at:
                kept[name] = whole
    for read in sorted(kept.values(), key=lambda read: read.at):
        (found.reads if read.kind == READ else found.apart).append(read)


def _root(session: str, parents: dict[str, str]) -> str:
    passed = {session}
    while (parent := parents.get(session)) and parent not in passed:
        session = parent
        passed.add(parent)
    return session


def _message(line: dict[str, Any], payload: dict[str, Any]) -> str:
    """Return what the assistant said, from the line that Codex itself goes on from."""
    kind = line.get("type"), payload.get("type"), payload.get("role")
    if kind != ("response_item", "message", "assistant"):
        return ""
    parts = map(mapping, reads.sequence(payload.get("content")))
    return "".join(reads.text(part.get("text")) for part in parts)


def _threads(message: str, found: Found) -> list[str]:
    cited: dict[str, None] = {}
    for block in _BLOCK.finditer(message):
        ids = [each.strip() for match in _IDS.finditer(block[1]) for each in match[2].split("\n")]
        if not any(ids):
            found.left_out[WITHOUT_THREAD] += 1
        cited |= dict.fromkeys(each for each in ids if each)
    return list(cited)


def _sessions(path: Path) -> list[Path]:
    below = [path / name for name in _FOLDERS if (path / name).is_dir()]
    return below or ([path] if path.name in _FOLDERS else [])


def _rollouts(path: Path) -> Iterator[Path]:
    """Yield the rollout files of Codex's folder, of its sessions, or of any folder of such."""
    for folder in _sessions(path) or [path]:
        yield from folder.rglob("rollout-*.jsonl")
