"""Every command on every kind of input: messages, exit codes, no loss."""

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
import pytest

import memlab
from memlab.cli import COMMANDS, main
from memlab.cli.fleet import fleet
from memlab.settings import FILE
from memlab.store.database import connect_reading
from tests.support.permissions import as_nobody
from tests.support.properties import crossed
from tests.support.shell import LOOKING, output_of, run, typed
from tests.support.stores import Row, episodes, files_in, row, write_rows

CHANGING = {
    "compact --apply": "compact {} --keep-recent 5 --apply",
    "vacuum --apply": "vacuum {} --apply",
    "maintain --apply": "maintain {} --apply",
    "restore": "restore {} abc",
    "apply a digest": "apply {} abc",
}
OTHERS = {
    "find": "find {}",
    "index": "index {}",
    "harvest": "harvest {} -o {out}/reads.log",
    "apply": "apply {}",
    "compact --against": "compact {} --keep-recent 5 --against {}",
    "fleet show": "fleet show {}",
    "fleet maintain": "fleet maintain {}",
}
"""Commands whose argument is not a store."""
PLAIN = {"report", "report --chart"}
"""Commands without JSON output."""

SETTINGS = 'policy = { name = "recent", keep = 9 }\n'
COMMAND = re.compile(r"\s*(next: |undo: )?\s*memlab ")
FLEET_COMMANDS = [f"fleet {name}" for name in fleet.commands]


def test_every_command_is_tested() -> None:
    tested = {words.partition(" ")[0] for words in (LOOKING | CHANGING | OTHERS).values()}
    assert tested | {"lab"} == set(COMMANDS)


def test_version_is_printed() -> None:
    assert output_of("--version") == f"memlab, version {memlab.__version__}\n"


def test_help_lists_every_command() -> None:
    lines = output_of("--help").partition("Commands:")[2].strip().splitlines()
    assert [line.split()[0] for line in lines] == sorted(COMMANDS)
    assert [line for line in lines if line.endswith("...")] == []


@pytest.mark.parametrize("name", [*COMMANDS, *FLEET_COMMANDS])
def test_help_of_a_command_begins_with_a_summary(name: str) -> None:
    help_text = output_of(*name.split(), "--help")
    summary = help_text.partition("\n\n")[2].splitlines()[0]
    assert len(summary) > 10
    assert [line for line in help_text.splitlines() if len(line) > 80] == []


class Declaration(NamedTuple):
    """The parts of an option's declaration that are the same in all commands."""

    is_flag: bool
    spellings: int


def test_options_are_declared_alike_in_all_commands() -> None:
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in COMMANDS]
    commands += [fleet.get_command(context, name) for name in fleet.commands]
    declarations: dict[str, set[Declaration]] = {}
    for command in commands:
        assert command is not None
        for option in command.get_params(context):
            if isinstance(option, click.Option) and option.opts[-1] != "--help":
                declaration = Declaration(option.is_flag, len(option.opts))
                declarations.setdefault(option.opts[-1], set()).add(declaration)
    assert [name for name, different in declarations.items() if len(different) > 1] == []


@pytest.mark.parametrize("arguments", [[], ["fleet"]])
def test_missing_command_shows_help_and_wrong_one_a_suggestion(arguments: list[str]) -> None:
    assert run(*arguments).output.splitlines() == run(*arguments, "--help").output.splitlines()
    assert "Did you mean 'size'?" in output_of(*arguments, "sise", code=2)
    assert "Did you mean '--json'?" in output_of(*arguments, "size", "x", "--jsno", code=2)


def test_beginning_of_an_option_suggests_this_option_alone() -> None:
    for command in ("compare", "compact", "rows"):
        message = output_of(command, "x", "--keep", 100, code=2)
        assert message.rstrip().endswith("No such option '--keep'. Did you mean '--keep-recent'?")


def test_beginning_of_help_suggests_help() -> None:
    message = output_of("show", "x", "--hel", code=2)
    assert message.rstrip().endswith("No such option '--hel'. Did you mean '--help'?")


def test_interrupted_command_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memlab.apply", interrupted)
    store = write_rows(tmp_path / "memory.db", episodes(3))
    stopped = run("compact", store, "--keep-recent", 2, "--apply")
    assert f"next: memlab archive {store}    says what plan" in stopped.output
    monkeypatch.setattr("memlab.frame.labelling.read_memories", interrupted)
    stopped = run("show")
    assert stopped.exit_code == 130
    assert stopped.output == "memlab: interrupted\n"


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize("arguments", ["show", "size", "floor", "report -o {out}/page.html"])
def test_example_store_output_points_to_own_store(arguments: str, out: Path) -> None:
    output = output_of(*typed(arguments, Path(), out))
    name = arguments.partition(" ")[0]
    hint = f"this is the bundled example; next: memlab {name} STORE with a store of yours"
    assert output.splitlines()[-1] == hint
    assert str(memlab.store_path("two_years")) not in output.partition("bundled example")[2]


