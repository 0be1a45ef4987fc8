"""Slices of key ranges, and the comparison of their digests. Integration tests run the SQL."""

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.postgres.rows.range_digest import (
    RANGE_COUNT,
    KeySlice,
    RowDigest,
    build_digest_query,
    build_rows_query,
    find_differing_ranges,
    slice_key_ranges,
)

NAMES = [f"{number:03x}" for number in range(RANGE_COUNT)]


@pytest.mark.parametrize(("rows", "slice_count"), [(0, 1), (1_000, 1), (1_001, 2), (7_999, 8), (10**12, RANGE_COUNT)])
def test_a_table_is_divided_into_small_slices(rows: int, slice_count: int) -> None:
    assert [key_slice.of for key_slice in slice_key_ranges(rows, 1_000)] == [slice_count] * slice_count


@pytest.mark.parametrize("slice_count", [1, 2, 8])
def test_every_range_is_in_exactly_one_slice(slice_count: int) -> None:
    slices = [KeySlice(number, slice_count) for number in range(slice_count)]
    assert all(key_slice.first in key_slice and key_slice.last in key_slice for key_slice in slices)
    assert sum(name in key_slice for name in NAMES for key_slice in slices) == RANGE_COUNT
    assert all(
        (key_slice.first <= name <= key_slice.last) == (name in key_slice)
        for key_slice in slices
        for name in NAMES[:: RANGE_COUNT // 64]
    )


def test_ranges_differ_by_rows_content_or_presence() -> None:
    source = {
        "000": RowDigest(1, 2, 3),
        "001": RowDigest(1, 2, 3),
        "002": RowDigest(1, 2, 3),
        "003": RowDigest(4, 5, 6),
    }
    lake = {
        "000": RowDigest(1, 2, 3),
        "001": RowDigest(2, 2, 3),
        "002": RowDigest(1, 3, 2),
        "fff": RowDigest(1, 0, 0),
    }
    assert find_differing_ranges(source, lake) == ["001", "002", "003", "fff"]


def test_names_of_ranges_and_columns_are_quoted() -> None:
    table = catalogue.load_catalogue().table("erased_users")
    assert build_rows_query(table, ["0'f"]).as_string().endswith("in ('0''f')")
    assert '"user_id"' in build_digest_query(table, KeySlice(0, 2)).as_string()
