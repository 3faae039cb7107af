"""Undo of deletions by an earlier version that took documents for memories."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab import compaction
from memlab.errors import UndecidedKindError
from memlab.upkeep.health import Check, Status, doctor
from tests.support.claude_store import write_memories
from tests.support.shell import output_of, run
from tests.support.stores import files_in

GOLDEN = Path(__file__).parent.parent / "golden" / "mistaken_documents"
FILES: dict[str, Any] = json.loads((GOLDEN / "files.json").read_text())
DIGESTS = {
    "repository": "144b3261c1ad",
    "workspace": "cd34c32a8f80",
    "retired": "bbce92b1a414",
    "project": "c8109cbff8eb",
    "listed": "f122d42bc39e",
}
DELETED = ("repository", "workspace", "project")
RETIRED = {
    "retired": {"SOUL.md", "AGENTS.md", "USER.md"},
    "listed": {"README.md", "ARCHITECTURE.md"},
}
NAMES = {
    "repository": ("{}", "claude:{}"),
    "workspace": ("{}", "claude:{}", "openclaw:{}"),
    "retired": ("{}", "claude:{}", "openclaw:{}"),
    "project": ("{}", "serena:{}"),
    "listed": ("{}",),
}
STORES_AND_NAMES = [(store, name) for store, names in NAMES.items() for name in names]
RETIRED_AND_NAMES = [(store, name) for store in RETIRED for name in NAMES[store]]


def texts_in(folder: Path) -> dict[str, str]:
    files = files_in(folder)
    return {name: raw.decode() for name, raw in files.items() if raw is not None}


def copy_of(store: str, to: Path) -> Path:
    """Copy a folder after the deletion, with its archive."""
    folder = to / store
    for name, text in FILES[store]["after"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(GOLDEN / f"{store}.archive.db", to)
    return folder


def noted_workspace(to: Path) -> Path:
    """Copy the workspace after the deletion and add later daily notes."""
    folder = copy_of("workspace", to)
    (folder / "memory").mkdir()
    for day in ("01", "02", "03"):
        (folder / "memory" / f"2026-06-{day}.md").write_text(f"note of {day}\n")
    return folder


@pytest.mark.parametrize(("store", "name"), STORES_AND_NAMES)
def test_restore_returns_every_document(tmp_path: Path, store: str, name: str) -> None:
    folder = copy_of(store, tmp_path)
    result = run("restore", name.format(folder), DIGESTS[store])
    assert result.exit_code == 0
    assert texts_in(folder) == FILES[store]["before"]
    assert "damaged" not in result.output


@pytest.mark.parametrize("store", DELETED)
def test_restore_in_python_counts_restored_documents(tmp_path: Path, store: str) -> None:
    folder = copy_of(store, tmp_path)
    missing = FILES[store]["before"].keys() - FILES[store]["after"].keys()
    assert memlab.restore(DIGESTS[store], store=folder).memories == len(missing)
    assert memlab.restore(DIGESTS[store], store=folder).memories == 0


@pytest.mark.parametrize(
    ("store", "document"),
    [("repository", "README.md"), ("workspace", "SOUL.md"), ("project", "docs/d1.md")],
)
def test_restore_by_id_returns_one_document(tmp_path: Path, store: str, document: str) -> None:
    folder = copy_of(store, tmp_path)
    output_of("restore", folder, DIGESTS[store], "--id", document)
    contents = texts_in(folder)
    assert contents[document] == FILES[store]["before"][document]
    assert contents.keys() == FILES[store]["after"].keys() | {document}


@pytest.mark.parametrize("store", DELETED)
def test_archive_lists_and_exports_documents(tmp_path: Path, store: str) -> None:
    folder = copy_of(store, tmp_path)
    missing = FILES[store]["before"].keys() - FILES[store]["after"].keys()
    result = run("archive", folder, "--rows")
    assert result.exit_code == 0
    for document in missing:
        assert document in result.output
    assert "damaged" not in result.output
    export = tmp_path / "gone.jsonl"
    assert compaction.export_archived(folder, export) == len(missing)
    rows = [json.loads(line) for line in export.read_text().splitlines()]
    assert {row["memory_id"] for row in rows} == missing
    assert DIGESTS[store] in output_of("archive", folder)


def test_copies_of_documents_can_be_recovered(tmp_path: Path) -> None:
    folder = copy_of("workspace", tmp_path)
    memlab.restore(DIGESTS["workspace"], store=folder)
    assert memlab.lost(folder).empty
    (folder / "TOOLS.md").unlink()
    assert memlab.lost(folder)["memory_id"].tolist() == ["TOOLS.md"]
    output_of("lost", folder, "--restore", "all", "--apply")
    assert (folder / "TOOLS.md").read_text() == FILES["workspace"]["before"]["TOOLS.md"]
    assert memlab.lost(folder).empty


@pytest.mark.parametrize("store", DELETED)
def test_doctor_names_documents_and_the_command(tmp_path: Path, store: str) -> None:
    folder = copy_of(store, tmp_path)
    missing = FILES[store]["before"].keys() - FILES[store]["after"].keys()
    checks = [check for check in doctor(folder).checks if check.name == "documents"]
    assert len(checks) == 1
    assert checks[0].counts == {"documents": len(missing)}
    assert f"memlab restore {folder} {DIGESTS[store]}" in checks[0].advice
    assert "damaged" not in str(doctor(folder))
    memlab.restore(DIGESTS[store], store=folder)
    assert "documents" not in [check.name for check in doctor(folder).checks]


def documents_found(store: str | Path) -> list[Check]:
    return [check for check in doctor(store).checks if check.name == "documents"]


@pytest.mark.parametrize(("store", "name"), RETIRED_AND_NAMES)
def test_doctor_names_retired_documents_and_the_command(
    tmp_path: Path, store: str, name: str
) -> None:
    folder = copy_of(store, tmp_path)
    (documents,) = documents_found(name.format(folder))
    assert documents.status is Status.WARN
    assert documents.counts == {"documents": len(RETIRED[store])}
    for document in RETIRED[store]:
        assert document in documents.summary
    assert f"memlab restore {folder} {DIGESTS[store]}" in documents.advice
    output_of("restore", folder, DIGESTS[store])
    assert documents_found(name.format(folder)) == []


def test_doctor_omits_retired_documents_already_listed_again(tmp_path: Path) -> None:
    folder = copy_of("listed", tmp_path)
    index = folder / "MEMORY.md"
    index.write_text(index.read_text() + "- [Overview](README.md)\n")
    (documents,) = documents_found(folder)
    assert documents.counts == {"documents": 1}
    assert "README.md" not in documents.summary
    assert "ARCHITECTURE.md" in documents.summary


def test_doctor_does_not_report_retired_memories(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    write_memories(folder, "a", "b", "c", "d")
    memlab.apply(memlab.plan(f"claude:{folder}", memlab.KeepRecent(2), retire=True))
    assert documents_found(f"claude:{folder}") == []


def test_doctor_finds_a_project_named_by_its_scheme(tmp_path: Path) -> None:
    folder = copy_of("project", tmp_path)
    names = [check.name for check in doctor(f"serena:{folder}").checks]
    assert "documents" in names


@pytest.mark.parametrize("command", ["show", "compact", "maintain", "size", "rows"])
def test_workspace_recorded_as_another_kind_is_rejected(tmp_path: Path, command: str) -> None:
    folder = noted_workspace(tmp_path)
    before = texts_in(folder)
    options = ["--keep-recent", "1", "--apply"] if command == "compact" else []
    result = run(command, folder, *options)
    assert result.exit_code == 2
    assert "Claude Code memory" in result.output
    assert "OpenClaw workspace" in result.output
    arguments = " ".join([str(folder), *options])
    for scheme in ("openclaw", "claude"):
        assert f"memlab {command} {scheme}:{arguments}" in result.output
    assert texts_in(folder) == before


def test_plan_of_another_kind_is_rejected(tmp_path: Path) -> None:
    folder = noted_workspace(tmp_path)
    with pytest.raises(UndecidedKindError) as caught:
        compaction.finish(folder, DIGESTS["workspace"])
    assert caught.value.names == (f"openclaw:{folder}", f"claude:{folder}")


def test_explicitly_named_kind_has_its_own_archive(tmp_path: Path) -> None:
    folder = noted_workspace(tmp_path)
    before = texts_in(folder)
    first = (tmp_path / "workspace.archive.db").read_bytes()
    receipt = memlab.apply(memlab.plan(f"openclaw:{folder}", memlab.KeepRecent(1)))
    assert receipt.deleted == 2
    assert receipt.archive == str(tmp_path / "workspace.openclaw.archive.db")
    assert (tmp_path / "workspace.archive.db").read_bytes() == first
    assert set(memlab.load(folder)["memory_id"]) == {"MEMORY.md", "memory/2026-06-03.md"}
    assert memlab.restore(receipt.digest, store=folder).memories == 2
    assert texts_in(folder) == before
    memlab.restore(DIGESTS["workspace"], store=folder)
    assert texts_in(folder) == before | FILES["workspace"]["before"]
    stores = memlab.find(tmp_path).stores
    assert [(store.system, store.location) for store in stores] == [
        ("OpenClaw workspace", str(folder))
    ]


def test_documents_in_an_archive_are_not_memories(tmp_path: Path) -> None:
    folder = copy_of("repository", tmp_path)
    memlab.restore(DIGESTS["repository"], store=folder)
    assert memlab.load(folder).empty
    assert memlab.plan(folder, memlab.KeepRecent(0)).is_empty
    compaction.keep_copies(folder)
    assert memlab.lost(folder).empty
    assert "2 kept by name: CHANGELOG.md, README.md" in output_of("show", folder)
