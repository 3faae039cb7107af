"""The formats of archives: the tables of each, and how a memory is written in them and read.

An archive says its format in ``PRAGMA user_version``, and the oldest format whose readers
understand it in the table ``about``; without the latter that is its own. It is read in place and
added to in its own format: nothing is converted before somebody asks for it.

Format 2
    A copy is the record of the memory as it is, its fingerprint in hexadecimal digits, and a plan
    is kept whole.
Format 3
    A copy is the values of the record, in a JSON list on lines of their own, and the number of the
    ``layout`` that names them; its fingerprint is 16 bytes. Of the memories that a plan deletes it
    keeps what their copies do not say. Packed copies say by which dictionary they were packed.
"""

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as in_quotes
from typing import Any, ClassVar, Final, NamedTuple

from memlab.store.archive import entries
from memlab.store.archive.entries import Archived, Copy, PlanText
from memlab.store.database import COLUMNS, HIDING
from memlab.store.records import PLACE, encoded, fingerprint_of
from memlab.store.shapes import check_type, integer, shown
from memlab.store.signals import SIGNALS
from memlab.versions import FileFormat, Written, written_in

FORMAT: FileFormat = FileFormat(number=3, readable_from=3, oldest=2)
"""The format in which an archive is begun where none is there."""
PAGE: Final = 8192
"""Bytes of a page of a new archive: of SQLite's usual 4,096 a tenth stays empty where rows have
four hundred each."""
READABLE_FROM: Final = "readable_from"
"""The name in ``about`` of the oldest format whose readers understand an archive."""

_SHOWN: Final = (*COLUMNS, SIGNALS)
"""Fields of a record that the view has as columns."""
_IN_EACH: Final = ("about", "applies", "archived")
"""Tables of every archive: others are made once something is dropped, retired or copied."""
_ABOUT: Final = "(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
_APPLIES: Final = """(
    apply INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
    made_at TEXT NOT NULL, memories INTEGER NOT NULL, archived_at TEXT NOT NULL,
    finished_at TEXT, plan_json_zlib BLOB
)"""  # a number that was dropped is not given out again
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
"""What most records have in common, by number: a short memory is packed into half the room by it.
One that was used once is never changed; a better one gets a number of its own."""
DICTIONARY: Final = 1
"""The dictionary by which copies are packed."""


class PackedCopy(NamedTuple):
    """A packed copy of a memory as an archive has it."""

    key: Any
    fingerprint: Any
    packed: Any
    dictionary: Any


