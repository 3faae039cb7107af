"""Folders of Claude Code's memory in a state that nobody planned, walked through in the shell."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from claude_store import at, call, memory, project_folder, write_index, write_memory
from claude_store import write_transcript as transcript
from shell import LOOKING, run, typed

import memlab


def everything_below(home: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(home.rglob("*")):
        state = path.lstat()
        found[str(path)] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def contents_of(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_bytes() for path in files}


def five_megabytes(folder: Path) -> None:
    write_memory(folder, "big.md", memory("big", body="a line of it\n" * 400_000), at(0))
    write_index(folder, ["- [Big](big.md)", "# " + "x" * 5_000_000, "- [a](a.md)"])


def links_and_devices(folder: Path) -> None:
    outside = folder.parent / "outside.md"
    outside.write_text("a secret")
    (folder / "link.md").symlink_to(outside)
    (folder / "round.md").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    write_index(folder, ["- [L](link.md)", "- [R](round.md)", "- [P](pipe.md)", "- [a](a.md)"])


def beyond_all_bounds(folder: Path) -> None:
    write_memory(folder, "endless.md", memory("endless"), at(0))
    os.truncate(folder / "endless.md", 2**26 + 1)
    write_index(folder, ["- [E](endless.md)", "- [a](a.md)"])


def cycles(folder: Path) -> None:
    for one, other in (("x", "y"), ("y", "z"), ("z", "x"), ("own", "own")):
        write_memory(folder, f"{one}.md", memory(one, body=f"[[{other}]] [[{one}]]"), at(1))
    write_index(folder, [f"- [[{name}]]" for name in ("x", "y", "z", "own", "a")])


def odd_names(folder: Path) -> None:
    names = ["with space.md", "v1.2.3.md", "é.md", "e\u0301.md", "北京 🦀.md", "-rf.md", "a\nb.md"]
    for number, name in enumerate([*names, "Case.md", "case.md", "x\x1b[31m.md", "$(id).md"]):
        (folder / name).write_text(memory(f"n{number}"))
    write_index(folder, [f"- [T](<{name}>)" for name in names] + ["- [C](CASE.md)"])


def broken_heads(folder: Path) -> None:
    for number, text in enumerate(
        ("", "---\n", "---\nname: [\n---\n", "---\nname: a: b\ntype: user\n---\n", "no head\n")
    ):
        (folder / f"h{number}.md").write_text(text)
    (folder / "bytes.md").write_bytes(b"\xff\xfe\0---")
    (folder / "MEMORY.md").write_bytes(b"\xff- [h](h0.md)\r\n- [a](a.md)\0\n---\n")


def without_an_index(folder: Path) -> None:
    (folder / "MEMORY.md").unlink()


def an_index_and_no_file(folder: Path) -> None:
    (folder / "a.md").unlink()


def broken_transcripts(folder: Path) -> None:
    lines = [*call("Read", folder / "a.md", at(2), "s1", 1), "{", '{"type":7}', "\0" * 20, "[]"]
    transcript(folder.parent, "s1", lines)
    (folder.parent / "s2.jsonl").write_bytes(b"\xff" * 100)
    (folder.parent / "s3.jsonl").symlink_to("/dev/zero")


def all_at_once(folder: Path) -> None:
    """Every oddity of files, heads and transcripts, and an index with the lines of all of them."""
    lines = []
    for make_odd in (
        *(five_megabytes, links_and_devices, cycles, odd_names, broken_transcripts),
        broken_heads,
    ):
        make_odd(folder)
        lines.append((folder / "MEMORY.md").read_bytes())
    (folder / "MEMORY.md").write_bytes(b"\n".join(lines))


@pytest.fixture(params=[all_at_once, beyond_all_bounds, without_an_index, an_index_and_no_file])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    made = project_folder(tmp_path / "home")
    write_memory(made, "a.md", memory("a"), at(0))
    write_index(made, ["- [a](a.md)"])
    make_odd: Callable[[Path], None] = request.param
    make_odd(made)
    return made


@pytest.mark.long
def test_every_command_that_looks_says_something_and_leaves_no_trace(
    folder: Path, tmp_path: Path
) -> None:
    before = everything_below(tmp_path / "home")
    for name, words in ({"find": "find {}"} | LOOKING).items():
        done = run(*typed(words, folder, tmp_path))
        assert done.exit_code in ({2} if name == "maintain" else {0, 1}), (name, done.output)
        assert done.output.strip(), name
        assert "\x1b" not in done.output, name
        assert "Traceback" not in done.output, name
    assert everything_below(tmp_path / "home") == before


def test_what_is_deleted_from_an_odd_folder_comes_back_byte_for_byte(folder: Path) -> None:
    before = contents_of(folder)
    plan = memlab.plan(folder, memlab.KeepRecent(0), now=at(5_000))
    receipt = memlab.apply(plan, now=at(5_000))
    left = memlab.load(folder)
    assert not left["prunable"].any()
    assert len(left) == plan.keeps.memories
    if plan.memories:
        assert memlab.restore(receipt) == len(plan.memories)
    assert contents_of(folder) == before
