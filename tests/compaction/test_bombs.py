"""What is small on the disk and large once it is unpacked or read is refused in little memory."""

import base64
import random
import sqlite3
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from archives import compacted
from invariants import archive_of
from programs import run_program

from memlab.compaction import restore

ROOM = 300 * 2**20
NOISE = base64.b64encode(random.Random(1).randbytes(2**20))
"""Text that no packing makes much smaller, so that as much again as it allows may stand beside."""

LIMITED = """
import resource, sys
from pathlib import Path
from memlab.compaction import finish
from memlab.compaction.plans import Plan
from memlab.errors import MemlabError
from memlab.fleet.change import unpacked
path, where, room = sys.argv[1:]
taken = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmSize" in line)
resource.setrlimit(resource.RLIMIT_AS, [taken * 1024 + int(room)] * 2)
try:
    if where == "fleet":
        unpacked(Path(path).read_bytes())
    else:
        finish(path, where)
except MemlabError as error:
    print(error)
"""

BOMBS = {
    "spaces": (b'{"memlab_plan": 2', b" ", b"}"),
    "lists": (b'{"memlab_plan": 2, "memories": [', b"[],", b"[]]}"),
    "memories": (b'{"memlab_plan": 2, "memories": [', b'{"key":1},', b"{}]}"),
    "deep": (b'{"memlab_plan": 2, "memories": ', b"[", b"}"),
}
"""Begins, goes on and ends; a list without anything in it takes twenty times its text."""


def bomb_of(kind: str, size: int, noise: bytes = b"") -> list[bytes]:
    head, piece, tail = BOMBS[kind]
    head = head.replace(b"2", b'2, "token_rule": "%s"' % noise, 1)
    some = piece * (2**20 // len(piece))
    return [head, *[some] * (size // len(some)), tail]


def with_zlib(pieces: list[bytes]) -> bytes:
    packing = zlib.compressobj(1)
    return b"".join([*map(packing.compress, pieces), packing.flush()])


def with_zstd(pieces: list[bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for piece in pieces:
            stream.write(piece)
    return sink.getvalue().to_pybytes()


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of memory to be set")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["beyond", *BOMBS])
@pytest.mark.parametrize("keeper", ["archive", "fleet"])
def test_a_plan_that_an_archive_or_a_fleet_keeps(store: Path, keeper: str, kind: str) -> None:
    size = 2**29 if kind == "beyond" else (15 if keeper == "archive" else 60) * 2**20
    text = bomb_of(*(("spaces", size) if kind == "beyond" else (kind, size, NOISE)))
    if keeper == "fleet":
        file, where = store.with_name("plan.zst"), keeper
        file.write_bytes(with_zstd(text))
        assert file.stat().st_size < 2**21
    else:
        file, where, bomb = store, compacted(store).digest, with_zlib(text)
        assert len(bomb) < 2**22
        with closing(sqlite3.connect(archive_of(store))) as connection, connection:
            connection.execute("UPDATE applies SET plan_json_zlib = ?", (bomb,))
    run = run_program(LIMITED, file, where, ROOM)
    assert run.returncode == 0, run.stderr[-500:]
    assert "plan" in run.stdout
    if keeper == "archive":
        assert restore(where, store=store) == 6
