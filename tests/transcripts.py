"""Transcript folders made after the documented format, whose true reads are known.

A `World` is a home folder with a memory folder in it. Its sessions act on memories one action at a
time; each action writes the lines that Claude Code would write, and notes what it was. What counts
follows from the notes alone, never from the lines.
"""

import json
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

START = datetime(2026, 8, 1, 9, tzinfo=UTC)
SLUG = "-work-app"
UNCHANGED = (
    "File unchanged since last read. The content from the earlier Read tool_result is current.",
    "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
)
QUOTED = (
    '{"type":"tool_use","id":"toolu_0","name":"Read","input":{"file_path":"%s/m1.md"}}',
    'please run `cat %s/m2.md` and say "tool_use"',
    "\x1b[31m%s/m3.md\x00\u2028\u202e </system-reminder>",
    '"tool_use_id": "toolu_1", "attachment": "%s/m4.md"',
)
BROKEN = (
    b'{"type":"assistant","uuid":"x","message":{"content":[{"type":"tool_use","name":"Read"',
    b"not JSON at all",
    b'{"type":"user","message":"\xff\xfe memory "attachment" "tool_use"}',
    b"\x00\x00\x00\x00",
    b"[1, 2]",
)


class Event(NamedTuple):
    """What happened to a memory: a read or a change, by which session, when."""

    session: str
    memory_id: str
    at: datetime
    writes: bool


class Session:
    """One session: its file's folder, its id, and its lines."""

    def __init__(self, world: "World", name: str, project: str) -> None:
        self.world, self.name, self.project = world, name, project
        self.lines: list[dict[str, Any]] = []
        self.agents: dict[str, list[dict[str, Any]]] = {}
        self.cwd = "/work/app"

    def act(self, memory_id: str) -> None:
        """Do one thing with a memory, chosen by chance."""
        act = self.world.chance.choices(*zip(*ACTIONS.items(), strict=True))[0]
        act(self, memory_id)

    def note(self, memory_id: str, at: datetime, *, writes: bool = False) -> None:
        self.world.events.append(Event(self.name, memory_id, at, writes))

    def line(self, kind: str, at: datetime, **fields: Any) -> dict[str, Any]:
        world = self.world
        return {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.name,
            "version": world.chance.choice(["2.0.1", "2.1.259"]),
            "type": kind,
            "uuid": world.unique("uuid"),
            "timestamp": world.stamp(at),
            **fields,
        }

    def call(
        self, tool: str, given: dict[str, Any], *, result: bool = True, **answer: Any
    ) -> datetime:
        """Write a call and its result; return when the call was made."""
        at, ended = self.world.tick(), self.world.tick()
        call = self.world.unique("toolu")
        used = {"type": "tool_use", "id": call, "name": tool, "input": given}
        message = {"id": self.world.chance.choice(["msg_1", "msg_2"]), "content": [used]}
        written = [self.line("assistant", at, message=message, requestId="req_1")]
        if result:
            written.append(self._result(ended, call, answer))
        self._write(written)
        return at

    def _result(self, at: datetime, call: str, answer: dict[str, Any]) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call}
        block["content"] = answer.get("content", "     1\tx")
        if self.world.chance.random() < 0.3:
            block["content"] = [{"type": "text", "text": block["content"]}]
        if answer.get("error") or self.world.chance.random() < 0.5:
            block["is_error"] = bool(answer.get("error"))
        details = {"toolUseResult": answer["details"]} if "details" in answer else {}
        return self.line("user", at, message={"role": "user", "content": [block]}, **details)

    def _write(self, lines: list[dict[str, Any]]) -> None:
        """Write lines into the session's own file, or into one of its agents'."""
        if self.world.chance.random() < 0.15:
            agent = self.world.chance.choice(["agent-a1", "deep/agent-a2"])
            self.agents.setdefault(agent, []).extend(
                {**line, "isSidechain": True, "agentId": agent} for line in lines
            )
        else:
            self.lines += lines

    def attach(self, attachment: dict[str, Any]) -> datetime:
        at = self.world.tick()
        self.lines.append(self.line("attachment", at, attachment=attachment))
        return at

    def path(self, memory_id: str) -> str:
        return f"{self.world.called}/{memory_id}"


def read(session: Session, memory_id: str) -> None:
    given = {"file_path": session.path(memory_id), "offset": 1, "limit": 20}
    file = {"filePath": session.path(memory_id), "numLines": 1}
    at = session.call("Read", given, details={"type": "text", "file": file})
    session.note(memory_id, at)


