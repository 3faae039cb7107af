"""A custom kind of store from one file and one table row, as the guide shows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.errors import MemlabError
from memlab.sources.opening import SYSTEMS, recognise
from memlab.store.archive.schema import Copy
from memlab.store.archive.schema import record_of as archived_record
from memlab.store.records import fingerprint_of
from tests.sources.json_lines import LINES, JsonLines
from tests.sources.json_lines_lab import JsonLinesLab, TestJsonLines, line
from tests.support.shell import output_of

__all__ = ["TestJsonLines"]


@pytest.fixture(autouse=True)
def register_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlab.sources.opening.SYSTEMS", (*SYSTEMS, LINES))


JsonLinesLab.registration_code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent.parent)!r})
from memlab.sources import opening
opening.SYSTEMS += (opening.System({", ".join(map(repr, LINES[:3]))}),)
"""


def test_every_command_supports_a_custom_source(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    lab = JsonLinesLab(tmp_path / "stores")
    lab.fill(40)
    (tmp_path / "reads.jsonl").write_text('{"memory_id": "m1", "at": "2026-04-01T00:00:00Z"}\n')

    assert json.loads(output_of("show", "--json", lab.name))["summary"]["rows"]["memories"] == 40
    stores = json.loads(output_of("find", "--json", str(tmp_path)))["stores"]
    assert [(store["system"], store["memories"]) for store in stores] == [("JSON lines", 40)]
    assert "a start" in output_of("size", "--explain", lab.name)
    assert "holds no record of reads; let its agent write one" in output_of(
        "harvest", lab.name, code=2
    )
    first, second, *others = lab.path.read_text().splitlines()
    lab.path.write_text("\r\n".join([second, first, *others]))
    before = lab.path.read_bytes()
    assert json.loads(output_of("vacuum", "--json", lab.name))["file"] == len(before)
    assert "there is nothing to vacuum" in output_of("vacuum", "--apply", lab.name, code=2)
    assert "all 40 can be read" in output_of("doctor", lab.name)
    assert json.loads(output_of("fleet", "show", "--json", str(tmp_path)))[0]["memories"] == 40
    applied = json.loads(output_of("compact", "--keep-recent", "9", "--apply", "--json", lab.name))
    assert len(memlab.load(f"lines:{lab.path}")) == 10
    output_of("restore", lab.name, applied["digest"])
    assert lab.path.read_bytes() == before
    assert json.loads(output_of("find", "--json", str(tmp_path)))["stores"] == stores


def test_emptied_file_is_still_a_store(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(line(1, "m1") + "\n")
    receipt = memlab.apply(memlab.plan(path, memlab.KeepRecent(0)))
    assert path.read_bytes() == b""
    assert len(memlab.load(path)) == 0
    memlab.restore(receipt.digest, store=path)
    assert path.read_text() == line(1, "m1") + "\n"


class OnlyRequired(JsonLines):
    """The source with only the required columns of a row."""

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        row = super().row_in(parsed)
        required = ("position", "key", "memory_id", "kind", "title", "body")
        return {name: row[name] for name in required}


def test_row_needs_only_the_required_columns(tmp_path: Path) -> None:
    lab = JsonLinesLab(tmp_path)
    lab.fill(9)
    before = lab.exactly()
    source = OnlyRequired(lab.path)
    receipt = memlab.apply(memlab.plan(source, memlab.KeepRecent(3)), store=source)
    assert receipt.deleted == 5
    assert memlab.restore(receipt, store=source).memories == 5
    assert lab.exactly() == before


@pytest.mark.parametrize("raw", ["{", '{"id": 1}', "[" * 9999, line(0, "a").replace("+00:00", "")])
def test_invalid_line_is_named_and_the_file_not_recognised(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(raw + "\n")
    assert recognise(path) is None
    with pytest.raises(MemlabError, match=r"line 1: .*; mend it"):
        memlab.load(f"lines:{path}")


def test_archived_record_that_a_source_cannot_parse_is_an_error() -> None:
    record = b'{"id":"m1"}'
    copy = Copy("m1", fingerprint_of(record), "beyond-newest", None)
    with pytest.raises(ValueError, match="nested too deep"):
        archived_record(bytearray(record), copy, lambda *_: json.loads("[" * 99_999))


def test_guide_shows_the_current_code() -> None:
    checkout = Path(__file__).parent.parent.parent
    guide = (checkout / "docs" / "guides" / "own_source.md").read_text()
    for name in ("json_lines.py", "json_lines_lab.py"):
        assert Path(__file__).with_name(name).read_text() in guide
