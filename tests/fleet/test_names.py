"""Names of stores expand to stores, each once; names without a store are reported."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

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


def names_and_problems(members: Members) -> tuple[list[str], list[str]]:
    """Return the names of stores, and the problems of names without a store."""
    good = [member.name for member in members.stores if not member.problem]
    return good, [member.problem for member in members.stores if member.problem]


A, B, C = (f"agents/{name}/memory.db" for name in "abc")
LINKS = ("soft.db", "hard.db", "agents/b/./memory.db", "linked/memory.db")
MEANT = {
    "a pattern: no file beside a store": (("agents/*/memory.db*",), (A, B, C), 0),
    "links and other spellings": ((A, *LINKS), (A, B), 3),
    "a path and its URLs": ((A, f"file:{A}", f"file:{A}?mode=ro"), (A,), 2),
    "a file of names": (("@names.txt",), (A, B, C), 0),
    "a folder: the stores below it": (("agents",), (A, B, C), 0),
    "a path that does not exist": (("agents/elsewhere.db",), ("agents/elsewhere.db",), 0),
    "pattern characters in a path": (("agent[1].db",), ("agent[1].db",), 0),
}
"""Given names, the stores that they expand to, and the number of repeated stores."""


@pytest.mark.parametrize(("given", "meant", "repeated"), MEANT.values(), ids=MEANT)
def test_names_expand_in_order_without_duplicates(
    agents: Path, given: tuple[str, ...], meant: tuple[str, ...], repeated: int
) -> None:
    top = agents.parent
    full = [re.sub(r"^(file:|@)?", rf"\g<0>{top}/", name) for name in given]
    members = expand_names(full)
    assert names_and_problems(members) == ([str(top / name) for name in meant], [])
    assert members.repeated == repeated


def test_names_without_a_store_are_reported(agents: Path) -> None:
    members = expand_names([agents, agents.parent / "empty", f"{agents}/*/none.db"])
    good, problems = names_and_problems(members)
    assert good == [str(agents.parent / name) for name in (A, B, C)]
    assert problems == [
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
    given = [server.replace("//", "//:secret@"), server, "nosuch://a", "nosuch://u:secret@b"]
    members = expand_names([agents, *given])
    assert [member.name for member in members.stores[3:]] == [server, "nosuch://a", "nosuch://u@b"]
    assert members.repeated == 1
    assert len(names_and_problems(members)[1]) == 2
    assert "secret" not in repr(members)
    assert "secret" in members.stores[3].location


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("@{}/empty.txt", "no store was named"),
        ("{}/*.none", r"nothing matches .*check the pattern"),
        ("@{}/bytes", "is not a file of names"),
        ("@{}/missing", "cannot be read"),
    ],
)
def test_single_name_without_a_store_is_rejected(given: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MemlabError, match=message):
        expand_names([given.format(tmp_path)])


def test_state_changes_with_store_and_files_beside_it(agents: Path) -> None:
    log = agents / "a" / "reads.jsonl"
    (member,) = expand_names(agents.parent / "soft.db").stores
    states = [member.state()]
    assert states == [member.state()] != [""]
    write_rows(agents / "a" / "memory.db", episodes(1, start=9))
    states.append(member.state())
    for file, text in (
        (agents / "a" / "memory.db.archive.db", "an archive"),
        (agents / "a" / "memlab.toml", 'log = ["reads.jsonl"]\n'),
        (log, "a read\n"),
        (log.with_name("reads.jsonl.1"), "an earlier part\n"),
        (agents / "a" / "memlab.toml", "no TOML"),
    ):
        file.write_text(text)
        states.append(member.state())
    assert len(set(states)) == len(states)


def test_folder_without_permission_is_reported() -> None:
    with TemporaryDirectory() as top:
        agent_store(Path(top, "memory.db"), 1)
        Path(top, "shut").mkdir(0)
        Path(top).chmod(0o755)
        with as_nobody():
            _, problems = names_and_problems(expand_names(top))
    assert problems == [f"{top}/shut cannot be entered; check its permissions"]