def read_a_folder_away(session: Session, memory_id: str) -> None:
    """The same file, by a path that goes about it."""
    folder = session.world.called
    at = session.call("Read", {"file_path": f"{folder}/../{Path(folder).name}/./{memory_id}"})
    session.note(memory_id, at)


def read_in_vain(session: Session, memory_id: str) -> None:
    session.call(
        "Read",
        {"file_path": session.path(memory_id)},
        error=True,
        content="<tool_use_error>File does not exist.</tool_use_error>",
        details="Error: File does not exist.",
    )


def read_unchanged(session: Session, memory_id: str) -> None:
    said = session.world.chance.choice(UNCHANGED)
    details = {"details": {"type": "file_unchanged"}} if session.world.chance.random() < 0.5 else {}
    session.call("Read", {"file_path": session.path(memory_id)}, content=said, **details)


def read_without_an_answer(session: Session, memory_id: str) -> None:
    session.call("Read", {"file_path": session.path(memory_id)}, result=False)


def read_the_index(session: Session, memory_id: str) -> None:
    session.call("Read", {"file_path": session.path("MEMORY.md")}, content=f"- [x]({memory_id})")
    session.call("Bash", {"command": f"cat {session.path('MEMORY.md')} | grep {memory_id}"})


def read_elsewhere(session: Session, memory_id: str) -> None:
    for folder in (f"{session.world.home}/.claude/projects/-other/memory", "/work/app/memory"):
        session.call("Read", {"file_path": f"{folder}/{memory_id}"})
        session.call("Bash", {"command": f"cd {folder} && cat {memory_id}"})


SHOWN = (
    "cat {path}",
    "cat '{path}'",
    'cat "{path}" 2>/dev/null',
    "sed -n '1,20p' {path}",
    "head -n 5 {path}; echo done",
    "head -20 {path} | tail -3",
    "tail -5 {path} && ls",
    "grep -n -i 'merge' {path}",
    "grep -A 3 -e merge {path} || true",
    "rg merge {path}",
    "cd {folder} && cat {name}",
    "cd '{folder}'; ls; head -3 ./{name}",
    "cat ~/.claude/projects/" + SLUG + "/memory/{name}",
    'cat "$HOME/.claude/projects/' + SLUG + '/memory/{name}"',
    "LANG=C /bin/cat {path} # and nothing else",
    "if [ -f {path} ]; then cat {path}; fi",
    "cat <<'END'\ncat {folder}/m1.md\nEND\ncat {path}",
    "cat < {path}",
)
NOT_SHOWN = (
    "cat {folder}/*.md",
    "grep -rn merge {folder}",
    "rg merge {folder}",
    "ls -la {path}",
    "wc -l {path}",
    "echo 'cat {path}'",
    "git commit -m 'then cat {path}; done'",
    "x=$(cat {path}); echo ${{#x}}",
    "cat {path} > /tmp/copy.md",
    "for f in {name}; do cat {folder}/$f; done",
    "find {folder} -name {name}",
    "grep {name} {folder}/MEMORY.md",
    "cat <<EOF\ncat {path}\nEOF",
    "# cat {path}",
    "diff {path} /tmp/copy.md",
)
CHANGED = (
    "sed -i 's/a/b/' {path}",
    "echo more >> {path}",
    "cat > {path} <<'END'\ncat {folder}/m1.md\nEND",
    "cd {folder} && printf x | tee {name}",
)


def _command(session: Session, text: str, memory_id: str) -> str:
    folder = session.world.called
    return text.format(path=session.path(memory_id), folder=folder, name=memory_id)


def show_in_a_shell(session: Session, memory_id: str) -> None:
    command = _command(session, session.world.chance.choice(SHOWN), memory_id)
    shell = {"stdout": "x", "stderr": "", "interrupted": False}
    at = session.call("Bash", {"command": command, "description": "look"}, details=shell)
    session.note(memory_id, at)


def show_where_one_stands(session: Session, memory_id: str) -> None:
    before, session.cwd = session.cwd, session.world.called
    at = session.call("Bash", {"command": f"cat {memory_id}"})
    session.cwd = before
    session.note(memory_id, at)


def show_in_vain(session: Session, memory_id: str) -> None:
    command = _command(session, session.world.chance.choice(SHOWN), memory_id)
    session.call("Bash", {"command": command}, error=True, content="Exit code 1")


def show_until_stopped(session: Session, memory_id: str) -> None:
    command = {"command": f"cat {session.path(memory_id)}; sleep 99"}
    session.call("Bash", command, details={"stdout": "", "interrupted": True})


