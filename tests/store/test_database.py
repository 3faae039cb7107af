"""A store's file is found by what somebody calls it."""

from pathlib import Path

import pytest
from stores import episodes, write_rows

import memlab
from memlab.store.database import store_file


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("memory.db", "memory.db"),
        ("file:memory.db", "memory.db"),
        ("file:memory.db?mode=ro&cache=private", "memory.db"),
        ("file:a%20b%23%3F.db", "a b#?.db"),
        ("a b#?.db", "a b#?.db"),
    ],
)
def test_a_path_or_uri_names_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, names: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / names, episodes(1))
    assert store_file(source) == Path(names)
    assert len(memlab.load(source)) == 1
    assert store_file((tmp_path / names).as_uri()) == tmp_path / names
