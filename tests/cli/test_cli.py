"""The commands as a person types them: what they print, what they leave, how they exit."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
from click.testing import Result
from invariants import assert_compacted, rows_of
from shell import run, undo_in

import memlab
from memlab.cli import COMMANDS
from memlab.policies import NAMED, POLICIES


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")


class TestShow:
    def test_it_prints_the_headline_numbers(self, store: Path) -> None:
        shown = run("show", store)
        assert shown.exit_code == 0
        for words in (
            "644 memories",
            "loaded at every start          600",
            "decisions                      3",
            "skills                         5",
            "episodes                     592",
            "98.7% of 600 memories",
        ):
            assert words in shown.output
        assert "50" not in shown.output.partition("next:")[2]
        assert "passed 50 on" in run("show", store, "--threshold", 50).output

    def test_without_a_store_it_shows_the_bundled_two_years(self) -> None:
        assert "3,200 memories, 2024-07-01 to 2026-06-30" in run("show").output

    def test_json_says_the_same(self, store: Path) -> None:
        found = json.loads(run("show", store, "--json").output)
        assert found["summary"]["boot"]["memories"] == 600
        assert found["summary"]["boot"]["prunable"]["memories"] == 592

    def test_an_empty_store_is_shown(self, tmp_path: Path) -> None:
        with memlab.SqliteMemoryStore(tmp_path / "memory.db"):
            pass
        shown = run("show", tmp_path / "memory.db")
        assert shown.exit_code == 0
        assert "0 memories" in shown.output

    def test_compacting_changes_neither_pace_nor_what_is_odd(self, store: Path) -> None:
        def said() -> list[str]:
            shown = run("show", store, "--threshold", 50).output
            return [line for line in shown.splitlines() if re.match(r"  (pace|backlog|odd) ", line)]

        before = said()
        assert [line.split()[0] for line in before] == ["pace", "backlog"]
        run("compact", store, "--keep-recent", 60, "--apply")
        assert said() == before
        (digest,) = {line.split()[0] for line in run("archive", store).output.splitlines()[:1]}
        run("archive", store, "--drop", digest, "--apply")
        assert said() == before

    def test_an_archive_that_is_none_is_said_and_left_out(self, store: Path) -> None:
        store.with_name("memory.db.archive.db").write_text("something else")
        shown = run("show", store)
        assert shown.exit_code == 0
        assert "644 memories" in shown.output
        assert "archive left out: " in shown.output

    def test_the_shares_say_what_they_are_shares_of(self, store: Path) -> None:
        shown = run("show", store).output
        assert "prunable share  98.7% of 600 memories, 99.0% of 31,861 tokens" in shown
        assert "floor           1.3% of 600 memories, 1.0% of 31,861 tokens" in shown


class TestCompact:
    def test_without_apply_it_shows_and_deletes_nothing(self, store: Path) -> None:
        before = store.read_bytes()
        shown = run("compact", store, "--keep-recent", 50)
        assert shown.exit_code == 0
        assert "542 of 644 memories" in shown.output
        assert "600 memories" in shown.output
        assert "58 memories" in shown.output
        assert "nothing was deleted" in shown.output
        assert store.read_bytes() == before

    def test_with_apply_it_deletes_and_says_how_to_take_it_back(self, store: Path) -> None:
        before = rows_of(store)
        done = run("compact", store, "--keep-recent", 50, "--apply")
        assert done.exit_code == 0
        assert_compacted(before, rows_of(store), 50)
        restored = run("restore", store, undo_in(done.output))
        assert "542 memories restored" in restored.output
        assert rows_of(store) == before
        assert "0 memories restored" in run("restore", store, undo_in(done.output)).output

    def test_one_memory_is_said_to_be_one(self, store: Path) -> None:
        digest = undo_in(run("compact", store, "--keep-recent", 591, "--apply").output)
        assert "1 memory, 0 restored" in run("archive", store).output
        assert "archive           1 memory of 1 plan, " in run("doctor", store).output
        assert run("restore", store, digest).output.startswith("1 memory restored into ")

    def test_within_the_cap_there_is_nothing_to_do(self, store: Path) -> None:
        assert "nothing to do" in run("compact", store, "--keep-recent", 592).output

    def test_a_plan_is_not_written_over_another_file(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "plan.json").write_text("somebody's")
        shown = run("compact", store, "--keep-recent", 9, "--save-plan", tmp_path / "plan.json")
        assert shown.exit_code == 2
        assert "plan.json exists; name a file that does not" in shown.output
        assert (tmp_path / "plan.json").read_text() == "somebody's"

    def test_a_saved_plan_is_applied_after_review(self, store: Path, tmp_path: Path) -> None:
        before = rows_of(store)
        shown = run("compact", store, "--keep-recent", 9, "--save-plan", tmp_path / "plan.json")
        assert f"memlab apply {tmp_path / 'plan.json'}" in shown.output
        assert rows_of(store) == before
        assert run("apply", tmp_path / "plan.json").exit_code == 0
        assert_compacted(before, rows_of(store), 9)

    def test_a_plan_is_not_applied_twice(self, store: Path, tmp_path: Path) -> None:
        run("compact", store, "--keep-recent", 9, "--save-plan", tmp_path / "plan.json")
        run("apply", tmp_path / "plan.json")
        again = run("apply", tmp_path / "plan.json")
        assert again.exit_code == 1
        assert "was applied on" in again.stderr

    def test_a_stale_plan_is_a_finding(self, store: Path, tmp_path: Path) -> None:
        run("compact", store, "--keep-recent", 9, "--save-plan", tmp_path / "plan.json")
        with memlab.SqliteMemoryStore(store) as opened:
            opened.compact_episodic(100)
        left = rows_of(store)
        refused = run("apply", tmp_path / "plan.json")
        assert refused.exit_code == 1
        assert "nothing was deleted" in refused.stderr
        assert rows_of(store) == left

    def test_a_plan_follows_its_store_to_another_place(self, store: Path, tmp_path: Path) -> None:
        run("compact", store, "--keep-recent", 9, "--save-plan", tmp_path / "plan.json")
        moved = tmp_path / "moved.db"
        shutil.copyfile(store, moved)
        before = rows_of(moved)
        assert run("apply", tmp_path / "plan.json", "--store", moved).exit_code == 0
        assert_compacted(before, rows_of(moved), 9)
        assert rows_of(store) == before


class TestArchive:
    def test_it_lists_searches_exports_and_drops(self, store: Path, tmp_path: Path) -> None:
        digest = undo_in(run("compact", store, "--keep-recent", 50, "--apply").output)
        assert f"{digest}  " in run("archive", store).output
        assert "542 memories, 0 restored" in run("archive", store).output
        found = run("archive", store, "--search", "Merged #12:").output
        assert "Merged #12:" in found
        assert (
            "542 memories written" in run("archive", store, "--export", tmp_path / "a.jsonl").output
        )
        assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 542
        assert "nothing to drop" in run("archive", store, "--drop-before", "2000-01-01").output
        shown = run("archive", store, "--drop", digest).output
        assert "never restored  542" in shown
        assert "nothing was dropped; add --apply to do it" in shown
        dropped = run("archive", store, "--drop", digest, "--apply").output
        assert "dropped 542 memories for good" in dropped
        assert f"{digest}  " in run("archive", store).output
        assert run("restore", store, digest).exit_code == 2

    def test_an_export_to_an_unknown_format_is_refused(self, store: Path, tmp_path: Path) -> None:
        run("compact", store, "--keep-recent", 50, "--apply")
        assert run("archive", store, "--export", tmp_path / "a.xls").exit_code == 2


class TestSpace:
    def test_vacuum_gives_back_what_space_says(self, store: Path) -> None:
        run("compact", store, "--keep-recent", 0, "--apply")
        promised = json.loads(run("space", store, "--json").output)["after_vacuum"]
        before = store.read_bytes()
        assert "add --apply to do it" in run("vacuum", store).output
        assert store.read_bytes() == before
        assert run("vacuum", store, "--apply").exit_code == 0
        assert store.stat().st_size == promised


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a store with its report, its record and its plan; and what was printed."""
    folder = tmp_path_factory.mktemp("reported")
    path = memlab.copy_store(memlab.store_path("three_hundred_issues"), folder / "memory.db")
    page, record = folder / "report.html", folder / "record.md"
    return folder, run("report", path, "-o", page, "--keep-recent", 25, "--record", record)


