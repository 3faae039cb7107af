"""Formats of archives: their tables, and the reading and writing of memories in each of them.

An archive stores the number of its format in ``PRAGMA user_version``. The table ``about`` stores
the oldest format whose readers understand the archive; without that row, it is the format itself.
An older archive is read and added to in its own format; only a command of its own converts it.

Format 2
    A copy is the record of the memory, with its fingerprint in hexadecimal digits. A plan is stored
    whole.
Format 3
    A copy is a JSON list of the values of the record, one on each line, and the number of the
    ``layout`` that names them. Its fingerprint has 16 bytes. A plan is stored without the fields of
    deleted memories that are also in their copies. Packed copies store the number of the dictionary
    of their compression.
"""

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as json_string
from typing import Any, ClassVar, Final, NamedTuple

from memlab.store.archive import packing, schema
from memlab.store.archive.schema import Copy, NewCopy, PlanText
from memlab.store.database import COLUMNS, ROWID_NAMES
from memlab.store.records import PLACE_FIELD, encoded, fingerprint_of
from memlab.store.shapes import abbreviated, check_integer, check_type
from memlab.store.signals import SIGNALS
from memlab.versions import FileFormat, Written, written_in

FORMAT: FileFormat = FileFormat(number=3, readable_from=3, oldest=2)
"""Format of a new archive."""
PAGE_BYTES: Final = 8192
"""Page size of a new archive.

With SQLite's default of 4,096 bytes, a tenth of the file stays empty for rows of 400 bytes."""
READABLE_FROM: Final = "readable_from"
"""Name in the table ``about`` of the oldest format whose readers understand the archive."""

_VIEW_COLUMNS: Final = (*COLUMNS, SIGNALS)
"""Fields of a record that are columns of the view ``archived_memories``."""
_FORMAT_2_TABLES: Final = ("about", "applies", "archived")
"""Tables that every archive of format 2 has. Others are created when a command first needs them."""
_ABOUT: Final = "(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
# The column `apply` of each table is the number of the entry.
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

