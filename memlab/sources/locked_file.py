"""The base class of a store that is one text file, which its agent locks."""

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, LOCK_SH, flock
from operator import itemgetter

from memlab.errors import StoreError
from memlab.files import limit_like, ordinary_file, write_whole
from memlab.sources.base import FileSource, WholeReader, WholeWriter
from memlab.sources.readers import Key, Reader, Writer


class LockedFile(FileSource):
    """A text file that is read whole, and replaced whole, while it is locked (``flock``).

    The agent must lock the file for each write too, and open it again if it was replaced. Each
    record has its place in the file (:func:`memlab.store.records.with_place`).
    """

    @abstractmethod
    def records_in(self, content: str) -> dict[Key, bytes]:
        """Return the records of a file by key, in the order of the file.

        Raises
        ------
        StoreError
            If the content is damaged.
        """

    @abstractmethod
    def content_of(self, records: Sequence[bytes], before: str) -> str:
        """Return the new content of a file with these records; `before` is the current one."""

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read the whole file under its lock."""
        with self._locked(LOCK_SH) as content:
            yield WholeReader(self, self.records_in(content))

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Rewrite the file when the block ends. Restored records return to their former place."""
        with self._locked(LOCK_EX) as content:
            before = self.records_in(content)
            after = before.copy()
            yield WholeWriter(self, after)
            records = [record for key, record in after.items() if key in before]
            restored = [
                (json.loads(record)["place"], record)
                for key, record in after.items()
                if key not in before
            ]
            for place, record in sorted(restored, key=itemgetter(0)):
                records.insert(place, record)
            write_whole(
                self.path.resolve(),
                self.content_of(records, content),
                limit=limit_like(self.path),
            )

    @contextmanager
    def _locked(self, how: int) -> Iterator[str]:
        """Lock the file and yield its content; open it again if it was replaced meanwhile."""
        with ExitStack() as opened:
            try:
                while True:
                    file = opened.enter_context(ordinary_file(self.path))
                    flock(file, how)
                    if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                        break
            except (OSError, ValueError) as error:
                raise StoreError(f"{self.path} cannot be read ({error}); check the file") from error
            yield file.read().decode(errors="surrogateescape")
