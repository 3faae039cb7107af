"""Read an access log: which memory an agent read, and when."""

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from memlab.columns import AT, MEMORY_ID, TIME
from memlab.errors import MemlabError
from memlab.files import read_whole
from memlab.frame.fields import moment_of


def read_access_log(path: Path | str) -> pd.DataFrame:
    """Read a file of memories read: CSV with a header, or one JSON object a line.

    Each line names a memory in ``memory_id`` and the moment it was read in ``at``, in ISO 8601 with
    a time zone. Other fields are ignored, and so are empty lines. A file whose first character is
    ``{`` holds JSON.

    Parameters
    ----------
    path : Path or str
        The file, in UTF-8.

    Returns
    -------
    pandas.DataFrame
        ``memory_id`` and ``at`` (UTC), in the order of the file: what
        :func:`memlab.find_references` takes as ``log``.

    Raises
    ------
    MemlabError
        When the file cannot be read or a line cannot be understood; the message names the line.
    """
    text = _decoded(path)
    entries = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
    ids, moments = [], []
    try:
        for line, fields in entries:
            ids.append(_memory_id(line, fields))
            moments.append(_moment(line, fields))
    except ValueError as error:
        raise MemlabError(
            f"{path}, {error}; a log has a memory_id and an at, such as 2026-06-30T18:00:00+00:00, "
            "on every line"
        ) from error
    return pd.DataFrame({MEMORY_ID: pd.array(ids, dtype="str"), AT: pd.array(moments, dtype=TIME)})


def _decoded(path: Path | str) -> str:
    try:
        return read_whole(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MemlabError(
            f"{path} is not text in UTF-8 (byte {error.start}); write the log as CSV or JSON lines"
        ) from error


def _from_json(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: not a JSON object") from error
        if not isinstance(fields, dict):
            raise ValueError(f"line {number}: not a JSON object")  # noqa: TRY004 - one kind of fault
        yield number, fields


def _from_csv(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.DictReader(StringIO(text, newline=""), strict=True)
    try:
        missing = {MEMORY_ID, AT} - set(rows.fieldnames or ())
        if missing:
            raise ValueError(f"line 1: no column {' and no column '.join(sorted(missing))}")
        for fields in rows:
            yield rows.line_num, fields
    except csv.Error as error:
        raise ValueError(f"near line {rows.line_num}: {error}") from error


def _memory_id(line: int, fields: dict[str, Any]) -> str:
    memory_id = fields.get(MEMORY_ID)
    if not isinstance(memory_id, str) or not memory_id:
        raise ValueError(f"line {line}: memory_id must be a text, not {_shown(memory_id)}")
    return memory_id


def _moment(line: int, fields: dict[str, Any]) -> Any:
    at = fields.get(AT)
    if not isinstance(at, str):
        raise ValueError(f"line {line}: at must be a text, not {_shown(at)}")  # noqa: TRY004 - one kind of fault
    try:
        return moment_of(at)
    except ValueError as error:
        raise ValueError(f"line {line}: at {error}") from error


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.60}"
