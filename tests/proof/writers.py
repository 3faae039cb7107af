"""Commands that write a file for a user, and a folder in which each of them has something to do."""

import json
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from claude_store import at, call, memory, project_folder, write_memory, write_transcript
from invariants import assert_sound

from memlab import AccessLog, KeepRecent, apply, plan
from proof.stores import NOW, make_store

OLD: Final = "the old one"
STORE, MEMORY, HARVESTED = "memory.db", "home/.claude/projects/-home-u-work/memory", "harvested.log"
SETTINGS = f'[store."{STORE}"]\npolicy = {{ name = "recent", keep = 20 }}\narchive_for = "1000d"\n'


def is_page(path: Path) -> None:
    assert path.read_text().rstrip().endswith("</html>")


def is_drawing(path: Path) -> None:
    assert ET.parse(path).getroot().tag.endswith("svg")


def is_lines(path: Path) -> None:
    assert [json.loads(line) for line in path.read_text().splitlines()]


def is_json(path: Path) -> None:
    assert json.loads(path.read_text())


def is_settings(path: Path) -> None:
    assert tomllib.loads(path.read_text())["store"][STORE]["archive_for"] == "1000d"


def is_table(path: Path) -> None:
    assert pq.read_table(path).num_rows


WRITERS: Final[dict[str, tuple[str, str, Callable[[Path], None]]]] = {
    "size": ("size {store} --save", "memlab.toml", is_settings),
    "compact": ("compact {store} --keep-recent 9 --save", "memlab.toml", is_settings),
    "plan": ("compact {store} --keep-recent 9 --save-plan {file}", "plan.json", is_json),
    "maintain": ("maintain {store} --apply", STORE, assert_sound),
    "drop": (
        "archive {store} --drop-before 2030-01-01 --apply",
        f"{STORE}.archive.db",
        assert_sound,
    ),
    "export": ("archive {store} --export {file}", "rows.jsonl", is_lines),
    "table": ("archive {store} --export {file}", "rows.parquet", is_table),
    "new store": ("restore {store} {digest} --into {file}", "new.db", assert_sound),
    "harvest": ("harvest {memory} -o {file}", HARVESTED, is_lines),
    "chart": ("chart growth {store} -o {file}", "chart.svg", is_drawing),
    "report": ("report {store} -o {file}", "page.html", is_page),
    "fleet plan": (
        "fleet plan {store} --keep-recent 9 --processes 1 --save {file}",
        "fleet.json",
        is_json,
    ),
    "fleet report": ("fleet report {store} --processes 1 -o {file}", "fleet.html", is_page),
}
"""A command, the file that it writes or changes, and what that file is whenever it is there."""


def made_folder(folder: Path) -> str:
    """A store with an archive and settings, what an agent read, and files of an earlier run.

    Returns the digest of the plan that was applied.
    """
    folder.mkdir()
    store = make_store(folder / STORE, rows=60)
    done = apply(plan(store, KeepRecent(30), now=NOW), now=NOW)
    (folder / "memlab.toml").write_text(SETTINGS)
    notes = project_folder(folder / "home")
    write_memory(notes, "a.md", memory("a"))
    write_transcript(notes.parent, "s1", call("Read", notes / "a.md", at(1), "s1", 1))
    with AccessLog(folder / HARVESTED) as log:
        log.add("b", NOW)
    for name in ("chart.svg", "page.html", "fleet.html"):
        (folder / name).write_text(OLD)
    return done.digest
