"""Stores of every kind for the notebooks, and a way to run the notebooks on them."""

import ast
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import nbformat

import memlab
from memlab.sources.opening import open_source
from memlab.views.bundled import copy_notebooks, facts_of
from tests.support.claude_store import (
    at,
    call,
    memory,
    project_folder,
    write_index,
    write_memory,
    write_transcript,
)
from tests.support.odek_store import write_odek
from tests.support.openclaw_store import days_before, write_workspace
from tests.support.servers import redis_server
from tests.support.stores import row, write_rows

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def write_episodes(path: Path, count: int) -> str:
    """Write a decision and episodes, one in three hours, without references."""
    memlab.SqliteMemoryStore(path).close()
    rows = [
        row(
            f"m{number}",
            "episodic" if number else "semantic",
            "merged",
            source_task_ref=f"issue:{number}",
            created_at=(START + timedelta(hours=3 * number)).isoformat(),
        )
        for number in range(count)
    ]
    write_rows(path, rows)
    return str(path)


@contextmanager
def store_of_episodes(folder: Path, *, count: int) -> Iterator[str]:
    yield write_episodes(folder / "memory.db", count)


@contextmanager
def fully_compacted(folder: Path, *, load_bearing: bool) -> Iterator[str]:
    """Write a store whose prunable memories were all deleted, with or without a decision."""
    path = Path(write_episodes(folder / "memory.db", 60))
    if not load_bearing:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM memory_items WHERE kind = 'semantic'")
    memlab.apply(memlab.plan(path, memlab.KeepRecent(0)))
    yield str(path)


@contextmanager
def store_with_log(folder: Path) -> Iterator[str]:
    """Write a store whose settings name an access log."""
    path = memlab.copy_store(memlab.store_path("looked_up"), folder / "memory.db")
    reads = memlab.store_path("looked_up").with_suffix(".reads.jsonl")
    (folder / "reads.jsonl").write_bytes(reads.read_bytes())
    (folder / "memlab.toml").write_text('log = "reads.jsonl"\n')
    yield str(path)


@contextmanager
def claude(folder: Path) -> Iterator[str]:
    """Write a Claude Code folder with transcripts that read some memories."""
    project = project_folder(folder).parent
    names = [f"note_{number}" for number in range(40)]
    lines = []
    for number, name in enumerate(names):
        kind = "feedback" if number % 10 == 0 else "project"
        text = memory(name, kind)
        write_memory(project / "memory", f"{name}.md", text, at(24 * number))
        lines.append(f"- [{name}]({name}.md) — a hook, {number}")
    write_index(project / "memory", lines)
    for number in range(1, 30):
        read = project / "memory" / f"note_{number - 1}.md"
        session = f"session-{number}"
        write_transcript(project, session, call("Read", read, at(24 * number + 5), session, number))
    yield str(project / "memory")


@contextmanager
def openclaw(folder: Path) -> Iterator[str]:
    yield f"openclaw:{write_workspace_of(folder)}"


def write_workspace_of(folder: Path) -> Path:
    """Write a workspace of forty days, with the searches that hit its notes."""
    workspace = folder / "workspace"
    write_workspace(workspace, days_before(date(2026, 6, 30), 40))
    return workspace


@contextmanager
def serena(folder: Path) -> Iterator[str]:
    project = folder / "project"
    for number in range(12):
        name = f".serena/memories/topic_{number}.md"
        write_memory(project, name, f"# Topic {number}\n\nwhat is known\n", at(24 * number))
    yield f"serena:{project}"


@contextmanager
def odek(folder: Path) -> Iterator[str]:
    summaries = [f"episode {number} of the index" for number in range(30)]
    yield f"odek:{write_odek(folder / 'odek', summaries)}"


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Write BetterDB's memories on a Redis server by BetterDB's own code."""
    from tests.support.betterdb_store import Betterdb

    with redis_server(folder) as redis, redis.client() as client:
        betterdb = Betterdb(client)
        for number in range(25):
            betterdb.remember(f"memory {number}")
        yield redis.url


STORES: Final[dict[str, Callable[[Path], Any]]] = {
    "empty": partial(store_of_episodes, count=0),
    "one row": partial(store_of_episodes, count=1),
    "eleven": partial(store_of_episodes, count=11),
    "sixty": partial(store_of_episodes, count=60),
    "all deleted": partial(fully_compacted, load_bearing=False),
    "decision left": partial(fully_compacted, load_bearing=True),
    "thousand": partial(store_of_episodes, count=1000),
    "logged": store_with_log,
    "claude": claude,
    "openclaw": openclaw,
    "serena": serena,
    "odek": odek,
    "server": server,
}


def write_notebooks_for(store: str, folder: Path) -> list[Path]:
    """Write the notebooks for a store as ``memlab lab`` does."""
    source = open_source(store)
    return copy_notebooks(folder, facts_of(source, now=datetime.now(UTC)))


def run_in_this_process(path: Path) -> list[str]:
    """Run the cells of a notebook in this process; return the output of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    return [_output_of_cell(source, names, str(path)) for source in sources]


def _output_of_cell(source: str, names: dict[str, Any], file: str) -> str:
    """Run a cell and return what it prints, and the value of an expression at its end."""
    tree = ast.parse(source)
    last_expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last_expression = tree.body.pop()
    outputs: list[str] = []

    def record_print(*values: object, sep: str = " ", **_: object) -> None:
        outputs.append(sep.join(map(str, values)))

    names["print"] = record_print
    exec(compile(tree, file, "exec"), names)
    if last_expression is not None:
        value = eval(compile(ast.Expression(last_expression.value), file, "eval"), names)
        if value is not None:
            outputs.append(_as_page(value))
    return "\n".join(outputs)


def _as_page(value: Any) -> str:
    if hasattr(value, "_repr_html_"):
        return str(value._repr_html_())
    if hasattr(value, "_repr_mimebundle_"):
        return json.dumps(value._repr_mimebundle_(), default=str)
    return repr(value)
