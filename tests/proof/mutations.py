"""Mutations of store files, each from a seed."""

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from memlab.store.database import COLUMNS
from memlab.testing.forging import HOSTILE_COLUMN_VALUES, mutated_bytes


def _statements(text: str) -> tuple[str, ...]:
    """Return one statement per line; continuation lines are indented."""
    return tuple(text.strip().replace("\n  ", " ").split("\n"))


NOT_UTF8: Final = ("80", "c328", "f0288cbc", "edA080", "66006f00", "00ff00")

TRIGGERS: Final = _statements("""
AFTER DELETE ON memory_items BEGIN DELETE FROM memory_items WHERE kind = 'semantic'; END
AFTER DELETE ON memory_items BEGIN
  DELETE FROM memory_items WHERE rowid = (SELECT max(rowid) FROM memory_items); END
BEFORE DELETE ON memory_items BEGIN
  UPDATE memory_items SET kind = 'episodic', tags_json = '[]' WHERE kind = 'procedural'; END
AFTER DELETE ON memory_items BEGIN
  UPDATE memory_items SET body = 'gone' WHERE kind = 'semantic'; END
BEFORE DELETE ON memory_items BEGIN SELECT RAISE(IGNORE); END
BEFORE DELETE ON memory_items BEGIN SELECT RAISE(ABORT, 'no'); END
BEFORE DELETE ON memory_items BEGIN SELECT RAISE(ROLLBACK, 'no'); END
BEFORE DELETE ON memory_items BEGIN SELECT RAISE(FAIL, 'no'); END
AFTER DELETE ON memory_items BEGIN
  INSERT INTO memory_items SELECT OLD.memory_id || 'x', OLD.kind, '', '', '[]', NULL, NULL, NULL,
  '', 0, '', '', '', NULL; END
AFTER DELETE ON memory_items WHEN OLD.rowid % 2 BEGIN
  DELETE FROM memory_items WHERE kind = 'semantic' AND rowid < OLD.rowid;
  INSERT INTO memory_items SELECT 'fake' || OLD.rowid, 'semantic', '', '', '[]', NULL, NULL, NULL,
  '', 0, '', '', '', NULL; END
AFTER INSERT ON memory_items BEGIN DELETE FROM memory_items WHERE kind = 'semantic'; END
AFTER INSERT ON memory_items BEGIN UPDATE memory_items SET title = 'x'; END
AFTER DELETE ON memory_signals BEGIN DELETE FROM memory_items WHERE kind = 'semantic'; END
AFTER UPDATE ON memory_items BEGIN DELETE FROM memory_items; END
AFTER DELETE ON memory_items BEGIN SELECT load_extension('x'); END
AFTER DELETE ON memory_items BEGIN SELECT no_such_function(); END
""")

RESHAPED: Final = _statements("""
ALTER TABLE memory_items RENAME TO kept; CREATE VIEW memory_items AS SELECT * FROM kept
ALTER TABLE memory_items RENAME TO kept; CREATE VIEW memory_items AS SELECT rowid, * FROM kept;
  CREATE TRIGGER t INSTEAD OF DELETE ON memory_items BEGIN DELETE FROM kept; END
ALTER TABLE memory_items RENAME TO kept; CREATE VIEW memory_items AS
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT kept.* FROM kept, n
ALTER TABLE memory_items ADD COLUMN extra TEXT
ALTER TABLE memory_items ADD COLUMN loud TEXT GENERATED ALWAYS AS (upper(title)) VIRTUAL
ALTER TABLE memory_items DROP COLUMN body
ALTER TABLE memory_items RENAME COLUMN body TO text
ALTER TABLE memory_items RENAME TO MEMORY_ITEMS2; ALTER TABLE MEMORY_ITEMS2 RENAME TO MEMORY_ITEMS
DROP TABLE memory_items
DELETE FROM memory_items
CREATE INDEX i ON memory_items (kind, tags_json)
CREATE INDEX i ON memory_items (json_extract(tags_json, '$[0]'))
CREATE UNIQUE INDEX i ON memory_items (title, body) WHERE superseded_by IS NULL
DROP TABLE memory_signals; CREATE VIEW memory_signals AS SELECT memory_id FROM memory_items
ALTER TABLE memory_signals ADD COLUMN "a""b" TEXT DEFAULT 7; ALTER TABLE memory_signals ADD 'c d';
  UPDATE memory_signals SET importance = 'high', "a""b" = NULL, "c d" = x'00'
DROP TABLE memory_signals; CREATE TABLE memory_signals (memory_id REFERENCES memory_items, weight);
  INSERT INTO memory_signals SELECT memory_id, 1 FROM memory_items
UPDATE memory_signals SET importance = 'NaN', access_count = x'ff'
CREATE TABLE archived (x); CREATE TABLE applies (y)
CREATE VIEW surplus AS SELECT 1 AS position; CREATE VIEW kept AS SELECT 1 AS position
CREATE TABLE located (position); CREATE TABLE prunable_pairs (kind, tags_json)
PRAGMA user_version = 99; PRAGMA application_id = 7
PRAGMA journal_mode = TRUNCATE
PRAGMA auto_vacuum = FULL; VACUUM
""")

