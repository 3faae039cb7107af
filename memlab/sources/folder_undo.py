"""Taking a pending change of a folder back, the one under way or one that was cut short."""

import os
from contextlib import suppress
from functools import partial
from secrets import token_hex

from memlab.sources.folder import Folder
from memlab.sources.folder_files import exchange, give_name, inode_of, opened_subfolder, remove_tree
from memlab.sources.folder_journal import (
    IN,
    OUT,
    OVER,
    PART,
    PENDING,
    Index,
    Journal,
    is_as_put,
    journals_in,
)
from memlab.sources.folder_swap import MADE, VERSION, Edit, digest_of, read_if_there, swap_index


def take_back(folder: Folder, index: Index) -> None:
    """Take a pending change back, if there is one.

    Parameters
    ----------
    folder : Folder
        Open and locked.
    index : Index
        What its kind knows of its index.

    Raises
    ------
    StoreError
        When it cannot be taken back; ``.memlab`` stays, with all that is needed.
    """
    with journals_in(folder) as journals:
        for journal in reversed(journals):
            if journal.taking_out:
                _give_names_again(folder, journal)
                _take_index_back(folder, index, journal)
            else:
                _take_index_back(folder, index, journal)
                _take_names_away(folder, journal)
    if inode_of(folder.handle, PENDING) is not None:
        end_pending(folder)
    sweep(folder)


def end_pending(folder: Folder) -> None:
    """Let a change be pending no more: what its folder holds is not needed."""
    os.rename(PENDING, OVER + token_hex(4), src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
    folder.sync()


def sweep(folder: Folder) -> None:
    """Remove what changes have left that ended or never began."""
    for name in folder.listing().folders:
        if name.startswith((OVER, PART)):
            with suppress(OSError):  # next time
                remove_tree(folder.handle, name)


def edits_of(folder: Folder, index: Index, journal: Journal) -> tuple[Edit, Edit]:
    """Return what an operation does to the index, and what takes that back."""
    said = {entry.key: entry.said for entry in journal.entries if entry.said is not None}
    there = {*folder.listing().files, *(entry.name for entry in journal.entries if entry.name)}
    takes = partial(index.without, gone=said, there=there)
    gives = partial(index.with_back, said=said, there=there)
    return (takes, gives) if journal.taking_out else (gives, takes)


def _give_names_again(folder: Folder, journal: Journal) -> None:
    """Let files that were moved out have their names again."""
    with opened_subfolder(journal.handle, OUT) as out:
        for number, entry in enumerate(journal.entries):
            moved = inode_of(out, str(number))
            there = inode_of(folder.handle, entry.name) if moved is not None else None
            if moved is not None and there is None:
                give_name(out, str(number), folder.handle, entry.name)
            elif there != moved:  # written anew meanwhile: both are kept
                aside = f"{entry.name}.before-{token_hex(4)}"
                give_name(out, str(number), folder.handle, aside)
    folder.sync()


def _take_names_away(folder: Folder, journal: Journal) -> None:
    """Let files that were put in be gone again, unless somebody has written to them since."""
    with opened_subfolder(journal.handle, IN) as inside:
        for number, entry in enumerate(journal.entries):
            if entry.name and is_as_put(inside, str(number), folder.handle, entry):
                os.unlink(entry.name, dir_fd=folder.handle)
    folder.sync()


def _take_index_back(folder: Folder, index: Index, journal: Journal) -> None:
    """Give the index back as it was, or where it was edited since, what was changed in it."""
    aside = Folder(folder.path, journal.handle)
    made, now = read_if_there(aside, MADE), read_if_there(folder, index.name)
    if made is not None and now is not None and made.data == digest_of(now.data):
        if inode_of(journal.handle, VERSION) == inode_of(folder.handle, index.name):
            os.unlink(index.name, dir_fd=folder.handle)  # there was none before
        else:
            exchange(journal.handle, VERSION, folder.handle, index.name)
        return
    _, undo = edits_of(folder, index, journal)
    swap_index(folder, index.name, journal.handle, undo)
