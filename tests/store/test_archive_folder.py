"""The archive in a folder named by ``archive_folder`` in ``memlab.toml``."""

import shutil
from pathlib import Path

import pytest

import memlab
from memlab.compaction import keep_copies
from memlab.errors import ArchiveError, SettingsError
from memlab.sources.opening import open_source, save_store_settings, settings_of
from memlab.store.archive.location import archive_beside, archive_path
from tests.support.claude_store import at, memory, write_index, write_memory
from tests.support.invariants import rows_of
from tests.support.shell import output_of, run
from tests.support.stores import episodes, item, row, run_sql, write_rows


def make_items(project: Path) -> Path:
    """Write a store of one decision and ten episodes."""
    project.mkdir()
    return write_rows(project / "memory.db", [row("d1", "semantic"), *episodes(10)])


def make_folder(project: Path) -> Path:
    """Write a folder of Claude Code's memory with ten memories."""
    folder = project / ".claude/projects/-home-u-work/memory"
    folder.mkdir(parents=True)
    for number in range(10):
        write_memory(folder, f"m_{number}.md", memory(f"m {number}"), at(number))
    write_index(folder, [f"- [M {number}](m_{number}.md)" for number in range(10)])
    return folder


MAKES = {"items": make_items, "folder": make_folder}


def choose(store: Path, folder: Path | str) -> None:
    """Set ``archive_folder`` in the settings beside a store."""
    store.with_name("memlab.toml").write_text(f'archive_folder = "{folder}"\n')
    store.with_name("memlab.toml").chmod(0o600)


def content(store: Path) -> object:
    """Return the content of a store."""
    if store.is_dir():
        return {path.name: path.read_bytes() for path in store.iterdir()}
    return rows_of(store)


