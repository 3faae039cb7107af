"""Names of stores expand to stores, each once; names without a store are reported."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from memlab.errors import MemlabError
from memlab.fleet import Members, expand_names, survey
from tests.support.fleets import agent_store
from tests.support.permissions import as_nobody
from tests.support.stores import episodes, write_rows


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """Make a folder of three stores, with links and other names beside it."""
    folder = tmp_path / "agents"
    for name in "abc":
        agent_store(folder / name / "memory.db", 2)
    for end in ("-wal", ".archive.db"):
        (folder / "a" / f"memory.db{end}").touch()
    (tmp_path / "soft.db").symlink_to(folder / "a" / "memory.db")
    (tmp_path / "hard.db").hardlink_to(folder / "a" / "memory.db")
    (tmp_path / "linked").symlink_to(folder / "b")
    (tmp_path / "empty").mkdir()
    write_rows(tmp_path / "agent[1].db", episodes(1))
    listed = f"# the agents\n\n{folder}/a/memory.db\n {folder}/[bc]/memory.db \n"
    (tmp_path / "names.txt").write_text(listed)
    return folder


def names_of_stores(members: Members) -> list[str]:
    return [member.name for member in members.stores if not member.problem]


def problems_of(members: Members) -> list[str]:
    """List the problems of names without a store."""
    return [member.problem for member in members.stores if member.problem]


A = "agents/a/memory.db"
B = "agents/b/memory.db"
C = "agents/c/memory.db"


class Expansion(NamedTuple):
    """Names, the stores that they expand to, and the number of repeated stores."""

    names: tuple[str, ...]
    stores: tuple[str, ...]
    repeated: int = 0


EXPANSIONS = {
    "a pattern: no file beside a store": Expansion(("agents/*/memory.db*",), (A, B, C)),
    "links and other spellings": Expansion(
        (A, "soft.db", "hard.db", "agents/b/./memory.db", "linked/memory.db"), (A, B), repeated=3
    ),
    "a path and its URLs": Expansion((A, f"file:{A}", f"file:{A}?mode=ro"), (A,), repeated=2),
    "a file of names": Expansion(("@names.txt",), (A, B, C)),
    "a folder: the stores below it": Expansion(("agents",), (A, B, C)),
    "a path that does not exist": Expansion(("agents/elsewhere.db",), ("agents/elsewhere.db",)),
    "pattern characters in a path": Expansion(("agent[1].db",), ("agent[1].db",)),
}


@pytest.mark.parametrize("expansion", EXPANSIONS.values(), ids=EXPANSIONS)
def test_names_expand_in_order_without_duplicates(agents: Path, expansion: Expansion) -> None:
    top = agents.parent
    absolute_names = [re.sub(r"^(file:|@)?", rf"\g<0>{top}/", name) for name in expansion.names]
    members = expand_names(absolute_names)
    assert names_of_stores(members) == [str(top / store) for store in expansion.stores]
    assert problems_of(members) == []
    assert members.repeated == expansion.repeated


def test_names_without_a_store_are_reported(agents: Path) -> None:
    members = expand_names([agents, agents.parent / "empty", f"{agents}/*/none.db"])
    assert names_of_stores(members) == [str(agents.parent / name) for name in (A, B, C)]
    assert problems_of(members) == [
        f"{agents.parent}/empty is a folder without a store in it; name a store",
        f"nothing matches {agents}/*/none.db; check the pattern",
    ]


def test_undecodable_name_is_reported_and_others_are_read(agents: Path) -> None:
    (agents / "b" / "memory.db").rename(agents / "b" / "\udcff.db")
    surveyed = survey(agents)
    assert surveyed["error"].isna().tolist() == [True, False, True]
    assert "b/\\xff.db is a name that is not UTF-8" in surveyed["error"][1]


def test_url_is_shown_without_password_and_counted_once(agents: Path) -> None:
    server = "redis://localhost:6379/0?name=mem"
    with_password = server.replace("//", "//:secret@")
    members = expand_names([agents, with_password, server, "nosuch://a", "nosuch://u:secret@b"])
    assert [member.name for member in members.stores[3:]] == [server, "nosuch://a", "nosuch://u@b"]
    assert members.repeated == 1
    assert len(problems_of(members)) == 2
    assert "secret" not in repr(members)
    assert "secret" in members.stores[3].location


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("@{}/empty.txt", "no store was named"),
        ("{}/*.none", r"nothing matches .*check the pattern"),
        ("@{}/bytes", "is not a file of names"),
        ("@{}/missing", "cannot be read"),
    ],
)
def test_single_name_without_a_store_is_rejected(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MemlabError, match=message):
        expand_names([name.format(tmp_path)])


def test_state_changes_with_store_and_files_beside_it(agents: Path) -> None:
    log = agents / "a" / "reads.jsonl"
    settings = agents / "a" / "memlab.toml"
    (member,) = expand_names(agents.parent / "soft.db").stores
    states = {member.state()}
    assert states == {member.state()}
    assert "" not in states
    write_rows(agents / "a" / "memory.db", episodes(1, start=9))
    states.add(member.state())
    (agents / "a" / "memory.db.archive.db").write_text("an archive")
    states.add(member.state())
    settings.write_text('log = ["reads.jsonl"]\n')
    states.add(member.state())
    log.write_text("a read\n")
    states.add(member.state())
    log.with_name("reads.jsonl.1").write_text("an earlier part\n")
    states.add(member.state())
    settings.write_text("no TOML")
    states.add(member.state())
    assert len(states) == 7


def test_folder_without_permission_is_reported() -> None:
    with TemporaryDirectory() as top:
        agent_store(Path(top, "memory.db"), 1)
        Path(top, "shut").mkdir(0)
        Path(top).chmod(0o755)
        with as_nobody():
            problems = problems_of(expand_names(top))
    assert problems == [f"{top}/shut cannot be entered; check its permissions"]
