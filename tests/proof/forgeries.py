"""Files that memlab reads, as somebody else could have written them, each from a seed."""

import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from forging import TOKENS, changed, dumped, in_bytes

STRANGER: Final = 4103
OTHERS: Final[tuple[Callable[[Path, Path], object], ...]] = (
    lambda path, outside: path.symlink_to(outside),
    lambda path, outside: path.symlink_to(outside.parent),
    lambda path, _: path.symlink_to(path.name),
    lambda path, _: path.symlink_to("/dev/zero"),
    lambda path, _: path.symlink_to("nowhere"),
    lambda path, _: os.mkfifo(path),
    lambda path, _: path.mkdir(),
    lambda path, _: os.truncate(path, 2**40) if not path.touch() else None,
)
"""What is no file of a size that anybody wrote."""


def spoil(path: Path, outside: Path, rng: random.Random) -> str:
    """Change a file, or put something else in its place; return what was done."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**20:
        return "nothing"
    choice = rng.random()
    if choice < 0.06:
        path.unlink()
        rng.choice(OTHERS)(path, outside)
        return f"something else for {path.name}"
    if choice < 0.1:
        path.chmod(rng.choice((0o000, 0o4777, 0o6755, 0o666, 0o604, 0o2640)))
        if os.geteuid() == 0 and rng.random() < 0.5:
            os.chown(path, STRANGER, STRANGER)
        return f"other rights for {path.name}"
    change = rng.choice((in_bytes, in_lines, in_json, in_json, in_json))
    data = change(path.read_bytes(), rng)
    path.write_bytes(data)
    return f"{change.__name__} of {path.name}"


def in_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    match rng.randrange(5):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines *= rng.choice((0, 2, 30))
        case 2:
            lines = [line[: rng.randrange(len(line) + 1)] for line in lines]
        case 3:
            return b"".join(lines)
        case _:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(TOKENS))
    return b"\n".join(lines)


def in_json(data: bytes, rng: random.Random) -> bytes:
    """Have other values in JSON, of a whole file or of some of its lines; else in its bytes."""
    with suppress(ValueError, RecursionError):
        return _changed(data, rng)
    lines = data.split(b"\n")
    done = False
    for at in rng.sample(range(len(lines)), min(len(lines), rng.choice((1, 2, 8)))):
        with suppress(ValueError, RecursionError):
            lines[at] = _changed(lines[at], rng)
            done = True
    return b"\n".join(lines) if done else in_bytes(data, rng)


def _changed(data: bytes, rng: random.Random) -> bytes:
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        value = changed(value, rng)
    return dumped(value).encode(errors="surrogatepass")
