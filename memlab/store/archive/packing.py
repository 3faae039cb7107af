"""Compression of texts in an archive by zlib, and decompression with a limit on the size."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from memlab.store.shapes import check_type

_ALWAYS_ALLOWED: Final = 2**22
"""Number of bytes up to which a text is accepted whatever its compressed size."""
_MAX_RATIO: Final = 16
"""Maximum ratio of the size of a larger text to that of its compressed form."""


def packed(pieces: Callable[[], Iterable[str]], dictionary: bytes = b"") -> bytes:
    """Compress a text so that :func:`unpacked` accepts it.

    A text that compresses too well to be accepted is stored without compression.

    Parameters
    ----------
    pieces : callable
        Returns the text in pieces; called once for each attempt.
    dictionary : bytes
        The preset dictionary of zlib.
    """
    default_level = -1
    no_compression = 0
    for level in (default_level, no_compression):
        size = 0
        compressor = zlib.compressobj(level, zdict=dictionary)
        parts = list[bytes]()
        for piece in pieces():
            raw = piece.encode()
            size += len(raw)
            parts.append(compressor.compress(raw))
        parts.append(compressor.flush())
        compressed = b"".join(parts)
        if size <= _largest_size(compressed):
            break
    return compressed


def unpacked(blob: Any, dictionary: bytes = b"") -> bytes:
    """Decompress a text from an archive.

    Anybody may have written the archive. Raise ValueError if the text is damaged, or larger than
    :func:`packed` would allow.
    """
    check_type(blob, bytes, "a blob")
    decompressor = zlib.decompressobj(zdict=dictionary)
    largest = _largest_size(blob)
    try:
        text = decompressor.decompress(blob, largest + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not decompressor.eof or len(text) > largest:
        raise ValueError(f"it does not end within {largest:,} bytes")
    return text


def _largest_size(blob: bytes) -> int:
    """Return the maximum number of bytes of a text in this compressed form."""
    return max(_ALWAYS_ALLOWED, _MAX_RATIO * len(blob))
