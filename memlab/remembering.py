"""Writing of settings into ``memlab.toml``: what else stands there stays, comments too."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memlab.errors import SettingsError
from memlab.files import FileMode, folder_held, limit_like, make_like, whole_file
from memlab.settings import FILE, FORMAT, SETTINGS, STORES, VERSIONS, read_settings, text_of


def write_settings(folder: Path, name: str, like: Path | None, chosen: Mapping[str, Any]) -> Path:
    """Write settings of a store into the file in a folder, and return its path.

    Other settings and comments in the file are kept.

    Parameters
    ----------
    folder : Path
        The folder of the file.
    name : str
        The name of the store in the file.
    like : Path or None
        The file or folder of the store, whose owner and permissions a new file gets.
    chosen : mapping of str to object
        The values by key; None removes a setting.

    Raises
    ------
    SettingsError
        If the existing file or a value is not valid, or the file belongs to somebody else.
    """
    existing = read_settings(folder, name, like)  # an invalid file is left unchanged
    if existing.not_obeyed:
        raise SettingsError(f"{existing.not_obeyed}; nothing was written: move it away first")
    file = folder / FILE
    if like is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    readers = limit_like(like)
    limit = FileMode(readers.mode & 0o644 | 0o600, readers.group)  # the owner alone may write
    with folder_held(folder):
        before = text_of(file, like)
        stored = {key: _stored(value, folder) for key, value in chosen.items()}
        text = with_settings(before or "", name, stored)
        template = like if before is None else file
        with whole_file(file, limit=limit) as draft, draft.open("w", encoding="utf-8") as opened:
            opened.write(text)
            if template is not None and template.exists():
                status = template.stat()
                mode = os.fstat(opened.fileno()).st_mode & 0o777
                if before is None:
                    mode = limit.mode  # whatever the umask: readers of the store need the settings
                make_like(opened.fileno(), (status.st_uid, status.st_gid), mode)
    read_settings(folder, name, like)
    return file


def with_settings(text: str, name: str, chosen: Mapping[str, Any]) -> str:
    """Return the text of a settings file with the settings of one store added or replaced."""
    import tomlkit  # imported here, because only writing needs it

    def item(value: Any) -> Any:
        if not isinstance(value, dict):
            return tomlkit.item(value)
        table = tomlkit.inline_table()
        for key, field_value in value.items():
            table[key] = item(field_value)
        return table

    document = tomlkit.parse(text)
    if not text.strip():
        versions = VERSIONS.format(FORMAT.number, FORMAT.readable_from)
        document.add(tomlkit.comment(versions))
        document.add(tomlkit.comment("What memlab remembers of the stores in this folder."))
        document.add(
            tomlkit.comment(
                f'What stands above the first [{STORES}."..."] holds for all of them, '
                "what is below for one."
            )
        )
    stores: Any = document.setdefault(STORES, tomlkit.table(is_super_table=True))
    if name not in stores:
        stores.add(name, tomlkit.table())
    own = stores[name]
    for key, value in chosen.items():
        if value is None:
            own.pop(key, None)
            continue
        comment = f"# {SETTINGS[key]['means']}"
        if key in own:
            comment = own.item(key).trivia.comment
        written = item(value)
        own[key] = written
        if comment:
            written.comment(comment.removeprefix("#").strip())
    return tomlkit.dumps(document)


def _stored(value: Any, folder: Path) -> Any:
    """Return a value for TOML. A path below the folder becomes relative to it."""
    if not isinstance(value, Path):
        return value
    path = value.expanduser().absolute()
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return str(path)
