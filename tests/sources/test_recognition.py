"""The kind of a folder by evidence; no document is ever taken for a memory."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import compaction
from memlab.errors import MemlabError, StoreError, UndecidedKindError
from memlab.settings import read_settings
from memlab.sources.opening import kinds, open_source, recognise, save_store_settings
from memlab.sources.recognition import Strength
from memlab.systems.claude_code.evidence import has_claude_type, is_kept_by_name
from tests.support.claude_store import (
    memory,
    realistic_folder,
    write_index,
    write_memories,
    write_memory,
)
from tests.support.odek_store import write_odek
from tests.support.paths import Make, files, make_nothing, write_recall_events
from tests.support.shell import output_of, run
from tests.support.stores import files_in

AGENTS_FILES = ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md")
INDEX_OF_DOCUMENTS = "# Memory\n\n- [Overview](README.md)\n- [Design](ARCHITECTURE.md)\n"


def write_documents(folder: Path) -> None:
    """Write a project whose MEMORY.md links its documents."""
    write_memory(folder, "MEMORY.md", INDEX_OF_DOCUMENTS)
    for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"):
        write_memory(folder, name, f"# {name}\n")


def write_workspace(folder: Path, *notes: str) -> None:
    """Write an OpenClaw workspace whose MEMORY.md links its agent's files."""
    lines = "".join(f"- [{name}]({name})\n" for name in AGENTS_FILES)
    write_memory(folder, "MEMORY.md", f"# Long-term memory\n\n{lines}")
    for name in AGENTS_FILES:
        write_memory(folder, name, f"# {name}\n")
    for name in notes:
        write_memory(folder, f"memory/{name}", "note\n")


def write_typed(folder: Path, *, untyped: int = 0, count: int = 3) -> None:
    """Write typed memories, and untyped documents that the index also names."""
    names = [f"m{number}" for number in range(count)]
    write_memories(folder, *names)
    for number in range(untyped):
        write_memory(folder, f"doc{number}.md", "no front matter\n")
    lines = [f"- [{path.stem}]({path.name})" for path in sorted(folder.glob("[md]*.md"))]
    write_index(folder, lines)


def write_skills(folder: Path) -> None:
    """Write skills, which have names and descriptions but no type."""
    write_index(folder, ["- [a](a.md)", "- [b](b.md)"])
    for name in "ab":
        write_memory(folder, f"{name}.md", f"---\nname: {name}\ndescription: does it\n---\n")


def write_unlisted(folder: Path) -> None:
    """Write a typed file that the index does not name."""
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["# Memory"])


def write_for_two_systems(folder: Path) -> None:
    write_workspace(folder)
    write_typed(folder)


def write_serena_folder(folder: Path) -> None:
    (folder / ".serena/memories").mkdir(parents=True)


def write_an_episode(folder: Path) -> None:
    write_odek(folder, ["one"])


def write_empty_list(folder: Path) -> None:
    write_memory(folder, "index.json", "[]")


def workspace(*notes: str) -> Make:
    return lambda folder: write_workspace(folder, *notes)


def typed(untyped: int) -> Make:
    return lambda folder: write_typed(folder, untyped=untyped)