They halve the size of a short packed memory. A dictionary that was in use never changes. A better
one gets a new number."""
DICTIONARY: Final = 1
"""Number of the dictionary with which copies are packed."""


class PackedCopy(NamedTuple):
    """Stored values of a packed copy, which are not checked yet.

    Attributes
    ----------
    key, fingerprint : object
        The key of the memory, and the fingerprint of the record.
    packed : object
        The compressed record.
    dictionary : object
        The number of the dictionary of the compression.
    """

    key: Any
    fingerprint: Any
    packed: Any
    dictionary: Any


class NewPackedCopy(NamedTuple):
    """Values of a packed copy to insert, in the order of the columns of ``copies``."""

    memory_id: str
    digest: bytes
    key: schema.Key
    fingerprint: bytes
    packed: bytes
    is_empty: bool


class StoredCopy(NamedTuple):
    """Stored values of a copy, which are not checked yet.

    Attributes
    ----------
    rowid : int
        The row of the copy in ``archived``.
    key, fingerprint, reason, restored_at : object
        The columns with these names.
    record_values : tuple
        The values of :attr:`ArchiveFormat.record_columns`; empty if they were not read.
    """

    rowid: int
    key: Any
    fingerprint: Any
    reason: Any
    restored_at: Any
    record_values: tuple[Any, ...] = ()


class ArchiveFormat(ABC):
    """Base class of the formats. An object reads and writes one open archive.

    Methods that write run in the transaction of the caller.

    Attributes
    ----------
    number : int
        The number of the format in ``PRAGMA user_version``.
    tables : mapping of str to str
        The columns of each table, as SQL.
    required_tables : tuple of str
        The tables that every archive of the format has.
    view : str
        The statement that creates the view ``archived_memories``.
    record_columns : str
        The columns of ``archived`` that hold a record, as SQL.
    """

    number: ClassVar[int]
    tables: ClassVar[Mapping[str, str]]
    required_tables: ClassVar[tuple[str, ...]]
    view: ClassVar[str]
    record_columns: ClassVar[str]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: Final = connection

    def create(self, scheme: str) -> None:
        """Create the tables of an archive for a kind of store."""
        for name in self.required_tables:
            self.make_table(name)
        self.connection.execute(self.view)
        self.connection.execute("INSERT OR REPLACE INTO about VALUES ('scheme', ?)", (scheme,))
        # This comes last: until the number of the format is stored, the archive is incomplete.
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
        """Return the record with these values of :attr:`record_columns`.

        Raise ValueError if the values are wrong.
        """

    @abstractmethod
    def insert_copies(
        self, entry_number: int, memories: Iterable[NewCopy], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return the plan in its stored form."""

    @abstractmethod
    def plan_rows(
        self, stored_plan: Mapping[str, Any], entry_number: int
    ) -> Iterator[dict[str, Any]] | None:
        """Yield the rows of a plan for deleted memories; return None if the stored text has them.

        Parameters
        ----------
        stored_plan : mapping
            The stored text of the plan, parsed as JSON.
        entry_number : int
            The number of its entry.
        """

    @abstractmethod
    def insert_packed(self, copy: NewPackedCopy) -> None:
        """Insert a packed copy of a memory; replace an older copy of the same content."""

    @abstractmethod
    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies of one content of a memory."""

    def copies(self, entry_number: int) -> Iterator[StoredCopy]:
        """Yield the copies of a deletion without their records, in the order of their creation."""
        rows = self.connection.execute(
            "SELECT rowid, key, fingerprint, reason, restored_at FROM archived "
            "WHERE apply = ? ORDER BY rowid",
            (entry_number,),
        )
        for row in rows:
            yield StoredCopy(*row)

    def copies_at(self, rowids: Sequence[int]) -> list[StoredCopy]:
        """Return the copies at some row ids with the values of their records."""
        marks = ", ".join("?" * len(rowids))
        rows = self.connection.execute(
            f"SELECT rowid, key, fingerprint, reason, restored_at, {self.record_columns} "
            f"FROM archived WHERE rowid IN ({marks}) ORDER BY rowid",
            rowids,
        )
        return [
            StoredCopy(rowid, key, fingerprint, reason, restored_at, tuple(record_values))
            for rowid, key, fingerprint, reason, restored_at, *record_values in rows.fetchall()
        ]

    def rowids_of(self, entry_number: int, keys: Sequence[Any]) -> list[int]:
        """Return the row ids of the copies with some keys."""
        return [rowid for (rowid,) in self._select_by_keys("rowid", entry_number, keys)]

    def records_of(self, entry_number: int, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the key of each copy with one of some keys, and the values of its record."""
        return self._select_by_keys(f"key, {self.record_columns}", entry_number, keys)

    def _select_by_keys(
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
        count = 0
        for fingerprint, *record_values in rows:
            record = self.record_in(*record_values)
            if self.fingerprint_in(fingerprint) == fingerprint_of(record):
                count += 1
        return count


class Format2(ArchiveFormat):
    """Format 2: whole records and whole plans."""

    number = 2
    required_tables = _FORMAT_2_TABLES
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
        """Insert the copies of a deletion; return the whole plan, compressed."""
        rows = (
            (
                entry_number,
                memory.key,
                fingerprint_of(memory.record),
                memory.record.decode(),
                memory.reason,
            )
            for memory in memories
        )
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, record, reason) VALUES (?, ?, ?, ?, ?)",
            rows,
        )
        return None if plan is None else packing.packed(plan.whole)

    def plan_rows(self, stored_plan: Mapping[str, Any], entry_number: int) -> None:  # noqa: ARG002
        """Return None, because the stored text of a plan has all rows."""
        return

    def insert_packed(self, copy: NewPackedCopy) -> None:
        """Insert a packed copy."""
        self.connection.execute(
            "INSERT INTO copies (memory_id, digest, key, fingerprint, record_zlib, is_empty) "
            f"VALUES (?, ?, ?, ?, ?, ?) {_ON_CONFLICT}",
            copy,
        )

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies, all of which use the first dictionary."""
        rows = self.connection.execute(
            "SELECT key, fingerprint, record_zlib FROM copies WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [
            PackedCopy(key=key, fingerprint=fingerprint, packed=packed, dictionary=1)
            for key, fingerprint, packed in rows
        ]


_ON_CONFLICT: Final = (
    "ON CONFLICT DO UPDATE SET key = excluded.key, fingerprint = excluded.fingerprint, "
    "missed_at = NULL, record_zlib = excluded.record_zlib"
)
"""Replaces the packed copy of the same content, which is in the store."""


class Layout(NamedTuple):
    """Field names of stored lists, from which a list is turned into a record again.

    Attributes
    ----------
    field_starts : tuple of str
        The text of the record before each value: a brace or a comma, the name, and a colon.
    template : bytes
        The record with ``%b`` instead of each value.
    pattern : pattern of bytes
        Matches a record with these names if each value is a number, a text, true, false or null,
        and captures the values.
    index_of : mapping of str to int
        The index of each field in the list.
    """

    field_starts: tuple[str, ...]
    template: bytes
    pattern: re.Pattern[bytes]
    index_of: Mapping[str, int]


class NumberedLayout(NamedTuple):
    """A layout, and its number in the archive."""

    number: int
    layout: Layout


class PlainRecord(NamedTuple):
    """A record that was taken apart without parsing it as JSON.

    Attributes
    ----------
    layout_number : int
        The number of its layout.
    layout : Layout
        The layout.
    values : tuple of bytes
        Its values, as they are written in the record.
    """

    layout_number: int
    layout: Layout
    values: tuple[bytes, ...]


class _ListOrObject(NamedTuple):
    """A record as it is stored: a list of values, or an object if a list would not restore it."""

    layout_number: int
    fields: str
    """The JSON text."""


_SEPARATOR: Final = b"\n,"
"""Separator of the values in a list. No value contains it: JSON escapes line breaks in texts."""
_PLAIN_VALUE: Final = (
    r'("[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|[-+.0-9Ee]++|null|true|false)'
)
"""Pattern of a text, a number, true, false or null, as it is written in a record."""
_PATHS_OF_OBJECT: Final = json.dumps(
    {name: f"$.{name}" for name in _VIEW_COLUMNS}, separators=(",", ":")
)
"""Paths of the fields of a record that is stored as an object, because a list would not restore it.

