"""Format versions of stored files.

Every stored file has two numbers. *Written by* is the format of the file. *Readable from* is the
oldest format whose readers understand the file. It stays the same if a new format only adds what
older readers may ignore. A file with one number is readable from that format on.
"""

from typing import NamedTuple

from memlab.errors import MemlabError


class Written(NamedTuple):
    """The two version numbers of a file."""

    by: int
    """The format of the file."""
    readable_from: int
    """The oldest format whose readers understand the file."""


class FileFormat(NamedTuple):
    """The formats of one kind of file that this version of memlab writes and reads."""

    number: int
    """The format that is written. It is also the newest one that is known."""
    readable_from: int
    """The oldest format whose readers understand the files that are written."""
    oldest: int
    """The oldest format that is read."""

    def is_newer(self, written: Written) -> bool:
        """Return whether a file is of a newer format than this version knows."""
        return written.by > self.number

    def check(self, document: str, written: Written, error: type[MemlabError]) -> None:
        """Raise `error` if this version cannot read the format of a file.

        Parameters
        ----------
        document : str
            Description of the file, such as ``"this plan"``. The message begins with it.
        written : Written
            The version numbers of the file.
        error : type of MemlabError
            The class of the error to raise.

        Examples
        --------
        >>> plan_format = FileFormat(number=3, readable_from=3, oldest=2)
        >>> plan_format.check("this plan", Written(by=5, readable_from=3), MemlabError)
        >>> plan_format.check("this plan", Written(by=5, readable_from=4), MemlabError)
        Traceback (most recent call last):
        memlab.errors.MemlabError: this plan was written by a newer memlab, in format 5, which is \
readable from format 4 on, and this memlab reads formats 2 to 3; nothing in it is lost: use a \
memlab that reads format 4
        """
        supported = f"this memlab reads formats {self.oldest} to {self.number}"
        if self.oldest == self.number:
            supported = f"this memlab reads format {self.number}"
        if written.readable_from > self.number:
            raise error(
                f"{document} was written by a newer memlab, in format {written.by}, which is "
                f"readable from format {written.readable_from} on, and {supported}; nothing in it "
                f"is lost: use a memlab that reads format {written.readable_from}"
            )
        if written.by < self.oldest:
            raise error(
                f"{document} was written by an older memlab, in format {written.by}, and "
                f"{supported}; nothing in it is lost: use the memlab that wrote it"
            )


def written_in(by: object, readable_from: object | None = None) -> Written:
    """Return the version numbers of a file; raise ValueError for invalid numbers.

    Parameters
    ----------
    by : object
        Its format.
    readable_from : object, optional
        The oldest format that can read it; its own format by default.

    Examples
    --------
    >>> written_in(2)
    Written(by=2, readable_from=2)
    >>> written_in(4, 2)
    Written(by=4, readable_from=2)
    """
    if readable_from is None:
        readable_from = by
    for number in (by, readable_from):
        if type(number) is not int or number < 0:
            raise ValueError(f"{number!r:.20} is not the number of a format")
    if readable_from > by:  # type: ignore[operator]
        raise ValueError(f"format {by} cannot be readable from format {readable_from} on")
    return Written(by, readable_from)  # type: ignore[arg-type]