RECOGNISED: dict[str, tuple[str, Make, str]] = {
    "placed in .claude": (".claude/projects/app/memory", Path.mkdir, "claude"),
    "placed by a slug of Claude's": ("backup/projects/-home-u-app/memory", Path.mkdir, "claude"),
    "placed by a slug of Windows": ("backup/projects/C--Users-app/memory", Path.mkdir, "claude"),
    "memory of a subagent": ("app/.claude/agent-memory/reviewer", Path.mkdir, "claude"),
    "front matter in all": ("notes", write_typed, "claude"),
    "front matter in most": ("notes", typed(untyped=2), "claude"),
    "a workspace without a folder of notes": ("w", write_workspace, "openclaw"),
    "a workspace with daily notes": ("w", workspace("2026-06-01.md"), "openclaw"),
    "daily notes below": ("w", workspace("daily/2026-06-01.md"), "openclaw"),
    "undated notes": ("w", workspace("people.md"), "openclaw"),
    "a workspace in the default place": (".openclaw/workspace-anna", Path.mkdir, "openclaw"),
    "recall events alone": ("w", write_recall_events, "openclaw"),
    "Serena's": ("app/.serena/memories", Path.mkdir, "serena"),
    "odek's": ("episodes", write_an_episode, "odek"),
    "an empty odek list": (".odek/memory", write_empty_list, "odek"),
}
"""Path of a folder, a function that writes it, and the scheme of its kind."""
NOT_RECOGNISED: dict[str, tuple[str, Make]] = {
    "below projects without a slug": ("src/projects/billing/memory", write_documents),
    "below projects without slug and index": ("src/projects/billing/memory", Path.mkdir),
    "agent-memory elsewhere": ("packages/agent-memory/src", Path.mkdir),
    "front matter in half": ("notes", typed(untyped=3)),
    "front matter of skills": ("notes", write_skills),
    "typed files that no index names": ("notes", write_unlisted),
    "a project's MEMORY.md": ("project", write_documents),
    "a template of a skill": ("skills/remember/assets", write_typed),
    "a template of a workspace": ("templates/agent", workspace("x.md")),
    "one file of an agent": ("home", files("SOUL.md", "MEMORY.md")),
    "AGENTS.md and dated documents": (
        "project",
        files("AGENTS.md", "memory/2026-01-01-design.md"),
    ),
    "files of two systems": ("both", write_for_two_systems),
    "a project with Serena": ("app", write_serena_folder),
    "memories elsewhere": ("app/memories", write_documents),
    "an empty list elsewhere": ("memory", write_empty_list),
}
"""Path of a folder, and a function that writes it."""


def make_folder(tmp_path: Path, where: str, make: Make) -> Path:
    """Make a folder at a path below another; return it."""
    folder = tmp_path / where
    folder.parent.mkdir(parents=True, exist_ok=True)
    make(folder)
    return folder


def locations_of_stores(folder: Path) -> set[str]:
    return {store.location for store in memlab.find(folder).stores}


@pytest.mark.parametrize(("where", "make", "scheme"), RECOGNISED.values(), ids=RECOGNISED)
def test_evidence_decides_the_kind(tmp_path: Path, where: str, make: Make, scheme: str) -> None:
    folder = make_folder(tmp_path, where, make)
    system = recognise(folder)
    assert system is not None
    assert system.scheme == scheme
    assert str(folder) in locations_of_stores(tmp_path)


@pytest.mark.parametrize(("where", "make"), NOT_RECOGNISED.values(), ids=NOT_RECOGNISED)
def test_folder_without_evidence_is_not_a_store(tmp_path: Path, where: str, make: Make) -> None:
    folder = make_folder(tmp_path, where, make)
    assert recognise(folder) is None
    assert str(folder) not in locations_of_stores(tmp_path)


def test_evidence_of_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
    folders = {scheme: kind for scheme, kind in kinds().items() if kind.is_folder}
    assert folders
    for kind in folders.values():
        assert kind.evidence  # type: ignore[attr-defined]
        for evidence in kind.evidence:  # type: ignore[attr-defined]
            assert f"| {evidence.statement} | {evidence.strength.name.lower()} |" in page
    assert sorted(Strength) == [Strength.CONTENT, Strength.TRACE, Strength.PLACE]


def test_environment_variables_set_configuration_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_claude = tmp_path / "elsewhere" / "projects" / "app" / "memory"
    of_openclaw = tmp_path / "state" / "workspace"
    of_serena = tmp_path / "serena" / "memories"
    for folder in (of_claude, of_openclaw, of_serena):
        folder.mkdir(parents=True)
        assert recognise(folder) is None
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SERENA_HOME", str(tmp_path / "serena"))
    for folder, scheme in (
        (of_claude, "claude"),
        (of_openclaw, "openclaw"),
        (of_serena, "serena"),
    ):
        system = recognise(folder)
        assert system is not None
        assert system.scheme == scheme


@pytest.mark.parametrize(
    ("settings", "is_used"),
    [
        ("home/.claude/settings.json", True),
        ("home/.claude/settings.local.json", True),
        ("project/.claude/settings.local.json", True),
        ("project/.claude/settings.json", False),  # a repository may contain this file
        ("other/.claude/settings.local.json", False),
    ],
)
def test_auto_memory_directory_of_settings_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, is_used: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = tmp_path / "project" / "memory"
    write_memory(folder, "a.md", "no front matter")
    assert recognise(folder) is None
    write_memory(tmp_path, settings, json.dumps({"autoMemoryDirectory": str(folder)}))
    if is_used:
        assert recognise(folder) is not None
        assert memlab.load(folder)["memory_id"].tolist() == ["a.md"]
    else:
        assert recognise(folder) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"autoMemoryDirectory": 1}', '{"x": "\\u0000"}'])
