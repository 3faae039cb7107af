"""An inventory of the stores below a folder."""

from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.errors import MemlabError, StoreError
from memlab.frame.fields import arrays_of
from memlab.frame.loading import load
from memlab.growth.context import largest_start
from memlab.sources.checkouts import Project
from memlab.sources.kinship import Kinship, digests_in, kinships_among, merge_step
from memlab.sources.kinship import table_of as kinship_table
from memlab.sources.opening import Recognised, find_below, source_of_kind, usual_places
from memlab.sources.result_cache import shared_results
from memlab.text import DisplayMixin, Table, TextPage, command, counted, or_dash


@dataclass(frozen=True, slots=True)
class Store:
    """A store that was found.

    Attributes
    ----------
    system : str
        The system to which the store belongs.
    location : str
        The path or URL of the store, as commands take it.
    memories : int or None
        Number of memories; None if the store cannot be read.
    tokens_at_start : int or None
        Tokens of the largest start; None if the store cannot be read.
    last_written : datetime or None
        Creation time of the newest memory, in UTC.
    problem : str
        The reason for which the store cannot be read; empty if it can be read.
    project : str
        Path of the project that the memories are about; empty if it is not known.
    is_orphaned : bool
        Whether the path of the project does not exist.

    Examples
    --------
    >>> store = Store("memory_items", "memory.db", 3, 120, last_written=None, problem="")
    >>> store.location, store.is_orphaned
    ('memory.db', False)
    """

    system: str
    location: str
    memories: int | None
    tokens_at_start: int | None
    last_written: datetime | None
    problem: str
    project: str = ""
    is_orphaned: bool = False


