"""Commands on a server store by its URL; the password is never printed."""

import re
import sys
from pathlib import Path

import pytest

from memlab.cli import COMMANDS
from memlab.cli.fleet import fleet
from tests.support.betterdb_store import Betterdb
from tests.support.servers import redis_server
from tests.support.shell import output_of, run
from tests.support.stores import write_rows

pytest.importorskip("betterdb_agent_memory")

SECRET = "s3cret"
RECALLED = "recalled from|to recall from|the active memories go from"
"""Phrases about memories of a server, which are recalled and not loaded at a start."""


@pytest.mark.usefixtures("no_rendering")
def test_server_store_is_sized_compacted_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with redis_server(tmp_path, password=SECRET) as server:
        betterdb = Betterdb(server.client())
        for number in range(60):
            betterdb.remember(f"issue {number}\nmended", thread_id=f"t{number % 20}")
        before = betterdb.everything()
        url = server.url.replace("//", f"//:{SECRET}@")
        plan = str(tmp_path / "plan.json")
        outputs = {
            "show": output_of("show", url),
            "size": output_of("size", url, "--explain"),
            "compare": output_of("compare", url, "--policy", "recent", "--keep-recent", 5),
            "compact": output_of("compact", url, "--keep-recent", 5, "--save-plan", plan),
            "floor": output_of("floor", url),
            "report": output_of("report", url, "-o", tmp_path / "report.html"),
        }
        monkeypatch.setenv("VALKEYCLI_AUTH", SECRET)  # a plan contains no password
        outputs["apply"] = output_of("apply", plan)
        assert len(betterdb.ids()) == 5
        outputs["doctor"] = output_of("doctor", url)
        outputs["archive"] = output_of("archive", url)
        digest = outputs["archive"].split()[0]
        outputs["restore"] = output_of("restore", url, digest)
        for command in ("size", "compact", "floor", "report", "apply"):
            assert "a start" not in outputs[command]
            assert re.search(RECALLED, outputs[command])
        assert betterdb.everything() == before
    assert [command for command, output in outputs.items() if SECRET in output] == []
    assert "max_items_per_scope=" in outputs["size"]
    for file in tmp_path.rglob("*"):
        if file.is_file() and "appendonly" not in str(file):
            assert SECRET.encode() not in file.read_bytes()


def test_notebooks_name_the_server_without_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.execve", lambda *_: None)
    (tmp_path / "odek").mkdir()
    (tmp_path / "odek" / "index.json").write_text("[]")
    for number, url in enumerate((f"redis://:{SECRET}@localhost/0", f"odek:{tmp_path}/odek")):
        folder = tmp_path / str(number)
        opened = output_of("lab", url, "--folder", str(folder))
        numbers = sorted(path.name[:2] for path in folder.glob("*.ipynb"))
        assert numbers == ["00", "01", "02", "03", "04", "05", "06", "07", "08"]
        written = "".join(path.read_text() for path in folder.iterdir())
        assert repr(url.replace(f":{SECRET}@", "")) in written
        assert SECRET not in written + opened


@pytest.mark.parametrize(
    ("command", "store", "message"),
    [
        ("vacuum", "redis://:{}@localhost/0", "redis://localhost/0 is on a server, and memlab"),
        ("vacuum --apply", "odek:.", "is a folder of files: a deleted file frees"),
        ("find", "redis://:{}@localhost/0", "name one to look through, or look at one store"),
    ],
)
def test_unsupported_server_command_hides_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, store: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output = output_of(*command.split(), store.format(SECRET), code=2)
    assert message in " ".join(output.split())
    assert SECRET not in output


WRONG_URLS = (
    f"redis://me:{SECRET}@127.0.0.1:1/0?name=n&password={SECRET}",
    f"redis://:{SECRET}@[::1/0",
    f"redis://me:a/{SECRET}@127.0.0.1:1/0",
    f"nosuch://me:{SECRET}@host/db",
)


FLEET_COMMANDS = [f"fleet {name}" for name in fleet.commands]


@pytest.mark.parametrize("command", [*COMMANDS, *FLEET_COMMANDS, "", "nosuch", "size --by"])
def test_no_command_prints_a_password(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("os.execve", lambda *_: sys.exit(1))
    monkeypatch.chdir(tmp_path)
    needed: tuple[str, ...] = ()
    if command in ("compact", "fleet plan"):
        needed = ("--keep-recent", "3")
    elif command in ("apply", "restore"):
        needed = ("DIGEST",)
    for url in WRONG_URLS:
        for arguments in ((url, *needed), (url, "too", "many", url)):
            result = run(*command.split(), *arguments)
            assert result.exit_code != 0
            assert SECRET not in result.output


def test_next_steps_name_a_server_without_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = write_rows(tmp_path / "memory.db", [])
    url = f"redis://me:{SECRET}@127.0.0.1:1/0?name=n&sslpassword={SECRET}"
    step = f"next: memlab fleet size {store} 'redis://me@127.0.0.1:1/0?name=n'"
    assert step in output_of("fleet", "show", store, url, code=1)
