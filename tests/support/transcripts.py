"""Transcript folders in the documented format, whose true reads are known.

A `World` is a home folder with a memory folder in it. Its sessions act on memories one action at a
time. Each action writes the lines that Claude Code would write, and an event. The true reads are
computed from the events alone, never from the lines.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

START = datetime(2026, 8, 1, 9, tzinfo=UTC)
SLUG = "-work-app"
QUOTED = (
    '{"type":"tool_use","id":"toolu_0","name":"Read","input":{"file_path":"%s/m1.md"}}',
    'please run `cat %s/m2.md` and say "tool_use"',
    "\x1b[31m%s/m3.md\x00\u2028\u202e </system-reminder>",
    '"tool_use_id": "toolu_1", "attachment": "%s/m4.md"',
)
"""Messages that look like tool calls on the memory folder (``%s``); they are no reads."""
BROKEN = (
    b'{"type":"assistant","uuid":"x","message":{"content":[{"type":"tool_use","name":"Read"',
    b"not JSON at all",
    b'{"type":"user","message":"\xff\xfe memory "attachment" "tool_use"}',
    b"\x00\x00\x00\x00",
    b"[1, 2]",
)
"""Lines that no reader of transcripts can use."""


class Event(NamedTuple):
    """A read or a change of a memory, with its session and time."""

    session: str
    memory_id: str
    at: datetime
    writes: bool


class Session:
    """One session: its file's folder, its id, and its lines."""

    def __init__(self, world: "World", name: str, project: str) -> None:
        self.world = world
        self.name = name
        self.project = project
        self.lines: list[dict[str, Any]] = []
        self.agents: dict[str, list[dict[str, Any]]] = {}
        self.cwd = "/work/app"

    def note(self, memory_id: str, at: datetime, *, writes: bool = False) -> None:
        self.world.events.append(Event(self.name, memory_id, at, writes))

    def line(self, kind: str, at: datetime, **fields: Any) -> dict[str, Any]:
        return {
            "isSidechain": False,
            "cwd": self.cwd,
            "sessionId": self.name,
            "version": "2.1.259",
            "type": kind,
            "uuid": self.world.unique("uuid"),
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **fields,
        }

    def call(
        self, tool: str, arguments: dict[str, Any], *, result: bool = True, **answer: Any
    ) -> datetime:
        """Write a call and its result; return the time of the call."""
        chance = self.world.chance
        at = self.world.tick()
        call = self.world.unique("toolu")
        tool_use = {"type": "tool_use", "id": call, "name": tool, "input": arguments}
        message = {"id": chance.choice(["msg_1", "msg_2"]), "content": [tool_use]}
        lines = [self.line("assistant", at, message=message, requestId="req_1")]
        if result:
            lines.append(self._result_line(call, **answer))
        self._write(lines)
        return at

    def _result_line(
        self, call: str, *, content: str = "     1\tx", error: bool = False, details: Any = None
    ) -> dict[str, Any]:
        chance = self.world.chance
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call, "content": content}
        if chance.random() < 0.3:
            block["content"] = [{"type": "text", "text": content}]
        if error or chance.random() < 0.5:
            block["is_error"] = error
        fields: dict[str, Any] = {"message": {"role": "user", "content": [block]}}
        if details is not None:
            fields["toolUseResult"] = details
        return self.line("user", self.world.tick(), **fields)

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
        return f"{self.world.folder_in_transcripts}/{memory_id}"


READ_EFFECT = "read"
WRITE_EFFECT = "write"
NO_EFFECT = ""


class Act(NamedTuple):
    """A tool call, its effect on the memory, and its result."""

    tool: str
    arguments: dict[str, str]
    effect: str = NO_EFFECT
    answer: dict[str, Any] | None = None

    def __call__(self, session: Session, memory_id: str) -> None:
        """Make the call and record its effect."""
        folder = session.world.folder_in_transcripts
        places = {
            "path": session.path(memory_id),
            "folder": folder,
            "name": memory_id,
            "last": Path(folder).name,
            "home": str(session.world.home),
        }
        arguments = {name: text.format(**places) for name, text in self.arguments.items()}
        answer = {} if self.answer is None else self.answer
        at = session.call(self.tool, arguments, **answer)
        if self.effect != NO_EFFECT:
            session.note(memory_id, at, writes=self.effect == WRITE_EFFECT)


PATH = {"file_path": "{path}"}
EDIT = {**PATH, "old_string": "a", "new_string": "b"}
READ = Act("Read", {**PATH, "offset": "1"}, READ_EFFECT, {"details": {"type": "text"}})
WRITE = Act("Write", {**PATH, "content": "see {folder}/m1.md"}, WRITE_EFFECT)
FAILED = {"error": True, "content": "<tool_use_error>File does not exist.</tool_use_error>"}
ELSEWHERE = ("{home}/.claude/projects/-other/memory", "/work/app/memory")
"""Folders that are not the memory folder; an act fills in ``{home}``."""


