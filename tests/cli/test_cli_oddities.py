"""What people and machines hand to the command line that nobody thinks of."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from shell import run
from stores import episodes, row, run_sql, write_rows

import memlab
from memlab.cli import main

MEMLAB = Path(sys.executable).with_name("memlab")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(30))


def test_a_folder_for_sqlites_copy_that_is_not_there_is_told(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(store.parent / "nowhere"))
    refused = run("vacuum", store, "--apply")
    assert refused.exit_code == 2
    assert "SQLITE_TMPDIR names" in refused.stderr


@pytest.mark.parametrize("name", [":memory:", "file:x.db", "file:x.db?mode=memory"])
def test_a_file_whose_name_sqlite_takes_for_more_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_rows(tmp_path / "plain.db", episodes(9), journal_mode="DELETE").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    done = run("compact", name, "--keep-recent", 4, "--apply")
    assert done.exit_code == 0, done.stderr
    assert len(memlab.load(tmp_path / name)) == 4
    assert sorted(each.name for each in tmp_path.iterdir()) == [name, f"{name}.archive.db"]


@pytest.mark.parametrize(
    "name", ["redis:x.db", "claude:x.db", "two\nlines.db", "it's \x07 \udcff.db"]
)
def test_what_takes_a_deletion_back_can_be_copied_into_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "memory.db", episodes(30)).rename(tmp_path / name)
    done = run("compact", f"./{name}", "--keep-recent", 10, "--apply")
    (undo,) = re.findall(r"undo +memlab (.*)", done.stdout)
    back = subprocess.run(["bash", "-c", f"{MEMLAB} {undo}"], capture_output=True, check=True)
    assert back.stdout.startswith(b"20 memories restored")


def test_a_collation_of_the_agents_own_is_told_in_words(store: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(store)
    connection.create_collation("mine", lambda a, b: (a > b) - (a < b))
    connection.execute("CREATE INDEX by_title ON memory_items (title COLLATE mine)")
    connection.close()
    for command in (("show",), ("compact", "--keep-recent", "4", "--apply"), ("vacuum", "--apply")):
        refused = run(command[0], store, *command[1:])
        assert refused.exit_code == 2
        assert "drop that index" in refused.stderr


def test_an_archive_that_is_not_there_yet_is_no_error(store: Path) -> None:
    listed = run("archive", store)
    assert listed.exit_code == 0
    assert "no plan has taken anything out of" in listed.output
    assert json.loads(run("archive", store, "--json").output) == []
    assert run("archive", store.with_name("absent.db")).exit_code == 2


def test_a_renamed_store_is_told_which_archive_is_its_own(store: Path) -> None:
    run("compact", store, "--keep-recent", 3, "--apply")
    renamed = store.rename(store.with_name("agent.db"))
    for words in ((), ("--json",), ("--rows",), ("--drop", "a")):
        refused = run("archive", renamed, *words)
        assert refused.exit_code == 2
        assert "memory.db.archive.db is the archive of this store" in refused.stderr


def test_an_archive_that_cannot_be_opened_is_told_by_name(store: Path) -> None:
    folder = store.with_name("memory.db.archive.db")
    folder.mkdir()
    for words in (("archive",), ("compact", "--keep-recent", 3, "--apply")):
        refused = run(words[0], store, *words[1:])
        assert refused.exit_code == 2
        assert str(folder) in refused.stderr
    assert "no ordinary file" in run("doctor", store).output
    assert len(memlab.load(store)) == 30


def test_a_second_restore_says_why_it_restored_none(store: Path) -> None:
    run("compact", store, "--keep-recent", 3, "--apply")
    (entry,) = memlab.compaction.archived_plans(store)
    assert "27 memories restored" in run("restore", store, entry.digest).output
    again = run("restore", store, entry.digest)
    assert again.exit_code == 0
    assert "is in the store already" in again.output


@pytest.mark.parametrize(
    "words",
    [
        ("show", "STORE", "\x1b[31mmore"),
        ("report", "STORE", "-o", "/tmp/\x1b[31mno such/r.html"),
        ("\x1b[31mshow",),
        ("show", "--\x1b[31mno", "STORE"),
        ("--\x1b[31mno",),
        ("compact", "STORE", "--set", "\x1b[31mkeep"),
        ("size", "STORE", "--target", "\x1b[31m9"),
    ],
)
def test_no_word_of_the_command_line_steers_the_terminal(
    store: Path, words: tuple[str, ...]
) -> None:
    refused = run(*(store if word == "STORE" else word for word in words))
    assert refused.exit_code == 2
    assert "\x1b" not in refused.output
    assert "\\x1b[31m" in refused.stderr


def test_a_leap_second_is_a_time(store: Path) -> None:
    write_rows(store, [row("leap", created_at="2016-12-31T23:59:60+00:00")])
    assert run("show", store).exit_code == 0
    created = memlab.load(store).set_index("memory_id").loc["leap", "created_at"]
    assert created.isoformat() == "2017-01-01T00:00:00+00:00"


def test_what_to_do_about_a_row_that_cannot_be_read_can_be_done_in_a_shell(store: Path) -> None:
    run_sql(store, "UPDATE memory_items SET created_at = 'noon' WHERE memory_id = 'e3'")
    refused = run("show", store)
    assert refused.exit_code == 2
    assert "memlab doctor names all such rows" in refused.stderr
    assert "'noon' is not a timestamp" in run("doctor", store).output


def test_a_plan_of_a_clock_far_ahead_asks_whether_it_is_right(store: Path) -> None:
    run_sql(store, "UPDATE memory_items SET created_at = '2011-01-01T00:00:00Z'")
    shown = run("compact", store, "--policy", "ttl", "--ttl", "30d")
    assert "is it right?" in shown.output
    assert "is it right?" not in run("compact", store, "--keep-recent", 3).output


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3_000))
    command = (
        f"{MEMLAB} compact {store} --keep-recent 3 --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_who_ends_the_lab_ends_its_server(tmp_path: Path) -> None:
    server = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    program = (
        "import sys; from memlab.cli.report import _run_to_its_end as run; "
        "sys.exit(run([sys.executable, '-c', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", program, server, str(tmp_path / "pid")]
    with subprocess.Popen(command) as lab:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert lab.poll() is None
            time.sleep(0.05)
        lab.send_signal(signal.SIGTERM)
        assert lab.wait(timeout=30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("words", [[], ["fleet"]])
def test_without_a_command_the_help_is_shown_line_by_line(words: list[str]) -> None:
    shown = CliRunner().invoke(main, words).output
    assert shown.splitlines() == CliRunner().invoke(main, [*words, "--help"]).output.splitlines()


SEVERAL = re.compile(
    r"(?<![\d,.:#-])1 (?:(?:more|load-bearing|prunable|rejected) )?"
    r"(?:memories|tokens|episodes|decisions|skills|paths|places|stores|files|plans|references|reads|times|windows"
    r"|lines|links|copies|faults|rows|databases)\b"
)


def test_of_one_thing_no_command_speaks_as_of_several(tmp_path: Path) -> None:
    decision = row("d", "semantic", body="", title="d", created_at="2026-03-01T10:00:00")
    store = write_rows(tmp_path / "memory.db", [decision, row("e", body="", title="e")])
    plan = tmp_path / "plan.json"
    said = [
        run(*words)
        for words in (
            *(("show", store), ("size", store), ("floor", store), ("doctor", store)),
            *(("find", tmp_path), ("size", store, "--by", "tokens"), ("compare", store)),
            ("compact", store, "--keep-recent", 0, "--save-plan", plan),
            *(("apply", plan), ("archive", store), ("doctor", store), ("show", store)),
            ("archive", store, "--drop-before", "2100-01-01"),
            *(("fleet", "show", tmp_path), ("fleet", "size", tmp_path)),
            ("fleet", "plan", tmp_path, "--keep-recent", 0),
            ("report", store, "-o", tmp_path / "r.html"),
        )
    ]
    digest = said[9].output.split()[0]
    write_rows(store, [row("later", rowid=2)])
    said += [run("restore", store, digest)]
    found = [line for each in said for line in each.output.splitlines() if SEVERAL.search(line)]
    assert "\n".join(found) == ""


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_file_system_that_is_mounted_read_only_is_told(tmp_path: Path, mode: str) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    run_sql(store, f"PRAGMA journal_mode = {mode}")
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    words = ("compact", store, "--keep-recent", 3, "--apply")
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    memlab = [sys.executable, "-m", "memlab", *map(str, words)]
    done = subprocess.run(
        [*unshare, str(tmp_path), *memlab], check=False, capture_output=True, text=True
    )
    if done.returncode == 1 and "memlab" not in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert done.returncode == 2, done.stderr
    assert f"{store} cannot be written: its file system is mounted read-only" in done.stderr
    assert "exists" not in done.stderr
