"""Keyed hashes that stand for the names of memories whose content was erased."""

import hashlib
import secrets
from typing import Final

from memlab.errors import ArchiveError
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import text_in

_KEY: Final = "facts_key"
"""Name of the key in the table ``about``."""
_KEY_BYTES: Final = 32


def key_of(archive: OpenArchive) -> bytes | None:
    """Return the key of an archive's hashes.

    Return None if the archive has no key yet, and an empty key if the stored one is unreadable.
    """
    stored = archive.metadata(_KEY)
    if stored is None:
        return None
    with archive.skipping_damaged("the key that hashes the names of erased memories"):
        key = bytes.fromhex(text_in(stored, _KEY))
        if len(key) != _KEY_BYTES:
            raise ValueError(f"it has {len(key)} bytes")
        return key
    return b""


def make_key(archive: OpenArchive) -> bytes:
    """Return the key of an archive's hashes; create it if there is none.

    Raise ArchiveError if the key is unreadable.
    """
    with archive.transaction() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO about VALUES (?, ?)", (_KEY, secrets.token_hex(_KEY_BYTES))
        )
    key = key_of(archive)
    if not key:
        raise ArchiveError(
            f"{archive.describe_faults()}; nothing was dropped: restore a backup of it"
        )
    return key


def hashed(name: str, key: bytes) -> str:
    """Return the keyed BLAKE2b hash of a name, as 32 hexadecimal digits.

    >>> hashed("issue:#9", b"one key") == hashed("issue:#9", b"another")
    False
    """
    raw = name.encode(errors="surrogatepass")
    return hashlib.blake2b(raw, key=key, digest_size=16).hexdigest()