def mention_in_a_shell(session: Session, memory_id: str) -> None:
    text = session.world.chance.choice(NOT_SHOWN)
    session.call("Bash", {"command": _command(session, text, memory_id)})


def search(session: Session, memory_id: str) -> None:
    folder = session.world.called
    session.call("Grep", {"pattern": "x", "path": folder}, content=f"{folder}/{memory_id}:1:x")
    session.call("Glob", {"pattern": "*.md", "path": folder}, content=session.path(memory_id))


def be_reminded(session: Session, memory_id: str) -> None:
    others = session.world.chance.sample(session.world.memories, 2)
    named = list(dict.fromkeys([memory_id, *others]))
    memories = [{"path": session.path(m), "content": "x", "mtimeMs": 1} for m in named]
    at = session.attach({"type": "relevant_memories", "memories": memories})
    for each in named:
        session.note(each, at)


def be_loaded(session: Session, memory_id: str) -> None:
    path = session.path(memory_id)
    for kind in ("instructions", "AutoMemPinned", "compact_file_reference", "nested_memory"):
        files = [{"path": path, "type": "AutoMem", "content": "x"}]
        session.attach({"type": kind, "path": path, "files": files, "memories": files})
    session.attach({"type": "edited_text_file", "filename": path, "snippet": path})


def write(session: Session, memory_id: str) -> None:
    given = {"file_path": session.path(memory_id), "content": f"see {session.path('m1.md')}"}
    session.note(memory_id, session.call("Write", given), writes=True)


def edit(session: Session, memory_id: str) -> None:
    tool = session.world.chance.choice(["Edit", "MultiEdit"])
    given = {"file_path": session.path(memory_id), "old_string": "a", "new_string": "b"}
    session.note(memory_id, session.call(tool, given), writes=True)


def read_then_edit(session: Session, memory_id: str) -> None:
    read(session, memory_id)
    edit(session, memory_id)


def edit_in_vain(session: Session, memory_id: str) -> None:
    given = {"file_path": session.path(memory_id), "old_string": "a", "new_string": "b"}
    said = "<tool_use_error>File has not been read yet.</tool_use_error>"
    session.call("Edit", given, error=True, content=said)


def change_in_a_shell(session: Session, memory_id: str) -> None:
    text = session.world.chance.choice(CHANGED)
    at = session.call("Bash", {"command": _command(session, text, memory_id)})
    session.note(memory_id, at, writes=True)


def talk(session: Session, memory_id: str) -> None:
    said = session.world.chance.choice(QUOTED) % session.world.called + memory_id
    at = session.world.tick()
    session.lines.append(session.line("user", at, message={"role": "user", "content": said}))
    content = [{"type": "text", "text": said}, {"type": "thinking", "thinking": said}]
    session.lines.append(session.line("assistant", at, message={"content": content}))
    session.lines.append({"type": "summary", "summary": said, "leafUuid": "x"})


def work(session: Session, memory_id: str) -> None:
    session.call("Read", {"file_path": "/work/app/main.py"}, content=f"# {session.path(memory_id)}")
    session.call("Bash", {"command": "pytest -q"}, content="1 passed\n" * 50)


ACTIONS: dict[Callable[[Session, str], None], int] = {
    read: 8,
    read_a_folder_away: 1,
    read_in_vain: 2,
    read_unchanged: 2,
    read_without_an_answer: 1,
    read_the_index: 2,
    read_elsewhere: 2,
    show_in_a_shell: 6,
    show_where_one_stands: 1,
    show_in_vain: 1,
    show_until_stopped: 1,
    mention_in_a_shell: 4,
    search: 2,
    be_reminded: 3,
    be_loaded: 2,
    write: 3,
    edit: 1,
    read_then_edit: 3,
    edit_in_vain: 1,
    change_in_a_shell: 1,
    talk: 3,
    work: 4,
}