@pytest.fixture(params=sorted(MAKES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    new_store = MAKES[request.param](tmp_path / "project")
    (tmp_path / "archives").mkdir()
    choose(new_store, tmp_path / "archives")
    return new_store


def archives(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "archives").glob("*.archive.db"))


def test_every_command_uses_the_archive_folder(store: Path, tmp_path: Path) -> None:
    before = content(store)
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    (archive,) = archives(tmp_path)
    assert str(archive) in receipt.replace("\n", "").replace(" ", "")
    assert not archive_beside(store).exists()
    assert "archive_file" in output_of("doctor", store)
    assert str(archive) in str(memlab.doctor(store))
    assert len(memlab.load_past(store)) == len(memlab.load(store)) + 7
    assert "7" in output_of("archive", store)
    (plan,) = memlab.compaction.archived_plans(store)
    output_of("restore", store, plan.digest[:12])
    assert content(store) == before
    output_of("size", store)


def test_lost_memories_are_recovered_from_the_archive_folder(store: Path, tmp_path: Path) -> None:
    keep_copies(store)
    assert len(archives(tmp_path)) == 1
    before = content(store)
    if store.is_dir():
        (store / "m_3.md").unlink()
    else:
        run_sql(store, "DELETE FROM memory_items WHERE rowid = 5")
    keep_copies(store)
    assert content(store) != before
    output_of("lost", store, "--restore", "all", "--apply")
    assert content(store) == before


def test_maintain_uses_the_archive_folder(store: Path, tmp_path: Path) -> None:
    save_store_settings(
        open_source(store), {"policy": {"name": "recent", "keep": 4}, "keep_copies": True}
    )
    assert settings_of(open_source(store)).archive_folder == tmp_path / "archives"
    output_of("maintain", store, "--apply")
    assert len(archives(tmp_path)) == 1
    assert not archive_beside(store).exists()
    assert settings_of(open_source(store)).keep_recent == 4
    assert len(memlab.compaction.archived_plans(store)) == 1


def test_archive_beside_the_store_is_used_until_moved(store: Path, tmp_path: Path) -> None:
    settings = store.with_name("memlab.toml")
    settings.rename(tmp_path / "kept.toml")
    first = memlab.apply(memlab.plan(store, memlab.KeepRecent(5)))
    (tmp_path / "kept.toml").rename(settings)
    second = memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    assert archives(tmp_path) == []
    assert second.archive == first.archive
    doctor = memlab.doctor(store)
    (check,) = [check for check in doctor.checks if check.name == "archive_file"]
    assert "archive_folder" in check.summary
    old, new = check.advice.partition("mv ")[2].split()
    shutil.move(old, new)
    assert archives(tmp_path) == [Path(new)]
    assert memlab.restore(second.digest, store=store).memories == second.deleted
    assert memlab.restore(first.digest, store=store).memories == first.deleted


def test_doctor_names_the_archive_of_a_moved_project(store: Path, tmp_path: Path) -> None:
    before = content(store)
    receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    (tmp_path / "project").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / store.relative_to(tmp_path / "project")
    (archive,) = archives(tmp_path)
    doctor = memlab.doctor(moved)
    (check,) = [check for check in doctor.checks if check.name == "archive"]
    assert str(archive) in check.summary
    assert str(archive_path(moved)) in check.advice
    with pytest.raises(ArchiveError, match="archive"):
        memlab.restore(receipt.digest, store=moved)
    archive.rename(archive_path(moved))
    assert memlab.restore(receipt.digest, store=moved).memories == receipt.deleted
    assert content(moved) == before


def test_copied_project_gets_its_own_archive(store: Path, tmp_path: Path) -> None:
    memlab.apply(memlab.plan(store, memlab.KeepRecent(5)))
    shutil.copytree(tmp_path / "project", tmp_path / "copy")
    other = tmp_path / "copy" / store.relative_to(tmp_path / "project")
    receipt = memlab.apply(memlab.plan(other, memlab.KeepRecent(3)))
    assert len(archives(tmp_path)) == 2
    assert memlab.restore(receipt).memories == receipt.deleted


@pytest.mark.parametrize("begun", [True, False])
def test_nothing_is_deleted_without_the_archive_folder(
    store: Path, tmp_path: Path, begun: bool
) -> None:
    digest = "0" * 12
    if begun:
        digest = memlab.apply(memlab.plan(store, memlab.KeepRecent(5))).digest
    save_store_settings(open_source(store), {"policy": {"name": "recent", "keep": 3}})
    shutil.move(tmp_path / "archives", tmp_path / "unmounted")
    before = content(store)
    for arguments in (
        ("compact", store, "--keep-recent", 3, "--apply"),
        ("restore", store, digest),
        ("archive", store, "--copy"),
        ("maintain", store, "--apply"),
    ):
        result = run(*arguments)
        assert result.exit_code in (1, 2), arguments
        assert "archive_folder" in result.output, arguments
    assert content(store) == before
    assert not archive_beside(store).exists()
    assert not (tmp_path / "archives").exists()
    doctor = run("doctor", store)
    assert doctor.exit_code
    assert "archive_folder" in doctor.output
    shutil.move(tmp_path / "unmounted", tmp_path / "archives")
    if begun:
        assert memlab.restore(digest, store=store).memories


def test_runtime_uses_the_archive_folder(tmp_path: Path) -> None:
    store = make_items(tmp_path / "project")
    (tmp_path / "project" / "kept").mkdir()
    choose(store, "kept")
    with memlab.SqliteMemoryStore(store, archive=True) as runtime:
        assert runtime.compact_episodic(4) == 6
        runtime.put(item("new"))
    assert len(list((tmp_path / "project" / "kept").glob("*.archive.db"))) == 1
    assert not archive_beside(store).exists()
    (plan,) = memlab.compaction.archived_plans(store)
    assert memlab.restore(plan.digest, store=store).memories == 6


def test_stores_of_one_name_can_share_an_archive_folder(tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    for name in ("a", "b"):
        store = make_items(tmp_path / name)
        choose(store, "../archives")
        memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    assert len(archives(tmp_path)) == 2
    assert [Path(store.location).parent.name for store in memlab.find(tmp_path).stores] == [
        "a",
        "b",
    ]


def test_server_store_must_name_its_archive_in_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "memlab").mkdir()
    choose(tmp_path / "memlab" / "any", tmp_path)
    with pytest.raises(SettingsError, match=r"\?archive="):
        open_source("redis://localhost:1/0?name=x")