def read_then_edit(session: Session, memory_id: str) -> None:
    READ(session, memory_id)
    Act("Edit", EDIT, WRITE_EFFECT)(session, memory_id)


def read_from_memory_folder(session: Session, memory_id: str) -> None:
    before = session.cwd
    session.cwd = session.world.folder_in_transcripts
    shell("cat {name}", READ_EFFECT)(session, memory_id)
    session.cwd = before


def attach_reminder(session: Session, memory_id: str) -> None:
    other_memories = session.world.chance.sample(session.world.memories, 2)
    names = list(dict.fromkeys([memory_id, *other_memories]))
    memories = [{"path": session.path(name), "content": "x", "mtimeMs": 1} for name in names]
    at = session.attach({"type": "relevant_memories", "memories": memories})
    for name in names:
        session.note(name, at)


def attach_loaded_files(session: Session, memory_id: str) -> None:
    path = session.path(memory_id)
    for kind in ("instructions", "AutoMemPinned", "compact_file_reference", "nested_memory"):
        files = [{"path": path, "type": "AutoMem", "content": "x"}]
        session.attach({"type": kind, "path": path, "files": files, "memories": files})
    session.attach({"type": "edited_text_file", "filename": path, "snippet": path})


def talk(session: Session, memory_id: str) -> None:
    quoted = session.world.chance.choice(QUOTED) % session.world.folder_in_transcripts + memory_id
    at = session.world.tick()
    session.lines.append(session.line("user", at, message={"role": "user", "content": quoted}))
    content = [{"type": "text", "text": quoted}, {"type": "thinking", "thinking": quoted}]
    session.lines.append(session.line("assistant", at, message={"content": content}))
    session.lines.append({"type": "summary", "summary": quoted, "leafUuid": "x"})


def shell(command: str, effect: str = NO_EFFECT, **answer: Any) -> Act:
    return Act("Bash", {"command": command}, effect, answer)


OF_PROJECT = ".claude/projects/" + SLUG + "/memory/{name}"
SHOWN = (
    "cat {path}",
    "cd '{folder}'; ls; head -3 ./{name}",
    f"cat ~/{OF_PROJECT}",
    f'cat "$HOME/{OF_PROJECT}"',
    "cat <<'END'\ncat {folder}/m1.md\nEND\ncat {path}",
)
NOT_SHOWN = (
    "cat {folder}/*.md",
    "grep -rn merge {folder}",
    "echo 'cat {path}'",
    "cat {path} > /tmp/x",
    "for f in {name}; do cat {folder}/$f; done",
    "grep {name} {folder}/MEMORY.md",
)
CHANGED = ("sed -i 's/a/b/' {path}", "cat > {path} <<'END'\ncat {folder}/m1.md\nEND")
OUTPUT = {"stdout": "x", "stderr": "", "interrupted": False}
ACTIONS: list[tuple[Callable[[Session, str], None], float]] = [
    (READ, 8),
    (Act("Read", {"file_path": "{folder}/../{last}/./{name}"}, READ_EFFECT), 1),
    (Act("Read", PATH, answer={**FAILED, "details": "Error: File does not exist."}), 2),
    (Act("Read", PATH, answer={"content": "File unchanged since last read. It is current."}), 1),
    (Act("Read", PATH, answer={"content": "Wasted call — file unchanged since your last"}), 1),
    (Act("Read", PATH, answer={"details": {"type": "file_unchanged"}}), 1),
    (Act("Read", PATH, answer={"result": False}), 1),
    (Act("Read", {"file_path": "{folder}/MEMORY.md"}, answer={"content": "- [x]({name})"}), 1),
    *[(Act("Read", {"file_path": folder + "/{name}"}), 1) for folder in ELSEWHERE],
    *[(shell("cd " + folder + " && cat {name}"), 1) for folder in ELSEWHERE],
    *[(shell(command, READ_EFFECT, details=OUTPUT), 1.2) for command in SHOWN],
    *[(shell(command), 0.7) for command in NOT_SHOWN],
    *[(shell(command, WRITE_EFFECT), 0.5) for command in CHANGED],
    (shell("cat {path}", error=True, content="Exit code 1"), 1),
    (shell("cat {path}; sleep 99", details={"stdout": "", "interrupted": True}), 1),
    (Act("Grep", {"pattern": "x", "path": "{folder}"}, answer={"content": "{folder}/m1.md:1"}), 1),
    (Act("Glob", {"pattern": "*.md", "path": "{folder}"}), 1),
    (WRITE, 3),
    (Act("Edit", EDIT, WRITE_EFFECT), 0.5),
    (Act("MultiEdit", EDIT, WRITE_EFFECT), 0.5),
    (Act("Edit", EDIT, answer=FAILED), 1),
    (Act("Read", {"file_path": "/work/app/main.py"}, answer={"content": "# memory/m1.md"}), 2),
    (shell("pytest -q", content="1 passed\n" * 50), 2),
    (read_from_memory_folder, 1),
    (read_then_edit, 3),
    (attach_reminder, 3),
    (attach_loaded_files, 2),
    (talk, 3),
]


