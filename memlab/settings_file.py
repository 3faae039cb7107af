"""Write settings into the file ``memlab.toml``. Its other text and its comments are kept."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memlab.errors import SettingsError
from memlab.files import FileMode, folder_held, make_like, permissions_like, whole_file
from memlab.settings import (
    EXAMPLES,
    FILE,
    FORMAT,
    SETTINGS,
    STORES,
    VERSIONS,
    read_settings,
    text_of,
)


def write_settings(folder: Path, name: str, like: Path | None, values: Mapping[str, Any]) -> Path:
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
    values : mapping of str to object
        The values by key; None removes a setting.

    Raises
    ------
    SettingsError
        If the existing file or a value is not valid, or the file belongs to somebody else.
    """

    def with_values(text: str) -> str:
        toml_values = {key: _toml_value(value, folder) for key, value in values.items()}
        return with_settings(text, name, toml_values)

    return _rewrite(folder, name, like, with_values)


def template_of(
    folder: Path, name: str, like: Path | None, examples: Mapping[str, str] = EXAMPLES
) -> str:
    """Return the text that :func:`write_template` would write. Nothing is written."""
    existing = read_settings(folder, name, like)
    if existing.ignored_reason:
        raise SettingsError(f"{existing.ignored_reason}; move it away first")
    return with_examples(text_of(folder / FILE, like) or "", name, examples)


def write_template(
    folder: Path, name: str, like: Path | None, examples: Mapping[str, str] = EXAMPLES
) -> Path:
    """Write the settings of a store as comments, and return the path of the file.

    Settings and comments in the file are kept.

    Parameters
    ----------
    folder, name, like
        As for :func:`write_settings`.
    examples : mapping of str to str
        An example of each setting to write, by key.
    """
    return _rewrite(folder, name, like, lambda text: with_examples(text, name, examples))


def _rewrite(folder: Path, name: str, like: Path | None, change: Callable[[str], str]) -> Path:
    """Replace the text of the settings file in a folder, and return the path of the file.

    Parameters
    ----------
    folder, name, like
        As for :func:`write_settings`.
    change : callable
        Returns the new text for the present one, which is empty if there is no file.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SettingsError(
            f"the name {name!r} is not UTF-8, so settings cannot name it; rename the store"
        ) from error
    existing = read_settings(folder, name, like)  # an invalid file is left unchanged
    if existing.ignored_reason:
        raise SettingsError(f"{existing.ignored_reason}; nothing was written: move it away first")
    file = folder / FILE
    if like is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    permissions_of_store = permissions_like(like)
    # Nobody but the owner may write to the file, and the owner may always read and write.
    permissions = FileMode(permissions_of_store.mode & 0o644 | 0o600, permissions_of_store.group)
    with folder_held(folder):
        present_text = text_of(file, like)
        text = change(present_text or "")
        with (
            whole_file(file, permissions=permissions) as draft,
            draft.open("w", encoding="utf-8") as opened,
        ):
            opened.write(text)
            # A new file gets the owner of the store. An existing file keeps its owner.
            file_with_owner = like if present_text is None else file
            if file_with_owner is not None and file_with_owner.exists():
                status = file_with_owner.stat()
                mode = os.fstat(opened.fileno()).st_mode & 0o777
                if present_text is None:
                    # The umask does not apply: everybody who may read the store needs its settings.
                    mode = permissions.mode
                make_like(opened.fileno(), (status.st_uid, status.st_gid), mode)
    read_settings(folder, name, like)  # raises SettingsError if the new file is not valid
    return file


def with_settings(text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return the text of a settings file with the settings of one store added or replaced."""
    import tomlkit  # imported here, because only writing needs it

    document, table_of_store = _document_of(text, name)
    for key, value in values.items():
        if value is None:
            table_of_store.pop(key, None)
            continue
        comment = f"# {SETTINGS[key].comment}"
        if key in table_of_store:
            comment = table_of_store.item(key).trivia.comment
        item = _toml_item(value)
        table_of_store[key] = item
        if comment:
            item.comment(comment.removeprefix("#").strip())
    return tomlkit.dumps(document)


def _toml_item(value: Any) -> Any:
    """Return a value as an item of a TOML document. A mapping becomes a table on one line."""
    import tomlkit

    if not isinstance(value, dict):
        return tomlkit.item(value)
    table = tomlkit.inline_table()
    for key, field_value in value.items():
        table[key] = _toml_item(field_value)
    return table


def with_examples(text: str, name: str, examples: Mapping[str, str] = EXAMPLES) -> str:
    """Return the text of a settings file with examples of settings as comments.

    An example is left out if the store has the setting, or if the text has the example already.
    """
    import tomlkit  # imported here, because only writing needs it

    document, table_of_store = _document_of(text, name)
    for key, value in examples.items():
        example = f"{key} = {value}"
        if key not in table_of_store and f"# {example}" not in text:
            table_of_store.add(tomlkit.comment(f"{example}  # {SETTINGS[key].comment}"))
    return tomlkit.dumps(document)


def _document_of(text: str, name: str) -> tuple[Any, Any]:
    """Return the TOML document of a settings file and the table of a store in it.

    The table is added if it is missing.
    """
    import tomlkit

    document = tomlkit.parse(text)
    if not text.strip():
        versions = VERSIONS.format(FORMAT.number, FORMAT.readable_from)
        document.add(tomlkit.comment(versions))
        document.add(tomlkit.comment("Settings of the stores in this folder, for memlab."))
        document.add(
            tomlkit.comment(
                f'What stands above the first [{STORES}."..."] holds for all of them, '
                "what is below for one."
            )
        )
    stores: Any = document.setdefault(STORES, tomlkit.table(is_super_table=True))
    if name not in stores:
        stores.add(name, tomlkit.table())
    return document, stores[name]


def _toml_value(value: Any, folder: Path) -> Any:
    """Return a value that TOML can represent. A path below the folder becomes relative to it."""
    if not isinstance(value, Path):
        return value
    path = value.expanduser().absolute()
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return str(path)