@dataclass(frozen=True, repr=False)
class Inventory(DisplayMixin):
    """The stores that were found, and the folders that were searched.

    Attributes
    ----------
    searched : tuple of str
        Folders that were searched.
    stores : tuple of Store
        Stores in order of their paths.
    not_entered : tuple of str
        Folders that could not be entered.
    other_databases : int
        Number of databases that are not stores.
    kinships : tuple of Kinship
        Pairs of folders that may belong to one project and can be merged, with the evidence.

    Examples
    --------
    >>> Inventory(searched=("/srv",), stores=(), not_entered=()).next_steps()
    ['next: memlab find FOLDER, to look elsewhere']
    """

    searched: tuple[str, ...]
    stores: tuple[Store, ...]
    not_entered: tuple[str, ...]
    other_databases: int = 0
    kinships: tuple[Kinship, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each store, with the fields of :class:`Store`."""
        dtypes = {"memories": "Int64", "tokens_at_start": "Int64", "last_written": col.TIME}
        names = list(Store.__dataclass_fields__)
        return pd.DataFrame(list(self.stores), columns=names).astype(dtypes)

    def next_steps(self) -> list[str]:
        """Return the commands to run next, the first for the store with the largest start."""
        readable = [store for store in self.stores if not store.problem]
        if not readable:
            return ["next: memlab find FOLDER, to look elsewhere"]
        largest = max(readable, key=_cost)
        reason = "shows the store with the largest start"
        if len(readable) == 1:
            reason = "shows what it holds"
        elif not largest.tokens_at_start:
            reason = "shows the store with the most memories"
        steps = [f"next: {command('show', largest.location)}    {reason}"]
        if self.kinships:
            steps.append(f"      {merge_step(self.kinships[0])}")
        return steps

    def sheet(self) -> TextPage:
        """Return the inventory as a page; paths are not shortened, so that they can be copied."""
        searched = ", ".join(self.searched)
        if not searched:
            searched = f"nothing: none of these is there: {', '.join(map(str, usual_places()))}"
        facts = [("searched", searched)]
        if self.not_entered:
            facts.append(("not entered", ", ".join(self.not_entered)))
        if self.other_databases:
            facts.append(
                ("not listed", f"{counted(self.other_databases, 'databases')} of something else")
            )
        header = ("what", "memories", "tokens at start", "last written", "where")
        cells = [_cells_of(store) for store in self.stores]
        table = Table("", header, cells, whole=True, has_paths=True)
        problems = [(store.location, store.problem) for store in self.stores if store.problem]
        tables = [table]
        if problems:
            tables.append(Table("cannot be read", (), problems, whole=True, has_paths=True))
        orphaned = [
            (store.location, store.project or "no folder matches its name")
            for store in self.stores
            if store.is_orphaned and store.memories
        ]
        if orphaned:
            heading = "orphaned: the project is not there any more, or not on this machine"
            tables.append(
                Table(heading, ("folder", "project"), orphaned, whole=True, has_paths=True)
            )
        if self.kinships:
            tables.append(kinship_table(self.kinships))
        return TextPage(counted(len(self.stores), "stores"), facts, tables)


def find(folder: str | PathLike[str] | None = None) -> Inventory:
    """Find stores below a folder, and read the size of each. Nothing is written.

    Parameters
    ----------
    folder : str or Path, optional
        The folder to search; by default the places where supported systems put their stores. Links
        are not followed.

    Returns
    -------
    Inventory

    Raises
    ------
    StoreError
        If there is no such folder.

    Examples
    --------
    >>> import memlab
    >>> _ = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> inventory = memlab.find(".")
    >>> [store.memories for store in inventory.stores]
    [480]
    """
    expect(folder, PathLike, str, call="memlab.find", name="folder", optional=True)
    folders_to_search = usual_places() if folder is None else [Path(folder).expanduser()]
    folders = [place for place in folders_to_search if place.is_dir()]
    if folder is not None and not folders:
        alternative = f"or look at one store: {command('show', folder)}"
        raise StoreError(f"there is no folder {folder}; name one to look through, {alternative}")
    search = find_below(folders)
    contents: dict[str, dict[str, frozenset[str]]] = {}
    projects: dict[str, Project | None] = {}
    with shared_results():
        stores = tuple(
            _measured_store(recognised, contents, projects) for recognised in search.stores
        )
    kinships: list[Kinship] = []
    for contents_by_name in contents.values():
        kinships += kinships_among(contents_by_name, projects)
    return Inventory(
        searched=tuple(map(str, folders)),
        stores=stores,
        not_entered=tuple(map(str, search.unreadable)),
        other_databases=len(search.other_databases),
        kinships=tuple(kinships),
    )


def _measured_store(
    recognised: Recognised,
    contents: dict[str, dict[str, frozenset[str]]],
    projects: dict[str, Project | None],
) -> Store:
    """Return a recognised store with its size, or with the reason for which it cannot be read.

    The project of the store is added to `projects`, by location. If the store is a folder that can
    be merged, the digests of its memories are added to `contents`, by scheme and by location.
    """
    location = str(recognised.path)
    try:
        source = source_of_kind(recognised.scheme, location)
        frame = load(source, on_bad_row="keep")
        if source.intake is not None and len(frame):  # folders of other kinds are never merged
            contents.setdefault(source.scheme, {})[location] = digests_in(source)
        project = source.find_project()
        projects[location] = project
    except MemlabError as error:
        return Store(
            system=recognised.system,
            location=location,
            memories=None,
            tokens_at_start=None,
            last_written=None,
            problem=str(error),
        )
    memories = arrays_of(frame)
    project_path = ""
    is_orphaned = False
    if project is not None:
        project_path = project.path
        is_orphaned = project.is_missing
    return Store(
        system=recognised.system,
        location=location,
        memories=len(frame),
        tokens_at_start=largest_start(memories) + frame.attrs.get(col.INDEX_TOKENS, 0),
        last_written=memories.last_at,
        problem="",
        project=project_path,
        is_orphaned=is_orphaned,
    )


def _cost(store: Store) -> tuple[int, int]:
    """Return the tokens of a store's largest start, and the number of its memories."""
    return store.tokens_at_start or 0, store.memories or 0


def _cells_of(store: Store) -> tuple[str | int, ...]:
    """Return the cells of a store."""
    return (
        store.system,
        or_dash(store.memories, "{:,}".format),
        or_dash(store.tokens_at_start, "{:,}".format),
        or_dash(store.last_written, "{:%Y-%m-%d}".format),
        store.location,
    )