JSON_OPTIONS: list[dict[str, Any]] = [
    {"ensure_ascii": True},
    {"ensure_ascii": False, "separators": (",", ":")},
]
"""Options of the JSON of transcripts, one of which a world uses."""


class World:
    """A home with a memory folder, and sessions that use it; the seed decides everything.

    `folder_in_transcripts` is the path of the memory folder that the transcripts contain, by
    default the real one.
    """

    def __init__(
        self,
        home: Path,
        seed: int,
        *,
        memories: int = 12,
        folder_in_transcripts: str | None = None,
    ) -> None:
        self.home = home
        self.chance = random.Random(seed)
        self.projects = home / ".claude" / "projects"
        self.folder = self.projects / SLUG / "memory"
        if folder_in_transcripts is None:
            folder_in_transcripts = str(self.folder)
        self.folder_in_transcripts = folder_in_transcripts
        self.memories = [f"m{number}.md" for number in range(1, memories + 1)]
        self.events: list[Event] = []
        self.sessions: list[Session] = []
        self._now = START
        self._count = 0
        self._byte_order_mark = b"\xef\xbb\xbf" if seed % 3 == 1 else b""
        self._json_options = self.chance.choice(JSON_OPTIONS)
        index = "".join(f"- [x]({memory_id})\n" for memory_id in self.memories)
        for folder in (self.folder, self.projects / "-other" / "memory"):
            folder.mkdir(parents=True)
            for memory_id in self.memories:
                (folder / memory_id).write_text("x")
            (folder / "MEMORY.md").write_text(index)

    def tick(self) -> datetime:
        self._now += timedelta(milliseconds=self.chance.randrange(1, 90_000))
        return self._now

    def unique(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def run(self, sessions: int, *, actions: int = 12) -> None:
        """Run sessions; each is written to disk when it ends."""
        acts, weights = zip(*ACTIONS, strict=True)
        for _ in range(sessions):
            self._now += timedelta(hours=self.chance.randrange(1, 30))
            session = self._begin()
            for _ in range(self.chance.randrange(1, actions)):
                (act,) = self.chance.choices(acts, weights)
                act(session, self.chance.choice(self.memories))
            if self.chance.random() < 0.2:
                self._compact(session)
            self.sessions.append(session)
            self._save(session)

    def counted(self) -> set[tuple[str, datetime]]:
        """Return the reads by sessions that never changed the memory."""
        return self.reads_of_kind("read")

    def reads_of_kind(self, kind: str) -> set[tuple[str, datetime]]:
        """Return the reads of a kind: ``read``, ``maintenance`` or ``own session``."""
        first_changes: dict[tuple[str, str], datetime] = {}
        for event in self.events:
            if event.writes:
                first_changes.setdefault((event.session, event.memory_id), event.at)

        def kind_of(read: Event) -> str:
            first_change = first_changes.get((read.session, read.memory_id))
            if first_change is None:
                return "read"
            if read.at > first_change:
                return "own session"
            return "maintenance"

        reads = [event for event in self.events if not event.writes]
        return {(read.memory_id, read.at) for read in reads if kind_of(read) == kind}

    def _begin(self) -> Session:
        """Begin a session: a new one, or one that repeats another's lines first."""
        project = self.chance.choice([SLUG, SLUG, f"{SLUG}--claude-worktrees-x", "-other"])
        session = Session(self, self.unique("session"), project)
        if self.sessions and self.chance.random() < 0.4:
            before = self.chance.choice(self.sessions)
            session.project = before.project
            beginning = self.chance.choice(["resumed", "branched", "continued"])
            end = self.chance.randrange(len(before.lines) + 1)
            repeated = before.lines if beginning == "resumed" else before.lines[:end]
            for line in repeated:
                copy = dict(line)
                if beginning != "continued" and "sessionId" in copy:
                    copy["sessionId"] = session.name
                if beginning == "branched":
                    origin = {"sessionId": before.name, "messageUuid": line.get("uuid")}
                    copy.setdefault("forkedFrom", origin)
                session.lines.append(copy)
        return session

    def _compact(self, session: Session) -> None:
        at = self.tick()
        repeated = [line for line in session.lines if self.chance.random() < 0.5]
        session.lines.append(session.line("system", at, subtype="compact_boundary"))
        session.lines += repeated

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
            out.write(self._byte_order_mark)
            for line in lines:
                if self.chance.random() < 0.02:
                    out.write(self.chance.choice(BROKEN) + b"\n")
                if self.chance.random() < 0.02:
                    out.write(b"\r\n\n")
                text = json.dumps(line, **self._json_options)
                out.write(text.encode(errors="surrogatepass") + b"\n")
            if self.chance.random() < 0.1:
                out.write(BROKEN[0])
