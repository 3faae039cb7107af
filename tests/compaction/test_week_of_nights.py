"""A week of nightly maintenance over an agent's home, undone exactly.

Every evening the agent edits its home. Every night ``maintain --apply`` runs on each of its stores,
and on a repository that is none.
"""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

import memlab
from memlab.errors import MemlabError
from tests.support.claude_store import memory, write_index, write_memory
from tests.support.shell import output_of
from tests.support.stores import FileState

MONDAY = datetime(2026, 6, 1, 3, tzinfo=UTC)
WORKSPACE = ".openclaw/workspace"
OTHER_WORKSPACE = "agent"
SERENA = "project/.serena/memories"
REPOSITORY = "repository"
CLAUDE = ".claude/projects/-home-u-app/memory"
STORES = (WORKSPACE, OTHER_WORKSPACE, SERENA, CLAUDE)
KEPT_BY_NAME = {"README.md", "AGENTS.md", "CLAUDE.md", "SOUL.md", "USER.md", "TOOLS.md"}
INDEXES = {f"{CLAUDE}/MEMORY.md", f"{CLAUDE}/RETIRED.md"}
MADE_BY_MEMLAB = (".archive.db", ".archive.db-wal", ".archive.db-shm", ".archive.db-lock")


Tree = dict[str, FileState]


def tree_of(home: Path) -> Tree:
    """Return every file and link of a home except archives, by path."""
    tree = {}
    for path in home.rglob("*"):
        if path.name.endswith(MADE_BY_MEMLAB) or (path.is_dir() and not path.is_symlink()):
            continue
        tree[path.relative_to(home).as_posix()] = FileState.of(path)
    return tree


def is_memory(name: str) -> bool:
    """Return whether a file of this home is a memory of its system."""
    path = PurePosixPath(name)
    if path.suffix != ".md" or "dreaming" in path.parts or "elsewhere" in path.parts:
        return False
    if name.startswith(f"{CLAUDE}/"):
        own = path.parent == PurePosixPath(CLAUDE) and name not in INDEXES
        return own and path.name not in KEPT_BY_NAME and path.name != "memory.md"
    notes = (f"{WORKSPACE}/memory/", f"{OTHER_WORKSPACE}/memory/", f"{SERENA}/")
    return name.startswith(notes)


def write(path: Path, text: str, number: float = 0, mode: int = 0o644) -> None:
    """Write a file with a modification time some days ago."""
    write_memory(path.parent, path.name, text, MONDAY - timedelta(days=30 - number))
    path.chmod(mode)


def make_workspace(folder: Path) -> None:
    links = "".join(f"- [{name}]({name})\n" for name in ("SOUL.md", "AGENTS.md", "TOOLS.md"))
    write(folder / "MEMORY.md", f"# Long-term memory\n\n{links}")
    for name in ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md", "HEARTBEAT.md"):
        write(folder / name, f"# {name}\nimportant\n")
    for number in range(5):
        write(folder / f"memory/2026-05-0{number + 1}.md", f"day {number}\r\n", number, 0o640)
    write(folder / "memory/people.md", "Anna.\n")
    write(folder / "memory/dreaming/2026-05-01.md", "a dream\n")
    write(folder / "skills/notes/assets/MEMORY.md", "- [t](t.md)\n")
    write(folder / "skills/notes/assets/t.md", memory("t"))


def make_home(home: Path) -> None:
    make_workspace(home / WORKSPACE)
    make_workspace(home / OTHER_WORKSPACE)
    for number in range(5):
        write(home / SERENA / f"topic{number}.md", f"# Topic {number}\n", number, 0o755)
    write(home / "project/.serena/project.yml", "project_name: x\n")
    for name in ("README.md", "docs/guide.md", "CLAUDE.md", "node_modules/x/README.md"):
        write(home / "project" / name, f"# {name}\n")
    listed = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/guide.md")
    write(home / REPOSITORY / "MEMORY.md", "".join(f"- [{name}]({name})\n" for name in listed))
    for name in (*listed, "SOUL.md", "src/projects/billing/memory/API.md"):
        write(home / REPOSITORY / name, f"# {name}\n")
    for number in range(6):
        write(home / CLAUDE / f"note{number}.md", memory(f"note{number}"), number, 0o600)
    write(home / CLAUDE / "rule.md", memory("rule", "feedback"), 3)
    names = [*(f"note{number}" for number in range(6)), "rule"]
    write_index(home / CLAUDE, ["# Memory", "", *(f"- [{n}]({n}.md) — a hook" for n in names)])


