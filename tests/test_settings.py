"""``memlab.toml`` beside a store: what it says, and what is wrong with one, by line."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from claude_store import memory
from hypothesis import given
from hypothesis import strategies as st
from stores import episodes, row, write_rows

import memlab
from memlab.errors import SettingsError
from memlab.policies.named import as_setting, policy_in
from memlab.settings import FILE, NOTHING, Settings, read_settings
from memlab.sources.opening import open_source, settings_of

WHOLE = """
# every setting
protected_tags = ["pinned"]
target = 0.8

[store."memory.db"]
policy = { name = "recent", keep = 546 }
target = 0.95
confidence = 0.8
token_budget = 20000
log = ["reads.jsonl", "/srv/other.csv"]
archive_for = "365d"
vacuum_free = 0.25

[store."other.db"]
policy = { name = "ttl", ttl = "30d" }

[store.memory.claude]
lines = 100
kinds = { project = "semantic" }
"""


SIZED = "{ at = 2026-03-01T12:00:00Z, memories = 40, until = %s }"


def settings_in(folder: Path, text: str, name: str = "memory.db") -> Settings:
    (folder / FILE).write_text(text, encoding="latin-1")
    return read_settings(folder, name)


def test_every_setting_is_read_and_a_stores_own_come_before_those_of_its_folder(
    tmp_path: Path,
) -> None:
    found = settings_in(tmp_path, WHOLE)
    assert found.policy == {"name": "recent", "keep": 546}
    assert found.keep_recent == 546
    assert (found.target, found.confidence, found.token_budget) == (0.95, 0.8, 20_000)
    assert found.log == (tmp_path / "reads.jsonl", Path("/srv/other.csv"))
    assert found.protected_tags == {"pinned"}
    assert (found.archive_for, found.vacuum_free) == (timedelta(days=365), 0.25)
    other, third = (settings_in(tmp_path, WHOLE, name) for name in ("other.db", "third.db"))
    assert (other.target, other.keep_recent, other.policy is None) == (0.8, None, False)
    assert (third.target, third.policy) == (0.8, None)
    assert read_settings(tmp_path / "nowhere", "memory.db") is NOTHING


def test_a_number_that_was_found_says_when_at_how_many_and_until_how_many(tmp_path: Path) -> None:
    for zone in ("Z", "+00:00", ""):
        sized = (SIZED % 80).replace("Z", zone)
        text = f'policy = {{ name = "recent", keep = 45, sized = {sized} }}\n'
        found = settings_in(tmp_path, text)
        assert found.sized == (datetime(2026, 3, 1, 12, tzinfo=UTC), 40, 80)
        assert policy_in(found) == memlab.KeepRecent(45)
    assert settings_in(tmp_path, WHOLE).sized is None


def test_a_number_that_is_found_each_time_needs_one_to_be_a_policy(tmp_path: Path) -> None:
    for name, setting in (("recent", "keep"), ("tokens", "max_tokens")):
        found = settings_in(tmp_path, f'policy = {{ name = "{name}", {setting} = "auto" }}\n')
        assert (found.is_auto, found.keep_recent) == (True, None)
        assert 45 in vars(policy_in(found, 45)).values()
        with pytest.raises(SettingsError, match="line 1: policy: "):
            policy_in(found)
    other = settings_in(tmp_path, 'policy = { name = "ttl", ttl = "auto" }\n')
    assert not other.is_auto


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("target = 0.9\nkeep_recent = 50\n", 2, "no setting 'keep_recent'; there are policy"),
        ("target = 0.9\n# \xff\n", 2, "it is not UTF-8"),
        ("\ntarget = 90\n", 2, "target=90 is not between 0 and 1; is 0.9 meant?"),
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
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        settings_in(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / FILE}, line {line}: ")
    assert words in str(raised.value)


NO_SETTINGS: dict[str, Callable[[Path], object]] = {
    "is not TOML": lambda file: file.write_text("target = 0.9\ntarget = 0.8\n"),
    "is not TOML: .* line 1": lambda file: file.write_text("[store.\n"),
    "is not TOML: ": lambda file: file.write_text("x = " + "[" * 100_000),
    "larger than 1 MiB": lambda file: file.write_text("#" * 2**21),
    "no ordinary file": os.mkfifo,
    "is a link, which is not followed": lambda file: file.symlink_to(file.with_name("elsewhere")),
}


@pytest.mark.parametrize("words", NO_SETTINGS)
def test_a_file_that_is_no_settings_is_told_by_name(tmp_path: Path, words: str) -> None:
    (tmp_path / "elsewhere").write_text('protected_tags = ["pinned"]\n')
    NO_SETTINGS[words](tmp_path / FILE)
    with pytest.raises(SettingsError, match=rf"{FILE} .*{words}"):
        read_settings(tmp_path, "memory.db")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620])
def test_settings_that_others_may_write_are_refused_with_what_mends_it(
    store: Path, mode: int
) -> None:
    file = store.parent / FILE
    file.write_text('protected_tags = ["pinned"]\n')
    file.chmod(mode)
    with pytest.raises(
        SettingsError, match=r"written by others .* run chmod go-w \S+\.toml$"
    ) as no:
        memlab.load(store)
    subprocess.run(str(no.value).partition("then run ")[2], shell=True, check=True)
    assert memlab.load(store)["load_bearing"].sum() == 1


@given(st.binary(max_size=60), st.sampled_from([b"", b"[store.'m']\n", b"policy = ", b"log = "]))
def test_no_bytes_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, head: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any", numbered=True)
    (folder / FILE).write_bytes(head + tail)
    with suppress(SettingsError):
        read_settings(folder, "m")


class TestAClassOfOnesOwn:
    """Importing runs code, and whoever may write beside a store could have it run."""

    POLICY = Settings(policy={"name": "planted:Policy", "keep": 3})

    @pytest.fixture(autouse=True)
    def planted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        ran = tmp_path / "ran"
        (tmp_path / "planted.py").write_text(
            "from dataclasses import dataclass\n"
            "from pathlib import Path\n"
            "from memlab.policies import KeepRecent\n"
            f"Path({str(ran)!r}).touch()\n"
            "@dataclass(frozen=True)\n"
            "class Policy(KeepRecent): ...\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("MEMLAB_POLICY_MODULES", raising=False)
        monkeypatch.delitem(sys.modules, "planted", raising=False)
        return ran

    @pytest.mark.parametrize("listed", ["", "plante", "planted2, other"])
    def test_is_not_imported_because_a_file_names_it(
        self, planted: Path, monkeypatch: pytest.MonkeyPatch, listed: str
    ) -> None:
        monkeypatch.setenv("MEMLAB_POLICY_MODULES", listed)
        with pytest.raises(SettingsError, match=r"put 'planted' into the .* MEMLAB_POLICY_MODULES"):
            policy_in(self.POLICY)
        assert not planted.exists()

    def test_is_where_a_person_lists_its_module(
        self, planted: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MEMLAB_POLICY_MODULES", "other,planted")
        found = policy_in(self.POLICY)
        assert found is not None
        assert type(found).__name__ == "Policy"
        assert planted.exists()


@pytest.mark.parametrize(
    ("name", "make", "settings"),
    [
        ("recent", memlab.KeepRecent, {"keep": 546}),
        ("ttl", memlab.TimeToLive, {"ttl": timedelta(days=30)}),
        ("odek", memlab.Pipeline.odek, {"keep": 20}),
        (
            "value",
            memlab.policies.ValueCap,
            {"max_items": 30, "half_life": timedelta(hours=36), "scope": ("agent_id",)},
        ),
    ],
)
def test_what_is_written_of_a_policy_is_read_as_it_was(
    name: str, make: Callable[..., memlab.Policy], settings: dict[str, Any]
) -> None:
    assert policy_in(Settings(policy=as_setting(name, settings))) == make(**settings)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('{ name = "newest" }', "'newest' is no policy"),
        ('{ name = "recent" }', "the policy 'recent' needs keep"),
        ('{ name = "recent", keep = 3, cap = 4 }', "'cap' is no setting of 'recent'"),
        ('{ name = "recent", keep = -3 }', "keep=-3 is not a whole number"),
        ('{ name = "recent", keep = 2.5 }', "keep=2.5 is not a whole number"),
        ('{ name = "ttl", ttl = 30 }', "ttl"),
    ],
)
def test_what_is_no_policy_is_told_with_its_line(tmp_path: Path, policy: str, words: str) -> None:
    found = settings_in(tmp_path, f'[store."memory.db"]\n# chosen\npolicy = {policy}\n')
    with pytest.raises(SettingsError) as raised:
        policy_in(found)
    assert str(raised.value).startswith(f"{tmp_path / FILE}, line 3: policy: ")
    assert words in str(raised.value)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rows = [*episodes(20), row("kept", "episodic", "merged", "pinned")]
    return write_rows(tmp_path / "memory.db", [rows[-1], *rows[:-1]])


def test_a_tag_of_ones_own_protects_in_frames_plans_and_deletions(store: Path) -> None:
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
    past = memlab.load_past(store).set_index("memory_id")  # what was deleted too
    assert past["load_bearing"].sum() == past["tags"].map(lambda tags: "merged" in tags).sum() > 1


def test_a_link_to_a_store_has_the_stores_settings(store: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link.db").symlink_to(store)
    (store.parent / FILE).write_text('[store."memory.db"]\ntarget = 0.7\n')
    assert settings_of(open_source(elsewhere / "link.db")).target == 0.7


def test_a_store_in_memory_has_none() -> None:
    with memlab.SqliteMemoryStore(":memory:") as store:
        assert settings_of(open_source(store)) is NOTHING


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of Claude Code's memory, three files in its index."""
    made = tmp_path / "memory"
    made.mkdir()
    for name in ("a", "b", "c"):
        (made / f"{name}.md").write_text(memory(name, "project"))
    (made / "MEMORY.md").write_text("".join(f"- [{n}]({n}.md)\n" for n in ("a", "b", "c")))
    return made


def test_settings_of_a_folder_lie_beside_it_and_say_how_it_is_read(folder: Path) -> None:
    (folder.parent / FILE).write_text(
        '[store.memory.claude]\nlines = 2\nkinds = { project = "semantic" }\n'
    )
    frame = memlab.load(folder)
    assert frame["loaded_at_start"].tolist().count(True) == 2
    assert frame["load_bearing"].all()
    (folder.parent / FILE).unlink()
    frame = memlab.load(folder)
    assert frame["loaded_at_start"].all()
    assert not frame["load_bearing"].any()
