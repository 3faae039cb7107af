"""``memlab.toml``: reading, validation, permissions and writing."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import MemlabError, SettingsError
from memlab.policies.named import as_setting, policy_in
from memlab.settings import FILE, NO_SETTINGS, Settings, read_settings
from memlab.settings_file import with_settings
from memlab.sources.opening import open_source, save_store_settings, settings_of
from tests.support.claude_store import memory
from tests.support.programs import PROGRAMS_NEED, children_with
from tests.support.settings_files import WHOLE, save_often
from tests.support.stores import episodes, row, write_rows

SIZED = "{ at = 2026-03-01T12:00:00Z, memories = 40, until = %s }"


def settings_in(folder: Path, text: str, name: str = "memory.db") -> Settings:
    (folder / FILE).write_text(text, encoding="latin-1")
    return read_settings(folder, name)


def test_every_setting_is_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, WHOLE)
    assert settings.policy == {"name": "recent", "keep": 546}
    assert settings.keep_recent == 546
    assert settings.target == 0.95
    assert settings.confidence == 0.8
    assert settings.token_budget == 20_000
    assert settings.log == (tmp_path / "reads.log", tmp_path / "other.csv")
    assert settings.protected_tags == {"pinned"}
    assert settings.archive_for == timedelta(days=365)
    assert settings.vacuum_free == 0.25


def test_store_settings_precede_folder_settings(tmp_path: Path) -> None:
    assert settings_in(tmp_path, WHOLE).target == 0.95
    other = settings_in(tmp_path, WHOLE, "other.db")
    assert other.target == 0.8
    assert other.keep_recent is None
    assert other.policy is not None
    third = settings_in(tmp_path, WHOLE, "third.db")
    assert third.target == 0.8
    assert third.policy is None


def test_folder_without_a_file_has_no_settings(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "nowhere", "memory.db") is NO_SETTINGS


def test_saved_number_has_time_size_and_horizon(tmp_path: Path) -> None:
    for zone in ("Z", "+00:00", ""):
        sized = (SIZED % 80).replace("Z", zone)
        text = f'policy = {{ name = "recent", keep = 45, sized = {sized} }}\n'
        settings = settings_in(tmp_path, text)
        assert settings.sized == (datetime(2026, 3, 1, 12, tzinfo=UTC), 40, 80)
        assert policy_in(settings) == memlab.KeepRecent(45)
    assert settings_in(tmp_path, WHOLE).sized is None


def test_auto_policy_needs_a_computed_value(tmp_path: Path) -> None:
    for name, setting in (("recent", "keep"), ("tokens", "max_tokens")):
        settings = settings_in(tmp_path, f'policy = {{ name = "{name}", {setting} = "auto" }}\n')
        assert settings.is_auto is True
        assert settings.keep_recent is None
        assert 45 in vars(policy_in(settings, 45)).values()
        with pytest.raises(SettingsError, match="line 1: policy: "):
            policy_in(settings)
    other = settings_in(tmp_path, 'policy = { name = "ttl", ttl = "auto" }\n')
    assert not other.is_auto


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("target = 0.9\nkeep_recent = 50\n", 2, "no setting 'keep_recent'; there are policy"),
        ("target = 0.9\n# \xff\n", 2, "it is not UTF-8"),
        ("\ntarget = 90\n", 2, "target=90 is not between 0 and 1; is 0.9 meant?"),
        (
            f"target = 0.9\npolicy = {{ name = 'ttl', n = [0x{'f' * 5000}] }}\n",
            2,
            "policy is too large",
        ),
        ("target = true\n", 1, "target=True is not between 0 and 1"),
        ("\n\ntoken_budget = -1\n", 3, "token_budget=-1 is not a whole number of 0 or more"),
        ("log = [1]\n", 1, "is not text"),
        ('archive_for = "a year"\n', 1, "is not an age like"),
        ("keep_copies = 1\n", 1, "keep_copies=1 is neither true nor false"),
        ('policy = "recent"\n', 1, "policy must name a policy and its settings"),
        ('policy = { name = "recent", keep = 3, sized = 4 }\n', 1, "sized is what memlab size"),
        (f"policy = {{ name = 'ttl', ttl = '3d', sized = {SIZED % 80} }}\n", 1, "sized is what"),
        ('\npolicy.name = "recent"\npolicy.sized = { at = 2026-03-01 }\n', 2, "sized is what"),
        (f"policy = {{ name = 'recent', sized = {SIZED % '0'} }}\n", 1, "until=0 is not a whole"),
        (f"policy = {{ name = 'recent', sized = {SIZED % '9e9'} }}\n", 1, "until=9000000000.0 is"),
        ('[store."memory.db"]\ntarget = 2\n', 2, "target=2 is not between 0 and 1"),
        ('[store."memory.db"]\n\n["store"."memory.db".policy]\nkeep=3\n', 3, "policy must name"),
        ('store."memory.db".target = 2\n', 1, "target=2"),
        ('[store]\n"memory.db" = 3\n', 2, "under [store."),
        ("[claude]\nrows = 3\n", 1, "'rows' is none of these"),
        ('[claude]\nkinds = { project = "decision" }\n', 1, "kinds must say of each type"),
    ],
)
def test_invalid_setting_is_rejected_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(SettingsError, match=rf"{FILE}, line {line}: .*{re.escape(message)}"):
        settings_in(tmp_path, text)


INVALID_FILES: dict[str, Callable[[Path], object]] = {
    "is not TOML": lambda file: file.write_text("target = 0.9\ntarget = 0.8\n"),
    "is not TOML: ": lambda file: file.write_text("x = " + "[" * 100_000),
    "is not TOML: Exceeds": lambda file: file.write_text("target = " + "9" * 5_000),
    "larger than 1 MiB": lambda file: file.write_text("#" * 2**21),
    "no ordinary file": os.mkfifo,
    "is a link, which is not followed": lambda file: file.symlink_to(file.with_name("elsewhere")),
}


@pytest.mark.parametrize("message", INVALID_FILES)
def test_invalid_settings_file_is_rejected_by_name(tmp_path: Path, message: str) -> None:
    (tmp_path / "elsewhere").write_text('protected_tags = ["pinned"]\n')
    INVALID_FILES[message](tmp_path / FILE)
    with pytest.raises(SettingsError, match=rf"{FILE} .*{message}"):
        read_settings(tmp_path, "memory.db")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620])
def test_settings_writable_by_others_are_rejected_with_a_fix(store: Path, mode: int) -> None:
    file = store.parent / FILE
    file.write_text('protected_tags = ["pinned"]\n')
    file.chmod(mode)
    with pytest.raises(
        SettingsError, match=r"written by others .* run chmod go-w \S+\.toml$"
    ) as no:
        memlab.load(store)
    subprocess.run(str(no.value).partition("then run ")[2], shell=True, check=True)
    assert memlab.load(store)["load_bearing"].sum() == 1


@pytest.mark.parametrize(
    ("listed", "ran"),
    [("", False), ("plante", False), ("planted2, other", False), ("other,planted", True)],
)
def test_custom_policy_is_imported_only_from_listed_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, ran: bool
) -> None:
    """Importing a module runs its code, and others may write beside a store."""
    (tmp_path / "planted.py").write_text(
        "from dataclasses import dataclass\n"
        "from pathlib import Path\n"
        "from memlab.policies import KeepRecent\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "@dataclass(frozen=True)\n"
        "class Policy(KeepRecent): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_POLICY_MODULES", listed)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    policy = Settings(policy={"name": "planted:Policy", "keep": 3})
    if ran:
        assert type(policy_in(policy)).__module__ == "planted"
    else:
        with pytest.raises(SettingsError, match=r"put 'planted' into the .* MEMLAB_POLICY_MODULES"):
            policy_in(policy)
    assert (tmp_path / "ran").exists() is ran


@pytest.mark.parametrize(
    "policy",
    [
        memlab.KeepRecent(546),
        memlab.TimeToLive(timedelta(days=30)),
        memlab.Pipeline.odek(keep=20),
        memlab.Activation(max_tokens=2000),
        memlab.policies.ValueCap(30, half_life=timedelta(hours=36), scope=("agent_id",)),
    ],
)
def test_saved_policy_round_trips(policy: memlab.Policy) -> None:
    written = as_setting(policy)
    assert policy_in(Settings(policy=written)) == policy
    assert "none" not in written.values()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ('{ name = "newest" }', "'newest' is not a policy"),
        ('{ name = "recent" }', "the policy 'recent' needs keep"),
        ('{ name = "recent", keep = 3, cap = 4 }', "cap is not a setting of the policy 'recent'"),
        ('{ name = "recent", keep = -3 }', "keep=-3 is not a whole number"),
        ('{ name = "ttl", ttl = 30 }', "ttl"),
    ],
)
def test_invalid_policy_is_rejected_with_its_line(
    tmp_path: Path, policy: str, message: str
) -> None:
    settings = settings_in(tmp_path, f'[store."memory.db"]\n# chosen\npolicy = {policy}\n')
    with pytest.raises(SettingsError, match=rf"{FILE}, line 3: policy: .*{re.escape(message)}"):
        policy_in(settings)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rows = [*episodes(20), row("kept", "episodic", "merged", "pinned")]
    return write_rows(tmp_path / "memory.db", [rows[-1], *rows[:-1]])


def test_protected_tag_applies_to_frames_plans_and_deletions(store: Path) -> None:
    plan = memlab.plan(store, memlab.KeepRecent(0))
    assert "kept" in {memory.memory_id for memory in plan.memories}
    (store.parent / FILE).write_text('protected_tags = ["pinned"]\n')
    frame = memlab.load(store).set_index("memory_id")
    assert frame.loc["kept", "load_bearing"]
    assert not frame.loc["kept", "prunable"]
    with pytest.raises(memlab.MemlabError, match="names 'kept', which is load-bearing"):
        memlab.apply(plan)
    assert len(memlab.load(store)) == 21
    memlab.apply(memlab.plan(store, memlab.KeepRecent(0)))
    assert memlab.load(store)["memory_id"].tolist() == ["kept"]
    (store.parent / FILE).write_text('[store."memory.db"]\nprotected_tags = "merged"\n')
    past = memlab.load_past(store).set_index("memory_id")  # including deleted memories
    assert past["load_bearing"].sum() == past["tags"].map(lambda tags: "merged" in tags).sum() > 1


def test_symlink_to_a_store_uses_the_settings_of_the_store(store: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (link := tmp_path / "elsewhere" / "link.db").symlink_to(store)
    (store.parent / FILE).write_text('[store."memory.db"]\ntarget = 0.7\n')
    assert settings_of(open_source(link)).target == 0.7


def test_settings_of_a_folder_store_lie_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(memory(name, "project"))
    (folder / "MEMORY.md").write_text("".join(f"- [{n}]({n}.md)\n" for n in ("a", "b", "c")))
    plain = memlab.load(folder)
    assert plain["loaded_at_start"].all()
    assert not plain["load_bearing"].any()
    (tmp_path / FILE).write_text(
        '[store.memory.claude]\nlines = 2\nkinds = { project = "semantic" }\n'
    )
    frame = memlab.load(folder)
    assert frame["loaded_at_start"].sum() == 2
    assert frame["load_bearing"].all()


RECENT = {"policy": {"name": "recent", "keep": 546}}


def test_saving_keeps_handwritten_text(store: Path) -> None:
    file = store.parent / FILE
    handwritten = (
        '# mine\ntarget = 0.8   # ours\n\n[store."other.db"]\n# his\npolicy = {name = "all"}\n'
    )
    file.write_text(handwritten)
    save_store_settings(open_source(store.with_name("other.db")), {"target": 0.5})
    handwritten += "target = 0.5 # share of later references that should find their memory\n"
    assert file.read_text() == handwritten
    file.write_text(handwritten := handwritten.replace("# share of later", "# asked by Jo, of"))
    save_store_settings(open_source(store.with_name("other.db")), {"target": 0.7})
    handwritten = handwritten.replace("= 0.5", "= 0.7")
    assert file.read_text() == handwritten
    save_store_settings(open_source(store), {**RECENT, "target": 0.95})
    assert file.read_text().startswith(handwritten)
    save_store_settings(
        open_source(store), {"policy": {"name": "recent", "keep": 7}, "target": None}
    )
    assert file.read_text().startswith(handwritten)
    settings = read_settings(store.parent, "memory.db")
    assert settings.keep_recent == 7
    assert settings.target == 0.8
    assert read_settings(store.parent, "other.db").policy == {"name": "all"}


def test_log_below_the_folder_is_saved_as_relative_path(store: Path) -> None:
    save_store_settings(open_source(store), {"log": store.parent / "logs" / "reads.jsonl"})
    assert 'log = "logs/reads.jsonl"' in (store.parent / FILE).read_text()
    assert read_settings(store.parent, "memory.db").log == (store.parent / "logs" / "reads.jsonl",)
    save_store_settings(open_source(store), {"log": Path("/elsewhere/reads.jsonl")})
    assert read_settings(store.parent, "memory.db").log == (Path("/elsewhere/reads.jsonl"),)


@pytest.mark.parametrize(
    ("mode", "had", "wanted"), [(0o600, None, 0o600), (0o660, None, 0o640), (0o644, 0o640, 0o640)]
)
def test_settings_file_is_no_more_readable_than_the_store(
    store: Path, mode: int, had: int | None, wanted: int
) -> None:
    store.chmod(mode)
    if had is not None:
        (store.parent / FILE).touch(had)
    file = save_store_settings(open_source(store), RECENT)
    assert file.stat().st_mode & 0o777 == wanted
    assert (
        '[store."memory.db"]\npolicy = {name = "recent", keep = 546} # the policy'
        in file.read_text()
    )


def test_unreadable_settings_are_not_overwritten(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "private"
    target.write_text("target = 9\n")
    (store.parent / FILE).symlink_to(target)
    with pytest.raises(MemlabError, match="is a link"):
        save_store_settings(open_source(store), RECENT)
    (store.parent / FILE).unlink()
    target.rename(store.parent / FILE)
    with pytest.raises(SettingsError, match="line 1: target=9"):
        save_store_settings(open_source(store.parent / "new.db"), RECENT)
    assert (store.parent / FILE).read_text() == "target = 9\n"
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.long)])
def test_concurrent_settings_writes_all_survive(tmp_path: Path, count: int) -> None:
    """Nightly runs on stores of one folder save their settings at the same time."""
    stores = [write_rows(tmp_path / f"m{n}.db", []) for n in range(count)]
    children = children_with(*PROGRAMS_NEED)
    running = [children.start(save_often, store=store) for store in stores]
    assert [children.wait(child).error for child in running] == [None] * len(stores)
    assert {read_settings(tmp_path, store.name).keep_recent for store in stores} == {9}
    assert not list(tmp_path.glob(".*"))


def test_in_memory_store_has_no_settings() -> None:
    with memlab.SqliteMemoryStore(":memory:") as opened:
        assert settings_of(open_source(opened)) is NO_SETTINGS
        with pytest.raises(MemlabError, match="no folder to keep settings in"):
            save_store_settings(open_source(opened), RECENT)


def test_settings_of_a_server_lie_with_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    source = open_source("redis://:secret@localhost/0?name=agents")
    file = save_store_settings(source, RECENT)
    assert file == tmp_path / "memlab" / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    assert read_settings(file.parent, source.name).keep_recent == 546


@given(
    name=st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable()),
    keep=st.integers(0, 2**40),
    target=st.floats(0.01, 0.99),
)
def test_written_settings_round_trip(name: str, keep: int, target: float) -> None:
    text = with_settings("", name, {"policy": {"name": "recent", "keep": keep}, "target": target})
    rewritten = with_settings(text, name, {"target": target})
    stored = {"policy": {"name": "recent", "keep": keep}, "target": target}
    assert tomllib.loads(text) == tomllib.loads(rewritten) == {"store": {name: stored}}