class TestReport:
    def test_it_writes_one_page_and_prints_where(self, reported: tuple[Path, Result]) -> None:
        folder, done = reported
        assert done.exit_code == 0
        assert f"report: {folder / 'report.html'}" in done.output
        assert "600 → 33 memories" in done.output
        assert "memlab compact" in done.output
        page = (folder / "report.html").read_text()
        assert "Memory report: memory&#46;db" in page or "Memory report: memory.db" in page
        assert page.count("<svg ") >= 5
        assert "keep_recent = 25" in page
        assert str(folder) not in page

    def test_the_record_names_the_evidence_and_the_plan(
        self, reported: tuple[Path, Result]
    ) -> None:
        text = (reported[0] / "record.md").read_text()
        assert "| cap | `keep_recent = 25`, chosen by hand |" in text
        assert "| deletes | 567 of 644 memories |" in text
        assert "`memlab apply record.plan.json`" in text
        assert "from nine other projects" in text

    def test_the_record_of_an_applied_plan_names_the_receipt(
        self, reported: tuple[Path, Result], store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = store.with_name("record.md")
        assert run("apply", reported[0] / "record.plan.json", "--store", store).exit_code == 0
        monkeypatch.setattr("memlab.report.page.write_report", lambda *_, **__: None)
        done = run("report", store, "--keep-recent", 25, "--record", record)
        assert done.exit_code == 0
        assert "567 memories deleted and archived; undo: `memlab restore" in record.read_text()

    def test_a_folder_that_is_not_there_is_one_sentence(self, store: Path, tmp_path: Path) -> None:
        done = run("report", store, "-o", tmp_path / "nowhere" / "report.html")
        assert done.exit_code == 2
        assert f"there is no folder {tmp_path / 'nowhere'} to write report.html" in done.stderr

    def test_what_is_asked_is_answered(self, store: Path, tmp_path: Path) -> None:
        page = tmp_path / "report.html"
        log = tmp_path / "reads.csv"
        log.write_text("memory_id,at\nsemantic-decision-1,2026-06-01T00:00:00Z\n")
        asked = ("--cap", 77, "--target", 0.8, "--token-budget", 9_000, "--log", log)
        assert run("report", store, "-o", page, *asked).exit_code == 0
        text = page.read_text()
        assert "80% of references, within 9,000 tokens, keep_recent = 77" in text
        assert "Reads come from reads.csv." in text


class TestLab:
    def test_the_notebooks_are_copied_once_with_the_store_filled_in(
        self, store: Path, tmp_path: Path
    ) -> None:
        from memlab.report.bundled import copy_notebooks

        folder = tmp_path / "notebooks"
        written = copy_notebooks(folder, {"store": str(store)})
        assert folder / "01_growth.ipynb" in written
        assert str(store) in (folder / "01_growth.ipynb").read_text()
        (folder / "01_growth.ipynb").write_text("mine")
        assert copy_notebooks(folder, {"store": str(store)}) == []
        assert (folder / "01_growth.ipynb").read_text() == "mine"

    def test_two_stores_of_one_name_have_folders_of_their_own(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("memlab.cli.report._run_to_its_end", lambda _: 0)
        (tmp_path / "other").mkdir()
        other = memlab.copy_store(store, tmp_path / "other" / store.name)
        for path in (store, other, store):
            assert run("lab", path).exit_code == 0
        folders = sorted(Path("memlab-notebooks").iterdir())
        stated = [(folder / "01_growth.ipynb").read_text() for folder in folders]
        assert len(folders) == 2
        assert {str(path) for path in (store, other) for text in stated if str(path) in text} == {
            str(store),
            str(other),
        }

    def test_a_folder_of_claude_codes_memory_takes_the_place_of_the_bundled_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("memlab.cli.report._run_to_its_end", lambda _: 0)
        bundled = memlab.store_path("two_years").parent / "claude" / "projects"
        own = Path(shutil.copytree(bundled, tmp_path / "projects"))
        memory = next(own.glob("*/memory"))
        for store, expected in ((memory, memory), (memlab.store_path("two_years"), None)):
            assert run("lab", store, "--folder", f"of {store.stem}").exit_code == 0
            text = Path(f"of {store.stem}", "05_your_own_store.ipynb").read_text()
            shown = expected or next(bundled.glob("*/memory"))
            assert str(shown) in text
            assert str(shown.parent.parent) in text

    def test_notebooks_of_another_store_are_not_opened(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memlab.cli.report._run_to_its_end", lambda _: 0)
        folder = tmp_path / "notebooks"
        assert run("lab", "--folder", folder).exit_code == 0
        refused = run("lab", store, "--folder", folder)
        assert refused.exit_code == 2
        assert f"the notebooks in {folder} are for " in refused.output
        assert "name another folder with --folder" in refused.output
        (folder / "store.txt").unlink()
        assert run("lab", store, "--folder", folder).exit_code == 2


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from memlab.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    heavy = {"pandas", "numpy", "matplotlib", "pyarrow", "numba", "nbformat", "IPython", "sklearn"}
    assert "Commands:" in done.stdout
    assert not heavy & set(done.stdout.split())


def test_a_report_that_could_not_be_written_is_not_begun(store: Path, tmp_path: Path) -> None:
    for option in ("--output", "--record"):
        refused = run("report", store, option, tmp_path / "absent" / "file")
        assert refused.exit_code == 2
        assert f"there is no folder {tmp_path / 'absent'}" in refused.output


def test_what_was_restored_is_counted_for_a_script(store: Path) -> None:
    digest = json.loads(run("compact", store, "--keep-recent", 50, "--apply", "--json").output)[
        "digest"
    ]
    restored = json.loads(run("restore", store, digest, "--json").output)
    assert restored == {
        "restored": 542,
        "left_out": 0,
        "rows_left_out": {},
        "into": str(store),
    }


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    listed = run("--help").output.partition("Commands:")[2].strip().splitlines()
    assert [line.split()[0] for line in listed] == sorted(COMMANDS)
    assert not [line for line in listed if line.endswith("...")]


def test_an_interrupted_command_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memlab.frame.labelling.read_memories", interrupted)
    stopped = run("show")
    assert (stopped.exit_code, stopped.output) == (130, "memlab: interrupted\n")


def test_a_server_outlives_the_ctrl_c_that_it_hears_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        waits = 0

        def __init__(self, command: list[str]) -> None:
            assert command[1:3] == ["-m", "jupyterlab"]

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            assert self.waits == 2

        def wait(self) -> int:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return 7

    monkeypatch.setattr(subprocess, "Popen", Server)
    monkeypatch.setattr("memlab.report.bundled.copy_notebooks", lambda *_, **__: [])
    assert run("lab").exit_code == 7


def test_every_policy_of_the_package_is_offered_wherever_one_is_taken() -> None:
    assert POLICIES.keys() - NAMED.keys() == {"all", "pipeline"}
    for command in ("compact", "compare"):
        listed = run(command, "--help").output.partition("Policies:")[2]
        assert all(name in listed for name in NAMED)


def test_a_command_that_does_not_exist_is_no_traceback() -> None:
    said = run("shwo")
    assert said.exit_code == 2
    assert "No such command 'shwo'" in said.output


def test_a_command_imports_itself_alone() -> None:
    program = (
        "import sys; from memlab.cli import main\n"
        "try: main(['archive', '--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    loaded = {name for name in done.stdout.split() if name.startswith("memlab.cli.")}
    shared = {"options", "output"}
    assert loaded == {f"memlab.cli.{name}" for name in {"upkeep", *shared}}


def test_python_dash_m_is_the_same_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "--version"], capture_output=True, check=True, text=True
    )
    assert done.stdout == f"memlab, version {memlab.__version__}\n"
