"""Which stores there are below a folder, a line each."""

from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.errors import MemlabError, StoreError
from memlab.frame.fields import CHARS_PER_TOKEN, arrays_of
from memlab.frame.loading import load
from memlab.growth.context import largest_start
from memlab.sources.opening import Recognised, find_below, made_by, usual_places
from memlab.text import DisplayMixin, Table, TextPage, command, counted, or_dash


@dataclass(frozen=True, slots=True)
class Store:
    """A store that was found.

    `what` says whose it is; every command takes `where`. `tokens_at_start` is the most that one
    start loads, `last_written` in UTC. `problem` says why it cannot be read; empty where it can.
    """

    what: str
    where: str
    memories: int | None
    tokens_at_start: int | None
    last_written: datetime | None
    problem: str


@dataclass(frozen=True, repr=False)
class Inventory(DisplayMixin):
    """What was found: stores in order of their paths, and how many databases of something else.

    `searched` folders were looked through, `shut` ones could not be entered.
    """

    searched: tuple[str, ...]
    stores: tuple[Store, ...]
    shut: tuple[str, ...]
    others: int = 0

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each store, with the fields of :class:`Store`."""
        dtypes = {"memories": "Int64", "tokens_at_start": "Int64", "last_written": col.TIME}
        names = list(Store.__dataclass_fields__)
        return pd.DataFrame(list(self.stores), columns=names).astype(dtypes)

    def next_steps(self) -> list[str]:
        """Say what to run next: for the store that costs most, or elsewhere."""
        readable = [store for store in self.stores if not store.problem]
        if not readable:
            return ["next: memlab find FOLDER, to look elsewhere"]
        name = max(readable, key=lambda store: store.tokens_at_start or 0).where
        return [f"next: {command('show', name)}"]

    def sheet(self) -> TextPage:
        """Return the inventory as a page; paths are whole, for a person copies them."""
        facts = [("searched", ", ".join(self.searched) or "nothing: none of the places is there")]
        if self.shut:
            facts.append(("not entered", ", ".join(self.shut)))
        if self.others:
            facts.append(("not listed", f"{counted(self.others, 'databases')} of something else"))
        header = ("what", "memories", "tokens at start", "last written", "where")
        table = Table("", header, [_row(store) for store in self.stores], whole=True)
        problems = [(store.where, store.problem) for store in self.stores if store.problem]
        wrong = Table("cannot be read", (), problems, whole=True)
        return TextPage(
            counted(len(self.stores), "stores"), facts, [table] + [wrong] * bool(problems)
        )


def find(folder: str | PathLike[str] | None = None) -> Inventory:
    """Look for stores below a folder, and read what each holds. Nothing is written.

    Parameters
    ----------
    folder : str or Path, optional
        Where to look; by default the places where the systems that memlab knows put their stores.
        Links below it are not followed.
    """
    expect(folder, PathLike, str, call="memlab.find", name="folder", optional=True)
    places = usual_places() if folder is None else [Path(folder).expanduser()]
    there = [place for place in places if place.is_dir()]
    if folder is not None and not there:
        words = f"or look at one store: {command('show', folder)}"
        raise StoreError(f"there is no folder {folder}; name one to look through, {words}")
    search = find_below(there)
    return Inventory(
        tuple(map(str, there)),
        tuple(_looked_at(each) for each in search.stores),
        tuple(map(str, search.shut)),
        len(search.others),
    )


def _looked_at(found: Recognised) -> Store:
    where = str(found.path)
    try:
        source = made_by(found.scheme, where)
        frame = load(source, on_bad_row="keep")
        apart = -(-source.apart_at_start() // CHARS_PER_TOKEN)
    except MemlabError as error:
        return Store(found.what, where, None, None, None, str(error))
    memories = arrays_of(frame)
    return Store(
        found.what, where, len(frame), largest_start(memories) + apart, memories.last_at, ""
    )


def _row(store: Store) -> tuple[str | int, ...]:
    sizes = (or_dash(each, "{:,}") for each in (store.memories, store.tokens_at_start))
    return store.what, *sizes, or_dash(store.last_written, "{:%Y-%m-%d}"), store.where