def test_settings_without_a_folder_are_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_memory(tmp_path, ".claude/settings.json", text)
    write_memory(tmp_path, "memory/a.md", "x")
    assert recognise(tmp_path / "memory") is None


def test_symlinked_configuration_folder_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "dotfiles" / "app-memory"
    write_memory(folder, "a.md", "no front matter")
    assert recognise(folder) is None
    link = tmp_path / "home" / ".claude" / "projects" / "-app" / "memory"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    for name in (folder, link):
        assert open_source(name).scheme == "claude"
        assert memlab.load(name)["memory_id"].tolist() == ["a.md"]


@pytest.mark.parametrize("is_linked", ["memory", "project"])
def test_memories_in_a_symlinked_folder_are_restored(tmp_path: Path, is_linked: str) -> None:
    """Files without a type are memories only by their place, which is a symlink."""
    real = tmp_path / "synced"
    for name in "abc":
        write_memory(real / "memory", f"{name}.md", f"what {name} is\n")
    write_index(real / "memory", [f"- [{name}]({name}.md)" for name in "abc"])
    before = files_in(real / "memory")
    folder = tmp_path / "home" / ".claude" / "projects" / "-u-app" / "memory"
    folder.parent.parent.mkdir(parents=True)
    if is_linked == "project":
        folder.parent.symlink_to(real)
    else:
        folder.parent.mkdir()
        folder.symlink_to(real / "memory")
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1)))
    assert receipt.deleted == 2
    assert len(files_in(real / "memory")) == 2
    assert memlab.restore(receipt).memories == 2
    assert files_in(real / "memory") == before


TYPES = {
    "type: user": True,
    "type: 'feedback'": True,
    "Type: Project": True,
    "metadata:\n  node_type: memory\n  type: reference": True,
    "metadata: {node_type: memory, type: user}": True,
    "type: [feedback, user]": True,
    "type: project  # of all": True,
    "description: [broken\ntype: project": True,
    "name: a\ndescription: b": False,
    "type: skill": False,
    "hooks:\n  type: user": False,
    "type: [user, guide]": False,
    "metadata:\n  version: 1\nother:\n  type: user": False,
}


@pytest.mark.parametrize("head", TYPES)
def test_type_or_metadata_type_is_evidence(head: str) -> None:
    assert has_claude_type(f"---\n{head}\n---\n\nbody\n") == TYPES[head]
    assert not has_claude_type(f"# Title\n\n{head}\n")


# Files that are not memories


def test_documents_are_kept_by_name_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-app" / "memory"
    write_typed(folder)
    for name in ("README.md", *AGENTS_FILES, "CLAUDE.md", "LICENSE.md", "CHANGELOG.md"):
        write_memory(folder, name, memory(name))
    frame = memlab.load(folder)
    assert set(frame["memory_id"]) == {"m0.md", "m1.md", "m2.md"}
    assert "8 kept by name" in output_of("show", folder)
    (folder / "README.md").rename(tmp_path / "README.md")
    assert "7 kept by name" in output_of("show", folder)


