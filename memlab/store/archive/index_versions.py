"""The index files of a folder as they were before a plan changed them.

An index that nobody has edited since the plan is restored from its version, with the same bytes and
the same time. An index that was edited gets back the entries of each memory instead.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import INDEX_POLICY, moment_text
from memlab.store.shapes import fields, integer, list_of, non_empty, optional, text

_VERSIONS_PREFIX: Final = "index_versions:"
"""Prefix of names in the table ``about``: the versions of an index that a plan replaced.

The digest of the plan follows it."""
_UNDONE_PREFIX: Final = "index_undone:"
"""Prefix of names in the table ``about``: the changes of an index that were undone.

The digest of the plan follows it, and the value is the time."""
_MAX_INDEX_BYTES: Final = 2**26
"""Maximum number of bytes of an index that is read from an archive."""


class IndexVersion(NamedTuple):
    """An index file before a plan.

    Attributes
    ----------
    name : str
        File name of the index.
    data : bytes or None
        Its content; None if there was no file.
    written : int
        Its time of last modification, in nanoseconds since 1970.
    digest_after : str
        The :func:`digest_of` its content after the plan.
    """

    name: str
    data: bytes | None
    written: int
    digest_after: str


def digest_of(data: bytes | None) -> str:
    """Return the SHA-256 of the content of a file; empty for a missing file."""
    return "" if data is None else sha256(data).hexdigest()


def note_index_versions(
    archive: OpenArchive, digest: str, versions: Iterable[IndexVersion]
) -> None:
    """Record the versions of index files that a plan replaced."""
    rows = [
        {
            "name": version.name,
            "data": None if version.data is None else _packed(version.data),
            "written": version.written,
            "after": version.digest_after,
        }
        for version in versions
    ]
    if not rows:
        return
    with archive.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)",
            (_VERSIONS_PREFIX + digest, json.dumps(rows)),
        )


def index_versions_in(archive: OpenArchive, digest: str) -> dict[str, IndexVersion]:
    """Return the versions that a plan replaced, by file name; empty if they are unreadable."""
    with suppress(ValueError, TypeError, RecursionError, MemoryError, zlib.error):
        rows = json.loads(archive.metadata(_VERSIONS_PREFIX + digest) or "[]")
        _check_versions(rows)
        versions = [
            IndexVersion(
                name=row["name"],
                data=None if row["data"] is None else _unpacked(row["data"]),
                written=row["written"],
                digest_after=row["after"],
            )
            for row in rows
        ]
        return {version.name: version for version in versions}
    return {}


def forget_index_versions(archive: OpenArchive) -> None:
    """Delete all versions of indexes, because they quote memories that are erased.

    Plans that changed an index are deleted, too. They quote such memories, and cannot be undone
    without the versions. This runs in the transaction of the caller.
    """
    for prefix in (_VERSIONS_PREFIX, _UNDONE_PREFIX):
        archive.connection.execute(
            "DELETE FROM about WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
        )
    archive.connection.execute("DELETE FROM applies WHERE policy = ?", (json.dumps(INDEX_POLICY),))


def note_index_undone(archive: OpenArchive, digest: str, at: datetime) -> None:
    """Record that the change of an index by a plan was undone."""
    with archive.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", (_UNDONE_PREFIX + digest, moment_text(at))
        )


def is_index_undone(archive: OpenArchive, digest: str) -> bool:
    """Return whether the change of an index by a plan was undone."""
    return archive.metadata(_UNDONE_PREFIX + digest) is not None


def _packed(data: bytes) -> str:
    """Return the content of an index as it is stored: compressed, in base 64."""
    return b64encode(zlib.compress(data)).decode()


def _unpacked(packed: str) -> bytes:
    """Return the content of an index; raise ValueError if it has more than the maximum size."""
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(b64decode(packed, validate=True), _MAX_INDEX_BYTES)
    if not unpacker.eof:
        raise ValueError(f"it has more than {_MAX_INDEX_BYTES:,} bytes")
    return data


_check_versions: Final = list_of(
    fields(
        {
            "name": non_empty(text),
            "data": optional(text),
            "written": integer(0, 2**63 - 1),
            "after": text,
        }
    )
)
