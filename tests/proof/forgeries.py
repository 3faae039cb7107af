"""Files that memlab reads, as somebody else could have written them, each from a seed."""

import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from forging import changed, dumped

STRANGER: Final = 4103
TOKENS: Final = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n\n", b" " * 999),
    *(b"---\n", b"<!-- ", b"-->", b"```\n", b"[" * 3000, b"\\[" * 3000, b"](a.md)", b"[[a]]"),
    *(b"[x](../../outside/canary)", b"[x](/etc/passwd)", b"{", b"}", b'"', b"= ", b"''' ", b"# "),
    *(b"\x1b[31m", b"0", b"9" * 5000, b"-1", b"1e999", b"nan", b"true", b"null", b"x" * 70_000),
    "né 🦀".encode(),
)
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


def in_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, leave out, repeat and put in."""
    raw = bytearray(data or b" ")
    for _ in range(rng.choice((1, 1, 2, 8, 50))):
        at = rng.randrange(len(raw) + 1)
        end = min(at + rng.choice((1, 1, 5, 200)), len(raw))
        match rng.randrange(4):
            case 0:
                raw[at:end] = rng.randbytes(end - at)
            case 1 if len(raw) > end - at:
                del raw[at:end]
            case 2:
                raw[at:at] = raw[at:end]
            case _:
                raw[at:at] = rng.choice(TOKENS)
    return bytes(raw)


def in_lines(data: bytes, rng: random.Random) -> bytes:
    """Shuffle, repeat, cut and join lines."""
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
