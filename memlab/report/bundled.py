"""Stores and notebooks that come with memlab, wherever it is installed.

In an installed package they lie inside it; in a checkout they lie beside it. Either way they are to
be read, not written: copy a store before opening it with something that writes.
"""

from pathlib import Path

from memlab.arguments import expect

_PACKAGE = Path(__file__).resolve().parent.parent


def store_names() -> tuple[str, ...]:
    """Return the names that :func:`store_path` knows, in alphabetical order.

    Examples
    --------
    >>> store_names()
    ('three_hundred_issues', 'two_years')
    """
    return tuple(sorted(path.stem for path in _folder("data").glob("*.db")))


def store_path(name: str) -> Path:
    """Return where a bundled store lies.

    Parameters
    ----------
    name : str
        One of :func:`store_names`.

    Returns
    -------
    pathlib.Path
        An existing file in SQLite's rollback journal, readable where nothing can be written.

    Raises
    ------
    ValueError
        When no bundled store is called `name`.

    Examples
    --------
    >>> store_path("two_years").name
    'two_years.db'
    """
    expect(name, str, call="memlab.store_path", name="name")
    # A name is looked up, never read as a path.
    paths = {path.stem: path for path in _folder("data").glob("*.db")}
    if name not in paths:
        raise ValueError(f"name must be one of {', '.join(sorted(paths))}, not {name!r}")
    return paths[name]


def example_of_odek() -> dict[str, str]:
    """Return where a small folder of odek's episodes lies, and the log of what was read of it.

    Examples
    --------
    >>> sorted(example_of_odek())
    ['episodes', 'reads']
    """
    folder = _folder("data")
    return {"episodes": str(folder / "odek"), "reads": str(folder / "odek.reads.jsonl")}


def example_of_claude() -> dict[str, str]:
    """Return where a small folder of Claude Code's memory lies, and the one of all its projects.

    Examples
    --------
    >>> sorted(example_of_claude())
    ['memory', 'projects']
    """
    projects = _folder("data") / "claude" / "projects"
    return {"projects": str(projects), "memory": str(projects / "-home-mara-harbor" / "memory")}


def notebook_paths() -> tuple[Path, ...]:
    """Return where the notebooks lie, in reading order."""
    return tuple(sorted(_folder("notebooks").glob("[0-9]*.ipynb")))


def _folder(name: str) -> Path:
    """Return the bundled folder: inside an installed package, beside a checkout's."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
