"""memlab init writes every setting as a comment, and changes nothing that is set."""

import json
import tomllib
from pathlib import Path

import pytest

from memlab.settings import EXAMPLES, FILE, SETTINGS, read_settings
from tests.support.invariants import rows_of
from tests.support.shell import said
from tests.support.stores import episodes, run_sql, write_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(9))


def test_it_only_shows_without_apply(store: Path) -> None:
    shown = said("init", store)
    assert "nothing was written; add --apply to write it" in shown
    assert f"settings: {store.parent / FILE}" in shown
    assert not (store.parent / FILE).exists()


def test_init_writes_every_setting_as_a_comment(store: Path) -> None:
    before = rows_of(store)
    shown = said("init", store)
    said("init", store, "--apply")
    text = (store.parent / FILE).read_text()
    assert text in shown
    for key, setting in SETTINGS.items():
        assert f"# {key} = {EXAMPLES[key]}  # {setting['means']}" in text.splitlines()
    assert tomllib.loads(text) == {"store": {"memory.db": {}}}
    assert read_settings(store.parent, "memory.db").policy is None
    assert rows_of(store) == before


@pytest.mark.parametrize("key", SETTINGS)
def test_a_line_without_its_mark_is_a_setting(store: Path, key: str) -> None:
    said("init", store, "--apply")
    file = store.parent / FILE
    file.write_text(file.read_text().replace(f"# {key} = ", f"{key} = "))
    settings = read_settings(store.parent, "memory.db")
    assert getattr(settings, key)


def test_what_is_set_and_written_stays_and_twice_adds_nothing(store: Path) -> None:
    file = store.parent / FILE
    file.write_text('# mine\ntarget = 0.8\n\n[store."memory.db"]\nmax_per_run = 7  # few\n')
    said("init", store, "--apply")
    once = file.read_text()
    assert once.startswith("# mine\ntarget = 0.8\n")
    assert "max_per_run = 7  # few" in once
    assert "# max_per_run = " not in once
    said("init", store, "--apply")
    assert file.read_text() == once
    settings = read_settings(store.parent, "memory.db")
    assert (settings.target, settings.max_per_run) == (0.8, 7)


def test_a_file_of_somebody_or_a_broken_one_is_left(store: Path) -> None:
    file = store.parent / FILE
    file.write_text("target = \n")
    assert "is not TOML" in said("init", store, "--apply", code=2)
    assert file.read_text() == "target = \n"
    file.write_text("target = 0.8\n")
    file.chmod(0o666)
    assert "chmod go-w" in said("init", store, "--apply", code=2)
    assert file.read_text() == "target = 0.8\n"


def test_json_holds_the_text(store: Path) -> None:
    printed = json.loads(said("init", store, "--json"))
    assert printed["written"] is False
    assert printed["file"] == str(store.parent / FILE)
    assert printed["text"] in said("init", store)


def test_what_is_no_store_gets_no_settings(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    run_sql(other, "CREATE TABLE things (name TEXT)")
    said("init", other, "--apply", code=2)
    assert not (tmp_path / FILE).exists()


def test_a_size_is_saved_into_the_file_it_wrote(store: Path) -> None:
    said("init", store, "--apply")
    said("compact", store, "--keep-recent", 5, "--save")
    assert read_settings(store.parent, "memory.db").keep_recent == 5
