"""Every command on whatever somebody hands to it: words, an exit code, nothing lost."""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from permissions import as_nobody
from shell import run
from stores import episodes, row, write_rows

import memlab
from memlab.cli import COMMANDS
from memlab.settings import FILE
from memlab.store.database import connect_reading

LOOKING = {
    "show": "show {}",
    "size": "size {}",
    "size by tokens": "size {} --by tokens",
    "compact": "compact {} --keep-recent 5",
    "compare": "compare {} --policy recent --cap 5",
    "doctor": "doctor {}",
    "archive": "archive {}",
    "floor": "floor {}",
    "space": "space {}",
    "vacuum": "vacuum {}",
    "maintain": "maintain {}",
    "report": "report {} -o {out}/page.html",
    "chart": "chart growth {} -o {out}/chart.svg",
}
"""Commands that leave a store as it is."""
CHANGING = {
    "compact --apply": "compact {} --keep-recent 5 --apply",
    "vacuum --apply": "vacuum {} --apply",
    "maintain --apply": "maintain {} --apply",
    "restore": "restore {} abc",
    "finish": "finish {} abc",
}
OTHERS = {
    "find": "find {}",
    "harvest": "harvest {} -o {out}/reads.log",
    "apply": "apply {}",
    "diff": "diff {} {}",
}
"""Commands that take something else than a store."""
ON_NO_STORE = {"lab", "fleet"}
"""These have tests of their own."""
PLAIN = {"report", "chart"}
"""These print no JSON."""

REMEMBERED = 'policy = { name = "recent", keep = 9 }\n'
COMMAND = re.compile(r"\s*(next: |undo: )?\s*memlab ")
TEXT = "These are not the memories you are looking for.\n" * 100


def test_every_command_is_in_the_table() -> None:
    named = {words.partition(" ")[0] for words in (LOOKING | CHANGING | OTHERS).values()}
    assert named | ON_NO_STORE == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_is_for(name: str) -> None:
    said = run(name, "--help")
    assert said.exit_code == 0, said.output
    assert len(said.output.partition("\n\n")[2].splitlines()[0]) > 10


def typed(words: str, store: Path, out: Path) -> list[str]:
    return [word.format(store, out=out) for word in words.split()]