SCHEMAS: Final = _statements("""
'CREATE TABLE memory_items'
''
NULL
sql || ')'
sql || ' STRICT'
sql || ' WITHOUT ROWID'
replace(sql, ' TEXT', '')
replace(sql, 'kind TEXT', 'kind TEXT COLLATE NOCASE')
replace(sql, 'tags_json TEXT', 'tags_json NUMERIC')
replace(sql, 'tags_json TEXT NOT NULL', 'tags_json TEXT GENERATED ALWAYS AS (''[]'')')
replace(sql, 'memory_id TEXT PRIMARY KEY', 'memory_id INTEGER PRIMARY KEY')
replace(sql, 'memory_id TEXT PRIMARY KEY', 'memory_id TEXT PRIMARY KEY COLLATE NOCASE')
replace(sql, 'title TEXT', 'title TEXT CHECK (length(title) < 3)')
replace(sql, 'superseded_by TEXT', 'superseded_by TEXT REFERENCES memory_items ON DELETE CASCADE')
replace(sql, 'title TEXT NOT NULL, body TEXT NOT NULL', 'body TEXT NOT NULL, title TEXT NOT NULL')
replace(sql, 'kind TEXT NOT NULL', 'kind TEXT NOT NULL COLLATE NOSUCH')
replace(sql, 'superseded_by TEXT', 'superseded_by TEXT, extra TEXT')
replace(sql, ', superseded_by TEXT', '')
""")
"""SQL expressions that change the statement of the table."""
SCHEMA: Final = """
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET {} WHERE name = 'memory_items';
PRAGMA writable_schema = RESET;
"""
WITH_A_LOG: Final = """
PRAGMA journal_mode = WAL;
PRAGMA wal_autocheckpoint = 0;
UPDATE memory_items SET body = body || ' more' WHERE rowid % 3 = 0;
DELETE FROM memory_items WHERE kind = 'episodic' AND rowid % 5 = 0;
"""
IMPOSSIBLE: Final = (sqlite3.Error, UnicodeDecodeError)


def mutate(store: Path, rng: random.Random) -> str:
    """Damage a store in one or two ways, and name them."""
    chosen = rng.choices(MUTATIONS, k=rng.choice((1, 1, 1, 1, 2)))
    for mutation in chosen:
        mutation(store, rng)
    return ", ".join(mutation.__name__ for mutation in chosen)


def spoil_bytes(store: Path, rng: random.Random) -> None:
    store.write_bytes(mutated_bytes(store.read_bytes(), rng))