@pytest.fixture
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def missing_file(folder: Path) -> Path:
    return folder / "memory.db"


def empty_file(folder: Path) -> Path:
    path = folder / "memory.db"
    path.touch()
    return path


def text_file(folder: Path) -> Path:
    path = folder / "memory.db"
    path.write_text("These are not the memories you look for.\n" * 100)
    return path


def empty_folder(folder: Path) -> Path:
    path = folder / "memory.db"
    path.mkdir()
    return path


def link_to_itself(folder: Path) -> Path:
    path = folder / "memory.db"
    path.symlink_to(path)
    return path


def below_a_link_to_itself(folder: Path) -> Path:
    return link_to_itself(folder) / "x.db"


def long_name(folder: Path) -> Path:
    return folder / ("x" * 300)


def long_path(folder: Path) -> Path:
    return folder.joinpath(*["x" * 250] * 20)


NOT_A_STORE: tuple[Callable[[Path], Path], ...] = (
    missing_file,
    empty_file,
    text_file,
    empty_folder,
    link_to_itself,
    below_a_link_to_itself,
    long_name,
    long_path,
)
"""Functions that make something in a folder, and return a path that is no store."""


def exit_code_for(name: str, make: Callable[[Path], Path]) -> int:
    """Return the exit code of a command on a path that is no store."""
    if name == "doctor":
        return 0 if make is missing_file else 1
    if name == "find" and make is empty_folder:
        return 0
    if name.startswith("fleet") and make is not empty_folder:
        return 1
    return 2


@pytest.mark.parametrize("name", LOOKING | CHANGING | OTHERS)
@pytest.mark.parametrize("make", NOT_A_STORE)
def test_non_store_is_reported_and_unchanged(
    tmp_path: Path, out: Path, name: str, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    before = files_in(tmp_path)
    result = run(*typed((LOOKING | CHANGING | OTHERS)[name], path, out))
    assert result.exit_code == exit_code_for(name, make), result.output
    if result.exit_code == 2 and not result.stderr.startswith("Usage: "):
        assert result.stderr.startswith("memlab: ")
        assert result.stderr.count("\n") == 1
    assert files_in(tmp_path) == before
    assert not any(out.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("show", "STORE", "\x1b[31mmore"),
        ("report", "STORE", "-o", "/tmp/\x1b[31mno such/r.html"),
        ("\x1b[31mshow",),
        ("show", "--\x1b[31mno", "STORE"),
        ("compact", "STORE", "--set", "\x1b[31mkeep"),
        ("size", "STORE", "--target", "\x1b[31m9"),
    ],
)
def test_control_characters_of_arguments_are_escaped(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    arguments = [str(store) if word == "STORE" else word for word in words]
    output = output_of(*arguments, code=2)
    assert "\x1b" not in output
    assert "\\x1b[31m" in output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store with an archive, with control characters in its path and texts."""
    loud = "\x1b[2J\x1b]0;owned\x07" + "x" * 400
    rows = [row("d\x1b[31m", "semantic", title=loud, body=loud), *episodes(30)]
    rows[-1]["title"] = loud
    (tmp_path / FILE).write_text(SETTINGS)
    folder = tmp_path / "red \x1b[31m"
    folder.mkdir()
    (folder / FILE).write_text(SETTINGS)
    path = write_rows(folder / "memory.db", rows, journal_mode="DELETE")
    path = path.rename(path.with_name(os.fsdecode(b"caf\xe9.db")))
    memlab.apply(memlab.plan(path, memlab.KeepRecent(20)))
    return path


@pytest.mark.parametrize("name", LOOKING)
def test_read_commands_change_nothing_and_escape_text(
    store: Path, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = typed(LOOKING[name], store, out)
    before = files_in(store.parent)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    if name not in PLAIN:
        json.loads(run(*arguments, "--json").stdout)
    monkeypatch.setattr("memlab.cli.output.terminal_width", lambda: 60)
    monkeypatch.chdir(store.parent)
    narrow = run(*typed(LOOKING[name], Path(store.name), out)).stdout
    lines = [line for line in narrow.splitlines() if not COMMAND.match(line)]
    assert [line for line in lines if len(line) > 60 and str(out) not in line] == []
    assert files_in(store.parent) == before


ONE_WITH_PLURAL = re.compile(
    r"(?<![\d,.:#-])1 (?:(?:more|load-bearing|prunable|rejected) )?(?:memories|tokens|episodes"
    r"|decisions|skills|stores|files|plans|references|reads|times|lines|copies|faults|rows)\b"
)
"""A count of one before a plural, which no output has."""


@pytest.mark.parametrize(
    ("name", "rows"),
    crossed(
        [*LOOKING, "compact --apply"],
        [[], [row("e", body="", title="e")], [row("d", "semantic")]],
    ),
)
def test_commands_work_on_nearly_empty_stores(
    tmp_path: Path, out: Path, name: str, rows: list[Row]
) -> None:
    store = write_rows(tmp_path / "memory.db", rows)
    (tmp_path / FILE).write_text(SETTINGS)
    command = (LOOKING | CHANGING)[name].replace("recent 5", "recent 0")
    output = output_of(*typed(command, store, out))
    assert ONE_WITH_PLURAL.findall(output) == []
    headings_of_empty_tables = re.findall(r"^([A-Z][^:\n]*[^:.\n])\n(?!  )", output, re.MULTILINE)
    assert headings_of_empty_tables == []


@pytest.mark.parametrize("name", LOOKING | CHANGING)
def test_invalid_settings_are_reported_with_their_line(
    tmp_path: Path, out: Path, name: str
) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    (tmp_path / FILE).write_text("\n\nkeep = 50\n")
    before = files_in(tmp_path)
    exit_code = 1 if name == "doctor" else 2
    message = output_of(*typed((LOOKING | CHANGING)[name], store, out), code=exit_code)
    assert "memlab.toml, line 3: there is no setting 'keep'" in message
    assert files_in(tmp_path) == before


QUICK_ON_LOCKED = ("show", "compact", "doctor", "maintain")
"""Commands that a default run tries on a locked store, two of each exit code."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK_ON_LOCKED else pytest.mark.long)
        for name in LOOKING
    ],
)
def test_locked_store_is_reported(
    tmp_path: Path, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect_reading.__kwdefaults__, "busy_timeout", 0.05)
    store = write_rows(tmp_path / "memory.db", episodes(3), journal_mode="DELETE")
    (tmp_path / FILE).write_text(SETTINGS)
    exit_code = 1 if name in {"doctor", "maintain"} else 2
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM memory_items")
        output = output_of(*typed(LOOKING[name], store, out), code=exit_code)
        assert "is locked by another process" in output
    assert len(memlab.load(store)) == 3


