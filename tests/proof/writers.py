"""Commands that write a file for a user, and a folder in which each of them has something to do."""

import json
import tomllib
import xml.etree.ElementTree as ET
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


WRITERS: Final = {
    "size": ("size {store} --save", "memlab.toml"),
    "compact": ("compact {store} --keep-recent 9 --save", "memlab.toml"),
    "plan": ("compact {store} --keep-recent 9 --save-plan {file}", "plan.json"),
    "maintain": ("maintain {store} --apply", STORE),
    "drop": ("archive {store} --drop-before 2030-01-01 --apply", f"{STORE}.archive.db"),
    "export": ("archive {store} --export {file}", "rows.jsonl"),
    "table": ("archive {store} --export {file}", "rows.parquet"),
    "new store": ("restore {store} {digest} --into {file}", "new.db"),
    "harvest": ("harvest {memory} -o {file}", HARVESTED),
    "chart": ("report {store} --chart growth -o {file}", "chart.svg"),
    "report": ("report {store} -o {file}", "page.html"),
    "fleet plan": (
        "fleet plan {store} --keep-recent 9 --processes 1 --save-plan {file}",
        "fleet.json",
    ),
    "fleet report": ("fleet report {store} --processes 1 -o {file}", "fleet.html"),
}


def assert_whole(path: Path) -> None:
    """Assert that a file that a command wrote is one, by the end of its name."""
    match path.suffix:
        case ".html":
            assert path.read_text().rstrip().endswith("</html>")
        case ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        case ".log" | ".jsonl":
            assert [json.loads(line) for line in path.read_text().splitlines()]
        case ".json":
            assert json.loads(path.read_text())
        case ".toml":
            assert tomllib.loads(path.read_text())["store"][STORE]["archive_for"] == "1000d"
        case ".parquet":
            assert pq.read_table(path).num_rows
        case _:
            assert_sound(path)


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