def flip_in_heads(store: Path, rng: random.Random) -> None:
    """Change bytes of the headers of pages."""
    data = bytearray(store.read_bytes() or b"\0")
    size = _page_size(store)
    pages = max(1, len(data) // size)
    for _ in range(rng.choice((1, 1, 2, 4))):
        page = rng.choice((0, rng.randrange(pages)))
        header_size = 16 if page else 140
        at = page * size + rng.randrange(header_size)
        data[min(at, len(data) - 1)] = rng.choice((0, 1, 2, 5, 10, 13, 64, 127, 255))
    store.write_bytes(data)


def overwrite_pages(store: Path, rng: random.Random) -> None:
    """Zero, overwrite, cut or add pages."""
    data = bytearray(store.read_bytes() or b"\0")
    size = _page_size(store)
    pages = max(1, len(data) // size)
    for _ in range(rng.choice((1, 1, 2, 5))):
        start = rng.randrange(pages) * size
        other = rng.randrange(pages) * size
        random_page = rng.randbytes(size)
        other_page = data[other : other + size]
        data[start : start + size] = rng.choice(
            (bytes(size), b"\xff" * size, random_page, other_page)
        )
    if rng.random() < 0.5:
        cut_anywhere = data[: rng.randrange(len(data))]
        cut_at_page = data[:start]
        longer = data + random_page * 3
        data = rng.choice((cut_anywhere, cut_at_page, longer))
    store.write_bytes(data)


def leave_a_log(store: Path, rng: random.Random) -> None:
    """Leave the log of a killed process, sometimes damaged."""
    copies = {}
    with closing(sqlite3.connect(store, isolation_level=None)) as connection, suppress(*IMPOSSIBLE):
        connection.executescript(WITH_A_LOG)
        files = [store.with_name(store.name + suffix) for suffix in ("", "-wal", "-shm")]
        copies = {file: bytearray(file.read_bytes()) for file in files if file.exists()}
    for file, data in copies.items():
        if file == store:
            file.write_bytes(data)
            continue
        if data and rng.random() < 0.6:
            _damage_and_cut(data, rng)
        if rng.random() < 0.8:
            file.write_bytes(data)


def _damage_and_cut(data: bytearray, rng: random.Random) -> None:
    """Change some bytes, and sometimes drop the end."""
    for _ in range(rng.choice((1, 3, 30))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    end = rng.choice((len(data), rng.randrange(len(data))))
    del data[end:]


def leave_a_journal(store: Path, rng: random.Random) -> None:
    page = store.read_bytes()[: _page_size(store)]
    magic = bytes.fromhex("d9d505f920a163d7")
    journals = (
        b"",
        b"\0" * 600,
        magic + rng.randbytes(2000),
        magic + page,
        rng.randbytes(99),
    )
    store.with_name(f"{store.name}-journal").write_bytes(rng.choice(journals))


def add_triggers(store: Path, rng: random.Random) -> None:
    for number in range(rng.choice((1, 1, 2))):
        _run(store, f"CREATE TRIGGER t{number} {rng.choice(TRIGGERS)}")


def reshape(store: Path, rng: random.Random) -> None:
    _run(store, rng.choice(RESHAPED))


def put_hostile_values(store: Path, rng: random.Random) -> None:
    """Put values of the wrong type or form into rows, also NULL if it is forbidden."""
    if rng.random() < 0.4:
        _run(store, SCHEMA.format("sql = replace(sql, ' NOT NULL', '')"))
    for _ in range(rng.choice((1, 1, 3, 10))):
        column = rng.choice(COLUMNS)
        value = rng.choice(HOSTILE_COLUMN_VALUES)
        condition = rng.choice(("rowid = 3", "rowid % 2", "kind = 'semantic'", "1"))
        if rng.random() < 0.2:
            text = f"CAST(x'{rng.choice(NOT_UTF8)}' AS TEXT)"
            _run(store, f"UPDATE memory_items SET {column} = {text} WHERE {condition}")
        else:
            _run(store, f"UPDATE memory_items SET {column} = ? WHERE {condition}", value)


def move_rows(store: Path, rng: random.Random) -> None:
    """Move rows to the ends of the position range, and create supersession cycles."""
    limits = (-(2**63), -1, 0, 2**31, 2**53 + 1, 2**63 - 2, 2**63 - 1)
    for position in rng.sample(limits, rng.randrange(1, len(limits))):
        memory_id = f"m{rng.randrange(25)}"
        _run(store, "UPDATE memory_items SET rowid = ? WHERE memory_id = ?", position, memory_id)
    if rng.random() < 0.3:
        _run(store, "UPDATE memory_items SET superseded_by = memory_id WHERE rowid % 4")


def rewrite_schema(store: Path, rng: random.Random) -> None:
    _run(store, SCHEMA.format(f"sql = {rng.choice(SCHEMAS)}"))
    if rng.random() < 0.3:
        _run(store, SCHEMA.format(f"rootpage = {rng.choice((0, 1, 2, 3, 5, 99, -1))}"))


MUTATIONS: Final = (
    spoil_bytes,
    flip_in_heads,
    overwrite_pages,
    leave_a_log,
    leave_a_journal,
    add_triggers,
    reshape,
    put_hostile_values,
    move_rows,
    rewrite_schema,
)


def _page_size(store: Path) -> int:
    with store.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
    return max(size, 512)


def _run(store: Path, script: str, *values: Any) -> None:
    """Run statements until one fails because of an earlier mutation."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection, suppress(*IMPOSSIBLE):
        if values:
            connection.execute(script, values)
        else:
            connection.executescript(script)
