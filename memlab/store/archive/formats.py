"""Formats of archives: the tables of each, and how memories are written to and read from them.

An archive stores the number of its format in ``PRAGMA user_version``. The table ``about`` stores
the oldest format whose readers understand it; without that row it is the format itself. An older
archive is read in place and added to in its own format; conversion is a command of its own.

Format 2
    A copy is the record of the memory, with its fingerprint in hexadecimal digits. A plan is stored
    whole.
Format 3
    A copy is a JSON list of the values of the record, one on each line, and the number of the
    ``layout`` that names them. Its fingerprint has 16 bytes. A plan is stored without the fields of
    deleted memories that their copies have. Packed copies name the dictionary of their compression.
"""

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as in_quotes
from typing import Any, ClassVar, Final, NamedTuple

from memlab.store.archive import packing, schema
from memlab.store.archive.schema import Copy, NewCopy, PlanText
from memlab.store.database import COLUMNS, HIDING
from memlab.store.records import PLACE_FIELD, encoded, fingerprint_of
from memlab.store.shapes import check_integer, check_type, shown
from memlab.store.signals import SIGNALS
from memlab.versions import FileFormat, Written, written_in

FORMAT: FileFormat = FileFormat(number=3, readable_from=3, oldest=2)
"""Format of a new archive."""
PAGE: Final = 8192
"""Page size of a new archive, in bytes.

With SQLite's default of 4,096 bytes, a tenth of the file stays empty for rows of 400 bytes."""
READABLE_FROM: Final = "readable_from"
"""Name in the table ``about`` of the oldest format whose readers understand the archive."""

_VIEW_COLUMNS: Final = (*COLUMNS, SIGNALS)
"""Fields of a record that are columns of the view ``archived_memories``."""
_REQUIRED_TABLES: Final = ("about", "applies", "archived")
"""Tables that every archive has. Others are created when a command first needs them."""
_ABOUT: Final = "(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
_APPLIES: Final = """(
    apply INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
    made_at TEXT NOT NULL, memories INTEGER NOT NULL, archived_at TEXT NOT NULL,
    finished_at TEXT, plan_json_zlib BLOB
)"""  # AUTOINCREMENT: the number of a deletion that was erased is not used again
_DROPPED: Final = """(
    apply INTEGER NOT NULL, digest TEXT NOT NULL, deleted_at TEXT NOT NULL,
    dropped_at TEXT NOT NULL, facts TEXT NOT NULL
)"""
_RETIRED: Final = """(
    key NOT NULL PRIMARY KEY, name TEXT NOT NULL, apply INTEGER NOT NULL,
    retired_at TEXT NOT NULL, returned_at TEXT, times_needed INTEGER NOT NULL DEFAULT 0
)"""

DICTIONARIES: Final[Mapping[int, bytes]] = {
    1: (
        b'"superseded_by":null,"supersedes_json":"[]","evidence_refs_json":"[]",'
        b'"authored_by":"agent","confidence":1.0,"source_event_id":null,"source_sequence":null,'
        b'"source_task_ref":"issue:#","tags_json":"[]",'
        b'"created_at":"2026-01-01T00:00:00.000000+00:00","title":"","body":"",'
        b'"kind":"episodic","kind":"semantic","kind":"procedural",'
        b'{"file":{"data":"---\\nname: \\ndescription: \\nmetadata:\\n  type: project\\n---\\n\\n# '
        b'","mode":384,"mode":420,"name":"memory/2026-01-01.md","owner":[1000,1000],"owner":[0,0],'
        b'"written":17},"index":["- []() - \\n"],"memory_id":"memory/2026-01-01.md"},"place":'
        b'{"position":,"created_at":"2026-01-01T00:00:00+00:00","loaded":false,"judged":true,'
        b'"said":[]}}'
    )
}
"""Preset dictionaries of zlib for packed copies, by number, with text that most records share.

They halve the size of a short packed memory. A dictionary that was in use never changes: a better
one gets a new number."""
DICTIONARY: Final = 1
"""Number of the dictionary with which copies are packed."""


class PackedCopy(NamedTuple):
    """Stored values of a packed copy."""

    key: Any
    fingerprint: Any
    packed: Any
    dictionary: Any