def edit_index(home: Path, edit: Callable[[bytes], bytes]) -> None:
    index = home / CLAUDE / "MEMORY.md"
    if index.exists():
        index.write_bytes(edit(index.read_bytes()))


def moved(path: Path, to: Path) -> None:
    """Move a file if it exists."""
    if path.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)


def rename_notes(home: Path) -> None:
    for name in (WORKSPACE, OTHER_WORKSPACE):
        notes = home / name / "memory"
        moved(notes / "2026-05-05.md", notes / "daily" / "2026-05-05.md")
        moved(notes / "2026-05-04.md", home / name / "elsewhere" / "2026-05-04.md")
    moved(home / SERENA / "topic4.md", home / SERENA / "core" / "topic4.md")
    moved(home / CLAUDE / "note5.md", home / CLAUDE / "renamed.md")
    edit_index(home, lambda raw: raw.replace(b"note5.md", b"renamed.md"))


def dream(home: Path) -> None:
    """Remove dated notes, as dreaming does, and write the agent's files into Claude's folder."""
    for name in (WORKSPACE, OTHER_WORKSPACE):
        for note in (home / name / "memory").rglob("2026-05-*.md"):
            if "dreaming" not in note.parts:
                note.unlink()
    for name in ("README.md", "SOUL.md", "AGENTS.md"):
        write(home / CLAUDE / name, f"# {name}\n")
    edit_index(home, lambda raw: raw + b"- [Read me](README.md)\n- [Soul](SOUL.md)\n")


def rewrite_index(home: Path) -> None:
    edit_index(
        home, lambda raw: b"\xef\xbb\xbf" + raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    )
    for name in (WORKSPACE, OTHER_WORKSPACE):
        write(home / name / "MEMORY.md", "# Rewritten\n\n- [soul](SOUL.md), [me](USER.md)\n")


def add_files(home: Path) -> None:
    for number in range(3):
        write(home / SERENA / f"new{number}.md", f"new {number}\n", 10 + number)
        write(home / CLAUDE / f"new{number}.md", memory(f"new{number}"), 10 + number)
        write(home / WORKSPACE / f"memory/2026-05-1{number}.md", "again\n", 10 + number)
    write(home / SERENA / "README.md", "a memory of Serena's, whatever its name\n", 9)
    write(home / REPOSITORY / "AGENTS.md", "# Agents\n")
    new = b"".join(b"- [new%d](new%d.md)\r\n" % (number, number) for number in range(3))
    edit_index(home, lambda raw: raw + new)


def break_places(home: Path) -> None:
    """Replace Serena's folder by a dangling link, and rename the index."""
    serena = home / SERENA
    serena.rename(serena.with_name("memories.away"))
    serena.symlink_to("memories.gone")
    moved(home / CLAUDE / "MEMORY.md", home / CLAUDE / "memory.md")
    for name in ("AGENTS.md", "TOOLS.md", "USER.md"):
        (home / OTHER_WORKSPACE / name).unlink()


def mend_places(home: Path) -> None:
    serena = home / SERENA
    serena.unlink()
    serena.with_name("memories.away").rename(serena)
    moved(home / CLAUDE / "memory.md", home / CLAUDE / "MEMORY.md")
    shutil.rmtree(home / OTHER_WORKSPACE / "memory", ignore_errors=True)


def reword_lines(home: Path) -> None:
    def edit(raw: bytes) -> bytes:
        lines = raw.splitlines(keepends=True)
        return b"".join(reversed(lines)).replace(b"a hook", b"another hook") + b"by hand\r\n"

    edit_index(home, edit)


