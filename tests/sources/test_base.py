"""What adapters share: places by time, archives, and URLs of servers."""

import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.errors import MemlabError
from memlab.sources.address import address_of
from memlab.sources.base import archive_elsewhere, place_of
from memlab.systems.betterdb import Betterdb
from memlab.systems.memforge import Memforge

TIMES = st.integers(0, 2**43 - 1)
TIES = st.integers(0, 2**20 - 1) | st.text()


@given(st.tuples(st.integers(), TIES), st.tuples(TIMES, TIES), st.integers(0, 2**20 - 2))
def test_places_rise_with_time_tell_numbers_apart_and_fit_into_64_bits_whatever_a_clock_says(
    one: tuple[int, int | str], other: tuple[int, int | str], first: int
) -> None:
    here, there = place_of(*one), place_of(*other)
    assert min(here, there) >= 0
    assert max(here, there) < 2**63
    if one[0] < other[0]:
        assert here < there or one[0] < 0
    assert place_of(other[0], first) + 1 == place_of(other[0], first + 1)


def test_archives_of_servers_lie_apart_and_tell_names_apart(tmp_path: Path) -> None:
    names = ("redis://h/0?name=a", "redis://h/0?name:a", "../../etc/passwd")
    found = {archive_elsewhere(name) for name in names}
    assert len(found) == 3
    assert {path.parent for path in found} == {tmp_path / "data-home" / "memlab"}


# URLs of servers, and the passwords in them

SECRET = "p@ss word/%:#?&="
WRITTEN = "p%40ss%20word%2F%25%3A%23%3F%26%3D"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{WRITTEN}@localhost:6379/0?name=n",
        f"redis://user:{WRITTEN}@localhost:6379/0?name=n",
        f"unix://user:{WRITTEN}@/run/r.sock?db=1&name=n",
        f"postgresql://user:{WRITTEN}@localhost/db?agent=a",
        f"postgresql://user@localhost/db?agent=a&password={WRITTEN}",
    ],
)
def test_a_password_is_known_and_never_shown(url: str) -> None:
    address = address_of(url)
    assert address.password == SECRET
    source = Memforge(url) if url.startswith("postgresql") else Betterdb(url)
    for shown in (repr(address), address.without_password(), repr(source), source.name):
        assert SECRET not in shown
        assert WRITTEN not in shown
    assert WRITTEN not in str(source.archive)
    assert address.hidden(f"it said {SECRET} and {WRITTEN}") == "it said *** and ***"
    assert address_of(address.without_password()).password is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@[::1/0", "cannot be taken apart"),
        ("redis://:secret@h/0?name", "cannot be taken apart"),
        ("redis:/me:secret@h/0", "cannot be taken apart"),
        ("redis://:secret/@h/0", "cannot be taken apart"),
        ("redis://:secret@h/zero", "'zero' is no number of a database"),
        ("redis://:secret@h/0?agent=a", "no option 'agent'; there are archive, db, name"),
    ],
)
def test_a_wrong_url_says_what_to_write_without_its_password(url: str, said: str) -> None:
    with pytest.raises(MemlabError, match=said) as caught:
        Betterdb(url)
    assert "secret" not in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(url, "")


def test_a_source_goes_to_another_process_with_its_password() -> None:
    url = f"redis://:{WRITTEN}@localhost/0"
    back = pickle.loads(pickle.dumps(Betterdb(url)))
    assert back.name == "redis://localhost/0"
    assert vars(back) == vars(Betterdb(url))


def test_one_store_has_one_archive_however_its_url_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = Betterdb("redis://localhost").archive
    for url in ("redis://localhost:6379/0?name=betterdb_ac", "valkey://user:pass@localhost/0"):
        assert Betterdb(url).archive == mine
    for url in ("redis://localhost/1", "redis://localhost?name=other"):
        assert Betterdb(url).archive != mine
    for name, value in (("USER", "me"), ("HOST", "db.example"), ("DATABASE", "memories")):
        monkeypatch.setenv(f"PG{name}", value)
    spelled = Memforge("postgresql://me@db.example:5432/memories").archive
    assert Memforge("postgres://").archive == spelled
    assert Memforge("postgresql://?agent=a").archive != spelled
    assert str(Betterdb("redis://localhost?archive=/srv/a.db").archive) == "/srv/a.db"
    assert str(Memforge("postgresql://h/db?archive=/srv/a.db").archive) == "/srv/a.db"
