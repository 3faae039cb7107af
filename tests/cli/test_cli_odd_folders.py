"""Folders of Claude Code's memory in a state that nobody planned, walked through in the shell."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from claude_store import at, call, memory, project_folder, write_index, write_memory
from claude_store import write_transcript as transcript
from shell import LOOKING, run, typed
from stores import files_in

import memlab


def oddities(folder: Path) -> None:
    """What is too large, broken, no file, or named as nobody would name it."""
    write_memory(folder, "big.md", memory("big", body="a line of it\n" * 40_000), at(0))
    outside = folder.parent / "outside.md"
    outside.write_text("a secret")
    (folder / "link.md").symlink_to(outside)
    (folder / "round.md").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    names = ["with space.md", "v1.2.3.md", "é.md", "e\u0301.md", "北京 🦀.md", "-rf.md", "a\nb.md"]
    names += ["Case.md", "case.md", "x\x1b[31m.md", "$(id).md"]
    heads = ["", "---\n", "---\nname: [\n---\n", "---\nname: a: b\ntype: user\n---\n", "no head\n"]
    for number, name in enumerate(names):
        (folder / name).write_text(memory(f"n{number}"))
    for number, head in enumerate(heads):
        (folder / f"h{number}.md").write_text(head)
    (folder / "bytes.md").write_bytes(b"\xff\xfe\0---")
    lines = ["- [Big](big.md)", "# " + "x" * 500_000, "- [a](a.md)", "- [[a]]", "- [C](CASE.md)"]
    lines += [f"- [T](<{name}>)" for name in ("link.md", "round.md", "pipe.md", "h0.md", *names)]
    write_index(folder, lines)
    with (folder / "MEMORY.md").open("ab") as index:
        index.write(b"\xff- [h](h1.md)\r\n- [a](a.md)\0\n---\n")
    calls = [*call("Read", folder / "a.md", at(2), "s1", 1), "{", '{"type":7}', "\0" * 20, "[]"]
    transcript(folder.parent, "s1", calls)
    (folder.parent / "s2.jsonl").write_bytes(b"\xff" * 100)
    (folder.parent / "s3.jsonl").symlink_to("/dev/zero")


def beyond_all_bounds(folder: Path) -> None:
    write_memory(folder, "endless.md", memory("endless"), at(0))
    os.truncate(folder / "endless.md", 2**26 + 1)
    write_index(folder, ["- [E](endless.md)", "- [a](a.md)"])


@pytest.mark.parametrize(
    "make_odd",
    [
        pytest.param(oddities, marks=pytest.mark.long),
        beyond_all_bounds,
        pytest.param(lambda folder: (folder / "MEMORY.md").unlink(), id="without an index"),
        pytest.param(lambda folder: (folder / "a.md").unlink(), id="an index and no file"),
    ],
)
def test_every_command_leaves_no_trace_in_an_odd_folder_and_what_goes_comes_back_byte_for_byte(
    make_odd: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = project_folder(tmp_path / "home")
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [a](a.md)"])
    make_odd(folder)
    before, whole = files_in(folder), files_in(tmp_path / "home")
    for name, words in ({"find": "find {}"} | LOOKING).items():
        done = run(*typed(words, folder, tmp_path))
        assert done.exit_code in ({2} if name == "maintain" else {0, 1}), (name, done.output)
        assert done.output.strip(), name
        assert "\x1b" not in done.output, name
    assert files_in(tmp_path / "home") == whole
    plan = memlab.plan(folder, memlab.KeepRecent(0), now=at(5_000))
    receipt = memlab.apply(plan, now=at(5_000))
    left = memlab.load(folder)
    assert not left["prunable"].any()
    assert len(left) == plan.keeps.memories
    if plan.memories:
        assert memlab.restore(receipt) == len(plan.memories)
    assert files_in(folder) == before