EVENINGS: tuple[Callable[[Path], None], ...] = (
    make_home,
    rename_notes,
    dream,
    rewrite_index,
    add_files,
    break_places,
    mend_places,
    reword_lines,
)
NAMED = (*STORES, REPOSITORY, "project", "serena:project")
"""The stores on which ``maintain`` runs."""


def write_settings(home: Path, *, retire: bool) -> None:
    text = 'policy = { name = "recent", keep = 2 }\nkeep_copies = true\nmax_per_run = 100\n'
    for name in (*STORES, REPOSITORY, "project"):
        own_line = "retire = true\n" if retire and name == CLAUDE else ""
        write_memory((home / name).parent, "memlab.toml", text + own_line, MONDAY)
    write_memory(home / REPOSITORY, "memlab.toml", text, MONDAY)


def maintain(home: Path, moment: datetime) -> list[memlab.Receipt]:
    """Maintain everything; return the receipts of what was changed."""
    receipts = []
    for name in NAMED:
        scheme, colon, path = name.rpartition(":")
        store = f"{scheme}{colon}{home / path}"
        with suppress(MemlabError):
            result = memlab.maintain(store, apply=True, all_prunable=True, now=moment)
            if result.receipt and result.receipt.archive:
                receipts.append(result.receipt)
    return receipts


def undo(receipts: list[memlab.Receipt]) -> None:
    """Undo the receipts, the last first."""
    for receipt in reversed(receipts):
        output_of("restore", receipt.store, receipt.digest)


def check_only_memories_went(before: Tree, after: Tree) -> set[str]:
    """Check that only memories and their indexes changed; return the deleted files."""
    deleted = before.keys() - after.keys()
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    assert {name for name in deleted if not is_memory(name)} == set()
    assert changed <= INDEXES
    assert after.keys() - before.keys() <= INDEXES
    return deleted


def named_in(index: Path) -> set[str]:
    lines = index.read_bytes().decode("utf-8-sig").splitlines()
    return {link for line in lines for link in re.findall(r"\]\((\w+\.md)\)", line)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "OPENCLAW_STATE_DIR", "SERENA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.mark.long
@pytest.mark.parametrize("retire", [False, True])
def test_each_night_removes_only_memories_and_is_undone(home: Path, retire: bool) -> None:
    deleted = set[str]()
    changed = 0
    for night, evening in enumerate(EVENINGS):
        evening(home)
        write_settings(home, retire=retire)
        before = tree_of(home)
        receipts = maintain(home, MONDAY + timedelta(days=night))
        changed += len(receipts)
        deleted |= check_only_memories_went(before, tree_of(home))
        undo(receipts)
        assert tree_of(home) == before, night
        maintain(home, MONDAY + timedelta(days=night, hours=1))
    assert changed >= 6
    assert {name.partition("/")[0] for name in deleted} >= {".openclaw", "agent", "project"}


@pytest.mark.long
@pytest.mark.parametrize("retire", [False, True])
def test_whole_week_is_undone_after_changes_by_the_agent(
    home: Path, tmp_path: Path, retire: bool
) -> None:
    twin = tmp_path / "twin"
    receipts = []
    for night, evening in enumerate(EVENINGS):
        for edited_home in (home, twin):
            evening(edited_home)
            write_settings(edited_home, retire=retire)
        receipts += maintain(home, MONDAY + timedelta(days=night))
    undo(receipts)
    restored = tree_of(home)
    wanted = tree_of(twin)
    contents = set(restored.values())
    for name, file in wanted.items():
        if is_memory(name):  # the agent may have moved the file meanwhile
            assert file in contents, name
        elif name not in INDEXES:
            assert restored[name] == file, name
    assert {name for name in restored.keys() - wanted.keys() if not is_memory(name)} == set()
    index = home / CLAUDE / "MEMORY.md"
    assert named_in(index) >= named_in(twin / CLAUDE / "MEMORY.md") - {"renamed.md"}
    assert "by hand" in index.read_text()
