"""Loading a store as a frame: columns, values, and no trace on disk."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

import memlab
from memlab import SqliteMemoryStore, items
from memlab.columns import DTYPES, LOAD_BEARING, PROBLEM, PRUNABLE, SIGNAL_DTYPES, TOKEN_RULE
from memlab.errors import BadRowError, MissingExtraError
from memlab.store.database import CREATE_TABLE
from memlab.systems.memory_items import scan
from tests.support.invariants import rows_of
from tests.support.properties import examples
from tests.support.stores import (
    ANY_VALUE,
    episodes,
    files_in,
    row,
    row_lists,
    run_sql,
    write_rows,
    write_signals,
)

LABELLED = {"label": "category"}


def dtypes_of(frame: pd.DataFrame) -> dict[str, str]:
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def test_frame_has_the_documented_columns_and_dtypes(tmp_path: Path) -> None:
    frame = memlab.load(write_rows(tmp_path / "memory.db", episodes(3)))
    assert dtypes_of(frame) == {**DTYPES, **LABELLED}
    assert list(frame) == [*DTYPES, "label"]
    assert frame.index.equals(pd.RangeIndex(3))
    assert list(frame["kind"].cat.categories) == ["semantic", "episodic", "procedural"]
    empty = memlab.load(write_rows(tmp_path / "empty.db", []), with_body=True)
    assert len(empty) == 0
    assert dtypes_of(empty) == {**DTYPES, "body": "str", **LABELLED}


def test_labels_equal_those_of_rows() -> None:
    store = memlab.store_path("three_hundred_issues")
    labels = memlab.load(store).set_index("memory_id")["label"]
    listed = memlab.rows(store).set_index("memory_id")["label"]
    assert labels.astype(str).to_dict() == listed.astype(str).to_dict()
    assert set(labels) == {"load-bearing", "prunable", "superseded"}


def test_frame_can_be_modified_independently(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(2))
    frame = memlab.load(path)
    for name in ("position", "chars", "tokens", "confidence", "active", "title"):
        frame.loc[0, name] = frame.loc[1, name]
        assert frame.loc[0, name] == memlab.load(path).loc[1, name]


def test_in_memory_store_loads_every_field() -> None:
    origin: dict[str, Any] = {
        "source_task_ref": "issue:#7",
        "confidence": 0.1 + 0.2,
        "created_at": pd.Timestamp("2026-01-02T03:04:05.678901+02:00").to_pydatetime(),
        "supersedes": ("m0", "ü"),
        "evidence_refs": ("issue:#1",),
    }
    provenance = items.MemoryProvenance(items.EventRef(items.EventId("e1"), 4), "agent", **origin)
    kind = items.MemoryKind.SEMANTIC
    tags = ("a", "b,c")
    with SqliteMemoryStore(":memory:") as store:
        store.put(items.MemoryItem("m1", kind, "tïtle", "body text", provenance, tags))
        (loaded,) = memlab.load(store, with_body=True).to_dict("records")
    expected = {
        **origin,
        "memory_id": "m1",
        "kind": "semantic",
        "title": "tïtle",
        "body": "body text",
        "tags": tags,
        "authored_by": "agent",
    }
    assert loaded.items() >= expected.items()


@given(rows=row_lists(), keep_recent=st.integers(0, 8))
def test_labels_agree_with_list_active_and_compaction(rows: list[Any], keep_recent: int) -> None:
    for columns in rows:  # a store cannot read some of the drawn events
        columns["source_event_id"] = None
        columns["source_sequence"] = None
    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(Path(folder) / "memory.db", rows)
        frame = memlab.load(path)
        is_load_bearing = [
            items.is_load_bearing_stored(columns["kind"], columns["tags_json"]) for columns in rows
        ]
        assert frame[LOAD_BEARING].tolist() == is_load_bearing
        with SqliteMemoryStore(path) as store:
            active = [item.memory_id for item in store.list_active()]
            assert list(frame.loc[frame["active"], "memory_id"]) == active
            deleted = store.compact_episodic(keep_recent)
        prunable = list(frame.loc[frame["prunable"], "position"])
        surplus = prunable[: max(0, len(prunable) - keep_recent)]
        assert deleted == len(surplus)
        assert sorted(rows_of(path)) == [
            position for position in frame["position"] if position not in surplus
        ]


@settings(max_examples=examples(300), deadline=None)
@given(
    stored=st.one_of(
        st.text(alphabet='[]", \n\t{}\\ux019a:-.eE', max_size=10),
        st.lists(st.one_of(st.text(), st.none(), st.lists(st.text()))).map(json.dumps),
    )
)
def test_strings_of_accepts_only_json_lists_of_strings(stored: str) -> None:
    try:
        values = json.loads(stored)
    except ValueError:
        values = None
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        assert items.strings_of(stored) == tuple(values)
    else:
        with pytest.raises(ValueError, match=r"is not (JSON|a JSON list of strings)$"):
            items.strings_of(stored)


@pytest.mark.parametrize("with_body", [False, True])
def test_chars_equal_python_len(tmp_path: Path, with_body: bool) -> None:
    texts = [("title", "body"), ("", ""), ("ä–", "日本語"), ("a\0b", "c\0d\0"), ("é\0é", "\0")]
    texts += [("\x1f", "\x1e\x1f"), ("👩‍🚀", "x" * 70_000)]
    rows = [row(f"m{number}", title=title, body=body) for number, (title, body) in enumerate(texts)]
    frame = memlab.load(write_rows(tmp_path / "memory.db", rows), with_body=with_body)
    assert frame["chars"].tolist() == [9, 0, 5, 7, 4, 3, 70_003]
    assert frame["tokens"].tolist() == [3, 0, 2, 2, 1, 1, 17_501]
    assert frame.attrs[TOKEN_RULE] == "estimate: characters / 4, rounded up"
    assert frame["title"].tolist() == [title for title, _ in texts]
    if with_body:
        assert frame["body"].tolist() == [body for _, body in texts]


MOMENTS = {
    "2026-03-01T12:00:00+00:00": "2026-03-01T12:00:00Z",
    "2026-03-01T12:00:00Z": "2026-03-01T12:00:00Z",
    "2026-03-01 12:00:00.5+02:00": "2026-03-01T10:00:00.5Z",
    "2026-03-01T12:00:00.123456789+00:00": "2026-03-01T12:00:00.123456Z",
    "20260301T120000Z": "2026-03-01T12:00:00Z",
    "2999-12-31T23:59:59.999999-01:00": "3000-01-01T00:59:59.999999Z",
    "2026-03-01 12:00:00": "2026-03-01T12:00:00Z",  # SQLite's datetime('now')
    "2026-03-01T12:00:00.25": "2026-03-01T12:00:00.25Z",
    "2026-03-01": "2026-03-01T00:00:00Z",
}


@pytest.mark.parametrize("stored", MOMENTS)
@pytest.mark.parametrize("beside", ["2026-03-01T12:00:00+00:00", "2026-03-01 12:00:00", "?"])
def test_timestamps_are_converted_to_utc(tmp_path: Path, stored: str, beside: str) -> None:
    rows = [row("m1", created_at=beside), row("m2", created_at=stored)]
    frame = memlab.load(write_rows(tmp_path / "memory.db", rows), on_bad_row="keep")
    assert frame["created_at"][1] == pd.Timestamp(MOMENTS[stored])
    has_problem = frame["problem"].notna()
    assert has_problem[0] == (beside == "?")
    assert not has_problem[1]
    assert str(frame["created_at"].dtype) == DTYPES["created_at"]


@pytest.mark.parametrize("with_body", [False, True])
def test_tokens_can_be_counted_by_a_callable(tmp_path: Path, with_body: bool) -> None:
    def words(text: str) -> int:
        return len(text.split())

    path = write_rows(tmp_path / "memory.db", [row("m1", title="one two", body="three four five")])
    frame = memlab.load(path, count_tokens=words, with_body=with_body)
    assert list(frame["tokens"]) == [5]
    assert "words" in frame.attrs[TOKEN_RULE]
    assert ("body" in frame.columns) is with_body


def test_tokens_are_counted_by_a_named_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = pytest.importorskip("rs_bpe.bpe").openai
    path = write_rows(tmp_path / "memory.db", [row("m1", title="Quasistellar", body="über")])
    frame = memlab.load(path, count_tokens="o200k_base")
    count = openai.o200k_base().count
    assert list(frame["tokens"]) == [count("Quasistellar") + count("über")]
    assert frame.attrs[TOKEN_RULE] == "exact: o200k_base"
    with pytest.raises(ValueError, match=r"one of cl100k_base, o200k_base, not 'gpt'"):
        memlab.load(path, count_tokens="gpt")
    monkeypatch.setitem(sys.modules, "rs_bpe", None)
    with pytest.raises(MissingExtraError, match=r"run: .* -m pip install 'rs-bpe"):
        memlab.load(path, count_tokens="o200k_base")


def test_every_form_of_source_gives_the_same_frame(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "my #1 memory?.db", episodes(4))
    link = tmp_path / "link.db"
    link.symlink_to(path)
    frame = memlab.load(path)
    with SqliteMemoryStore(path) as store:
        for source in (str(path), path.as_uri(), f"{path.as_uri()}?mode=rw", link, store):
            assert_frame_equal(memlab.load(source), frame)
    assert list(frame["memory_id"]) == ["e1", "e2", "e3", "e4"]


def test_open_store_is_read_as_committed(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(3))
    with SqliteMemoryStore(path) as store:
        store.supersede("e1", by_memory_id="e2")
        store.connection.execute("BEGIN IMMEDIATE")
        store.connection.execute("DELETE FROM memory_items")
        before = files_in(tmp_path)
        for source in (path, store):
            assert list(memlab.load(source)["active"]) == [False, True, True]
        after = files_in(tmp_path)
        store.connection.execute("COMMIT")
        assert len(memlab.load(store)) == 0
    assert set(before) == {"memory.db", "memory.db-wal", "memory.db-shm"}
    assert set(after) == set(before)
    for name in ("memory.db", "memory.db-wal"):
        assert after[name] == before[name]


def test_sparse_rowids_are_all_read_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rowids = [-(2**63), *range(100), *range(10**12, 10**12 + 40), 2**63 - 1]
    path = write_rows(tmp_path / "memory.db", [row(f"m{rowid}", rowid=rowid) for rowid in rowids])
    at_once = memlab.load(path, with_body=True)
    monkeypatch.setattr(scan, "_MAX_ROWS", 9)
    for large in (2**24, 0):  # a large file is read in threads
        monkeypatch.setattr("memlab.systems.memory_items.source._LARGE_FILE", large)
        assert_frame_equal(memlab.load(path, with_body=True), at_once)
    assert list(at_once["position"]) == rowids


def test_signals_are_joined_to_their_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), row("m2"), row("m3")])
    plain: Any = {
        "importance": 0.75,
        "access_count": 3,
        "graduated": True,
        "trusted": False,
        "agent_id": "a",
        "namespace": "n",
        "thread_id": "t",
    }
    times = {"last_accessed_at": "2026-03-01T12:00+02:00", "expires_at": "2027-01-01T00:00:00Z"}
    write_signals(path, "m2", **plain, **times)
    write_signals(path, "gone", importance=1.0)
    frame = memlab.load(path)
    assert dtypes_of(frame) == {**DTYPES, **SIGNAL_DTYPES, **LABELLED}
    assert list(frame)[-10:-1] == list(SIGNAL_DTYPES)
    timestamps = {name: pd.Timestamp(text) for name, text in times.items()}
    assert frame.loc[1, list(SIGNAL_DTYPES)].to_dict() == {**plain, **timestamps}
    rows_without_signals = frame.loc[[0, 2], list(SIGNAL_DTYPES)]
    assert rows_without_signals.drop(columns=["graduated", "trusted"]).isna().all(axis=None)
    assert not rows_without_signals["graduated"].any()
    assert rows_without_signals["trusted"].all()


def test_kept_bad_rows_name_the_problem_and_are_not_prunable(tmp_path: Path) -> None:
    rows = [
        row("good"),
        row("when", created_at="yesterday", confidence="high"),
        row("blob", body=b"\x00\x01", superseded_by=b"x"),
        row("dream", "dream", tags_json="[1]", evidence_refs_json="?"),
    ]
    frame = memlab.load(write_rows(tmp_path / "memory.db", rows), on_bad_row="keep")
    assert dtypes_of(frame) == {**DTYPES, PROBLEM: "str", **LABELLED}
    unknown = "kind 'dream' is not one of semantic, episodic, procedural"
    no_list = "tags_json '[1]' is not a JSON list of strings"
    assert frame[PROBLEM].fillna("none").to_list() == [
        "none",
        "confidence is text, not a number; created_at 'yesterday' is not a timestamp",
        "body is a blob, not text; superseded_by is a blob, not text",
        f"{unknown}; {no_list}; evidence_refs_json '?' is not JSON",
    ]
    assert list(frame[LOAD_BEARING]) == [False, True, True, True]
    assert list(frame[PRUNABLE]) == [True, False, False, False]
    assert list(frame["active"]) == [True, True, False, True]
    assert frame[["kind", "created_at", "confidence"]].isna().sum().to_list() == [1, 1, 1]
    assert frame["tags"][3] == ()
    assert frame["chars"][2] == len("title of blob")


ODD_TEXTS = ANY_VALUE | st.text("aé€😀\x00\x1f", max_size=120)
ODD_TEXTS |= st.sampled_from(["\x1f", "\x1e", "a\x1fb", "a\0b", "\x1e\x1e", "", b"a", "\x1e"])
ODD_COLUMNS = ("title", "body", "tags_json", *scan.NULLABLE)
ODD_NUMBERS = st.sampled_from([0.12345678, "high", b"", -3.0, 1e300])
SCAN_SETTINGS: list[dict[str, Any]] = [
    {"_MAX_JOINED_BYTES": 90, "_PIECE_BYTES": 7},
    {"_split_joined": lambda *_: None},
]
"""Settings of the scan that force each loading path."""


@settings(max_examples=examples(50))
@given(rows=row_lists(max_size=4), data=st.data(), with_body=st.booleans())
def test_every_loading_path_gives_the_same_frame(
    rows: list[dict[str, Any]], data: st.DataObject, with_body: bool
) -> None:
    for columns in rows:
        for name in data.draw(st.lists(st.sampled_from(ODD_COLUMNS), max_size=2)):
            columns[name] = data.draw(ODD_TEXTS)
        if data.draw(st.integers(0, 5)) == 0:
            columns["confidence"] = data.draw(ODD_NUMBERS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
        write_rows(path, rows)
        loaded = memlab.load(path, on_bad_row="keep", with_body=with_body)
        bad = loaded[loaded[PROBLEM].notna()]
        assert len(loaded) == len(rows)
        for scan_settings in SCAN_SETTINGS:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in scan_settings.items():
                    patch.setattr(scan, name, value)
                loaded_otherwise = memlab.load(path, on_bad_row="keep", with_body=with_body)
            assert_frame_equal(loaded_otherwise, loaded)
        if bad.empty:
            assert_frame_equal(memlab.load(path, with_body=with_body), loaded.drop(columns=PROBLEM))
            return
        with pytest.raises(BadRowError) as caught:
            memlab.load(path, with_body=with_body)
    assert caught.value.position == bad["position"].iloc[0]
    assert bad[PROBLEM].iloc[0].split("; ")[0] in str(caught.value)