Each path is ``$.name``. The view ``archived_memories`` reads the fields by these paths."""
_MAX_NAMES: Final = 10_000
"""Maximum number of names in a layout. SQLite allows 32,767 columns, 2,000 by default."""


def layout_of_names(names: Sequence[str], *, has_place: bool) -> Layout:
    """Return the layout of records with these fields in this order.

    If `has_place`, the last field is :data:`memlab.store.records.PLACE_FIELD`.
    """
    field_starts = [f",{_json_name(name)}:" for name in names]
    if field_starts:
        field_starts[0] = f"{{{_json_name(names[0])}:"
    if has_place:
        field_starts[-1] = PLACE_FIELD.decode()
    raw_starts = [start.encode() for start in field_starts]
    template = b"%b".join([start.replace(b"%", b"%%") for start in raw_starts] + [b"}"])
    pattern = _PLAIN_VALUE.encode().join([re.escape(start) for start in raw_starts] + [rb"\}"])
    return Layout(
        field_starts=tuple(field_starts),
        template=template,
        pattern=re.compile(pattern, re.DOTALL),
        index_of={name: index for index, name in enumerate(names)},
    )


def _json_name(name: str) -> str:
    """Return a name as JSON."""
    return json.dumps(name, ensure_ascii=False)


class Format3(ArchiveFormat):
    """Format 3: records as lists of values, whose field names are in layouts."""

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
    required_tables = ("about", "applies", "layouts", "archived")
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
        """Layouts by number, as far as they were needed."""
        self._numbers: dict[tuple[str, bool], int] = {}
        """Numbers of layouts by the columns ``paths`` and ``has_place`` of their rows."""
        self._last_layout: NumberedLayout | None = None
        """Layout of the last record that was written; most often also that of the next."""

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
            raise ValueError(f"its fingerprint is {abbreviated(value)}")
        return str(digits)

    def record_in(self, *stored: object) -> bytes:
        """Return the record of a stored list of values, or of a stored object."""
        layout_number, text = stored
        fields = schema.raw_text_in(text, "its record")
        is_object = fields[:1] == b"{"
        if is_object:
            return bytes(fields)
        layout = self._layouts.get(layout_number)  # type: ignore[call-overload]
        if layout is None:
            check_integer(layout_number, 1)
            layout = self._layout_at(int(layout_number))  # type: ignore[call-overload]
        without_brackets = fields[1:-1]
        values = without_brackets.split(_SEPARATOR)
        name_count = len(layout.field_starts)
        if len(values) != name_count:
            raise ValueError(f"its record has {len(values)} values for {name_count} names")
        record: bytes = layout.template % tuple(values)
        return record

    def insert_copies(
        self, entry_number: int, memories: Iterable[NewCopy], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return the compressed plan without what they contain."""
        # The cached layouts are forgotten, because a transaction that inserted some of them may
        # have been rolled back.
        self._layouts = {}
        self._numbers = {}
        self._last_layout = None
        differing_rows: list[str] = []
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, layout, fields, reason, tokens) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._rows(entry_number, memories, plan, differing_rows),
        )
        if plan is None:
            return None
        return packing.packed(lambda: plan.shortened(differing_rows))

    def _rows(
        self,
        entry_number: int,
        memories: Iterable[NewCopy],
        plan: PlanText | None,
        differing_rows: list[str],
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ``archived`` for the copies of a deletion.

        Parameters
        ----------
        entry_number : int
            The number of the deletion.
        memories : iterable of NewCopy
            The copies.
        plan : PlanText or None
            The plan; None if there is none.
        differing_rows : list of str
            A JSON list is appended for each row of the plan that differs from its copy; see
            :meth:`PlanText.shortened`.
        """
        not_archived = {} if plan is None else plan.not_archived
        is_plan_shortened = plan is not None and plan.without_memories is not None
        index_in_plan = 0
        for memory in memories:
            fingerprint = fingerprint_of(memory.record)
            plain = self._plain_record(memory.record)
            has_planned_fields = False
            if plain is None:
                stored = self._as_stored(memory.record)
            else:
                stored = _ListOrObject(plain.layout_number, _list_of_values(plain.values))
                has_planned_fields = _copy_has_planned_fields(memory, fingerprint, plain)
            tokens = None
            if memory.planned is None:
                # The rows of a shortened plan are made from the copies, each of which has one.
                if is_plan_shortened:
                    raise ValueError(f"the plan has no row for the memory {memory.key!r}")
            else:
                index_in_plan = _append_unarchived(index_in_plan, not_archived, differing_rows)
                tokens = memory.planned["tokens"]
                if not has_planned_fields:
                    differing_fields = _fields_unlike_copy(memory, memory.planned, fingerprint)
                    if differing_fields:
                        differing_rows.append(_json([index_in_plan, differing_fields]))
                index_in_plan += 1
            yield (
                entry_number,
                memory.key,
                bytes.fromhex(fingerprint),
                stored.layout_number,
                stored.fields,
                memory.reason,
                tokens,
            )
        _append_unarchived(index_in_plan, not_archived, differing_rows)

    def plan_rows(
        self, stored_plan: Mapping[str, Any], entry_number: int
    ) -> Iterator[dict[str, Any]] | None:
        """Yield the rows of a plan for deleted memories; return None if its text has them."""
        shortened = stored_plan.get(schema.SHORTENED)
        if shortened is None:
            return None
        check_type(shortened, dict, "an object")
        check_type(shortened.get("differing"), list, "a list")
        fields_by_index = {}
        for index_and_fields in shortened["differing"]:
            check_type(index_and_fields, list, "a list")
            index, fields = index_and_fields
            check_integer(index, 0)
            check_type(fields, dict, "an object")
            fields_by_index[index] = fields
        return self._planned_rows(entry_number, fields_by_index)

    def _planned_rows(
        self, entry_number: int, fields_by_index: dict[int, dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a plan from its copies and from the fields that differ from them.

        `fields_by_index` has these fields by the index of the memory in the plan. For a memory that
        was not archived, it has the whole row, with the key of the memory.
        """
        copies = self.connection.execute(
            f"SELECT key, fingerprint, reason, tokens, {self.record_columns} FROM archived "
            "WHERE apply = ? ORDER BY rowid",
            (entry_number,),
        )
        index = 0
        for key, fingerprint, reason, tokens, *record_values in copies:
            while "key" in fields_by_index.get(index, {}):
                yield fields_by_index[index]
                index += 1
            copy = schema.copy_of(key, self.fingerprint_in(fingerprint), reason, None)
            try:
                fields = json.loads(self.record_in(*record_values))
            except RecursionError:
                raise ValueError("a record is nested too deep") from None
            check_type(fields, dict, "a JSON object")
            yield {**planned_row(copy, fields, tokens), **fields_by_index.get(index, {})}
            index += 1
        while "key" in fields_by_index.get(index, {}):
            yield fields_by_index[index]
            index += 1

    def insert_packed(self, copy: NewPackedCopy) -> None:
        """Insert a packed copy, with the number of its dictionary."""
        self.connection.execute(
            "INSERT INTO copies (memory_id, digest, key, fingerprint, record_zlib, is_empty, "
            "dictionary) VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"{_ON_CONFLICT}, dictionary = excluded.dictionary",
            (*copy, DICTIONARY),
        )

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the packed copies."""
        rows = self.connection.execute(
            "SELECT key, fingerprint, record_zlib, dictionary FROM copies "
            "WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [PackedCopy(*row) for row in rows.fetchall()]

    def _plain_record(self, record: bytes) -> PlainRecord | None:
        """Take a record apart by the layout of the last record.

        Return None if the layout does not match, or if a value is a list or an object. The record
        is not parsed as JSON, which saves a tenth of the time of a compaction.
        """
        if self._last_layout is None:
            return None
        number, layout = self._last_layout
        match = layout.pattern.fullmatch(record)
        if match is None:
            return None
        return PlainRecord(layout_number=number, layout=layout, values=match.groups())

    def _as_stored(self, record: bytes) -> _ListOrObject:
        """Return a record as it is stored."""
        try:
            return self._as_list(record)
        except UnicodeEncodeError:  # the record has a lone surrogate as an escape sequence
            return self._as_object(record)

    def _as_object(self, record: bytes) -> _ListOrObject:
        """Return a record that is stored unchanged, as an object."""
        number = self._layout_number(_PATHS_OF_OBJECT, has_place=False)
        return _ListOrObject(number, record.decode())

    def _as_list(self, record: bytes) -> _ListOrObject:
        """Return a record as a list of its values, or as an object if a list would not restore it.

        Raise UnicodeEncodeError if a value cannot be encoded.
        """
        fields = json.loads(record)
        names = list(fields)
        # The bytes of the field "place" can also be part of a text.
        has_place = PLACE_FIELD in record and names[-1] == "place"
        number, layout = self._layout_of_names_in(names, has_place=has_place)
        self._last_layout = NumberedLayout(number, layout)
        plain = self._plain_record(record)
        if plain is not None:
            return _ListOrObject(number, _list_of_values(plain.values))
        place = fields.pop("place") if has_place else None
        values = [_encoded_value(value) for value in fields.values()]
        if has_place:
            values.append(_json(place).encode())
        if layout.template % tuple(values) != record:
            return self._as_object(record)
        return _ListOrObject(number, _list_of_values(values))

    def _layout_of_names_in(self, names: list[str], *, has_place: bool) -> NumberedLayout:
        """Return the layout of records with these names; insert it if it is new."""
        paths = json.dumps(
            {name: f"$[{index}]" for index, name in enumerate(names)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        number = self._layout_number(paths, has_place=has_place)
        return NumberedLayout(number, self._layout_at(number))

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
        (number,) = row
        self._numbers[paths, has_place] = number
        return int(number)

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
            paths = json.loads(schema.text_in(stored, "its layout", max_bytes=2**20))
        except RecursionError:
            raise ValueError("its layout is nested too deep") from None
        check_type(paths, dict, "an object")
        names = list(paths)
        ends_with_place = names[-1:] == ["place"]
        if len(names) > _MAX_NAMES or (has_place and not ends_with_place):
            raise ValueError(f"its layout is {abbreviated(stored)}")
        if list(paths.values()) != [f"$[{index}]" for index in range(len(paths))]:
            raise ValueError("its layout is not one of a list")
        self._layouts[number] = layout_of_names(names, has_place=bool(has_place))
        return self._layouts[number]


def _json(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def _list_of_values(values: Iterable[bytes]) -> str:
    """Return encoded values as a JSON list with one value on each line."""
    return (b"[%b]" % _SEPARATOR.join(values)).decode()


def _encoded_value(value: Any) -> bytes:
    """Encode a value as it is written in a record."""
    record = encoded({"": value})
    return record[len(b'{"":') : -len(b"}")]


def _fields_unlike_copy(
    memory: NewCopy, planned: Mapping[str, Any], fingerprint: str
) -> dict[str, Any]:
    """Return the fields of a row of the plan that differ from those made from the copy.

    `planned` is the row of the plan for the memory, and `fingerprint` that of its record.
    """
    copy = Copy(memory.key, fingerprint, memory.reason, None)
    row_of_copy = planned_row(copy, json.loads(memory.record), planned["tokens"])
    return {name: value for name, value in planned.items() if row_of_copy[name] != value}


def planned_row(copy: Copy, fields: Mapping[str, Any], tokens: object) -> dict[str, Any]:
    """Return the row of a plan for a memory, by key, made from the copy of the memory.

    Parameters
    ----------
    copy : Copy
        The copy.
    fields : mapping
        Its record, parsed as JSON.
    tokens : object
        The number of tokens of the memory; the record does not have it.
    """
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


def _copy_has_planned_fields(memory: NewCopy, fingerprint: str, record: PlainRecord) -> bool:
    """Return whether a copy certainly has all fields of the plan's row for its memory.

    If the result is False, the caller parses the record and compares all fields. `fingerprint` is
    that of the record.
    """
    planned = memory.planned
    if planned is None or len(planned["title"]) >= schema.PLANNED_TITLE:
        return False
    if planned["key"] != memory.key or planned["position"] != memory.key:
        return False
    if planned["reason"] != memory.reason or planned["fingerprint"] != fingerprint:
        return False
    for name in ("memory_id", "kind", "title", "created_at"):
        index = record.layout.index_of.get(name)
        if index is None:
            return False
        planned_value = json_string(planned[name]).encode(errors="surrogatepass")
        if record.values[index] != planned_value:
            return False
    return True


def _append_unarchived(
    index: int, not_archived: Mapping[int, Mapping[str, Any]], differing_rows: list[str]
) -> int:
    """Append the rows of memories that are not archived, up to the next memory that is archived.

    Return the index of that next memory in the plan.

    Parameters
    ----------
    index : int
        The index in the plan at which to begin.
    not_archived : mapping of int to mapping
        As in :class:`PlanText`.
    differing_rows : list of str
        The list to which they are appended, in the form that :meth:`PlanText.shortened` takes.
    """
    while index in not_archived:
        differing_rows.append(_json([index, not_archived[index]]))
        index += 1
    return index


KNOWN: Final[Mapping[int, type[ArchiveFormat]]] = {2: Format2, 3: Format3}
"""Every format that can be read and added to, by number."""


def create_tables(connection: sqlite3.Connection, scheme: str) -> None:
    """Create the tables of an incomplete archive in the newest format.

    Tables of an earlier attempt that was interrupted are dropped first. This runs in the
    transaction of the caller.

    Parameters
    ----------
    connection : sqlite3.Connection
        The file.
    scheme : str
        The kind of store.
    """
    connection.execute("DROP VIEW IF EXISTS archived_memories")
    # `about` has the same columns in every format, and its rows are replaced.
    for name in sorted(_tables_in(connection) - {"about"}):
        connection.execute(f"DROP TABLE {name}")
    KNOWN[max(KNOWN)](connection).create(scheme)


def is_incomplete(connection: sqlite3.Connection) -> bool:
    """Return whether a file has no tables, or only empty tables that memlab made.

    The creation of such an archive was interrupted before anything was deleted from the store. If
    another program made tables with the same names, the file is not an incomplete archive.
    """
    if not _tables_in(connection):
        return True
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version == 0 and _has_no_rows(connection) and _has_only_own_tables(connection)


def _has_only_own_tables(connection: sqlite3.Connection) -> bool:
    """Return whether a file has only tables and views of a known format, and no trigger."""
    other_objects = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' "
        "OR (type = 'view' AND name <> 'archived_memories')"
    )
    if other_objects.fetchone():
        return False
    return all(_is_own_table(connection, name) for name in _tables_in(connection))


def _is_own_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a table has exactly the columns that one of the formats gives it."""
    for archive_format in KNOWN.values():
        if name not in archive_format.tables:
            continue
        columns = _declared_types(archive_format.tables[name])
        if not _column_fault(connection, name, columns, may_have_more=False):
            return True
    return False


def is_unused(connection: sqlite3.Connection) -> bool:
    """Return whether an archive can be removed: it has no rows and no table of copies."""
    return "copies" not in _tables_in(connection) and _has_no_rows(connection)


def _has_no_rows(connection: sqlite3.Connection) -> bool:
    """Return whether an archive has no rows except in ``about`` and ``layouts``."""
    names = _tables_in(connection)
    known_names = {name for archive_format in KNOWN.values() for name in archive_format.tables}
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
"""Words in the SQL of a table that runs code, or that needs a function of the agent's program."""
_LITERAL: Final = re.compile(r"(?i)null|-?[0-9]{1,18}|'[^']*'")
"""Pattern of a default value that runs no code."""


def table_fault(connection: sqlite3.Connection) -> str:
    """Describe the first table of an archive that is not as memlab makes it, or that runs code.

    Return an empty text if there is none. Tables are compared by their columns, and not by their
    SQL, so that a copy of an archive that was made by other means is accepted. A newer format may
    have more columns.
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
            if name in archive_format.required_tables:
                return f"has no table {name}"
            continue
        kind, without_rowid = table_types[name]
        if kind != "table" or (without_rowid and name != "about"):
            return f"has {name}, which is no such table"
        columns = _declared_types(declared)
        is_newer = number > archive_format.number
        fault = _column_fault(connection, name, columns, may_have_more=is_newer)
        if not fault:
            fault = _index_fault(connection, name)
        if fault:
            return f"has {name}, {fault}"
    return ""


def _declared_types(columns: str) -> dict[str, str]:
    """Return the declared type of each column, by name.

    >>> _declared_types("(apply INTEGER PRIMARY KEY, key NOT NULL, reason TEXT)")
    {'apply': 'INTEGER', 'key': '', 'reason': 'TEXT'}
    """
    simple = re.sub(r"PRIMARY KEY \([^)]*\)|REFERENCES \w+ \(\w+\)", "", columns)
    in_parentheses = simple[simple.index("(") + 1 : simple.rindex(")")]
    types = {}
    for column in in_parentheses.split(","):
        words = column.split()
        if not words:
            continue
        has_type = len(words) > 1 and words[1] in ("TEXT", "BLOB", "INTEGER")
        types[words[0]] = words[1] if has_type else ""
    return types


def _column_fault(
    connection: sqlite3.Connection, table: str, expected: Mapping[str, str], *, may_have_more: bool
) -> str:
    """Describe the first fault of the columns of a table; return an empty text if there is none.

    Parameters
    ----------
    connection : sqlite3.Connection
        The file.
    table : str
        The name of the table.
    expected : mapping of str to str
        The declared type of each column, by name.
    may_have_more : bool
        Whether the table may have other columns, too.
    """
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
        if name not in expected:
            hides_rowid = name.lower() in ROWID_NAMES
            needs_value = not_null and default is None
            if not may_have_more or hides_rowid or needs_value:
                return f"with a column {name!r:.40} that is unknown"
    for name, declared in expected.items():
        if types.get(name) != declared:
            return f"without the column {name} as it should be"
    return ""


def _index_fault(connection: sqlite3.Connection, table: str) -> str:
    """Describe an index of a table that runs code; return an empty text if there is none."""
    indexes = connection.execute(f"SELECT name, partial FROM pragma_index_list('{table}')")
    for name, is_partial in indexes.fetchall():
        columns = connection.execute("SELECT cid, coll FROM pragma_index_xinfo(?)", (name,))
        # A column number below -1 stands for an expression.
        has_code = any(
            column_number < -1 or collation != "BINARY"
            for column_number, collation in columns.fetchall()
        )
        if is_partial or has_code:
            return f"whose index {name!r:.40} runs code"
    return ""