class World:
    """A home with a memory folder, and sessions that use it.

    Parameters
    ----------
    home : Path
        An empty folder.
    seed : int
        Decides everything.
    memories : int
        How many files the memory folder has.
    called : str, optional
        What the transcripts call the memory folder, where that is not its path.
    """

    def __init__(
        self, home: Path, seed: int, *, memories: int = 12, called: str | None = None
    ) -> None:
        self.home, self.chance = home, random.Random(seed)
        self.projects = home / ".claude" / "projects"
        self.folder = self.projects / SLUG / "memory"
        self.called = str(self.folder) if called is None else called
        self.memories = [f"m{number}.md" for number in range(1, memories + 1)]
        self.events: list[Event] = []
        self.sessions: list[Session] = []
        self._now, self._count = START, 0
        self._dated = self.chance.random() < 0.5
        """Whether files are as old as their last lines, or as this run of the test."""
        self._as_ascii, self._separators = self.chance.choice([(True, None), (False, (",", ":"))])
        for folder in (self.folder, self.projects / "-other" / "memory"):
            folder.mkdir(parents=True)
            for memory_id in self.memories:
                (folder / memory_id).write_text("x")
            (folder / "MEMORY.md").write_text("".join(f"- [x]({m})\n" for m in self.memories))

    def tick(self) -> datetime:
        self._now += timedelta(milliseconds=self.chance.randrange(1, 90_000))
        return self._now

    def stamp(self, at: datetime) -> str:
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def unique(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def run(self, sessions: int, *, actions: int = 12) -> None:
        """Let sessions come and go, each written to disk as it ends."""
        for _ in range(sessions):
            self._now += timedelta(hours=self.chance.randrange(1, 30))
            session = self._begin()
            for _ in range(self.chance.randrange(1, actions)):
                session.act(self.chance.choice(self.memories))
            if self.chance.random() < 0.2:
                self._compact(session)
            self.sessions.append(session)
            self._save(session)

    def counted(self) -> set[tuple[str, datetime]]:
        """The reads that are later needs: by sessions that never changed the memory."""
        return {(e.memory_id, e.at) for e, kind in self._kinds() if kind == "read"}

    def apart(self, kind: str) -> set[tuple[str, datetime]]:
        """The reads that are ``maintenance``, or of the memory's ``own session``."""
        return {(e.memory_id, e.at) for e, found in self._kinds() if found == kind}

    def _kinds(self) -> list[tuple[Event, str]]:
        changed: dict[tuple[str, str], datetime] = {}
        for event in self.events:
            if event.writes:
                key = (event.session, event.memory_id)
                changed[key] = min(event.at, changed.get(key, event.at))
        kinds = []
        for event in self.events:
            first = changed.get((event.session, event.memory_id))
            own = first is not None and event.at > first
            kind = "read" if first is None else "own session" if own else "maintenance"
            if not event.writes:
                kinds.append((event, kind))
        return kinds

    def _begin(self) -> Session:
        """Begin a session: a new one, or one that repeats another's lines first."""
        project = self.chance.choice([SLUG, SLUG, f"{SLUG}--claude-worktrees-x", "-other"])
        session = Session(self, self.unique("session"), project)
        if self.sessions and self.chance.random() < 0.4:
            before = self.chance.choice(self.sessions)
            session.project = before.project
            how = self.chance.choice(["resumed", "branched", "continued"])
            end = (
                len(before.lines)
                if how == "resumed"
                else self.chance.randrange(len(before.lines) + 1)
            )
            for line in before.lines[:end]:
                copy = {**line}
                if how != "continued" and "sessionId" in copy:
                    copy["sessionId"] = session.name
                if how == "branched":
                    origin = {"sessionId": before.name, "messageUuid": line.get("uuid")}
                    copy.setdefault("forkedFrom", origin)
                session.lines.append(copy)
        return session

    def _compact(self, session: Session) -> None:
        at = self.tick()
        again = [line for line in session.lines if self.chance.random() < 0.5]
        session.lines.append(session.line("system", at, subtype="compact_boundary"))
        session.lines += again

    def _save(self, session: Session) -> None:
        folder = self.projects / session.project
        self._write(folder / f"{session.name}.jsonl", session.lines)
        for name, lines in session.agents.items():
            self._write(folder / session.name / "subagents" / f"{name}.jsonl", lines)
        journal = folder / session.name / "subagents" / "journal.jsonl"
        if session.agents:
            self._write(journal, session.lines[:3])

    def _write(self, file: Path, lines: list[dict[str, Any]]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            for line in lines:
                if self.chance.random() < 0.02:
                    out.write(self.chance.choice(BROKEN) + b"\n")
                if self.chance.random() < 0.02:
                    out.write(b"\r\n\n")
                text = json.dumps(line, ensure_ascii=self._as_ascii, separators=self._separators)
                out.write(text.encode(errors="surrogatepass") + b"\n")
            if self.chance.random() < 0.1:
                out.write(BROKEN[0])
        if self._dated:
            os.utime(file, (self._now.timestamp(), self._now.timestamp()))
