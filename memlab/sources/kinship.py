"""Find folders of memories that may belong to one project, with the evidence for it.

A project that was moved, renamed, cloned or checked out as worktrees has a folder for each of its
paths. The evidence is the project itself (its path, its repository, its remote), and memories that
are equal. Only prunable memories are compared: a person's preferences and instructions are copied
to unrelated projects too. Nothing is merged: a person decides.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path, PurePath
from typing import Final

from memlab.errors import MemlabError
from memlab.sources.base import Source, read_consistent
from memlab.sources.checkouts import Project, worktrees_of
from memlab.sources.folder.files import opened_folder
from memlab.sources.folder.source import FolderSource
from memlab.sources.readers import Reader, keys_in
from memlab.store.archive.content_copies import digest_of
from memlab.text import Table, command

MIN_EQUAL: Final = 2
"""Minimum number of equal memories."""
MIN_SHARE: Final = 0.2
"""Minimum share of the smaller folder that is equal."""
_MAX_LISTED: Final = 20
"""Maximum number of pairs that are listed."""


@dataclass(frozen=True, slots=True)
class Kinship:
    """Two folders that may belong to one project, and the evidence.

    Attributes
    ----------
    merge_into, merge_from : str
        The names of the folders: of the one that stays in a merge, and of the one that is merged
        into it. The folder whose project exists stays. If both or neither exist, it is the
        folder of the main checkout of a repository, or else the folder with more memories.
    equal : int
        Number of memories with the same text in both.
    memories : int
        Number of memories of the smaller folder that were compared.
    path : str
        The path to which the projects of both resolve; empty if they differ.
    repository : str
        The repository of which both projects are worktrees, or were; empty for none.
    remote : str
        The remote of which both projects are clones; empty for none. A person may have two clones
        on purpose.
    name : str
        The name of a missing project, if exactly one present project has the same name and it is
        that of the other folder; empty for none.
    """

    merge_into: str
    merge_from: str
    equal: int
    memories: int
    path: str = ""
    repository: str = ""
    remote: str = ""
    name: str = ""

    @property
    def evidence(self) -> list[str]:
        """The evidence in words, the strongest first."""
        reasons = []
        if self.path:
            reasons.append(f"both are {self.path}")
        if self.repository:
            reasons.append(f"worktrees of {self.repository}")
        if self.remote:
            reasons.append(f"clones of {self.remote}")
        if self.equal:
            reasons.append(f"{self.equal:,} of {self.memories:,} equal")
        if self.name:
            reasons.append(f"{self.name} is missing, and the other has its name")
        return reasons


def digests_in(source: Source) -> frozenset[str]:
    """Return the digests of the prunable memories of a folder that have a text."""
    return frozenset(_sizes_by_digest(source))


def _sizes_by_digest(source: Source) -> dict[str, int]:
    """Return the size of each prunable memory with a text, by its digest."""

    def read_sizes(reader: Reader) -> dict[str, int]:
        sizes = {}
        for content in _contents(source, reader):
            sizes[digest_of(content).hex()] = len(content)
        return sizes

    return read_consistent(source, read_sizes)


def _contents(source: Source, reader: Reader) -> Iterator[bytes]:
    """Yield the content of each prunable memory that has a text."""
    for _, record in reader.records(keys_in(reader)):
        is_load_bearing = source.is_load_bearing(source.facts_of(record), if_invalid=True)
        if not is_load_bearing and not source.is_empty(record):
            yield source.content_for_digest(record)


def kinships_among(
    contents: Mapping[str, Collection[str]], projects: Mapping[str, Project | None] | None = None
) -> Sequence[Kinship]:
    """Return the pairs of folders that may belong to one project, the most equal ones first.

    Parameters
    ----------
    contents : mapping of str to collection of str
        The digests of the memories of each folder, by its name.
    projects : mapping of str to Project, optional
        The project of each folder, by the name of the folder; None for an unknown one.

    Returns
    -------
    sequence of Kinship

    Examples
    --------
    >>> contents = {"a": frozenset("123"), "b": frozenset("1234"), "c": frozenset("9")}
    >>> (kinship,) = kinships_among(contents)
    >>> kinship.merge_into, kinship.merge_from, kinship.equal
    ('b', 'a', 3)
    """
    known_projects = projects or {}
    path_by_unique_name = _paths_by_unique_name(known_projects)
    kinships = []
    for pair in combinations(sorted(contents), 2):
        first, second = sorted(pair, key=lambda name: _order(name, contents, known_projects))
        kinship = _kinship(first, second, contents, known_projects, path_by_unique_name)
        if kinship is not None:
            kinships.append(kinship)
    return sorted(kinships, key=lambda kinship: _rank(kinship, known_projects))


def _rank(
    kinship: Kinship, projects: Mapping[str, Project | None]
) -> tuple[bool, int, bool, str, str]:
    """Return the sort key of a pair.

    A missing project's name alone is the weakest evidence. Among pairs with equally many
    equal memories, those with the main checkout come first: its folder is the one that stays.
    """
    is_weak = not (kinship.equal or kinship.path or kinship.repository or kinship.remote)
    is_main = _is_main(projects.get(kinship.merge_into))
    return is_weak, -kinship.equal, not is_main, kinship.merge_into, kinship.merge_from


def _is_main(project: Project | None) -> bool:
    """Return whether a project is the main checkout of its repository."""
    checkout = None if project is None else project.checkout
    return checkout is not None and checkout.is_main


def _order(
    name: str, contents: Mapping[str, Collection[str]], projects: Mapping[str, Project | None]
) -> tuple[bool, bool, int, str]:
    """Return the sort key of a folder in a pair: the folder that stays comes first.

    See :attr:`Kinship.merge_into`.
    """
    project = projects.get(name)
    is_missing = project is not None and project.is_missing
    return is_missing, not _is_main(project), -len(contents[name]), name


def _kinship(
    first: str,
    second: str,
    contents: Mapping[str, Collection[str]],
    projects: Mapping[str, Project | None],
    path_by_unique_name: Mapping[str, str],
) -> Kinship | None:
    """Return the kinship of two folders; None without evidence."""
    smaller_size = min(len(contents[first]), len(contents[second]))
    equal_count = len(set(contents[first]) & set(contents[second]))
    if equal_count < MIN_EQUAL or equal_count < MIN_SHARE * smaller_size:
        equal_count = 0
    kinship = Kinship(merge_into=first, merge_from=second, equal=equal_count, memories=smaller_size)
    first_project = projects.get(first)
    second_project = projects.get(second)
    if first_project is not None and second_project is not None:
        kinship = _with_evidence_of_projects(
            kinship, first_project, second_project, path_by_unique_name
        )
    return kinship if kinship.evidence else None


def _with_evidence_of_projects(
    kinship: Kinship, first: Project, second: Project, path_by_unique_name: Mapping[str, str]
) -> Kinship:
    """Return the kinship of two folders with the evidence that their projects give."""
    path = _shared_path(first, second)
    repository = _shared_repository(first, second)
    remote = "" if repository else _shared_remote(first, second)
    name = ""
    if not (path or repository or remote):
        name = _name_of_missing(first, second, path_by_unique_name)
    return replace(kinship, path=path, repository=repository, remote=remote, name=name)


def _shared_path(first: Project, second: Project) -> str:
    """Return the path of two projects that are the same through links; empty for none."""
    return first.real_path if first.real_path == second.real_path else ""


def _shared_repository(first: Project, second: Project) -> str:
    """Return the repository of which two projects are worktrees, or were; empty for none."""
    first_checkout = first.checkout
    second_checkout = second.checkout
    if first_checkout is not None and second_checkout is not None:
        if first_checkout.repository != second_checkout.repository:
            return ""
        is_same_subfolder = first_checkout.subfolder == second_checkout.subfolder
        is_other_worktree = first_checkout.root != second_checkout.root
        return str(first_checkout.repository) if is_same_subfolder and is_other_worktree else ""
    for missing, present in ((first, second), (second, first)):
        checkout = present.checkout
        has_missing_path = missing.is_missing and missing.path != ""
        if checkout is None or not has_missing_path:
            continue
        # The missing project was in the same subfolder of its worktree as the present one.
        missing_root = _without_subfolder(PurePath(missing.path), checkout.subfolder)
        if missing_root is not None and missing_root in set(worktrees_of(checkout.repository)):
            return str(checkout.repository)
    return ""


def _without_subfolder(path: PurePath, subfolder: str) -> PurePath | None:
    """Return a path without a subfolder at its end; None if the path does not end with it.

    >>> _without_subfolder(PurePath("/work/app/docs"), "docs")
    PurePosixPath('/work/app')
    """
    subfolder_parts = PurePath(subfolder).parts
    root_length = len(path.parts) - len(subfolder_parts)
    if root_length < 1 or path.parts[root_length:] != subfolder_parts:
        return None
    return PurePath(*path.parts[:root_length])


def _shared_remote(first: Project, second: Project) -> str:
    """Return the remote of which two projects are clones; empty for none."""
    checkout = first.checkout
    other = second.checkout
    if checkout is None or other is None or checkout.repository == other.repository:
        return ""
    is_shared = checkout.remote == other.remote and checkout.subfolder == other.subfolder
    return checkout.remote if is_shared else ""


def _paths_by_unique_name(projects: Mapping[str, Project | None]) -> dict[str, str]:
    """Return the path of each existing project with a unique name, by that name.

    The name is the last part of the path. A project at the root of the file system has no name.
    """
    paths_by_name: dict[str, set[str]] = {}
    for project in projects.values():
        if project is not None and not project.is_missing:
            name = PurePath(project.path).name
            paths_by_name.setdefault(name, set()).add(project.real_path)
    path_by_unique_name = {}
    for name, paths in paths_by_name.items():
        if name and len(paths) == 1:
            (path_by_unique_name[name],) = paths
    return path_by_unique_name


def _name_of_missing(
    first: Project, second: Project, path_by_unique_name: Mapping[str, str]
) -> str:
    """Return the name of a missing project if only the other project has the same name.

    The result is empty for none.
    """
    for missing, present in ((first, second), (second, first)):
        name = PurePath(missing.path).name
        path = path_by_unique_name.get(name, "")
        if missing.is_missing and name and path and path == present.real_path:
            return name
    return ""


def kinships_of(source: Source) -> Sequence[Kinship]:
    """Return the pairs of a folder and another folder beside it that may belong to one project.

    To save time, the files of another folder are compared in two steps. The first step reads only
    files that have the size of a memory of the source. If enough of them equal memories, the second
    step reads the whole folder.
    """
    siblings = source.siblings()
    if not siblings:
        return ()
    is_empty = read_consistent(source, lambda reader: not keys_in(reader))
    if is_empty:
        return ()
    sizes_by_digest = _sizes_by_digest(source)
    contents: dict[str, Collection[str]] = {source.name: sizes_by_digest.keys()}
    projects = {source.name: source.find_project()}
    for sibling in siblings:
        projects[sibling.name] = sibling.find_project()
        contents[sibling.name] = frozenset()
        if len(_equal_files(sibling, sizes_by_digest)) >= MIN_EQUAL:
            with suppress(MemlabError):  # opening that folder alone shows the error
                contents[sibling.name] = digests_in(sibling)
    return [
        kinship
        for kinship in kinships_among(contents, projects)
        if source.name in (kinship.merge_into, kinship.merge_from)
    ]


def _equal_files(sibling: Source, sizes_by_digest: Mapping[str, int]) -> set[str]:
    """Return those digests of memories that a file of another folder has too.

    Files of other sizes are not read.
    """
    digests: set[str] = set()
    sizes_to_read = set(sizes_by_digest.values())
    if not sizes_to_read or not isinstance(sibling, FolderSource):
        return digests
    with suppress(MemlabError, OSError), opened_folder(sibling.path, sibling.includes) as folder:
        for name, stamp in folder.listing().files.items():
            if stamp.size in sizes_to_read:
                digests.add(digest_of(folder.read(name).data).hex())
    return digests & sizes_by_digest.keys()


def merge_step(kinship: Kinship) -> str:
    """Return the command that shows what a merge of two folders would do."""
    merge = command("compact", kinship.merge_from, "--into", kinship.merge_into)
    return f"{merge}    if both are one project, this shows what would be copied"


def table_of(kinships: Sequence[Kinship]) -> Table:
    """Return the table of the folders that may belong to one project."""
    rows = [
        (", ".join(kinship.evidence), str(Path(kinship.merge_from)), str(Path(kinship.merge_into)))
        for kinship in kinships
    ]
    table = Table(
        "may be one project; there may be two clones on purpose, and memlab merges nothing by "
        "itself",
        ("evidence", "folder", "into"),
        rows,
        whole=True,  # a cell is never cut short
        has_paths=True,
    )
    return table.first(_MAX_LISTED)
