"""Recorded databases of other systems, which their own code wrote.

A test that reads such a database runs on a fresh clone, where the other system is not installed.
Where it is installed, its own code writes the database again. To record new databases, install the
systems with ``.ci/owners.sh FOLDER`` and run::

    MEMLAB_OWNERS=FOLDER MEMLAB_RECORD_DATABASES=1 pytest tests/sources
"""

import gzip
import os
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "recorded"


def recording_of(system: str, calls: str) -> Path:
    """Return the path of the recorded database that a system wrote for some calls."""
    digest = sha256(calls.encode()).hexdigest()
    return FOLDER / f"{system}-{digest[:12]}.db.gz"


def copy_recorded(recording: Path, file: Path) -> None:
    """Write a recorded database to a file that does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as copy:
        copy.write(gzip.decompress(recording.read_bytes()))


def record(recording: Path, file: Path) -> None:
    """Record a database on request, with its log checkpointed."""
    if "MEMLAB_RECORD_DATABASES" not in os.environ:
        return
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    FOLDER.mkdir(exist_ok=True)
    recording.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
