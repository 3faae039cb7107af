"""Commands on a store that is on a server: by its URL, whose password is in nothing they print."""

from pathlib import Path

import pytest
from betterdb_store import Betterdb
from click.testing import CliRunner, Result
from servers import redis_server

from memlab.cli import main

pytest.importorskip("betterdb_agent_memory")

SECRET = "s3cret"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_store_on_a_server_is_sized_compacted_and_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with redis_server(tmp_path, password=SECRET) as server:
        made = Betterdb(server.client())
        for number in range(60):
            made.remember(f"issue {number}\nmended", thread_id=f"t{number % 20}")
        before = made.everything()
        url = server.url.replace("//", f"//:{SECRET}@")
        plan = str(tmp_path / "plan.json")
        steps = [
            run("show", url),
            run("size", url),
            run("compare", url, "--policy", "recent", "--cap", "5"),
            run("compact", url, "--keep-recent", "5", "--save-plan", plan),
        ]
        monkeypatch.setenv("VALKEYCLI_AUTH", SECRET)  # a plan knows no password
        steps.append(run("apply", plan))
        assert made.everything()["list"].total == 5
        steps += [run("doctor", url), run("archive", url)]
        digest = steps[-1].output.split()[0]
        steps.append(run("restore", url, digest))
        assert made.everything() == before
    for step in steps:
        assert step.exit_code == 0, step.output
        assert SECRET not in step.output
    assert "maxItemsPerScope" in steps[1].output
    for file in tmp_path.rglob("*"):
        if file.is_file() and "appendonly" not in str(file):
            assert SECRET.encode() not in file.read_bytes()


@pytest.mark.parametrize("command", ["space", "vacuum", "lab"])
def test_what_is_done_with_files_alone_says_so(command: str) -> None:
    refused = run(command, f"redis://:{SECRET}@localhost/0")
    assert refused.exit_code == 2
    assert "redis://localhost/0 is on a server, and this is done with files" in refused.output
    assert SECRET not in refused.output


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    for url in (f"redis://:{SECRET}@127.0.0.1:1/0", f"postgresql://me:{SECRET}@127.0.0.1:1/db"):
        refused = run("show", url)
        assert refused.exit_code == 2
        assert "does not answer" in refused.output
        assert SECRET not in refused.output
