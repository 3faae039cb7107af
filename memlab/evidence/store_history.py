"""The history of a store: a snapshot of its rows, its past, its reads and its references."""

from copy import copy
from datetime import datetime
from functools import cached_property
from os import PathLike
from os.path import relpath
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import expect, wrong_argument_error
from memlab.clock import moment_or_now, now_utc
from memlab.errors import ChangedWhileReadError
from memlab.evidence.past import (
    DeletedMemories,
    HistoryLike,
    LoadedHistory,
    deletions_of,
    gaps_of,
    names_a_store,
    past_of,
    present_rows,
    refers_to_unlisted,
    resolve_history,
)
from memlab.evidence.reads import Log, log_option, reads_in
from memlab.evidence.references import COUNTED, references_and_counts
from memlab.frame.labelling import short_name
from memlab.frame.loading import expect_log, expect_memories, expect_references, load
from memlab.settings import NO_SETTINGS
from memlab.sources.base import Source, file_states
from memlab.sources.capabilities import NO_HISTORY
from memlab.sources.opening import open_source, settings_of
from memlab.store.snapshot import FileStates
from memlab.text import DisplayMixin, TextPage, counted


class StoreHistory(DisplayMixin, LoadedHistory):
    """A snapshot of a store's rows, and the stages that are derived from it.

    Each stage is computed once, when it is first needed, and shows the store at the moment at which
    the rows were read. If the store changes later, a memory that was deleted since counts as
    present, one that was written since is left out, and a file that was renamed since keeps its
    name. A stage raises ChangedWhileReadError if it cannot be computed for that moment: the texts
    are not known if memories were written, edited or deleted since, and the past is not known if a
    deleted memory came back since. Every function that takes a store or a frame takes a history,
    too; then several calls load the store once and show it at one moment.

    ====================  ========================================================
    `rows`                the present memories, as :func:`memlab.load` returns them
    `past`                these and the deleted ones (:func:`memlab.load_past`)
    `log`                 the reads of an access log; the settings name it by default
    `references`          evidence that a memory was needed (``find_references``)
    `counts`              the numbers of references that a cap is sized by
    ====================  ========================================================

    The methods ``with_past``, ``with_reads`` and ``with_references`` compute a stage now, so that
    its errors are raised now.

    Parameters
    ----------
    memories : path, URL, SqliteMemoryStore, Source or DataFrame
        The store, or a frame from ``memlab.load_past``; for a part of one see :meth:`from_frame`.
    log : DataFrame, str or Path, optional
        An access log; the default is the logs in ``memlab.toml``.
    with_body : bool
        Whether to load texts.
    only_log : bool
        Use only references from the log.
    now : datetime, optional
        The moment of the history, with a time zone: ages are counted to it, and later reads are
        left out. It is the current time by default.
    call : str
        Name of the public function, for messages.

    Attributes
    ----------
    name : str
        Name of the store, as a command takes it; empty for a frame without one.
    source : Source or None
        The store; None for a frame.
    settings : Settings
        The settings in its ``memlab.toml``.
    now : datetime
        The moment of the history: ages are counted to it, and later reads are left out.

    Examples
    --------
    >>> import memlab
    >>> history = memlab.StoreHistory(memlab.store_path("looked_up"))
    >>> len(history.rows), len(history.references)
    (480, 63)
    >>> memlab.size(history).advice == memlab.size(history).advice
    True
    """

    def __init__(
        self,
        memories: HistoryLike,
        log: Log = None,
        *,
        with_body: bool = False,
        only_log: bool = False,
        now: datetime | None = None,
        call: str = "memlab.StoreHistory",
    ) -> None:
        expect(with_body, bool, call=call, name="with_body")
        expect(only_log, bool, call=call, name="only_log")
        if not isinstance(log, str | PathLike):
            expect_log(log, call=call)
        self.now = moment_or_now(now, call=call)
        self.only_log = only_log
        self._log_argument = log
        self._call = call
        self.settings = NO_SETTINGS
        if isinstance(memories, pd.DataFrame):
            expect_memories(memories, call=call)
            self._snapshot = _Snapshot(None, frame=memories)
            self.name = str(memories.attrs.get(c.SOURCE, ""))
            return
        if not names_a_store(memories):
            raise wrong_argument_error(memories, "DataFrame", "store", call=call, name="frame")
        source = open_source(memories)
        self._snapshot = _Snapshot(source, with_body=with_body)
        self.name = str(memories) if isinstance(memories, str | PathLike) else source.name
        self.settings = settings_of(source)

    @classmethod
    def of(
        cls,
        memories: HistoryLike,
        log: Log = None,
        *,
        with_body: bool = False,
        only_log: bool = False,
        now: datetime | None = None,
        call: str = "memlab.StoreHistory.of",
    ) -> "StoreHistory":
        """Return the history of a store or a frame; apply the arguments to a given history.

        Parameters
        ----------
        memories : path, URL, SqliteMemoryStore, Source, DataFrame or StoreHistory
            The store, or a frame from ``memlab.load_past``.
        log, with_body, only_log, now, call
            As for the class.

        Returns
        -------
        StoreHistory
        """
        if not isinstance(memories, StoreHistory):
            return cls(memories, log, with_body=with_body, only_log=only_log, now=now, call=call)
        history = memories.with_body() if with_body else memories
        if log is None and now is None and only_log == history.only_log:
            return history
        moment = history.now if now is None else moment_or_now(now, call=call)
        return history._changed(log, only_log=only_log, now=moment)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        source: Source | None = None,
        *,
        log: Log = None,
        now: datetime | None = None,
    ) -> "StoreHistory":
        """Return the history of a frame, which may have some of a store's rows only.

        :attr:`lost_by_filter` describes the rows that the frame lacks.

        Parameters
        ----------
        frame : DataFrame
            A frame from ``memlab.load`` or ``memlab.load_past``, or some of its rows.
        source : Source, optional
            The store of the frame, for its settings and to find the rows that were filtered out.
        log, now
            As for the class.

        Returns
        -------
        StoreHistory

        Examples
        --------
        >>> import memlab
        >>> past = memlab.load_past(memlab.store_path("looked_up"))
        >>> recent = memlab.StoreHistory.from_frame(past[past["position"] > 200])
        >>> recent.lost_by_filter
        ('200 memories at lower positions are not in the frame, nor are references to them',)
        """
        call = "memlab.StoreHistory.from_frame"
        expect_memories(frame, call=call)
        expect(source, Source, call=call, name="source", optional=True)
        history = cls(frame, log, now=now, call=call)
        if source is not None:
            history._snapshot = _Snapshot(source, frame=frame)
            history.settings = settings_of(source)
        return history

    @property
    def source(self) -> Source | None:
        """The store; None for a frame without one."""
        return self._snapshot.source

    def sheet(self) -> TextPage:
        """Return the page that is printed; nothing is read for it."""
        rows = self._snapshot.loaded
        log = "none"
        if isinstance(self._log_argument, str | PathLike):
            log = str(self._log_argument)
        elif self._log_argument is not None:
            log = f"a frame of {counted(len(self._log_argument), 'reads')}"
        elif self.settings.log:
            log = f"{', '.join(map(str, self.settings.log))}, by its memlab.toml"
        facts = [
            ("memories", "not read yet" if rows is None else counted(len(rows))),
            ("log", log),
            ("moment", f"{self.now:%Y-%m-%d %H:%M} UTC"),
        ]
        return TextPage(f"the history of {self.name or 'a frame'}", facts)

    def to_dict(self) -> dict[str, Any]:
        """Return the memories and the moment."""
        return {"store": self.name, "now": self.now, "memories": self.rows.to_dict("records")}

    @property
    def is_of_frame(self) -> bool:
        """Whether the history is that of a given frame, which may lack memories of its store."""
        return self._snapshot.is_given

    @property
    def rows(self) -> pd.DataFrame:
        """The present memories, as :func:`memlab.load` returns them."""
        return self._snapshot.rows

    @cached_property
    def past(self) -> pd.DataFrame:
        """Present and deleted memories in the order of writing; the frame itself if one was given.

        For a memory that was erased from the archive, only a hash of its name is known. If the log
        has a read of it, the memory has its name.
        """
        return self._snapshot.past(self.log)

    @cached_property
    def _reads(self) -> tuple[pd.DataFrame | None, Path | None]:
        return reads_in(
            self._log_argument,
            self.settings,
            call=self._call,
            source=self.source,
            moment=self._snapshot.moment,
        )

    @property
    def log(self) -> pd.DataFrame | None:
        """The reads; None without a log."""
        reads, _ = self._reads
        return reads

    @property
    def log_file(self) -> Path | None:
        """The file of the log; None if a frame was given, or without a log."""
        _, file = self._reads
        return file

    @cached_property
    def log_option(self) -> tuple[str, ...]:
        """Command-line arguments that name the log; empty if none is needed."""
        return log_option(self.log, self.log_file, self.settings)

    @cached_property
    def _references_and_counts(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return references_and_counts(self.past, self.log, only_log=self.only_log, now=self.now)

    @property
    def references(self) -> pd.DataFrame:
        """Evidence that a memory was needed, as ``memlab.find_references`` returns it."""
        references, _ = self._references_and_counts
        return references

    @property
    def counts(self) -> pd.DataFrame:
        """Counts of the references that a cap is sized by, and of the mentions that are left out.

        It is the table of :func:`memlab.evidence.count_references`, but references to memories that
        no index names are left out, and the column ``unlisted`` has their number.
        """
        references, counts = self._references_and_counts
        is_unlisted = refers_to_unlisted(self.past, references)
        unlisted_by_kind = references.loc[is_unlisted, c.KIND].value_counts()
        left_out = unlisted_by_kind.reindex(counts.index, fill_value=0).astype(np.int64)
        counted_by_kind = counts[COUNTED] - left_out
        return counts.assign(**{COUNTED: counted_by_kind, "unlisted": left_out})

    def with_past(self) -> Self:
        """Return this history after loading its past."""
        self.past  # noqa: B018 - computes the stage
        return self

    def with_reads(self, log: Log = None) -> "StoreHistory":
        """Return the history with the reads of a log, which is loaded now.

        Parameters
        ----------
        log : DataFrame, str or Path, optional
            An access log; the log of this history by default.

        Returns
        -------
        StoreHistory
            It shares the rows of this one.
        """
        history = self if log is None else self._changed(log, only_log=self.only_log, now=self.now)
        history._reads  # noqa: B018 - computes the stage
        return history

    def with_references(self) -> Self:
        """Return this history after finding its references."""
        self._references_and_counts  # noqa: B018 - computes the stage
        return self

    def with_body(self) -> "StoreHistory":
        """Return the history with texts, which are read now; itself if it has them.

        It shares the log and the references of this one. A history of a frame without texts is
        returned unchanged.

        Raises
        ------
        ChangedWhileReadError
            If the memories have changed since the rows of this history were read.
        """
        if self.source is None or self._snapshot.has_body:
            return self
        history = copy(self)
        vars(history).pop("past", None)
        history._snapshot = self._snapshot.with_body()
        return history

    def with_rows(self, rows: pd.DataFrame) -> "StoreHistory":
        """Return the history of present memories, while the caller holds the store unchanged.

        Parameters
        ----------
        rows : DataFrame
            The present memories of the store, as :func:`memlab.load` returns them. The past is
            read when it is first needed, so the store must not change until then.

        Returns
        -------
        StoreHistory
            It shares the reads of this one, if they are loaded.

        Examples
        --------
        >>> import memlab
        >>> history = memlab.StoreHistory(memlab.store_path("looked_up"))
        >>> len(history.with_rows(memlab.load(history.source)).past)
        480
        """
        history = self._changed(None, only_log=self.only_log, now=self.now)
        history._snapshot = self._snapshot.with_rows(rows)
        if "_reads" in vars(self):
            vars(history)["_reads"] = self._reads
        return history

    def has_changed(self) -> bool:
        """Return whether the store's memories have changed since the rows were read.

        False for a history whose rows were not read yet, and for that of a frame. Reading a memory
        is no change.
        """
        return self._snapshot.has_changed()

    def by_folder(self, folder: Path | None = None) -> "StoreHistory":
        """Return a copy in which store and log are named relative to a folder.

        Parameters
        ----------
        folder : Path, optional
            The folder, such as that of a report; by default the one that holds the store. The
            default is also used if the store is more than two levels above the folder: a relative
            path to it would reveal folders of the machine.
        """
        is_file = self.source is not None and not self.source.is_server
        scheme, colon, path = self.name.rpartition(":")
        name = short_name(self.name)
        base_folder = Path(path).parent
        if folder is not None and is_file and not self.is_far_from(folder):
            name = f"{scheme}{colon}{relpath(path, folder)}"
            base_folder = folder
        option = self.log_option
        if option and self.log_file is not None and is_file:
            option = ("--log", relpath(self.log_file, base_folder))
        history = copy(self)
        history.name = name
        history.log_option = option
        return history

    def is_far_from(self, folder: Path) -> bool:
        """Return whether the store's file is more than two levels above a folder."""
        _, _, path = self.name.rpartition(":")
        relative = Path(relpath(path, folder))
        return relative.parts.count("..") > 2

    @property
    def lost_by_filter(self) -> tuple[str, ...]:
        """Sentences on the memories that a frame lacks; empty for the history of a store."""
        return self._snapshot.lost_by_filter()

    def _changed(self, log: Log, *, only_log: bool, now: datetime) -> "StoreHistory":
        """Return a history of the same rows with another log or moment."""
        history = copy(self)
        for stage in ("past", "_reads", "log_option", "_references_and_counts"):
            vars(history).pop(stage, None)
        if log is not None:
            history._log_argument = log
        history.only_log = only_log
        history.now = now
        return history


class _Snapshot:
    """The rows of a store as they were when they were first read, and the deletions before."""

    def __init__(
        self,
        source: Source | None,
        *,
        frame: pd.DataFrame | None = None,
        with_body: bool = False,
    ) -> None:
        self.source = source
        self._frame = frame
        self._with_body = with_body
        self._read_at = now_utc()
        """When the rows were read."""
        self._files: FileStates | None = None
        """The states of the store's files when the rows were read."""
        self._is_current = False
        """Whether the caller holds the store unchanged, so that deletions fit the rows."""

    @property
    def loaded(self) -> pd.DataFrame | None:
        """The present memories if they are read already; None if not."""
        if self.is_given or "rows" in vars(self):
            return self.rows
        return None

    @property
    def is_given(self) -> bool:
        """Whether the rows are those of a given frame."""
        return self._frame is not None

    @property
    def has_body(self) -> bool:
        """Whether the rows have texts."""
        return self._with_body if self._frame is None else c.BODY in self._frame

    @property
    def moment(self) -> datetime | None:
        """Time at which the rows were read; None for a frame, and before the reading has ended."""
        is_read = self._frame is None and "rows" in vars(self)
        if not is_read or self._is_current:
            return None
        return self._read_at

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The present memories."""
        if self._frame is not None:
            return present_rows(self._frame)
        source = self._store
        self._files = file_states(source)
        rows = load(source, with_body=self._with_body)
        self._read_at = now_utc()
        return rows

    def with_body(self) -> "_Snapshot":
        """Return a snapshot of the same moment with texts, which are read now.

        Raise ChangedWhileReadError if the memories have changed since.
        """
        snapshot = _Snapshot(self._store, with_body=True)
        if "rows" in vars(self):
            rows = snapshot.rows
            if self._is_touched() and self._is_changed(rows):
                raise self._changed_error("and the texts of then are not known")
            snapshot._read_at = self._read_at
        return snapshot

    def with_rows(self, rows: pd.DataFrame) -> "_Snapshot":
        """Return a snapshot of rows of a store that the caller holds unchanged."""
        snapshot = _Snapshot(self._store)
        snapshot._is_current = True
        vars(snapshot)["rows"] = rows
        return snapshot

    def has_changed(self) -> bool:
        """Return whether the memories have changed since the rows were read."""
        is_read = self._frame is None and "rows" in vars(self)
        if not is_read or not self._is_touched():
            return False
        return self._is_changed(load(self._store))

    def past(self, log: pd.DataFrame | None) -> pd.DataFrame:
        """Return present and deleted memories in the order of writing.

        The deletions are read after the rows: a memory that is deleted in between is in both, and
        counts as present. A memory that was written and deleted since the rows were read is left
        out.
        """
        if self._frame is not None:
            return self._frame
        deletions, is_later = self._deletions
        past = past_of(self.rows, deletions, log)
        if not is_later:
            return past
        is_newer = (past[c.DELETED_AT] > self._read_at) & (past[c.CREATED_AT] > self._read_at)
        return past[~is_newer].reset_index(drop=True)

    @cached_property
    def _deletions(self) -> tuple[list[DeletedMemories], bool]:
        """The deletions, and whether they are read some time after the rows."""
        source = self._store
        is_later = "rows" in vars(self) and not self._is_current
        if is_later:
            self._check_none_returned()
        else:
            _ = self.rows  # the rows are read before the deletions
        return deletions_of(source, with_body=self._with_body), is_later

    def _check_none_returned(self) -> None:
        """Raise ChangedWhileReadError if a memory came back since the rows were read.

        Only the history in git needs this check: memlab's archive still counts such a memory as
        deleted, but git does not. A name that is new is that of a returned memory if git has an
        older version of it, unless the memory was renamed since.
        """
        history = self._store.external_history
        if history is NO_HISTORY or not self._is_touched():
            return
        known_names = {*self.rows[c.MEMORY_ID]}
        for former in history.former_names():
            if former.until > self._read_at:
                known_names.add(former.memory_id)
        new_names = [name for name in load(self._store)[c.MEMORY_ID] if name not in known_names]
        for name, versions in history.text_versions(new_names):
            if versions and versions[0].at <= self._read_at:
                raise self._changed_error(f"and {name} has come back")

    @property
    def _store(self) -> Source:
        if self.source is None:
            raise ValueError("a snapshot needs a source or a frame")
        return self.source

    def _is_touched(self) -> bool:
        """Return whether the files may have changed since the rows were read."""
        return self._files is None or self._files != file_states(self._store)

    def _is_changed(self, rows_now: pd.DataFrame) -> bool:
        """Return whether the rows differ from those that were read; texts and use may differ."""
        not_compared = [c.BODY, *c.SIGNAL_DTYPES]
        before = self.rows.drop(columns=not_compared, errors="ignore")
        after = rows_now.drop(columns=not_compared, errors="ignore")
        return not before.equals(after)

    def _changed_error(self, changed_part: str) -> ChangedWhileReadError:
        """Return the error for a stage that cannot be computed for the moment of the rows."""
        return ChangedWhileReadError(
            f"{self._store.name} has changed since its memories were read at "
            f"{self._read_at:%H:%M:%S} UTC, {changed_part}: run the command again, or make a new "
            "memlab.StoreHistory"
        )

    def lost_by_filter(self) -> tuple[str, ...]:
        """Return sentences on memories that a given frame lacks."""
        if self._frame is None:
            return ()
        frame = self._frame
        if self.source is not None:
            full_past = past_of(load(self.source), deletions_of(self.source))
            missing = full_past[~full_past[c.MEMORY_ID].isin(frame[c.MEMORY_ID])]
            if missing.empty:
                return ()
            references, _ = references_and_counts(full_past)
            is_lost = references[c.TARGET_ID].isin(missing[c.MEMORY_ID])
            lost_references = counted(int(is_lost.sum()), "references")
            summary = (
                f"{counted(len(missing))} of {len(full_past):,} in the store are not in the frame"
            )
            return (f"{summary}, with {lost_references} to them",)
        gaps = gaps_of(frame)
        if not gaps.memories:
            return ()
        summary = f"{counted(gaps.memories)} at lower positions are not in the frame"
        return (f"{summary}, nor are references to them",)


def with_references(
    memories: HistoryLike, references: pd.DataFrame | None, *, call: str, with_body: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the memories and the references for the arguments of a public function.

    References are found if none are given.
    """
    expect_references(references, call=call, optional=True)
    if references is not None:
        return resolve_history(memories, call=call, with_body=with_body), references
    history = StoreHistory.of(memories, call=call, with_body=with_body)
    return history.past, history.references