def test_untyped_files_of_a_typed_folder_are_not_memories(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write_typed(folder, untyped=2, count=5)
    for name in (str(folder), f"claude:{folder}"):
        assert len(memlab.load(name)) == 5
        plan = memlab.plan(name, memlab.KeepRecent(0))
        planned_ids = {memory.memory_id for memory in plan.memories}
        assert planned_ids == {"m0.md", "m1.md", "m2.md", "m3.md", "m4.md"}
        assert "2 without a type of Claude Code's" in output_of("show", name)
    # After the deletion documents are in the majority, and stay documents.
    memlab.apply(memlab.plan(f"claude:{folder}", memlab.KeepRecent(1)))
    for name in (str(folder), f"claude:{folder}"):
        assert memlab.load(name)["memory_id"].tolist() == ["m4.md"]


def test_untyped_files_stay_documents_without_typed_files(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write_typed(folder, untyped=2, count=3)
    name = f"claude:{folder}"
    receipt = memlab.apply(memlab.plan(name, memlab.KeepRecent(0)), all_prunable=True)
    assert receipt.deleted == 3
    assert len(memlab.load(name)) == 0
    assert memlab.plan(name, memlab.KeepRecent(0)).is_empty
    assert memlab.restore(receipt).memories == 3
    assert len(memlab.load(name)) == 3


def test_untyped_folder_stays_a_store_after_deletions(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    for number in range(4):
        write_memory(folder, f"m{number}.md", f"# note {number}\n")
    name = f"claude:{folder}"
    memlab.apply(memlab.plan(name, memlab.KeepRecent(1)))
    assert len(memlab.load(name)) > 0


def test_scheme_opens_a_folder_without_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write_documents(folder)
    with pytest.raises(UndecidedKindError) as caught:
        memlab.load(folder)
    assert caught.value.names == (f"claude:{folder}",)
    assert f"memlab show claude:{folder}" in str(caught.value)
    frame = memlab.load(f"claude:{folder}")
    assert frame["memory_id"].tolist() == ["ARCHITECTURE.md"]
    assert "2 kept by name" in output_of("show", f"claude:{folder}")


def test_undecided_folder_suggests_the_command_with_a_scheme(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write_documents(folder)
    before = sorted(folder.iterdir())
    write_memory(tmp_path, "memlab.toml", 'policy = { name = "recent", keep = 1 }\n')
    for arguments in (("compact", folder, "--keep-recent", "1", "--apply"), ("maintain", folder)):
        result = run(*arguments)
        assert result.exit_code == 2
        typed_command = " ".join(str(argument) for argument in arguments)
        command = typed_command.replace(str(folder), f"claude:{folder}")
        assert f"next: memlab {command}" in result.output
    assert sorted(folder.iterdir()) == before


def make_file(path: Path) -> None:
    path.write_text("x")


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def plan_deletion(store: str) -> memlab.Plan:
    return memlab.plan(store, memlab.KeepRecent(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_nothing, "is not there"),
        (make_file, "is no folder"),
        (make_dangling_link, "is a link that leads nowhere"),
    ],
)
@pytest.mark.parametrize("name", ["", "/.serena", "/.serena/memories"])
def test_absent_serena_memories_are_an_error(
    tmp_path: Path, make: Make, message: str, name: str
) -> None:
    project = tmp_path / "project"
    write_memory(project, "README.md", "# readme\n")
    (project / ".serena").mkdir()
    make(project / ".serena" / "memories")
    for use in (memlab.load, memlab.lost, compaction.keep_copies, plan_deletion):
        with pytest.raises(StoreError, match=rf"\.serena/memories {message}"):
            use(f"serena:{project}{name}")
    assert (project / "README.md").exists()


def test_every_file_of_serena_is_a_memory(tmp_path: Path) -> None:
    folder = tmp_path / ".serena" / "memories"
    for name in ("README.md", "AGENTS.md", "core/style.md"):
        write_memory(folder, name, "x")
    write_memory(tmp_path, "README.md", "the project's")
    plan = memlab.plan(f"serena:{tmp_path}", memlab.KeepRecent(0))
    planned_ids = {memory.memory_id for memory in plan.memories}
    assert planned_ids == {"README.md", "AGENTS.md", "core/style.md"}
    memlab.restore(memlab.apply(plan, all_prunable=True))
    assert set(memlab.load(folder)["memory_id"]) == planned_ids


def test_serena_memories_can_be_a_symlink(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "notes"
    write_memory(shared, "README.md", "x")
    write_memory(shared, "style.md", "y")
    (tmp_path / "project" / ".serena").mkdir(parents=True)
    folder = tmp_path / "project" / ".serena" / "memories"
    folder.symlink_to(shared)
    for name in (str(folder), f"serena:{folder}", f"serena:{tmp_path / 'project'}"):
        assert open_source(name).scheme == "serena"
        receipt = memlab.apply(memlab.plan(name, memlab.KeepRecent(1)))
        assert receipt.deleted == 1
        assert "documents" not in {check.name for check in memlab.doctor(name).checks}
        assert memlab.restore(receipt.digest, store=name).memories == 1


# Remembered kinds


def test_settings_keep_the_explicitly_named_kind(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write_memory(folder, "MEMORY.md", "- [a](a.md)\n")
    write_memory(folder, "a.md", "no front matter")
    with pytest.raises(UndecidedKindError):
        open_source(folder)
    save_store_settings(open_source(f"claude:{folder}"), {"target": 0.9})
    assert read_settings(tmp_path, "notes", folder).kind == "claude"
    assert open_source(folder).scheme == "claude"
    write_workspace(folder, "2026-06-01.md")
    with pytest.raises(UndecidedKindError, match=r"Claude Code memory.*OpenClaw workspace"):
        open_source(folder)
    save_store_settings(open_source(f"openclaw:{folder}"), {"target": 0.9})
    assert open_source(folder).scheme == "openclaw"


def test_archive_keeps_the_kind_without_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    write_workspace(folder, "2026-06-01.md", "2026-06-02.md")
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1)))
    for name in ("AGENTS.md", "SOUL.md", "TOOLS.md", "memory/2026-06-02.md"):
        (folder / name).unlink()
    assert recognise(folder) is None
    assert open_source(folder).scheme == "openclaw"
    assert memlab.load(folder)["memory_id"].tolist() == ["MEMORY.md"]
    assert memlab.restore(receipt.digest, store=folder).memories == 1


def test_plan_is_rejected_if_the_kind_became_ambiguous(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write_typed(folder)
    plan = memlab.plan(folder, memlab.KeepRecent(1))
    for name in AGENTS_FILES:
        write_memory(folder, name, "x")
    write_memory(folder, "memory/.dreams/state.json", "{}")
    with pytest.raises(UndecidedKindError, match=r"Claude Code memory.*OpenClaw workspace"):
        memlab.apply(plan)
    assert len(list(folder.glob("m*.md"))) == 3


def test_archived_documents_are_restored_byte_for_byte(tmp_path: Path) -> None:
    """They are deleted while the folder is in a known place; one is a list of links."""
    placed = tmp_path / ".claude" / "projects" / "-app" / "memory"
    realistic_folder(placed, files=8)
    write_memory(placed, "topics.md", "- [a](a.md)\n- [b](b.md)\n")
    before = {path.name: path.read_bytes() for path in placed.iterdir()}
    receipt = memlab.apply(memlab.plan(placed, memlab.KeepRecent(1)))
    assert receipt.deleted
    folder = tmp_path / "notes"
    placed.rename(folder)
    source = placed.parent / "memory.archive.db"
    shutil.move(source, tmp_path / "notes.archive.db")
    assert memlab.restore(receipt.digest, store=folder).memories == receipt.deleted
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# Only memories of the system are ever deleted

LINKS = ("README.md", "ARCHITECTURE.md", "SOUL.md", "docs/d1.md", "note0.md", "typed0.md")
NOTES = (
    "2026-06-01.md",
    "2026-06-02-x.md",
    "daily/2026-06-03.md",
    "people.md",
    "a/b/plans.md",
    "README.md",
    "dreaming/2026-06-04.md",
)
SERENA_STATES = ("none", "folder", "file", "dangling", "project only", "link")


@st.composite
def built(draw: st.DrawFn) -> dict[str, str | None]:
    """Draw the pieces of a folder: texts by path; None is a dangling link."""
    files_by_path: dict[str, str | None] = {}
    documents = draw(st.sets(st.sampled_from(["README.md", "ARCHITECTURE.md", "docs/d1.md"])))
    agents_files = draw(st.sets(st.sampled_from(AGENTS_FILES)))
    for name in (*documents, *agents_files):
        files_by_path[name] = f"# {name}\n"
    for number in range(draw(st.integers(0, 3))):
        files_by_path[f"typed{number}.md"] = memory(f"t{number}")
    for number in range(draw(st.integers(0, 2))):
        files_by_path[f"note{number}.md"] = "no front matter\n"
    for name in draw(st.sets(st.sampled_from(NOTES))):
        files_by_path[f"memory/{name}"] = "a note\n"
    if draw(st.booleans()):
        links = draw(st.lists(st.sampled_from([*LINKS, *AGENTS_FILES]), max_size=5))
        lines = [f"- [{link}]({link})\n" for link in links]
        files_by_path["MEMORY.md"] = "# Memory\n\n" + "".join(lines)
    if draw(st.booleans()):
        files_by_path["memory/.dreams/events.jsonl"] = '{"type": "memory.recall.skipped"}\n'
    state = draw(st.sampled_from(SERENA_STATES))
    if state == "folder":
        files_by_path |= {".serena/memories/README.md": "x", ".serena/memories/core/a.md": "y"}
    elif state == "file":
        files_by_path[".serena/memories"] = "no folder"
    elif state in ("dangling", "link"):
        files_by_path[".serena/memories"] = None
    elif state == "project only":
        files_by_path[".serena/project.yml"] = "name: x\n"
    for place in draw(st.sets(st.sampled_from(["skills/remember/assets", "templates/agent"]))):
        files_by_path[f"{place}/MEMORY.md"] = "- [s](s.md)\n"
        files_by_path[f"{place}/s.md"] = memory("s")
        for name in AGENTS_FILES:
            files_by_path[f"{place}/{name}"] = "template\n"
    if draw(st.booleans()):
        files_by_path["src/projects/billing/memory/API.md"] = "subsystem\n"
        files_by_path["src/projects/billing/memory/MEMORY.md"] = "subsystem\n"
    if draw(st.booleans()):
        files_by_path["projects/-app/memory/learned.md"] = "a memory\n"
        files_by_path["projects/-app/memory/README.md"] = "a document\n"
    return files_by_path


def is_memory_by_its_system(path: str) -> bool:
    """True if a path of :func:`built` is a memory of its system."""
    folder = PurePosixPath(path)
    if path.startswith(".serena/memories/"):
        return True
    if path.startswith("projects/-app/memory/"):
        return not is_kept_by_name(folder.name)
    if path.startswith("memory/"):  # a workspace's notes; Claude Code's have front matter
        return "dreaming" not in folder.parts and ".dreams" not in folder.parts
    is_typed = folder.name.startswith("typed")
    return is_typed or path == "MEMORY.md"


@contextmanager
def written(pieces: dict[str, str | None]) -> Iterator[Path]:
    """Write the pieces into a folder that no configuration names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "repository"
        folder.mkdir()
        for path, text in pieces.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                target.symlink_to("nowhere")
            else:
                target.write_text(text)
        yield folder


def names_at(folder: Path, root: Path, keys: Iterable[object]) -> set[str]:
    """Return the keys of a folder as paths from the root."""
    below = folder.relative_to(root).as_posix()
    return {str(PurePosixPath(below, str(key))) for key in keys}


@given(built())
def test_only_memories_are_loaded_planned_or_copied(pieces: dict[str, str | None]) -> None:
    with written(pieces) as root:
        names = {str(root), f"serena:{root}", *locations_of_stores(root)}
        for name in sorted(names):
            with suppress(MemlabError):
                source = open_source(name)
                folder = source.local_path
                assert folder is not None
                plan = memlab.plan(name, memlab.KeepRecent(0))
                planned = names_at(folder, root, [memory.key for memory in plan.memories])
                assert "MEMORY.md" not in planned
                loaded = names_at(folder, root, memlab.load(name)["memory_id"])
                compaction.keep_copies(name)
                assert memlab.lost(name).empty
                copied = names_at(folder, root, compaction.plan_recovery(name).losses)
                for path in planned | loaded | copied:
                    assert is_memory_by_its_system(path), (name, source.scheme)


@given(built(), st.booleans())
def test_nightly_maintenance_never_deletes_documents(
    pieces: dict[str, str | None], retires: bool
) -> None:
    """Notes change, the index is edited, and maintenance runs every night."""
    with written(pieces) as root:
        kept_texts = {path: text for path, text in pieces.items() if text is not None}
        settings = 'policy = { name = "recent", keep = 1 }\nkeep_copies = true\n'
        (root / "memlab.toml").write_text(settings)
        if retires:
            settings += "retire = true\n"
        (root.parent / "memlab.toml").write_text(settings)
        for night in range(3):
            with suppress(MemlabError):
                memlab.maintain(root, apply=True, all_prunable=True)
            for note in sorted(root.glob("memory/**/2026-*.md"))[: 1 + night]:
                if "dreaming" not in note.parts:
                    note.unlink()  # dreaming removes the note
                    kept_texts.pop(note.relative_to(root).as_posix(), None)
            if (root / "MEMORY.md").is_file():
                with (root / "MEMORY.md").open("a") as index:
                    index.write("- [Overview](README.md)\n")
        for path, text in kept_texts.items():
            if not is_memory_by_its_system(path):
                assert (root / path).read_text() == text, path
