"""The history of a folder of memories in git: losses, renames, births and versions of texts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from memlab.columns import COMMIT, DELETED_AT, WRITTEN_AT
from memlab.errors import StoreError
from memlab.sources import readers
from memlab.sources.capabilities import ExternalHistory, FormerName, Loss, TextVersion
from memlab.sources.folder.git import (
    GitHistory,
    GitTimeoutError,
    blobs,
    past_moments,
    record_timeout,
    timeout_note,
)
from memlab.sources.folder.journal import FolderMoment, FolderRules, folder_moment
from memlab.sources.reads import moment_of_seconds
from memlab.store.records import batched

_LOSS_FIELDS: Final = {DELETED_AT: "lost_at", WRITTEN_AT: "written_at", COMMIT: "commit"}
"""Field of a :class:`Loss` for each column of deleted memories."""
_MAX_VERSIONS: Final = 500
"""Maximum number of versions of one file that are read: the oldest ones."""


class TrackedFolder(FolderRules, Protocol):
    """The part of a folder's source that its history uses."""

    path: Path

    def history(self) -> GitHistory:
        """Return the git history of the folder."""

    def memories(self, moment: FolderMoment) -> Sequence[Any]:
        """Return the memories of the folder at a moment."""

    def record_in(self, memory: Any, moment: FolderMoment) -> bytes:
        """Return the record of a memory of the folder at a moment."""

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return a record as a row."""

    def is_empty(self, record: bytes) -> bool:
        """Return whether a memory has no text."""

    def key_of(self, name: str) -> str:
        """Return the id of the memory in a file."""

    def file_of(self, key: str) -> str:
        """Return the path of a memory's file; empty if the key allows no file."""


class FolderHistory(ExternalHistory):
    """The history of a folder in git."""

    def __init__(self, source: TrackedFolder) -> None:
        self.source = source

    def is_tracked(self) -> bool:
        """Return whether git tracks the folder."""
        return bool(self.source.history().lifetimes)

    def has_deleted(self) -> bool:
        """Return whether git knows of memories that no longer exist."""
        return any(True for _ in self._iter_losses())

    def iter_deleted(self, *, with_body: bool) -> Iterator[readers.Rows]:
        """Yield the memories that were committed to git and no longer exist."""
        for losses in batched(self._iter_losses()):
            extra_columns = {
                column: [getattr(loss, field) for loss in losses]
                for column, field in _LOSS_FIELDS.items()
            }
            rows = [self.source.row_of(loss.record) for loss in losses]
            yield readers.rows_from_dicts(rows, with_body=with_body, others=extra_columns)

    def iter_lost(self) -> Iterator[Loss]:
        """Yield the memories that were committed to git and no longer exist, or are empty now.

        Memories that were moved out of the store are included, with their current path. Memories
        that git cannot read or that were always empty are no losses.
        """
        for loss in self._iter_losses(with_emptied=True):
            if not self.source.is_empty(loss.record):
                yield loss

    def _iter_losses(self, *, with_emptied: bool = False) -> Iterator[Loss]:
        """Yield the losses that git knows; raise StoreError if git stops answering."""
        try:
            yield from self._losses_in_git(with_emptied=with_emptied)
        except GitTimeoutError as error:
            record_timeout(self.source.path, error)
            raise StoreError(timeout_note(error)) from error

    def _losses_in_git(self, *, with_emptied: bool) -> Iterator[Loss]:
        """Yield the losses that git knows: deleted files, and on request files that are empty."""
        source = self.source
        history = source.history()
        if not history.lifetimes:
            return
        with folder_moment(source.path, source) as current, blobs(source.path) as read_blob:
            moments = past_moments(current, history, read_blob, with_emptied=with_emptied)
            for past_moment in moments:
                for memory in source.memories(past_moment):
                    if not memory.name:  # git has no file of its own for it
                        continue
                    lifetime = past_moment.lifetimes[memory.name]
                    yield Loss(
                        key=memory.key,
                        record=source.record_in(memory, past_moment),
                        lost_at=lifetime.deleted_at,
                        written_at=lifetime.written,
                        commit=lifetime.commit,
                        # A loss whose file is still in the last commit is an emptied file.
                        is_emptied=lifetime.is_in_head,
                        moved_to=lifetime.moved_to,
                        similar_file=lifetime.similar_file,
                    )

    def text_versions(self, keys: Iterable[str]) -> Iterator[tuple[str, list[TextVersion]]]:
        """Yield the versions of each memory's text that git has, oldest first."""
        lifetimes = {
            self.source.key_of(lifetime.name): lifetime
            for lifetime in self.source.history().lifetimes
        }
        with blobs(self.source.path) as read_blob:
            for key in keys:
                if key not in lifetimes:
                    continue
                versions = []
                newest_first = lifetimes[key].versions
                oldest_first = reversed(newest_first[-_MAX_VERSIONS:])
                for version in oldest_first:
                    data = read_blob(version.blob)
                    if data is not None:
                        text = data.decode(errors="replace")
                        versions.append(TextVersion(version.at, version.commit, text))
                yield key, versions

    def births(self) -> dict[str, str]:
        """Return the commit that added each memory."""
        commits = {}
        for lifetime in self.source.history().lifetimes:
            if lifetime.versions:
                first_version = lifetime.versions[-1]  # the newest version comes first
                commits[self.source.key_of(lifetime.name)] = first_version.commit
        return commits

    def last_changed(self, key: str) -> datetime | None:
        """Return the time of last modification of a memory's file; None if there is no file."""
        name = self.source.file_of(key)
        if not name:
            return None
        with suppress(OSError, ValueError):
            return moment_of_seconds((self.source.path / name).lstat().st_mtime)
        return None

    def former_names(self) -> list[FormerName]:
        """Return the former ids of memories whose file was renamed in git."""
        source = self.source
        lifetimes = source.history().lifetimes
        used_names = {lifetime.name for lifetime in lifetimes}
        former_names = []
        for lifetime in lifetimes:
            for name, until in lifetime.former_paths:
                former = source.key_of(name)
                current = source.key_of(lifetime.name)
                is_free = name not in used_names and not os.path.lexists(source.path / name)
                if former != current:
                    former_names.append(FormerName(former, current, until, is_free))
        return former_names

    def note(self) -> str:
        """Return the note on the part of the history that git lacks; empty for nothing."""
        return self.source.history().missing_note

    def was_read_in_time(self) -> bool:
        """Return whether git answered in time."""
        return self.source.history().was_read_in_time
