"""An access log beside a store that a command was not told to use."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from memlab.errors import MemlabError
from memlab.evidence.ingestion import default_log
from memlab.evidence.reads import read_access_log, reads_of_store
from memlab.evidence.store_history import StoreHistory
from memlab.sources.reads import LOG_SUFFIX


class UnusedLog(NamedTuple):
    """An access log beside a store that is not used.

    Attributes
    ----------
    file : Path
    reads : int
        The number of reads in the log that are of memories of the store.
    """

    file: Path
    reads: int


def unused_log_of(history: StoreHistory) -> UnusedLog | None:
    """Find an access log beside the store with reads of it, if no log is used.

    The log is only named, not used: it may belong to another store, or to another person.
    """
    store = None if history.source is None else history.source.local_path
    if history.log is not None or store is None:
        return None
    for file in (default_log(str(store)), store.with_suffix(LOG_SUFFIX)):
        if not file.exists():
            continue
        with suppress(MemlabError):
            reads = reads_of_store(read_access_log(file), history.past, history.now)
            if len(reads):
                return UnusedLog(file, len(reads))
    return None
