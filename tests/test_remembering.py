"""Writing into ``memlab.toml``: what is there stays, and nothing is looser than the store."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import episodes, write_rows

import memlab
from memlab.errors import MemlabError, SettingsError
from memlab.settings import FILE, read_settings, with_settings
from memlab.sources.opening import open_source, remember

RECENT = {"policy": {"name": "recent", "keep": 546}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(3))


def test_a_new_file_says_what_each_setting_is(store: Path) -> None:
    file = remember(open_source(store), {**RECENT, "target": 0.9})
    assert file == store.parent / FILE
    text = file.read_text()
    assert '[store."memory.db"]\npolicy = {name = "recent", keep = 546} # what memlab' in text
    assert "target = 0.9 # share of later references" in text
    assert read_settings(store.parent, "memory.db").keep_recent == 546


def test_what_a_person_wrote_stays(store: Path) -> None:
    file = store.parent / FILE
    own = '# mine\ntarget = 0.8   # ours\n\n[store."other.db"]\n# his\npolicy = {name = "all"}\n'
    file.write_text(own)
    remember(open_source(store.with_name("other.db")), {"target": 0.5})
    own += "target = 0.5 # share of later references that should find their memory\n"
    assert file.read_text() == own
    file.write_text(own := own.replace("# share of later", "# asked by Jo, of"))
    remember(open_source(store.with_name("other.db")), {"target": 0.7})
    own = own.replace("= 0.5", "= 0.7")
    assert file.read_text() == own
    remember(open_source(store), {**RECENT, "target": 0.95})
    assert file.read_text().startswith(own)
    remember(open_source(store), {"policy": {"name": "recent", "keep": 7}, "target": None})
    assert file.read_text().startswith(own)
    found = read_settings(store.parent, "memory.db")
    assert (found.keep_recent, found.target) == (7, 0.8)
    assert read_settings(store.parent, "other.db").policy == {"name": "all"}


def test_a_log_below_the_folder_is_written_from_there_on(store: Path) -> None:
    remember(open_source(store), {"log": store.parent / "logs" / "reads.jsonl"})
    assert 'log = "logs/reads.jsonl"' in (store.parent / FILE).read_text()
    assert read_settings(store.parent, "memory.db").log == (store.parent / "logs" / "reads.jsonl",)
    remember(open_source(store), {"log": Path("/elsewhere/reads.jsonl")})
    assert read_settings(store.parent, "memory.db").log == (Path("/elsewhere/reads.jsonl"),)


@pytest.mark.parametrize(
    ("mode", "had", "wanted"),
    [
        (0o600, None, 0o600),
        (0o644, None, 0o644),
        (0o660, None, 0o640),
        (0o644, 0o640, 0o640),
    ],
)
def test_the_file_is_no_looser_than_the_store_or_than_it_was_and_its_owners_alone_to_write(
    store: Path, mode: int, had: int | None, wanted: int
) -> None:
    store.chmod(mode)
    if had is not None:
        (store.parent / FILE).write_text("")
        (store.parent / FILE).chmod(had)
    file = remember(open_source(store), RECENT)
    assert file.stat().st_mode & 0o777 == wanted


def test_what_cannot_be_read_is_not_written_over(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "private"
    target.write_text("target = 9\n")
    (store.parent / FILE).symlink_to(target)
    with pytest.raises(MemlabError, match="is a link"):
        remember(open_source(store), RECENT)
    (store.parent / FILE).unlink()
    target.rename(store.parent / FILE)
    with pytest.raises(SettingsError, match="line 1: target=9"):
        remember(open_source(store.parent / "new.db"), RECENT)
    assert (store.parent / FILE).read_text() == "target = 9\n"
    assert list(tmp_path.glob(".*")) == []


def test_of_many_that_are_written_at_once_each_is_there(tmp_path: Path) -> None:
    """Two nightly runs on stores of one folder remember at the same time."""
    names = [f"m{n}.db" for n in range(6)]
    for name in names:
        write_rows(tmp_path / name, [])
    program = (
        "import sys; from memlab.sources.opening import remember; "
        "from memlab.sources.opening import open_source; source = open_source(sys.argv[1]); "
        "sys.stdin.readline(); "
        "[remember(source, {'policy': {'name': 'recent', 'keep': n}}) for n in range(10)]"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path / name], stdin=subprocess.PIPE)
        for name in names
    ]
    for each in running:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
        each.stdin.close()
    assert [each.wait() for each in running] == [0] * len(names)
    kept = [read_settings(tmp_path, name).keep_recent for name in names]
    assert kept == [9] * len(names)
    assert not list(tmp_path.glob(".*"))


def test_a_store_in_memory_has_nowhere_to_remember(store: Path) -> None:
    with (
        memlab.SqliteMemoryStore(":memory:") as opened,
        pytest.raises(MemlabError, match="no folder to keep settings in"),
    ):
        remember(open_source(opened), RECENT)


def test_settings_of_a_server_lie_with_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    source = open_source("redis://:secret@localhost/0?name=agents")
    file = remember(source, RECENT)
    assert file == tmp_path / "memlab" / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    assert read_settings(file.parent, source.name).keep_recent == 546


def test_a_full_folder_leaves_the_file_as_it_was(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = remember(open_source(store), RECENT).read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MemlabError, match="No space left"):
        remember(open_source(store), {"target": 0.5})
    assert (store.parent / FILE).read_text() == before


@given(
    name=st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable()),
    keep=st.integers(0, 2**40),
    target=st.floats(0.01, 0.99),
)
def test_what_is_written_is_what_is_read(name: str, keep: int, target: float) -> None:
    text = with_settings("", name, {"policy": {"name": "recent", "keep": keep}, "target": target})
    again = with_settings(text, name, {"target": target})
    own = {"policy": {"name": "recent", "keep": keep}, "target": target}
    assert tomllib.loads(text) == tomllib.loads(again) == {"store": {name: own}}
