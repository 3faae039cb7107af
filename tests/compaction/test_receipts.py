"""Receipts as data: written, read, shown."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.compaction.plans import Receipt
from memlab.errors import PlanError
from memlab.items import Size

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e\0&'\""
TEXT = st.text(max_size=12)
COUNT = st.integers(0, 2**63 - 1)
SETTINGS = st.one_of(st.none(), st.booleans(), COUNT, st.floats(allow_nan=False), TEXT)
MOMENTS = st.datetimes(timezones=st.just(UTC))
SIZES = st.builds(Size, COUNT, COUNT)
RECEIPTS = st.builds(
    Receipt,
    digest=TEXT,
    store=TEXT,
    archive=st.none() | TEXT,
    policy=st.dictionaries(TEXT, SETTINGS, max_size=3),
    made_at=MOMENTS,
    applied_at=MOMENTS,
    deleted=COUNT,
    boot_before=SIZES,
    boot_after=SIZES,
    token_rule=TEXT,
)


def receipt(**fields: object) -> Receipt:
    made = Receipt(
        digest="0123456789abcdef" * 4,
        store="/srv/my memory.db",
        archive="/srv/my memory.db.archive.db",
        policy={"policy": "recent", "keep": 2, "by": "position"},
        made_at=NOON,
        applied_at=NOON,
        deleted=1,
        boot_before=Size(6, 120),
        boot_after=Size(5, 110),
        token_rule="characters / 4, an estimate",
    )
    return replace(made, **fields)


@given(receipt=RECEIPTS)
def test_a_receipt_comes_back_as_it_was_written(receipt: Receipt) -> None:
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_receipts_can_be_members_of_a_set() -> None:
    assert len({receipt(), receipt()}) == 1


def test_a_receipt_without_its_fields_is_refused() -> None:
    with pytest.raises(PlanError, match="this is not a whole receipt: 'digest'"):
        Receipt.from_json('{"memlab_receipt": 2}')


def test_a_receipt_prints_how_to_take_it_back() -> None:
    shown = receipt()
    assert shown.undo == "memlab restore '/srv/my memory.db' 0123456789ab"
    assert f"undo          {shown.undo}" in str(shown)
    assert "deleted       1 memory" in str(shown)


def test_a_receipt_for_nothing_offers_no_way_back() -> None:
    text = str(receipt(archive=None))
    assert "none: there was nothing to delete" in text
    assert "undo" not in text


@pytest.mark.parametrize("field", ["store", "archive", "token_rule"])
def test_hostile_text_steers_neither_terminal_nor_page(field: str) -> None:
    shown = receipt(**{field: HOSTILE}, policy={"policy": HOSTILE, HOSTILE: HOSTILE})
    assert all(char.isprintable() or char == "\n" for char in str(shown))
    page = shown._repr_html_()
    assert "<script" not in page
    assert all(char.isprintable() for char in page)
