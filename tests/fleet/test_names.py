"""Which stores some names mean: each once, and what means none is said."""

import os
from pathlib import Path

import pytest
from stores import episodes, write_rows

from memlab.errors import MemlabError, WrongArgumentError
from memlab.fleet import Members, expand_names


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).mkdir()
        write_rows(tmp_path / name / "memory.db", episodes(3))
    return tmp_path


def names(found: Members) -> list[str]:
    return [member.name for member in found.stores if not member.problem]


def problems(found: Members) -> list[str]:
    return [member.problem for member in found.stores if member.problem]


def test_a_pattern_means_what_it_matches_in_order_and_no_file_beside_a_store(agents: Path) -> None:
    (agents / "a" / "memory.db-wal").touch()
    (agents / "a" / "memory.db.archive.db").touch()
    found = expand_names(f"{agents}/*/memory.db*")
    assert names(found) == [f"{agents}/{name}/memory.db" for name in "abc"]


def test_a_store_that_is_named_twice_counts_once_through_links_too(agents: Path) -> None:
    (agents / "soft.db").symlink_to(agents / "a" / "memory.db")
    (agents / "hard.db").hardlink_to(agents / "a" / "memory.db")
    (agents / "folder").symlink_to(agents / "b")
    given = [
        agents / "a" / "memory.db",
        agents / "soft.db",
        agents / "hard.db",
        agents / "b" / "." / "memory.db",
        agents / "folder" / "memory.db",
    ]
    found = expand_names(given)
    assert names(found) == [f"{agents}/a/memory.db", f"{agents}/b/memory.db"]
    assert found.repeated == 3


def test_a_store_that_is_named_by_path_and_url_counts_once(agents: Path) -> None:
    store = agents / "a" / "memory.db"
    found = expand_names([store, store.as_uri(), f"{store.as_uri()}?mode=ro"])
    assert (names(found), found.repeated) == ([str(store)], 2)
    (alone,) = expand_names(store.as_uri()).stores
    assert (alone.size, alone.state()) == (store.stat().st_size, found.stores[0].state())


def test_a_server_that_is_named_with_and_without_its_password_counts_once() -> None:
    given = ["redis://localhost:6379/0", "redis://:secret@localhost:6379/0"]
    assert expand_names(given).repeated == 1


def test_every_url_that_opens_nothing_is_said(agents: Path) -> None:
    found = expand_names([agents, "nosuch://a", "nosuch://u:secret@b"])
    assert [member.name for member in found.stores[3:]] == ["nosuch://a", "nosuch://u@b"]
    assert len(problems(found)) == 2
    assert "secret" not in repr(found)


def test_a_file_of_names_means_the_names_in_it(agents: Path) -> None:
    listed = agents / "names.txt"
    listed.write_text(f"# the agents\n\n{agents}/a/memory.db\n {agents}/[bc]/memory.db \n")
    assert len(names(expand_names(f"@{listed}"))) == 3


def test_a_folder_means_the_stores_below_it(agents: Path) -> None:
    (agents / "empty").mkdir()
    found = expand_names([agents, agents / "empty"])
    assert names(found) == [f"{agents}/{name}/memory.db" for name in "abc"]
    assert problems(found) == [f"{agents}/empty is a folder without a store in it; name a store"]


def test_a_path_that_cannot_be_seen_is_kept_for_who_is_to_read_it(agents: Path) -> None:
    assert names(expand_names(agents / "elsewhere.db")) == [f"{agents}/elsewhere.db"]


def test_a_path_with_the_signs_of_a_pattern_is_a_path_where_it_is_there(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "agent[1].db", episodes(1))
    assert names(expand_names(store)) == [str(store)]


def test_a_url_is_called_without_its_password() -> None:
    (member,) = expand_names("redis://:secret@localhost:6379/0?name=mem").stores
    assert "secret" not in member.name
    assert "secret" not in repr(member)
    assert "secret" in member.where


def test_a_pattern_that_matches_nothing_is_said_beside_the_stores(agents: Path) -> None:
    found = expand_names([agents / "a" / "memory.db", f"{agents}/*/none.db"])
    assert len(names(found)) == 1
    assert problems(found) == [f"nothing matches {agents}/*/none.db; check the pattern"]


@pytest.mark.parametrize("given", [[], "@{}/empty.txt"])
def test_no_name_is_refused(given: object, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    given = given.format(tmp_path) if isinstance(given, str) else given
    with pytest.raises(MemlabError, match="no store was named"):
        expand_names(given)  # type: ignore[arg-type]


def test_names_none_of_which_means_a_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"nothing matches .*check the pattern"):
        expand_names(f"{tmp_path}/*.db")


def test_a_file_of_names_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MemlabError, match="is no file of names"):
        expand_names(f"@{tmp_path}/bytes")
    with pytest.raises(MemlabError, match="cannot be read"):
        expand_names(f"@{tmp_path}/missing")


@pytest.mark.parametrize("given", [7, [7], {"a": 1}.items()])
def test_what_is_no_name_is_refused_in_words(given: object) -> None:
    with pytest.raises(WrongArgumentError, match=r"memlab\.fleet takes"):
        expand_names(given)  # type: ignore[arg-type]


def test_the_state_of_a_store_is_another_once_it_was_written(agents: Path) -> None:
    store = agents / "a" / "memory.db"
    (member,) = expand_names(store).stores
    before = member.state()
    assert before == member.state() != ""
    write_rows(store, episodes(1, start=9))
    assert member.state() != before


def test_the_state_of_a_store_is_another_once_something_beside_it_was_written(
    agents: Path,
) -> None:
    (agents / "soft.db").symlink_to(agents / "a" / "memory.db")
    log = agents / "a" / "reads.jsonl"
    (member,) = expand_names(agents / "soft.db").stores
    states = [member.state()]
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_cannot_be_entered_is_said(agents: Path) -> None:
    (agents / "c").chmod(0)
    assert "cannot be entered" in problems(expand_names(agents))[0]