@pytest.mark.parametrize("name", sorted(LOOKING.keys() - PLAIN))
def test_read_commands_work_on_a_read_only_store(out: Path, name: str) -> None:
    with TemporaryDirectory() as folder:
        store = write_rows(Path(folder, "memory.db"), episodes(3), journal_mode="DELETE")
        Path(folder, FILE).write_text(SETTINGS)
        arguments = typed(LOOKING[name], store, out)
        run(*arguments)  # imports modules that only root may read
        store.chmod(0o444)
        Path(folder).chmod(0o555)
        with as_nobody():
            result = run(*arguments)
        Path(folder).chmod(0o755)
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("no_charts")
def test_written_files_have_permissions_of_the_store(store: Path, out: Path) -> None:
    archive = store.with_name(f"{store.name}.archive.db")
    for path in (store, archive):
        path.chmod(0o600)
    for arguments in (
        ("compact", store, "--keep-recent", 5, "--save-plan", out / "p.json"),
        ("report", store, "-o", out / "r.html", "--record", out / "record.md", "--keep-recent", 7),
        ("archive", store, "--export", out / "rows.jsonl"),
        ("compare", store, "--keep-recent", 3, "-o", out / "c.png"),
        ("report", store, "--chart", "backlog", "-o", out / "b.svg"),
        ("compact", store, "--keep-recent", 5, "--apply"),
    ):
        assert run(*arguments).exit_code == 0, arguments
    entry = memlab.compaction.archived_plans(store)[0]
    memlab.restore(entry.digest, store=store, into=out / "aside.db")
    memlab.restore(entry.digest, store=store)
    memlab.copy_store(store, out / "copy.db")
    written = list(out.iterdir())
    assert len(written) == 9
    for path in (store, archive, *written):
        assert path.stat().st_mode & 0o777 == 0o600, path


@pytest.mark.parametrize(
    "arguments",
    [
        "report {} -o {out}/folder",
        "report {} -o {out}/nowhere/r.html",
        "report {} --record {out}/nowhere/r.md -o {out}/r.html",
        "compare {} -o {out}/folder",
        "report {} --chart growth -o {out}/nowhere/c.svg",
        "report {} --chart growth -o {out}/chart.gif",
        "report {} -o {out}/page.png",
        "compact {} --keep-recent 9 --save-plan {out}/somebodys.json",
        "fleet report {} -o {out}/nowhere/r.html",
    ],
)
def test_unwritable_output_stops_a_command_before_reading(
    tmp_path: Path, out: Path, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "folder").mkdir()
    (out / "somebodys.json").write_text("somebody's")
    before = files_in(out)

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the command read the store")

    for name in ("evidence.past.load_past", "plan", "fleet.examine_fleet"):
        monkeypatch.setattr(f"memlab.{name}", fail)
    store = write_rows(tmp_path / "memory.db", episodes(3))
    output = output_of(*typed(arguments, store, out), code=2)
    assert re.search(f"{re.escape(str(out))}|must end in \\.", output)
    assert files_in(out) == before
