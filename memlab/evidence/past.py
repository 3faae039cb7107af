"""All that a store has held: its own memories, and those that plans have taken out of it."""

import pandas as pd

from memlab import columns as col
from memlab.frame.loading import frame_of
from memlab.sources.base import Source, archive_at
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import Archive
from memlab.store.archive_file import is_begun, read_archive


def past_of(store: SourceLike, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a store's frame with what its archive keeps put back where it stood.

    Parameters
    ----------
    store : str, Path or Source
        The store. Neither it nor its archive is written to.
    frame : DataFrame
        What ``memlab.load`` returns for it.

    Returns
    -------
    DataFrame
        The columns of :data:`memlab.columns.DTYPES`, in order of position. A copy is left out where
        the store has its id or its position; of several with one id or position the last archived
        stands. What cannot be interpreted is left out as well.

    Raises
    ------
    ArchiveError
        When there is an archive that cannot be read.
    """
    source = open_source(store)
    place = archive_at(source)
    own = frame[list(col.DTYPES)]
    if not is_begun(place):
        return own
    gone = read_archive(place, lambda archive: _archived(source, archive))
    for name in (col.MEMORY_ID, col.POSITION):
        gone = gone[~gone[name].isin(own[name])].drop_duplicates(name, keep="last")
    every = pd.concat([own, gone])
    return every.sort_values(col.POSITION, kind="stable").reset_index(drop=True)


def _archived(source: Source, archive: Archive) -> pd.DataFrame:
    """Return the archived memories as one frame, in the order in which they were deleted."""
    records = (record for entry in archive.entries() for record in archive.records(entry))
    frame = frame_of(source.rows_of(records), name=str(archive.path), on_bad_row="keep")
    return frame.loc[frame[col.PROBLEM].isna(), list(col.DTYPES)]