def everything_in(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


NOT_A_STORE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_text(""),
    "text": lambda path: path.write_text(TEXT),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", LOOKING | CHANGING | OTHERS)
@pytest.mark.parametrize("kind", NOT_A_STORE)
def test_what_is_no_store_is_told_in_a_sentence_and_left(
    tmp_path: Path, out: Path, name: str, kind: str
) -> None:
    path = tmp_path / "memory.db"
    NOT_A_STORE[kind](path)
    before = everything_in(tmp_path)
    said = run(*typed((LOOKING | CHANGING | OTHERS)[name], path, out))
    codes = {("doctor", kind): 1, ("find", "folder"): 0, ("space", "folder"): 0}
    codes |= {("doctor", "missing"): 0} if kind == "missing" else {}
    assert said.exit_code == codes.get((name, kind), 2), said.output
    assert "Traceback" not in said.output
    if said.exit_code == 2 and not said.stderr.startswith("Usage: "):
        assert said.stderr.startswith("memlab: ")
        assert said.stderr.count("\n") == 1
    assert everything_in(tmp_path) == before
    assert not any(out.iterdir())


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 250] * 20), "round", "round/x.db"])
def test_a_name_that_no_file_can_have_is_a_mistake(tmp_path: Path, out: Path, name: str) -> None:
    (tmp_path / "round").symlink_to("round")
    words = [*(LOOKING | CHANGING | OTHERS).values(), "fleet show {}", "fleet maintain {}"]
    for each in words:
        said = run(*typed(each, tmp_path / name, out))
        known = each.startswith(("doctor", "fleet"))
        assert said.exit_code == (1 if known else 2), each
        told = ("too long", "symbolic links", "there is no", "cannot be read", "cannot be looked")
        assert any(word in said.output for word in told), (each, said.output)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an archive, whose name and texts would steer a terminal."""
    loud = "\x1b[2J\x1b]0;owned\x07" + "x" * 400
    rows = [row("d\x1b[31m", "semantic", title=loud, body=loud), *episodes(30)]
    rows[-1]["title"] = loud
    (tmp_path / FILE).write_text(REMEMBERED)
    folder = tmp_path / "red \x1b[31m"
    folder.mkdir()
    (folder / FILE).write_text(REMEMBERED)
    path = write_rows(folder / "memory.db", rows)
    memlab.apply(memlab.plan(path, memlab.KeepRecent(20)))
    return path


@pytest.mark.parametrize("name", LOOKING)
def test_a_look_changes_nothing_and_steers_no_terminal(
    store: Path, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = LOOKING[name].replace("{}", "STORE").split()
    words = [str(store) if word == "STORE" else word.format(out=out) for word in words]
    before = everything_in(store.parent)
    said = run(*words)
    assert said.exit_code == 0, said.output
    assert said.stdout.strip()
    assert not {"\x1b", "\x07"} & set(said.output)
    if name not in PLAIN:
        json.loads(run(*words, "--json").stdout)
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 60)
    monkeypatch.chdir(store.parent)
    narrow = run(*(store.name if word == str(store) else word for word in words)).stdout
    lines = [line for line in narrow.splitlines() if not COMMAND.match(line)]
    assert [line for line in lines if len(line) > 60 and str(out) not in line] == []
    assert everything_in(store.parent) == before


@pytest.mark.parametrize("name", LOOKING | CHANGING)
def test_a_mistake_in_the_settings_is_told_with_its_line(
    tmp_path: Path, out: Path, name: str
) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    (tmp_path / FILE).write_text("\n\nkeep = 50\n")
    before = everything_in(tmp_path)
    said = run(*typed((LOOKING | CHANGING)[name], store, out))
    assert said.exit_code == (1 if name == "doctor" else 2)
    assert "memlab.toml, line 3: there is no setting 'keep'" in said.output
    assert everything_in(tmp_path) == before


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("DELETE FROM memory_items")
        yield
        connection.execute("ROLLBACK")


@pytest.mark.parametrize("name", LOOKING)
def test_a_locked_store_is_told_in_a_sentence(
    tmp_path: Path, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect_reading.__kwdefaults__, "busy_timeout", 0.05)
    store = write_rows(tmp_path / "memory.db", episodes(3), journal_mode="DELETE")
    (tmp_path / FILE).write_text(REMEMBERED)
    with locked(store):
        said = run(*typed(LOOKING[name], store, out))
    assert said.exit_code == (1 if name in {"doctor", "maintain"} else 2), said.output
    assert "is locked by another process" in said.output
    assert len(memlab.load(store)) == 3


@pytest.mark.parametrize("name", sorted(LOOKING.keys() - PLAIN))
def test_a_store_that_may_not_be_written_is_looked_at(tmp_path: Path, out: Path, name: str) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3), journal_mode="DELETE")
    (tmp_path / FILE).write_text(REMEMBERED)
    words = typed(LOOKING[name], store, out)
    for above in tmp_path.parents[:3]:
        above.chmod(above.stat().st_mode | 0o055)
    run(*words)  # imports what only root may read
    store.chmod(0o444)
    tmp_path.chmod(0o555)
    with as_nobody():
        said = run(*words)
    tmp_path.chmod(0o755)
    assert said.exit_code == 0, said.output


def test_a_path_that_is_not_utf_8_works(tmp_path: Path, out: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.db"))
    write_rows(tmp_path / "memory.db", episodes(30)).rename(odd)
    (tmp_path / FILE).write_text(REMEMBERED)
    for words in (*LOOKING.values(), CHANGING["compact --apply"], "archive {}"):
        assert run(*typed(words, odd, out)).exit_code == 0, words
    assert len(memlab.load(odd)) == 5
