"""Writing down what a person has chosen for a store, into ``memlab.toml`` beside it."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import tomlkit

from memlab.errors import MemlabError
from memlab.files import Limit, folder_held, limit_like, whole_file
from memlab.settings import FILE, STORES, read_settings
from memlab.sources.base import Source
from memlab.sources.opening import settings_of, settings_place

COMMENTS: Final = {
    "policy": "what memlab compact and maintain delete by",
    "target": "share of later references that should find their memory",
    "confidence": "of the limit that meets the target",
    "token_budget": "tokens that the memories loaded at start may take",
    "log": "what the agent read; paths from this folder",
    "protected_tags": "memories with one of these are never deleted",
    "archive_for": "how long the archive keeps what was deleted",
    "vacuum_free": "share of the file that must be free before it is rewritten",
}
"""What is written behind a setting that is written for the first time."""

_HEAD: Final = (
    "What memlab remembers of the stores in this folder.",
    f'What stands above the first [{STORES}."..."] holds for all of them, what is below for one.',
)


def remember(source: Source, chosen: Mapping[str, Any]) -> Path:
    """Write settings of a store into its file; what else stands there stays, comments too.

    Parameters
    ----------
    source : Source
        The store.
    chosen : mapping of str to object
        By name of a setting, its value as TOML has it, or a path; None takes the setting out. A
        path below the file's folder is written from there on.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    SettingsError
        When the file there cannot be used.
    MemlabError
        When it cannot be written, or the store is in memory and has no folder.
    """
    place = settings_place(source)
    if place is None:
        raise MemlabError(
            f"{source.name} has no folder to keep settings in; name the store by its file"
        )
    folder, name = place
    settings_of(source)  # what is wrong with the file is said before it is touched
    file = folder / FILE
    if source.like is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder_held(folder):
        _write(source, file, name, {key: _as_toml(each, folder) for key, each in chosen.items()})
    read_settings(folder, name)
    return file


def _write(source: Source, file: Path, name: str, chosen: Mapping[str, Any]) -> None:
    """Write a file of settings anew, while nobody else does."""
    text = with_settings(file.read_text(encoding="utf-8") if file.exists() else "", name, chosen)
    limit, is_new = _limit_of(source), not file.exists()
    with whole_file(file, limit=limit) as draft:
        draft.write_text(text, encoding="utf-8")
        _give_to_owner(draft, source.like if is_new else file)
        if is_new:  # whoever may read the store needs its settings, whatever the umask says
            draft.chmod(limit.of(draft.stat().st_gid))


def with_settings(text: str, name: str, chosen: Mapping[str, Any]) -> str:
    """Return the text of a file of settings with those of one store written into it.

    Parameters
    ----------
    text : str
        As it was; empty for a new file.
    name : str
        What the store is called in it.
    chosen : mapping
        As for :func:`remember`.
    """
    document = tomlkit.parse(text)
    if not text.strip():
        for line in _HEAD:
            document.add(tomlkit.comment(line))
    stores = document.setdefault(STORES, tomlkit.table(is_super_table=True))
    if name not in stores:
        stores.add(name, tomlkit.table())
    own = stores[name]
    for key, value in chosen.items():
        if value is None:
            own.pop(key, None)
            continue
        had = own.item(key).trivia.comment if key in own else f"# {COMMENTS[key]}"
        own[key] = item = _item(value)
        if had:
            item.comment(had.removeprefix("#").strip())
    return tomlkit.dumps(document)


def _as_toml(value: Any, folder: Path) -> Any:
    """Return a value as TOML has it; a path below the folder from there on."""
    if not isinstance(value, Path):
        return value
    whole = value.expanduser().absolute()
    return str(whole.relative_to(folder) if whole.is_relative_to(folder) else whole)


def _item(value: Any) -> Any:
    """Return a value as it is written, on one line."""
    if not isinstance(value, dict):
        return tomlkit.item(value)
    table = tomlkit.inline_table()
    table.update(value)
    return table


def _limit_of(source: Source) -> Limit:
    """Return who may read the settings: whoever may read the store; its owner alone writes them."""
    limit = limit_like(source.like)
    return Limit(limit.mode & 0o644 | 0o600, limit.group)


def _give_to_owner(draft: Path, like: Path | None) -> None:
    """Let what somebody else wrote for a store belong to whom the store belongs to."""
    if like is None or not like.exists():
        return
    found, own = like.stat(), draft.stat()
    if (found.st_uid, found.st_gid) != (own.st_uid, own.st_gid):
        with suppress(PermissionError):
            os.chown(draft, found.st_uid, found.st_gid, follow_symlinks=False)
