"""All that a store has held: its own rows, and those that plans have taken out of it."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import pandas as pd

from memlab import columns as col
from memlab.frame.loading import load
from memlab.store import SqliteMemoryStore
from memlab.store.archive import Archive, archive_path, read_archive
from memlab.store.database import COLUMNS, transaction

_NAMES: Final = ", ".join(COLUMNS)


def past_of(store: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a store's frame with the rows that its archive keeps put back where they stood.

    Parameters
    ----------
    store : Path
        The store. Neither it nor its archive is written to.
    frame : DataFrame
        What ``memlab.load`` returns for it.

    Returns
    -------
    DataFrame
        The columns of :data:`memlab.columns.DTYPES`, in rowid order. A copy is left out where the
        store has its id or its position; of several with one id or position the last archived
        stands. What cannot be interpreted is left out as well.

    Raises
    ------
    ArchiveError
        When there is an archive that cannot be read.
    """
    own = frame[list(col.DTYPES)]
    archive = archive_path(store)
    if not archive.is_file() or archive.stat().st_size == 0:
        return own
    gone = read_archive(store, _archived_frame)
    known = gone[col.MEMORY_ID].isin(own[col.MEMORY_ID]) | gone[col.POSITION].isin(
        own[col.POSITION]
    )
    every = pd.concat([own, gone[~known]])
    return every.sort_values(col.POSITION, kind="stable").reset_index(drop=True)


def _archived_frame(archive: Archive) -> pd.DataFrame:
    """Return the archived rows as ``memlab.load`` would have shown them in one store."""
    # In a file, for an archive may be larger than memory.
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteMemoryStore(Path(folder) / "gone.db") as gone,
    ):
        archive.connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        with transaction(gone.connection):
            gone.connection.executemany(
                f"INSERT OR REPLACE INTO memory_items (rowid, {_NAMES}) "
                f"VALUES ({', '.join('?' * (len(COLUMNS) + 1))})",
                archive.connection.execute(
                    f"SELECT position, {_NAMES} FROM archived ORDER BY apply, position"
                ),
            )
        rows = load(gone, on_bad_row="keep")
    return rows.loc[rows[col.PROBLEM].isna(), list(col.DTYPES)]
