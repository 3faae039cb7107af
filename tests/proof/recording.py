"""What a process does to the files of a folder, recorded by a library preloaded into it."""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import environment

SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("<cQqII")


@dataclass(frozen=True)
class Event:
    """One thing that happened: one of the words below."""

    what: str
    file: int
    """Its inode, which another file may get once it is gone; 0 for one that is not told."""
    at: int
    """Where it was written, its new length, a folder's mode, or when what is synced was written."""
    path: str
    """The name created, removed, or given up for another."""
    data: bytes
    """What was written, the other name, or the mode of a file that was synced."""


_WORDS = {
    b"c": "create",
    b"m": "make folder",
    b"w": "write",
    b"t": "truncate",
    b"s": "sync",
    b"d": "sync folder",
    b"u": "remove",
    b"r": "rename",
    b"x": "exchange",
    b"l": "link",
}


def built_recorder(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler to build the recorder of a process's writes with")
    library = folder / "recorder.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def recorded(program: str, arguments: list[str], folder: Path, library: Path) -> list[Event]:
    log = folder.with_name(f"{folder.name}.recorded")
    log.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        env=environment()
        | {"LD_PRELOAD": str(library), "RECORDED_FOLDER": str(folder), "RECORD_TO": str(log)},
    )
    return list(_events(log.read_bytes()))


def _events(log: bytes) -> Iterator[Event]:
    place = 0
    while place < len(log):
        what, file, at, path_bytes, data_bytes = _HEAD.unpack_from(log, place)
        path_at = place + _HEAD.size
        data_at = path_at + path_bytes
        place = data_at + data_bytes
        yield Event(_WORDS[what], file, at, os.fsdecode(log[path_at:data_at]), log[data_at:place])