class ArchiveFormat(ABC):
    """A format of archives, of an open one: the caller's transaction is everything's.

    Attributes
    ----------
    number : int
        By which an archive says it.
    tables : mapping of str to str
        The columns of each table, as SQL.
    in_each : tuple of str
        The tables that are made at once.
    view : str
        The statement that makes the view ``archived_memories``.
    stored : str
        The columns of ``archived`` that hold a record, as SQL.
    """

    number: ClassVar[int]
    tables: ClassVar[Mapping[str, str]]
    in_each: ClassVar[tuple[str, ...]] = _IN_EACH
    view: ClassVar[str]
    stored: ClassVar[str]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: Final = connection

    def create(self, scheme: str) -> None:
        """Make the tables of an archive of a kind of store."""
        for name in self.in_each:
            self.make_table(name)
        self.connection.execute(self.view)
        self.connection.execute("INSERT OR REPLACE INTO about VALUES ('scheme', ?)", (scheme,))
        self.note_versions()  # the last: until then it is unfilled

    def note_versions(self) -> None:
        """Write down the format, and the oldest one whose readers understand it."""
        self.connection.execute(f"PRAGMA user_version = {self.number}")

    def make_table(self, name: str) -> None:
        """Make a table where there is none."""
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {self.tables[name]}")

    @abstractmethod
    def fingerprint_in(self, value: object) -> str:
        """Return the fingerprint that an archive has of a memory, in hexadecimal digits."""

    @abstractmethod
    def record_in(self, *stored: object) -> bytes:
        """Return the record that the values of :attr:`stored` hold; ValueError where none."""

    @abstractmethod
    def insert_copies(
        self, apply: int, memories: Iterable[Archived], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; return its plan as it is packed."""

    @abstractmethod
    def plan_rows(self, text: Mapping[str, Any], apply: int) -> Iterator[dict[str, Any]] | None:
        """Yield what a plan says of the memories that it deletes; None where its text says it.

        Parameters
        ----------
        text : mapping
            The packed plan, read as JSON.
        apply : int
            The number of its entry.
        """

    @abstractmethod
    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a copy of what is in the store, or let the one of its content be as it is."""

    @abstractmethod
    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return the copies of one content of a memory."""

    def copies(self, apply: int) -> Iterator[tuple[Any, ...]]:
        """Yield the number, key, fingerprint, reason and time of restoring of each copy."""
        return iter(
            self.connection.execute(
                "SELECT rowid, key, fingerprint, reason, restored_at FROM archived "
                "WHERE apply = ? ORDER BY rowid",
                (apply,),
            )
        )

    def copies_at(self, rowids: Sequence[int]) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the same of the copies at some numbers, each with the values of its record."""
        marks = ", ".join("?" * len(rowids))
        found = self.connection.execute(
            f"SELECT rowid, key, fingerprint, reason, restored_at, {self.stored} FROM archived "
            f"WHERE rowid IN ({marks}) ORDER BY rowid",
            rowids,
        )
        return [(row[:5], row[5:]) for row in found.fetchall()]

    def rowids_of(self, apply: int, keys: Sequence[Any]) -> list[int]:
        """Return the numbers of the copies with some keys."""
        return [rowid for (rowid,) in self._with_keys("rowid", apply, keys)]

    def records_of(self, apply: int, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the key and the values of the record of the copies with some keys."""
        return self._with_keys(f"key, {self.stored}", apply, keys)

    def _with_keys(self, columns: str, apply: int, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.connection.execute(
            f"SELECT {columns} FROM archived "
            f"WHERE apply = ? AND key IN ({', '.join('?' * len(keys))})",
            (apply, *keys),
        ).fetchall()

    def count_sound(self, apply: int) -> int:
        """Return how many copies of a deletion are what their fingerprints say."""
        found = self.connection.execute(
            f"SELECT fingerprint, {self.stored} FROM archived WHERE apply = ?", (apply,)
        )
        return sum(
            self.fingerprint_in(planned) == fingerprint_of(self.record_in(*stored))
            for planned, *stored in found
        )


class Format2(ArchiveFormat):
    """Records as they are, and plans whole."""

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
    _columns = ", ".join(f"json_extract(record, '$.{name}') AS {name}" for name in _SHOWN)
    view = f"""
CREATE VIEW archived_memories AS
SELECT digest, archived_at, finished_at, restored_at, reason, key, {_columns}, record
FROM archived JOIN applies USING (apply) ORDER BY archived.rowid"""
    stored = "record"

    def fingerprint_in(self, value: object) -> str:
        """Return a fingerprint, which is kept in hexadecimal digits."""
        return entries.fingerprint_in(value)

    def record_in(self, *stored: object) -> bytes:
        """Return a record, which is kept as it is."""
        return bytes(entries.raw_text_in(stored[0], "its record"))

    def insert_copies(
        self, apply: int, memories: Iterable[Archived], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; its plan is packed whole."""
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, record, reason) VALUES (?, ?, ?, ?, ?)",
            (
                (apply, each.key, fingerprint_of(each.record), each.record.decode(), each.reason)
                for each in memories
            ),
        )
        return None if plan is None else entries.packed(plan.whole)

    def plan_rows(self, text: Mapping[str, Any], apply: int) -> None:  # noqa: ARG002
        """Return None: a plan's text says all of it."""
        return

    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a packed copy."""
        self.connection.execute(f"{_INSERT_PACKED.format('', '')}{_ON_CONFLICT}", values)

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return packed copies, all of which are packed by the first dictionary."""
        found = self.connection.execute(
            "SELECT key, fingerprint, record_zlib FROM copies WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [PackedCopy(key, fingerprint, packed, 1) for key, fingerprint, packed in found]


_INSERT_PACKED: Final = (
    "INSERT INTO copies (memory_id, digest, key, fingerprint, record_zlib, is_empty{}) "
    "VALUES (?, ?, ?, ?, ?, ?{}) "
)
_ON_CONFLICT: Final = (
    "ON CONFLICT DO UPDATE SET key = excluded.key, fingerprint = excluded.fingerprint, "
    "missed_at = NULL, record_zlib = excluded.record_zlib"
)


class Layout(NamedTuple):
    """How a list of values becomes a record again: what stands before each value."""

    heads: tuple[str, ...]
    template: bytes
    """The record with ``%b`` for each value."""
    pattern: re.Pattern[bytes]
    """Matches a record of these names all of whose values are plain, and finds them."""
    places: Mapping[str, int]
    """Where each field stands."""


_BETWEEN: Final = b"\n,"
"""Separates the values of a list. No value has a line break in it: JSON escapes it in a text."""
_PLAIN: Final = r'("[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"|[-+.0-9Ee]++|null|true|false)'
_OBJECT: Final = ord("{")
"""Begins a record that is kept as it is: one that no list of values would give back exactly."""
_OF_OBJECT: Final = json.dumps({name: f"$.{name}" for name in _SHOWN}, separators=(",", ":"))
_MOST_NAMES: Final = 10_000
"""Names of a layout. SQLite has at most 32,767 columns in a table, by default 2,000."""


def layout_of_names(names: Sequence[str], *, has_place: bool) -> Layout:
    """Return the layout of records with these fields, in this order; the last may be a place."""
    heads = [f"{',' if number else '{'}{_quoted(name)}:" for number, name in enumerate(names)]
    if has_place:
        heads[-1] = PLACE.decode()
    raw = [head.encode() for head in heads]
    template = b"%b".join([each.replace(b"%", b"%%") for each in raw] + [b"}"])
    pattern = _PLAIN.encode().join([re.escape(each) for each in raw] + [rb"\}"])
    places = {name: place for place, name in enumerate(names)}
    return Layout(tuple(heads), template, re.compile(pattern, re.DOTALL), places)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


class Format3(ArchiveFormat):
    """The values of records in lists, whose names stand in layouts."""

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
        f"json_extract(fields, json_extract(paths, '$.{name}')) AS {name}" for name in _SHOWN
    )
    view = f"""
CREATE VIEW archived_memories AS
SELECT digest, archived_at, finished_at, restored_at, reason, key, {_columns},
    CASE WHEN substr(fields, 1, 1) = '{{' THEN fields ELSE (
        SELECT json_group_object(named.key, json_extract(fields, named.value))
        FROM json_each(paths) AS named
    ) END AS record
FROM archived JOIN applies USING (apply) JOIN layouts USING (layout) ORDER BY archived.rowid"""
    stored = "layout, fields"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._layouts: dict[int, Layout] = {}
        self._numbers: dict[tuple[str, bool], int] = {}
        self._last: tuple[int, Layout] | None = None
        """The layout of the last record that was written: the next one mostly has it too."""

    def note_versions(self) -> None:
        """Write down the format, and the oldest one whose readers understand it."""
        self.connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)",
            (READABLE_FROM, str(FORMAT.readable_from)),
        )
        super().note_versions()

    def fingerprint_in(self, value: object) -> str:
        """Return a fingerprint, which is kept in bytes."""
        check_type(value, bytes, "a blob")
        digits = value.hex()  # type: ignore[attr-defined]
        if len(digits) != entries.FINGERPRINT_DIGITS:
            raise ValueError(f"its fingerprint is {shown(value)}")
        return str(digits)

    def record_in(self, *stored: object) -> bytes:
        """Return the record whose values are kept in a list; or as it is, where it is an object."""
        number, value = stored
        fields = entries.raw_text_in(value, "its record")
        if fields[:1] == b"{":
            return bytes(fields)
        layout = self._layouts.get(number)  # type: ignore[call-overload]
        if layout is None:
            integer(1)(number)
            layout = self._layout(int(number))  # type: ignore[call-overload]
        values = fields[1:-1].split(_BETWEEN)
        if len(values) != len(layout.heads):
            raise ValueError(f"its record has {len(values)} values for {len(layout.heads)} names")
        record: bytes = layout.template % tuple(values)
        return record

    def insert_copies(
        self, apply: int, memories: Iterable[Archived], plan: PlanText | None
    ) -> bytes | None:
        """Insert the copies of a deletion; of its plan is packed what they do not say."""
        self._layouts = {}  # what was rolled back may be among them
        self._numbers = {}
        self._last = None
        differing: list[str] = []
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, layout, fields, reason, tokens) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._rows(apply, memories, plan, differing),
        )
        if plan is None:
            return None
        return entries.packed(lambda: plan.shortened(differing))

    def _rows(
        self,
        apply: int,
        memories: Iterable[Archived],
        plan: PlanText | None,
        differing: list[str],
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of copies, and note what a plan says otherwise of their memories."""
        absent = {} if plan is None else plan.not_archived
        place = 0
        for memory in memories:
            fingerprint = fingerprint_of(memory.record)
            written = self._written_plain(memory.record)
            is_known = False
            if written is None:
                number, fields = self._written(memory.record)
            else:
                number, layout, values = written
                fields = (b"[%b]" % _BETWEEN.join(values)).decode()
                is_known = _is_known(memory, fingerprint, layout, values)
            tokens = None
            if memory.planned is None:
                if plan is not None and plan.head is not None:
                    raise ValueError(f"a plan names {memory.key!r}, and nobody says how")
            else:
                place = _after_absent(place, absent, differing)
                tokens = memory.planned["tokens"]
                if not is_known:
                    copy = Copy(memory.key, fingerprint, memory.reason, None)
                    known = planned_row(copy, json.loads(memory.record), tokens)
                    differs = {k: v for k, v in memory.planned.items() if known[k] != v}
                    if differs:
                        differing.append(json.dumps([place, differs], separators=(",", ":")))
                place += 1
            key = memory.key
            reason = memory.reason
            yield apply, key, bytes.fromhex(fingerprint), number, fields, reason, tokens
        _after_absent(place, absent, differing)

    def plan_rows(self, text: Mapping[str, Any], apply: int) -> Iterator[dict[str, Any]] | None:
        """Yield what a plan says of the memories that it deletes; None where its text says it."""
        shortened = text.get(entries.SHORTENED)
        if shortened is None:
            return None
        check_type(shortened, dict, "an object")
        check_type(shortened.get("differing"), list, "a list")
        differing = {}
        for each in shortened["differing"]:
            check_type(each, list, "a list")
            place, differs = each
            integer(0)(place)
            check_type(differs, dict, "an object")
            differing[place] = differs
        return self._planned_rows(apply, differing)

    def _planned_rows(
        self, apply: int, differing: dict[int, dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        found = self.connection.execute(
            f"SELECT key, fingerprint, reason, tokens, {self.stored} FROM archived "
            "WHERE apply = ? ORDER BY rowid",
            (apply,),
        )
        place = 0
        for key, fingerprint, reason, tokens, *stored in found:
            while "key" in differing.get(place, {}):  # it was not archived
                yield differing[place]
                place += 1
            copy = entries.copy_of(key, self.fingerprint_in(fingerprint), reason, None)
            try:
                said = json.loads(self.record_in(*stored))
            except RecursionError:
                raise ValueError("a record is nested too deep") from None
            check_type(said, dict, "a JSON object")
            yield planned_row(copy, said, tokens) | differing.get(place, {})
            place += 1
        while "key" in differing.get(place, {}):
            yield differing[place]
            place += 1

    def insert_packed(self, values: tuple[Any, ...]) -> None:
        """Insert a packed copy, with the number of its dictionary."""
        insert = _INSERT_PACKED.format(", dictionary", ", ?")
        self.connection.execute(
            f"{insert}{_ON_CONFLICT}, dictionary = excluded.dictionary", (*values, DICTIONARY)
        )

    def packed_copies(self, memory_id: str, digest: bytes) -> list[PackedCopy]:
        """Return packed copies."""
        found = self.connection.execute(
            "SELECT key, fingerprint, record_zlib, dictionary FROM copies "
            "WHERE memory_id = ? AND digest = ?",
            (memory_id, digest),
        )
        return [PackedCopy(*row) for row in found.fetchall()]

    def _written_plain(self, record: bytes) -> tuple[int, Layout, tuple[bytes, ...]] | None:
        """Return the layout and the values of a record that is like the last one, and plain.

        It is found without reading the record as JSON: a tenth of the time of a compaction.
        """
        if self._last is None:
            return None
        number, layout = self._last
        plain = layout.pattern.fullmatch(record)
        if plain is None:
            return None
        return number, layout, plain.groups()

    def _written(self, record: bytes) -> tuple[int, str]:
        """Return the number of a record's layout, and its values as a list, one on each line."""
        try:
            return self._written_as_list(record)
        except UnicodeEncodeError:  # a lone surrogate, which the record has as an escape
            return self._number_of(_OF_OBJECT, has_place=False), record.decode()

    def _written_as_list(self, record: bytes) -> tuple[int, str]:
        """Return what :meth:`_written` does; UnicodeEncodeError where a list cannot hold it."""
        said = json.loads(record)
        has_place = PLACE in record
        names = list(said)
        if has_place and names[-1] != "place":  # it stands in a text
            has_place = False
        number, layout = self._number(names, has_place=has_place)
        self._last = number, layout
        written = self._written_plain(record)
        if written is not None:
            return number, (b"[%b]" % _BETWEEN.join(written[2])).decode()
        place = said.pop("place") if has_place else None
        values = [encoded({"": value})[4:-1] for value in said.values()]
        if has_place:
            values.append(json.dumps(place, separators=(",", ":")).encode())
        if layout.template % tuple(values) != record:
            return self._number_of(_OF_OBJECT, has_place=False), record.decode()
        return number, (b"[%b]" % _BETWEEN.join(values)).decode()

    def _number(self, names: list[str], *, has_place: bool) -> tuple[int, Layout]:
        """Return the number of the layout of these names, which is written down where it is new."""
        paths = json.dumps(
            {name: f"$[{place}]" for place, name in enumerate(names)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        number = self._number_of(paths, has_place=has_place)
        return number, self._layout(number)

    def _number_of(self, paths: str, *, has_place: bool) -> int:
        known = self._numbers.get((paths, has_place))
        if known is not None:
            return known
        found = self.connection.execute(
            "SELECT layout FROM layouts WHERE paths = ? AND has_place = ?", (paths, has_place)
        ).fetchone()
        if found is None:
            found = self.connection.execute(
                "INSERT INTO layouts (paths, has_place) VALUES (?, ?) RETURNING layout",
                (paths, has_place),
            ).fetchone()
        self._numbers[paths, has_place] = found[0]
        return int(found[0])

    def _layout(self, number: int) -> Layout:
        """Return the layout of a number; ValueError where there is none, or a wrong one."""
        known = self._layouts.get(number)
        if known is not None:
            return known
        found = self.connection.execute(
            "SELECT paths, has_place FROM layouts WHERE layout = ?", (number,)
        ).fetchone()
        if found is None:
            raise ValueError(f"there is no layout {number}, which names its values")
        written, has_place = found
        integer(0, 1)(has_place)
        try:
            paths = json.loads(entries.text_in(written, "its layout", most=2**20))
        except RecursionError:
            raise ValueError("its layout is nested too deep") from None
        check_type(paths, dict, "an object")
        if len(paths) > _MOST_NAMES or (has_place and next(reversed(paths), "") != "place"):
            raise ValueError(f"its layout is {shown(written)}")
        if list(paths.values()) != [f"$[{place}]" for place in range(len(paths))]:
            raise ValueError("its layout is not one of a list")
        self._layouts[number] = layout_of_names(list(paths), has_place=bool(has_place))
        return self._layouts[number]


def planned_row(copy: Copy, said: Mapping[str, Any], tokens: object) -> dict[str, Any]:
    """Return what a plan says of a memory, by key, as far as its copy tells it."""
    title = said.get("title")
    created_at = said.get("created_at")
    if isinstance(created_at, str) and created_at.endswith("Z"):
        created_at = f"{created_at[:-1]}+00:00"
    return {
        "key": copy.key,
        "position": copy.key,
        "memory_id": said.get("memory_id"),
        "kind": said.get("kind"),
        "title": title[: entries.PLANNED_TITLE] if isinstance(title, str) else title,
        "reason": copy.reason,
        "tokens": tokens,
        "created_at": created_at,
        "fingerprint": copy.fingerprint,
    }


def _is_known(memory: Archived, fingerprint: str, layout: Layout, values: Sequence[bytes]) -> bool:
    """Return whether a copy says all that the plan says of its memory, as far as it is plain."""
    planned = memory.planned
    if planned is None or len(planned["title"]) >= entries.PLANNED_TITLE:
        return False
    key = memory.key
    if not (planned["key"] == planned["position"] == key and planned["reason"] == memory.reason):
        return False
    if planned["fingerprint"] != fingerprint:
        return False
    for name in ("memory_id", "kind", "title", "created_at"):
        place = layout.places.get(name)
        if place is None or values[place] != in_quotes(planned[name]).encode(
            errors="surrogatepass"
        ):
            return False
    return True


def _after_absent(place: int, absent: Mapping[int, Mapping[str, Any]], differing: list[str]) -> int:
    """Note what a plan names at a place and the archive has no copy of; return the next place."""
    while place in absent:
        differing.append(json.dumps([place, absent[place]], separators=(",", ":")))
        place += 1
    return place


KNOWN: Final[Mapping[int, type[ArchiveFormat]]] = {2: Format2, 3: Format3}
"""Every format that is read, and added to, by number."""


def begin(connection: sqlite3.Connection, scheme: str) -> None:
    """Make the tables of an unfilled archive in the newest format, in the caller's transaction.

    What is there was begun and never filled, perhaps in another format.
    """
    connection.execute("DROP VIEW IF EXISTS archived_memories")
    for name in sorted(_tables_in(connection) - {"about"}):
        connection.execute(f"DROP TABLE {name}")
    KNOWN[max(KNOWN)](connection).create(scheme)


def is_unfilled(connection: sqlite3.Connection) -> bool:
    """Return whether a file has no tables, or some of an archive's that were never finished.

    Whoever was killed while it made them took nothing out of the store yet. Tables of the same
    names that memlab did not make are somebody else's.
    """
    if not _tables_in(connection):
        return True
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version == 0 and _has_no_rows(connection) and _has_only_own_tables(connection)


def _has_only_own_tables(connection: sqlite3.Connection) -> bool:
    """Return whether each table is as one of the formats makes it, with no view or trigger else."""
    others = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' "
        "OR (type = 'view' AND name <> 'archived_memories')"
    )
    if others.fetchone():
        return False
    for name in _tables_in(connection):
        is_own = False
        for made in KNOWN.values():
            if name in made.tables:
                columns = _declared(made.tables[name])
                wrong = _wrong_columns(connection, name, columns, may_have_more=False)
                is_own = is_own or not wrong
        if not is_own:
            return False
    return True


def is_unused(connection: sqlite3.Connection) -> bool:
    """Whether nobody would miss an archive: it has no rows, and was not made to hold copies."""
    return "copies" not in _tables_in(connection) and _has_no_rows(connection)


def _has_no_rows(connection: sqlite3.Connection) -> bool:
    """Whether an archive has no rows but what it says of itself, and names of fields."""
    names = _tables_in(connection)
    known = {name for made in KNOWN.values() for name in made.tables}
    if not names <= known:
        return False
    rows = [f"SELECT 1 FROM {name}" for name in sorted(names - {"about", "layouts"})]
    return not rows or not connection.execute(" UNION ALL ".join(rows)).fetchone()


def _tables_in(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute(
        "SELECT CAST(name AS BLOB) FROM sqlite_schema WHERE type = 'table' "
        "AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    return {bytes(name).decode(errors="replace") for (name,) in found}


def written(connection: sqlite3.Connection) -> Written:
    """Return what an archive says of its format; ValueError where that is none."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    says = None
    if FORMAT.is_newer(Written(number, number)):
        try:
            found = connection.execute(
                "SELECT value FROM about WHERE name = ?", (READABLE_FROM,)
            ).fetchone()
            says = None if found is None else int(_as_bytes(found[0]))
        except (sqlite3.Error, ValueError, TypeError):
            says = None
    return written_in(number, says)


def has_entries(connection: sqlite3.Connection) -> bool:
    """Return whether a file has the table of deletions that every archive has."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE lower(name) = 'applies'")
    return found.fetchone() is not None


def format_of(connection: sqlite3.Connection) -> ArchiveFormat:
    """Return the format of a checked archive; of a newer one the newest that is known."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return KNOWN[min(number, max(KNOWN))](connection)


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


_CODE: Final = re.compile(r"(?i)\b(check|collate|generated|as)\b")
"""Words of a table's statement that let it run or need somebody's code."""
_LITERAL: Final = re.compile(r"(?i)null|-?[0-9]{1,18}|'[^']*'")


def wrong_table(connection: sqlite3.Connection) -> str:
    """Say which table of an archive is not as memlab makes it, or runs code; else nothing.

    Tables are known by their columns, not by the statement that made them: a copy of an archive by
    other means serves. A newer format may have added columns.
    """
    made = format_of(connection)
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    kinds = {
        name.lower(): (kind, bool(without_rowid))
        for name, kind, without_rowid in connection.execute(
            "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'"
        )
    }
    trigger = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchone()
    if trigger:
        return f"has a trigger, {trigger[0]!r:.40}"
    for name, declared in made.tables.items():
        if name not in kinds:
            if name in made.in_each:
                return f"has no table {name}"
            continue
        kind, without_rowid = kinds[name]
        if kind != "table" or (without_rowid and name != "about"):
            return f"has {name}, which is no such table"
        if wrong := _wrong_columns(
            connection, name, _declared(declared), may_have_more=number > made.number
        ):
            return f"has {name}, {wrong}"
        if wrong := _wrong_index(connection, name):
            return f"has {name}, {wrong}"
    return ""


def _declared(columns: str) -> dict[str, str]:
    """Return the names of the columns of a table of ours with the types that they have."""
    inner = re.sub(r"PRIMARY KEY \([^)]*\)|REFERENCES \w+ \(\w+\)", "", columns)
    inner = inner[inner.index("(") + 1 : inner.rindex(")")]
    found = {}
    for each in inner.split(","):
        name, *words = each.split()[:2] or [""]
        if name:
            found[name] = words[0] if words and words[0] in ("TEXT", "BLOB", "INTEGER") else ""
    return found


def _wrong_columns(
    connection: sqlite3.Connection, table: str, wanted: Mapping[str, str], *, may_have_more: bool
) -> str:
    (sql,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = ?", (table,)
    ).fetchone()
    if _CODE.search(str(sql)):
        return "whose columns run code"
    found = {}
    for name, declared, default, hidden, not_null in connection.execute(
        f"SELECT name, type, dflt_value, hidden, \"notnull\" FROM pragma_table_xinfo('{table}')"
    ):
        found[name] = declared.upper()
        if hidden or (default is not None and not _LITERAL.fullmatch(default)):
            return f"whose column {name!r:.40} runs code"
        is_safe = name.lower() not in HIDING and (default is not None or not not_null)
        if name not in wanted and not (may_have_more and is_safe):
            return f"with a column {name!r:.40} that is unknown"
    for name, declared in wanted.items():
        if found.get(name) != declared:
            return f"without the column {name} as it should be"
    return ""


def _wrong_index(connection: sqlite3.Connection, table: str) -> str:
    for name, is_partial in connection.execute(
        f"SELECT name, partial FROM pragma_index_list('{table}')"
    ).fetchall():
        parts = connection.execute(
            "SELECT cid, coll FROM pragma_index_xinfo(?)", (name,)
        ).fetchall()
        if is_partial or any(cid < -1 or coll != "BINARY" for cid, coll in parts):
            return f"whose index {name!r:.40} runs code"
    return ""