class ArchiveFormat(ABC):
    """Base of the formats, for one open archive. Its methods run in the transaction of the caller.

    Attributes
    ----------
    number : int
        The number of the format in ``PRAGMA user_version``.
    tables : mapping of str to str
        The columns of each table, as SQL.
    in_each : tuple of str
        The tables of every archive.
    view : str
        The statement that creates the view ``archived_memories``.
    record_columns : str
        The columns of ``archived`` that hold a record, as SQL.
    """

    number: ClassVar[int]
    tables: ClassVar[Mapping[str, str]]
    in_each: ClassVar[tuple[str, ...]] = _REQUIRED_TABLES
    view: ClassVar[str]
    record_columns: ClassVar[str]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: Final = connection

    def create(self, scheme: str) -> None:
        """Create the tables of an archive for a kind of store."""
        for name in self.in_each:
            self.make_table(name)
        self.connection.execute(self.view)
        self.connection.execute("INSERT OR REPLACE INTO about VALUES ('scheme', ?)", (scheme,))
        # This comes last: until the version is noted, the archive counts as unfilled.
        self.note_versions()

    def note_versions(self) -> None:
        """Store the number of the format, and the oldest format whose readers understand it."""
        self.connection.execute(f"PRAGMA user_version = {self.number}")

    def make_table(self, name: str) -> None:
        """Create a table if it does not exist."""
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {self.tables[name]}")

    @abstractmethod
    def fingerprint_in(self, value: object) -> str:
        """Return a stored fingerprint as hexadecimal digits."""

    @abstractmethod
    def record_in(self, *stored: object) -> bytes:
        """Return the record of the values of :attr:`record_columns`.

        Raise ValueError if they are wrong.
        """

    @abstractmethod
    def insert_copies(
        self, entry_number: int, memories: Iterable[NewCopy], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return the plan in its stored form."""

    @abstractmethod
    def plan_rows(
        self, text: Mapping[str, Any], entry_number: int
    ) -> Iterator[dict[str, Any]] | None:
        """Yield the rows of a plan for deleted memories; return None if its text has them.

        Parameters
        ----------
        text : mapping
            The stored text of the plan, parsed as JSON.
        entry_number : int
            The number of its entry.
        """

    @abstractmethod
    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a packed copy of a memory in the store; replace the copy of the same content."""

    @abstractmethod
    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies of one content of a memory."""

    def copies(self, entry_number: int) -> Iterator[tuple[Any, ...]]:
        """Yield the row id, key, fingerprint, reason and time of restoration of each copy."""
        return iter(
            self.connection.execute(
                "SELECT rowid, key, fingerprint, reason, restored_at FROM archived "
                "WHERE apply = ? ORDER BY rowid",
                (entry_number,),
            )
        )

    def copies_at(self, rowids: Sequence[int]) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the columns of :meth:`copies` at some row ids, and the values of each record."""
        marks = ", ".join("?" * len(rowids))
        rows = self.connection.execute(
            f"SELECT rowid, key, fingerprint, reason, restored_at, {self.record_columns} "
            f"FROM archived WHERE rowid IN ({marks}) ORDER BY rowid",
            rowids,
        )
        return [(row[:5], row[5:]) for row in rows.fetchall()]

    def rowids_of(self, entry_number: int, keys: Sequence[Any]) -> list[int]:
        """Return the row ids of the copies with some keys."""
        return [rowid for (rowid,) in self._with_keys("rowid", entry_number, keys)]

    def records_of(self, entry_number: int, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the key and the stored values of the record of the copies with some keys."""
        return self._with_keys(f"key, {self.record_columns}", entry_number, keys)

    def _with_keys(
        self, columns: str, entry_number: int, keys: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Select columns of the copies with some keys."""
        return self.connection.execute(
            f"SELECT {columns} FROM archived "
            f"WHERE apply = ? AND key IN ({', '.join('?' * len(keys))})",
            (entry_number, *keys),
        ).fetchall()

    def count_sound(self, entry_number: int) -> int:
        """Return the number of copies of a deletion whose records match their fingerprints."""
        rows = self.connection.execute(
            f"SELECT fingerprint, {self.record_columns} FROM archived WHERE apply = ?",
            (entry_number,),
        )
        return sum(
            self.fingerprint_in(fingerprint) == fingerprint_of(self.record_in(*stored))
            for fingerprint, *stored in rows
        )


class Format2(ArchiveFormat):
    """Format 2: records and plans as they are."""

    number = 2
    tables: ClassVar[Mapping[str, str]] = {
        "about": _ABOUT,
        "applies": _APPLIES,
        "archived": """(
            apply INTEGER NOT NULL REFERENCES applies (apply), key NOT NULL,
            fingerprint TEXT NOT NULL, record TEXT NOT NULL, reason TEXT NOT NULL,
            restored_at TEXT, PRIMARY KEY (apply, key)
        )""",
        "dropped": _DROPPED,
        "retired": _RETIRED,
        "copies": """(
            memory_id TEXT NOT NULL, digest BLOB NOT NULL, key NOT NULL, fingerprint BLOB NOT NULL,
            record_zlib BLOB NOT NULL, is_empty INTEGER NOT NULL, seen_at TEXT, missed_at TEXT,
            PRIMARY KEY (memory_id, digest)
        )""",
    }
    _columns = ", ".join(f"json_extract(record, '$.{name}') AS {name}" for name in _VIEW_COLUMNS)
    view = f"""
CREATE VIEW archived_memories AS
SELECT digest, archived_at, finished_at, restored_at, reason, key, {_columns}, record
FROM archived JOIN applies USING (apply) ORDER BY archived.rowid"""
    record_columns = "record"

    def fingerprint_in(self, value: object) -> str:
        """Return a stored fingerprint of hexadecimal digits."""
        return schema.fingerprint_in(value)

    def record_in(self, *stored: object) -> bytes:
        """Return the stored record."""
        return bytes(schema.raw_text_in(stored[0], "its record"))

    def insert_copies(
        self, entry_number: int, memories: Iterable[NewCopy], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return the packed plan, which is whole."""
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, record, reason) VALUES (?, ?, ?, ?, ?)",
            (
                (
                    entry_number,
                    memory.key,
                    fingerprint_of(memory.record),
                    memory.record.decode(),
                    memory.reason,
                )
                for memory in memories
            ),
        )
        return None if plan is None else packing.packed(plan.whole)

    def plan_rows(self, text: Mapping[str, Any], entry_number: int) -> None:  # noqa: ARG002
        """Return None: the stored text of a plan has all rows."""
        return

    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a packed copy."""
        self.connection.execute(
            "INSERT INTO copies (memory_id, digest, key, fingerprint, record_zlib, is_empty) "
            f"VALUES (?, ?, ?, ?, ?, ?) {_ON_CONFLICT}",
            values,
        )

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies, all of which use the first dictionary."""
        rows = self.connection.execute(
            "SELECT key, fingerprint, record_zlib FROM copies WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [PackedCopy(key, fingerprint, packed, 1) for key, fingerprint, packed in rows]


_ON_CONFLICT: Final = (
    "ON CONFLICT DO UPDATE SET key = excluded.key, fingerprint = excluded.fingerprint, "
    "missed_at = NULL, record_zlib = excluded.record_zlib"
)


class Layout(NamedTuple):
    """Field names of stored lists, and how a list becomes a record again.

    Attributes
    ----------
    heads : tuple of str
        The text of the record before each value: a brace or a comma, the name, and a colon.
    template : bytes
        The record with ``%b`` in the place of each value.
    pattern : pattern of bytes
        Matches a record with these names whose values are all plain, and captures the values.
    places : mapping of str to int
        The index of each field in the list.
    """

    heads: tuple[str, ...]
    template: bytes
    pattern: re.Pattern[bytes]
    places: Mapping[str, int]


_SEPARATOR: Final = b"\n,"
"""Separator of the values in a list. JSON escapes line breaks in texts, so no value contains it."""
_PLAIN_VALUE: Final = (
    r'("[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|[-+.0-9Ee]++|null|true|false)'
)
"""Pattern of a number, a literal, or a text, as it is written in a record."""
_PATHS_OF_OBJECT: Final = json.dumps(
    {name: f"$.{name}" for name in _VIEW_COLUMNS}, separators=(",", ":")
)
"""Paths of the layout of records that are stored as JSON objects, each path as ``$.name``.

These are records that a list would not restore exactly."""
_MOST_NAMES: Final = 10_000
"""Maximum number of names in a layout. SQLite allows 32,767 columns, 2,000 by default."""


def layout_of_names(names: Sequence[str], *, has_place: bool) -> Layout:
    """Return the layout of records with these fields in this order.

    If `has_place`, the last field is the place of the memory among others.
    """
    heads = [f"{',' if number else '{'}{_json_name(name)}:" for number, name in enumerate(names)]
    if has_place:
        heads[-1] = PLACE_FIELD.decode()
    raw = [head.encode() for head in heads]
    template = b"%b".join([head.replace(b"%", b"%%") for head in raw] + [b"}"])
    pattern = _PLAIN_VALUE.encode().join([re.escape(head) for head in raw] + [rb"\}"])
    places = {name: place for place, name in enumerate(names)}
    return Layout(
        heads=tuple(heads),
        template=template,
        pattern=re.compile(pattern, re.DOTALL),
        places=places,
    )


def _json_name(name: str) -> str:
    """Return a name as JSON."""
    return json.dumps(name, ensure_ascii=False)


class Format3(ArchiveFormat):
    """Format 3: records as lists of values, whose names are in layouts."""

    number = 3
    tables: ClassVar[Mapping[str, str]] = {
        "about": _ABOUT,
        "applies": _APPLIES,
        "layouts": """(
            layout INTEGER PRIMARY KEY, paths TEXT NOT NULL, has_place INTEGER NOT NULL
        )""",
        "archived": """(
            apply INTEGER NOT NULL REFERENCES applies (apply), key NOT NULL,
            fingerprint BLOB NOT NULL, layout INTEGER NOT NULL REFERENCES layouts (layout),
            fields TEXT NOT NULL, reason TEXT NOT NULL, tokens INTEGER, restored_at TEXT,
            PRIMARY KEY (apply, key)
        )""",
        "dropped": _DROPPED,
        "retired": _RETIRED,
        "copies": """(
            memory_id TEXT NOT NULL, digest BLOB NOT NULL, key NOT NULL, fingerprint BLOB NOT NULL,
            record_zlib BLOB NOT NULL, is_empty INTEGER NOT NULL, seen_at TEXT, missed_at TEXT,
            dictionary INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (memory_id, digest)
        )""",
    }
    in_each = ("about", "applies", "layouts", "archived")
    _columns = ", ".join(
        f"json_extract(fields, json_extract(paths, '$.{name}')) AS {name}" for name in _VIEW_COLUMNS
    )
    view = f"""
CREATE VIEW archived_memories AS
SELECT digest, archived_at, finished_at, restored_at, reason, key, {_columns},
    CASE WHEN substr(fields, 1, 1) = '{{' THEN fields ELSE (
        SELECT json_group_object(named.key, json_extract(fields, named.value))
        FROM json_each(paths) AS named
    ) END AS record
FROM archived JOIN applies USING (apply) JOIN layouts USING (layout) ORDER BY archived.rowid"""
    record_columns = "layout, fields"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._layouts: dict[int, Layout] = {}
        self._numbers: dict[tuple[str, bool], int] = {}
        # Number and layout of the last record that was written. The next one usually has it, too.
        self._last: tuple[int, Layout] | None = None

    def note_versions(self) -> None:
        """Store the number of the format, and the oldest format whose readers understand it."""
        self.connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)",
            (READABLE_FROM, str(FORMAT.readable_from)),
        )
        super().note_versions()

    def fingerprint_in(self, value: object) -> str:
        """Return a stored fingerprint of 16 bytes as hexadecimal digits."""
        check_type(value, bytes, "a blob")
        digits = value.hex()  # type: ignore[attr-defined]
        if len(digits) != schema.FINGERPRINT_DIGITS:
            raise ValueError(f"its fingerprint is {shown(value)}")
        return str(digits)

    def record_in(self, *stored: object) -> bytes:
        """Return the record of a stored list of values, or of a stored object."""
        number, value = stored
        fields = schema.raw_text_in(value, "its record")
        if fields[:1] == b"{":
            return bytes(fields)
        layout = self._layouts.get(number)  # type: ignore[call-overload]
        if layout is None:
            check_integer(number, 1)
            layout = self._layout_at(int(number))  # type: ignore[call-overload]
        values = fields[1:-1].split(_SEPARATOR)
        if len(values) != len(layout.heads):
            raise ValueError(f"its record has {len(values)} values for {len(layout.heads)} names")
        record: bytes = layout.template % tuple(values)
        return record

    def insert_copies(
        self, entry_number: int, memories: Iterable[NewCopy], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return the packed plan without the fields in them."""
        # Forget cached layouts: a transaction that inserted some may have been rolled back.
        self._layouts = {}
        self._numbers = {}
        self._last = None
        differing: list[str] = []
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, layout, fields, reason, tokens) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._rows(entry_number, memories, plan, differing),
        )
        if plan is None:
            return None
        return packing.packed(lambda: plan.shortened(differing))

    def _rows(
        self,
        entry_number: int,
        memories: Iterable[NewCopy],
        plan: PlanText | None,
        differing: list[str],
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of copies; append the fields in which the plan differs to `differing`."""
        not_archived = {} if plan is None else plan.not_archived
        place = 0
        for memory in memories:
            fingerprint = fingerprint_of(memory.record)
            plain = self._plain_values(memory.record)
            has_planned_fields = False
            if plain is None:
                number, fields = self._as_stored(memory.record)
            else:
                number, layout, values = plain
                fields = _list_of_values(values)
                has_planned_fields = _copy_has_planned_fields(memory, fingerprint, layout, values)
            tokens = None
            if memory.planned is None:
                if plan is not None and plan.without_memories is not None:
                    raise ValueError(f"a plan names {memory.key!r}, and nobody says how")
            else:
                place = _append_unarchived(place, not_archived, differing)
                tokens = memory.planned["tokens"]
                if not has_planned_fields:
                    differing_fields = _fields_unlike_copy(memory, memory.planned, fingerprint)
                    if differing_fields:
                        differing.append(_json([place, differing_fields]))
                place += 1
            yield (
                entry_number,
                memory.key,
                bytes.fromhex(fingerprint),
                number,
                fields,
                memory.reason,
                tokens,
            )
        _append_unarchived(place, not_archived, differing)

    def plan_rows(
        self, text: Mapping[str, Any], entry_number: int
    ) -> Iterator[dict[str, Any]] | None:
        """Yield the rows of a plan for deleted memories; return None if its text has them."""
        shortened = text.get(schema.SHORTENED)
        if shortened is None:
            return None
        check_type(shortened, dict, "an object")
        check_type(shortened.get("differing"), list, "a list")
        differing = {}
        for pair in shortened["differing"]:
            check_type(pair, list, "a list")
            place, fields = pair
            check_integer(place, 0)
            check_type(fields, dict, "an object")
            differing[place] = fields
        return self._planned_rows(entry_number, differing)

    def _planned_rows(
        self, entry_number: int, differing: dict[int, dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a plan from the copies and from the fields that differ."""
        copies = self.connection.execute(
            f"SELECT key, fingerprint, reason, tokens, {self.record_columns} FROM archived "
            "WHERE apply = ? ORDER BY rowid",
            (entry_number,),
        )
        place = 0
        for key, fingerprint, reason, tokens, *stored in copies:
            # An element that has a key is the whole row of a memory that was not archived.
            while "key" in differing.get(place, {}):
                yield differing[place]
                place += 1
            copy = schema.copy_of(key, self.fingerprint_in(fingerprint), reason, None)
            try:
                fields = json.loads(self.record_in(*stored))
            except RecursionError:
                raise ValueError("a record is nested too deep") from None
            check_type(fields, dict, "a JSON object")
            yield {**planned_row(copy, fields, tokens), **differing.get(place, {})}
            place += 1
        while "key" in differing.get(place, {}):
            yield differing[place]
            place += 1

    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a packed copy, with the number of its dictionary."""
        self.connection.execute(
            "INSERT INTO copies (memory_id, digest, key, fingerprint, record_zlib, is_empty, "
            "dictionary) VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"{_ON_CONFLICT}, dictionary = excluded.dictionary",
            (*values, DICTIONARY),
        )

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies."""
        rows = self.connection.execute(
            "SELECT key, fingerprint, record_zlib, dictionary FROM copies "
            "WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [PackedCopy(*row) for row in rows.fetchall()]

    def _plain_values(self, record: bytes) -> tuple[int, Layout, tuple[bytes, ...]] | None:
        """Return the number of the layout, the layout, and the values of a plain record.

        Return None if a value is not plain, or if the layout is not that of the last record. The
        record is not parsed as JSON, which saves a tenth of the time of a compaction.
        """
        if self._last is None:
            return None
        number, layout = self._last
        match = layout.pattern.fullmatch(record)
        if match is None:
            return None
        return number, layout, match.groups()

    def _as_stored(self, record: bytes) -> tuple[int, str]:
        """Return the number of a record's layout, and the record as it is stored."""
        try:
            return self._as_list(record)
        except UnicodeEncodeError:  # the record has a lone surrogate as an escape sequence
            return self._layout_number(_PATHS_OF_OBJECT, has_place=False), record.decode()

    def _as_list(self, record: bytes) -> tuple[int, str]:
        """Return the number of a record's layout, and its values as a stored list.

        Return the record itself if a list would not restore it exactly. Raise UnicodeEncodeError if
        a list cannot hold it.
        """
        fields = json.loads(record)
        has_place = PLACE_FIELD in record
        names = list(fields)
        if has_place and names[-1] != "place":  # the text of a value has these bytes
            has_place = False
        number, layout = self._layout_of_names_in(names, has_place=has_place)
        self._last = number, layout
        plain = self._plain_values(record)
        if plain is not None:
            _, _, plain_values = plain
            return number, _list_of_values(plain_values)
        place = fields.pop("place") if has_place else None
        values = [_encoded_value(value) for value in fields.values()]
        if has_place:
            values.append(_json(place).encode())
        if layout.template % tuple(values) != record:
            return self._layout_number(_PATHS_OF_OBJECT, has_place=False), record.decode()
        return number, _list_of_values(values)

    def _layout_of_names_in(self, names: list[str], *, has_place: bool) -> tuple[int, Layout]:
        """Return the number and the layout of records with these names; insert a new layout."""
        paths = json.dumps(
            {name: f"$[{place}]" for place, name in enumerate(names)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        number = self._layout_number(paths, has_place=has_place)
        return number, self._layout_at(number)

    def _layout_number(self, paths: str, *, has_place: bool) -> int:
        """Return the number of the layout with these paths; insert it if it is new."""
        cached = self._numbers.get((paths, has_place))
        if cached is not None:
            return cached
        row = self.connection.execute(
            "SELECT layout FROM layouts WHERE paths = ? AND has_place = ?", (paths, has_place)
        ).fetchone()
        if row is None:
            row = self.connection.execute(
                "INSERT INTO layouts (paths, has_place) VALUES (?, ?) RETURNING layout",
                (paths, has_place),
            ).fetchone()
        number = int(row[0])
        self._numbers[paths, has_place] = number
        return number

    def _layout_at(self, number: int) -> Layout:
        """Return the layout with a number; raise ValueError if it is missing or wrong."""
        cached = self._layouts.get(number)
        if cached is not None:
            return cached
        row = self.connection.execute(
            "SELECT paths, has_place FROM layouts WHERE layout = ?", (number,)
        ).fetchone()
        if row is None:
            raise ValueError(f"there is no layout {number}, which names its values")
        stored, has_place = row
        check_integer(has_place, 0, 1)
        try:
            paths = json.loads(schema.text_in(stored, "its layout", most=2**20))
        except RecursionError:
            raise ValueError("its layout is nested too deep") from None
        check_type(paths, dict, "an object")
        names = list(paths)
        ends_with_place = names[-1:] == ["place"]
        if len(names) > _MOST_NAMES or (has_place and not ends_with_place):
            raise ValueError(f"its layout is {shown(stored)}")
        if list(paths.values()) != [f"$[{place}]" for place in range(len(paths))]:
            raise ValueError("its layout is not one of a list")
        self._layouts[number] = layout_of_names(names, has_place=bool(has_place))
        return self._layouts[number]


def _json(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def _list_of_values(values: Iterable[bytes]) -> str:
    """Return encoded values as a stored list, one on each line."""
    return (b"[%b]" % _SEPARATOR.join(values)).decode()


def _encoded_value(value: Any) -> bytes:
    """Return a value of a record as it is written in the record."""
    record = encoded({"": value})
    return record[len(b'{"":') : -len(b"}")]


def _fields_unlike_copy(
    memory: NewCopy, planned: Mapping[str, Any], fingerprint: str
) -> dict[str, Any]:
    """Return the fields of the plan for a memory that its copy does not determine."""
    copy = Copy(memory.key, fingerprint, memory.reason, None)
    determined = planned_row(copy, json.loads(memory.record), planned["tokens"])
    return {name: value for name, value in planned.items() if determined[name] != value}


def planned_row(copy: Copy, fields: Mapping[str, Any], tokens: object) -> dict[str, Any]:
    """Return the row of a plan for a memory, by key, as its copy determines it."""
    title = fields.get("title")
    if isinstance(title, str):
        title = title[: schema.PLANNED_TITLE]
    created_at = fields.get("created_at")
    if isinstance(created_at, str) and created_at.endswith("Z"):
        created_at = f"{created_at[:-1]}+00:00"
    return {
        "key": copy.key,
        "position": copy.key,
        "memory_id": fields.get("memory_id"),
        "kind": fields.get("kind"),
        "title": title,
        "reason": copy.reason,
        "tokens": tokens,
        "created_at": created_at,
        "fingerprint": copy.fingerprint,
    }


def _copy_has_planned_fields(
    memory: NewCopy, fingerprint: str, layout: Layout, values: Sequence[bytes]
) -> bool:
    """Return whether a copy certainly has all fields of the plan for its memory.

    If not, the caller has to parse the record to find out.
    """
    planned = memory.planned
    if planned is None or len(planned["title"]) >= schema.PLANNED_TITLE:
        return False
    key = memory.key
    if not (planned["key"] == planned["position"] == key and planned["reason"] == memory.reason):
        return False
    if planned["fingerprint"] != fingerprint:
        return False
    for name in ("memory_id", "kind", "title", "created_at"):
        place = layout.places.get(name)
        if place is None:
            return False
        quoted = in_quotes(planned[name]).encode(errors="surrogatepass")
        if values[place] != quoted:
            return False
    return True


def _append_unarchived(
    place: int, not_archived: Mapping[int, Mapping[str, Any]], differing: list[str]
) -> int:
    """Append to `differing` the rows of the plan from `place` on that are not archived.

    Return the place of the next memory that is archived.
    """
    while place in not_archived:
        differing.append(_json([place, not_archived[place]]))
        place += 1
    return place


KNOWN: Final[Mapping[int, type[ArchiveFormat]]] = {2: Format2, 3: Format3}
"""Every format that can be read and added to, by number."""


def begin(connection: sqlite3.Connection, scheme: str) -> None:
    """Create the tables of an unfilled archive in the newest format, in the caller's transaction.

    Tables of an earlier attempt that was interrupted are dropped first.
    """
    connection.execute("DROP VIEW IF EXISTS archived_memories")
    for name in sorted(_tables_in(connection) - {"about"}):
        connection.execute(f"DROP TABLE {name}")
    KNOWN[max(KNOWN)](connection).create(scheme)


def is_unfilled(connection: sqlite3.Connection) -> bool:
    """Return whether a file has no tables, or only empty ones of an incomplete archive.

    Its creation was interrupted before anything was deleted from the store. Tables with the same
    names that memlab did not make belong to somebody else.
    """
    if not _tables_in(connection):
        return True
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version == 0 and _has_no_rows(connection) and _has_only_own_tables(connection)


def _has_only_own_tables(connection: sqlite3.Connection) -> bool:
    """Return whether each table is one of a known format, and there is no other view or trigger."""
    others = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' "
        "OR (type = 'view' AND name <> 'archived_memories')"
    )
    if others.fetchone():
        return False
    return all(_is_own_table(connection, name) for name in _tables_in(connection))


def _is_own_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a table has exactly the columns that one of the formats gives it."""
    for known in KNOWN.values():
        if name not in known.tables:
            continue
        columns = _declared(known.tables[name])
        if not _wrong_columns(connection, name, columns, may_have_more=False):
            return True
    return False


def is_unused(connection: sqlite3.Connection) -> bool:
    """Return whether an archive can be removed: it has no rows and no table of copies."""
    return "copies" not in _tables_in(connection) and _has_no_rows(connection)


def _has_no_rows(connection: sqlite3.Connection) -> bool:
    """Return whether an archive has no rows except in ``about`` and ``layouts``."""
    names = _tables_in(connection)
    known_names = {name for known in KNOWN.values() for name in known.tables}
    if not names <= known_names:
        return False
    queries = [f"SELECT 1 FROM {name}" for name in sorted(names - {"about", "layouts"})]
    if not queries:
        return True
    return connection.execute(" UNION ALL ".join(queries)).fetchone() is None


def _tables_in(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables of a file."""
    rows = connection.execute(
        "SELECT CAST(name AS BLOB) FROM sqlite_schema WHERE type = 'table' "
        "AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    return {bytes(name).decode(errors="replace") for (name,) in rows}


def written(connection: sqlite3.Connection) -> Written:
    """Return the format that an archive states; raise ValueError if it states none."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    readable_from = None
    if FORMAT.is_newer(Written(number, number)):
        readable_from = _readable_from(connection)
    return written_in(number, readable_from)


def _readable_from(connection: sqlite3.Connection) -> int | None:
    """Return the oldest format whose readers understand an archive; None if it does not say so."""
    try:
        row = connection.execute(
            "SELECT value FROM about WHERE name = ?", (READABLE_FROM,)
        ).fetchone()
        return None if row is None else int(_as_bytes(row[0]))
    except (sqlite3.Error, ValueError, TypeError):
        return None


def has_entries(connection: sqlite3.Connection) -> bool:
    """Return whether a file has the table ``applies``, which every archive has."""
    rows = connection.execute("SELECT 1 FROM sqlite_schema WHERE lower(name) = 'applies'")
    return rows.fetchone() is not None


def format_of(connection: sqlite3.Connection) -> ArchiveFormat:
    """Return the format of a checked archive; the newest known one for a newer archive."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return KNOWN[min(number, max(KNOWN))](connection)


def _as_bytes(value: Any) -> bytes:
    """Return a text or a blob as bytes."""
    return value.encode() if isinstance(value, str) else bytes(value)


_CODE_WORD: Final = re.compile(r"(?i)\b(check|collate|generated|as)\b")
"""Words in the SQL of a table by which it runs code, or needs a function of the agent."""
_LITERAL: Final = re.compile(r"(?i)null|-?[0-9]{1,18}|'[^']*'")


def wrong_table(connection: sqlite3.Connection) -> str:
    """Describe the first table of an archive that is not as memlab makes it, or that runs code.

    Return an empty text if all are right. Tables are compared by their columns, not by their SQL,
    so a copy of an archive that was made by other means is accepted. A newer format may have more
    columns.
    """
    archive_format = format_of(connection)
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    table_types = {
        name.lower(): (kind, bool(without_rowid))
        for name, kind, without_rowid in connection.execute(
            "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'"
        )
    }
    trigger = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchone()
    if trigger:
        return f"has a trigger, {trigger[0]!r:.40}"
    for name, declared in archive_format.tables.items():
        if name not in table_types:
            if name in archive_format.in_each:
                return f"has no table {name}"
            continue
        kind, without_rowid = table_types[name]
        if kind != "table" or (without_rowid and name != "about"):
            return f"has {name}, which is no such table"
        columns = _declared(declared)
        is_newer = number > archive_format.number
        wrong = _wrong_columns(connection, name, columns, may_have_more=is_newer)
        if not wrong:
            wrong = _wrong_index(connection, name)
        if wrong:
            return f"has {name}, {wrong}"
    return ""


def _declared(columns: str) -> dict[str, str]:
    """Return the names of the columns of one of memlab's tables, with their declared types."""
    inner = re.sub(r"PRIMARY KEY \([^)]*\)|REFERENCES \w+ \(\w+\)", "", columns)
    inner = inner[inner.index("(") + 1 : inner.rindex(")")]
    types = {}
    for column in inner.split(","):
        words = column.split()
        if not words:
            continue
        has_type = len(words) > 1 and words[1] in ("TEXT", "BLOB", "INTEGER")
        types[words[0]] = words[1] if has_type else ""
    return types


def _wrong_columns(
    connection: sqlite3.Connection, table: str, expected: Mapping[str, str], *, may_have_more: bool
) -> str:
    """Describe what is wrong with the columns of a table; empty if nothing is."""
    (sql,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = ?", (table,)
    ).fetchone()
    if _CODE_WORD.search(str(sql)):
        return "whose columns run code"
    types = {}
    for name, declared, default, hidden, not_null in connection.execute(
        f"SELECT name, type, dflt_value, hidden, \"notnull\" FROM pragma_table_xinfo('{table}')"
    ):
        types[name] = declared.upper()
        if hidden or (default is not None and not _LITERAL.fullmatch(default)):
            return f"whose column {name!r:.40} runs code"
        is_safe = name.lower() not in HIDING and (default is not None or not not_null)
        if name not in expected and not (may_have_more and is_safe):
            return f"with a column {name!r:.40} that is unknown"
    for name, declared in expected.items():
        if types.get(name) != declared:
            return f"without the column {name} as it should be"
    return ""


def _wrong_index(connection: sqlite3.Connection, table: str) -> str:
    """Describe an index of a table that runs code; empty if there is none."""
    indexes = connection.execute(f"SELECT name, partial FROM pragma_index_list('{table}')")
    for name, is_partial in indexes.fetchall():
        columns = connection.execute("SELECT cid, coll FROM pragma_index_xinfo(?)", (name,))
        # A column id below -1 stands for an expression.
        has_code = any(column < -1 or coll != "BINARY" for column, coll in columns.fetchall())
        if is_partial or has_code:
            return f"whose index {name!r:.40} runs code"
    return ""
