"""Ranges of an index's keys, in the order of the index."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex
from synapse_lakehouse.postgres.indexes.index_faults import IndexEntry, IndexFaultKind, find_index_faults
from synapse_lakehouse.postgres.indexes.key_range import KeyRange, to_spark_predicate

KEYS = st.tuples(st.integers(0, 3), st.sampled_from("aé~\U0001f600"))
NULLABLE = st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("aé~\U0001f600") | st.none())


def index(predicate: str | None = None) -> BtreeIndex:
    return BtreeIndex("i", "t", 1, 0, ("a", "b"), ("bigint", "text"), (True, True), predicate, False, True)


@given(st.lists(KEYS, unique=True).map(sorted), NULLABLE)
def test_each_key_is_in_one_of_adjacent_ranges(
    bounds: list[tuple[int, str]], key: tuple[int | None, str | None]
) -> None:
    ranges = [KeyRange(*pair) for pair in pairwise([None, *bounds, None])]
    assert sum(key in part for part in ranges) == 1


def test_null_comes_last_among_equal_columns() -> None:
    assert (1, None) in KeyRange((1, "z"), (2, "a"))
    assert (1, None) not in KeyRange((1, "a"), (1, "z"))
    assert (None, "a") in KeyRange((3, "z"), None)
    assert (None, None) not in KeyRange(None, (3, "z"))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (None, "true"),
        ("(type = 'm.room.member'::text)", "(type = 'm.room.member')"),
        ("((contains_url = true) AND (outlier = false))", "((contains_url = true) AND (outlier = false))"),
        ("(thread_id IS NULL)", "(thread_id IS NULL)"),
        ("(name ~~ 'a%'::text)", None),
        ('("timestamp" > 5)', None),
        ("(state <> 'it''s \\n'::text)", None),
    ],
)
def test_predicates_of_partial_indexes_become_spark_sql(predicate: str | None, expected: str | None) -> None:
    assert to_spark_predicate(index(predicate)) == expected


def test_faults_of_index_entries_are_found() -> None:
    rows = [(1,), (2,), (3,), (4,), (5,)]
    entries = [
        IndexEntry(1, "(0,1)", (1,), is_own=True),
        IndexEntry(2, "(0,1)", (1,), is_own=True),
        IndexEntry(3, "(0,2)", (2,), is_own=False),
        IndexEntry(4, "(0,3)", (3,), is_own=True),
        IndexEntry(5, "(0,4)", (4,), is_own=True),
        IndexEntry(6, "(0,3)", (3,), is_own=True),
        IndexEntry(7, "(9,9)", (9,), is_own=True),
    ]
    kinds = IndexFaultKind
    assert {(fault.kind, fault.row) for fault in find_index_faults(entries, rows)} == {
        (kinds.REPEATED, (1,)), (kinds.FOREIGN, (2,)), (kinds.MISSING, (2,)), (kinds.FOREIGN, (3,)),
        (kinds.MISSING, (5,)), (kinds.FOREIGN, (9,)),
    }  # fmt: skip
