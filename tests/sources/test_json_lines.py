"""A kind of store that one file and one line of the table bring, as the guide shows."""

import json
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from os import fstat
from os.path import samestat
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.errors import MemlabError
from memlab.sources.opening import SYSTEMS, System, recognise
from memlab.store.archive.schema import Copy
from memlab.store.archive.schema import record_of as archived_record
from memlab.store.records import fingerprint_of
from tests.sources.conformance import Compacted, Lab
from tests.support.shell import said

LINES = System("JSON lines", ("lines",), "tests.sources.json_lines:JsonLines", start="boot context")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlab.sources.opening.SYSTEMS", (*SYSTEMS, LINES))


def line(number: int, name: str, kind: str = "episodic", title: str = "née 🦀") -> str:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number)
    memory = {"id": name, "at": at.isoformat(), "kind": kind, "tags": ["ü"], "title": title}
    return json.dumps({**memory, "body": 'of two\nlines "quoted"' * 9, "own": number})


class JsonLinesLab(Lab):
    """A file of lines, written under its lock."""

    known_by = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from memlab.sources import opening
opening.SYSTEMS += (opening.System({", ".join(map(repr, LINES[:3]))}),)
"""

    where = "memory.jsonl"

    def fill(self, count: int) -> None:
        kinds = ["semantic", *["episodic"] * (count - 1)]
        made = [line(number, f"m{number}", kind) for number, kind in enumerate(kinds)]
        self.path.write_text("\n".join(made) + "\n")

    def add_pair(self, number: int) -> None:
        keys = (f"p{number}{side}" for side in "ab")
        self._write({key: line(99 + number, key, title=f"pair {number}") for key in keys})

    def change(self, key: Any) -> None:
        self._write({key: self.exactly()[key].replace("quoted", "changed")})

    def exactly(self) -> dict[Any, Any]:
        lines = self.path.read_text().splitlines()
        return {json.loads(each)["id"]: each for each in lines}

    def _write(self, lines: dict[str, str]) -> None:
        while True:
            with self.path.open("r+") as file:
                flock(file, LOCK_EX)
                if samestat(fstat(file.fileno()), self.path.stat()):
                    file.write("\n".join([*(self.exactly() | lines).values(), ""]))
                    return


class TestJsonLines(Compacted):
    lab_type = JsonLinesLab


def test_every_command_knows_it(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    lab = JsonLinesLab(tmp_path / "stores")
    lab.fill(40)
    (tmp_path / "reads.jsonl").write_text('{"memory_id": "m1", "at": "2026-04-01T00:00:00Z"}\n')

    assert json.loads(said("show", "--json", lab.name))["summary"]["rows"]["memories"] == 40
    found = json.loads(said("find", "--json", str(tmp_path)))["stores"]
    assert [(each["what"], each["memories"]) for each in found] == [("JSON lines", 40)]
    assert "boot context" in said("size", "--explain", lab.name)
    assert "writes down no reads; give its agent a log" in said("harvest", lab.name, code=2)
    text = lab.path.read_text().splitlines()
    lab.path.write_text("\r\n".join([text[1], text[0], *text[2:]]))  # no end, no order
    before = lab.path.read_bytes()
    assert json.loads(said("vacuum", "--json", lab.name))["file"] == len(before)
    assert "there is nothing to vacuum" in said("vacuum", "--apply", lab.name, code=2)
    assert "all 40 can be read" in said("doctor", lab.name)
    assert json.loads(said("fleet", "show", "--json", str(tmp_path)))[0]["memories"] == 40
    applied = json.loads(said("compact", "--keep-recent", "9", "--apply", "--json", lab.name))
    assert len(memlab.load(f"lines:{lab.path}")) == 10
    said("restore", lab.name, applied["digest"])
    assert lab.path.read_bytes() == before
    assert json.loads(said("find", "--json", str(tmp_path)))["stores"] == found


def test_a_file_of_which_all_was_taken_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(line(1, "m1") + "\n")
    receipt = memlab.apply(memlab.plan(path, memlab.KeepRecent(0)))
    assert (path.read_bytes(), len(memlab.load(path))) == (b"", 0)
    memlab.restore(receipt.digest, store=path)
    assert path.read_text() == line(1, "m1") + "\n"


@pytest.mark.parametrize("raw", ["{", '{"id": 1}', "[" * 9999, line(0, "a").replace("+00:00", "")])
def test_what_is_no_memory_is_named_and_its_file_is_none(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(raw + "\n")
    assert recognise(path) is None
    with pytest.raises(MemlabError, match=r"line 1: .*; mend it"):
        memlab.load(f"lines:{path}")


def test_a_source_that_falls_over_an_archived_record_has_it_left_out() -> None:
    record = b'{"id":"m1"}'
    copy = Copy("m1", fingerprint_of(record), "beyond-newest", None)
    with pytest.raises(ValueError, match="nested too deep"):
        archived_record(bytearray(record), copy, lambda *_: json.loads("[" * 99_999))


def test_the_guide_shows_the_file_as_it_is_and_the_line() -> None:
    checkout = Path(__file__).parent.parent.parent
    guide = (checkout / "docs" / "guides" / "own_source.md").read_text()
    assert Path(__file__).with_name("json_lines.py").read_text() in guide
    own = f'System("{LINES.what}", ("lines",), ".json_lines:JsonLines", start="{LINES.start}")'
    assert own in guide
