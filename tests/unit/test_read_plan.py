"""The parts of a table that a run reads."""

from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.ingest.read_plan import ReadExtent, ReadPart, ReadPlan, plan_read
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.heap import Heap
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange, find_remaining_pages, split_pages

WHOLE_COPY = Baseline(snapshot_id=1, rows=1000, since=50)
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), max_size=6)


def unpartitioned_heap(pages: int) -> Heap:
    """Return the heap of a table without partitions."""
    return Heap(filenodes=[1], pages=pages, largest_file_pages=pages)


def test_chunks_of_a_partitioned_table_have_the_same_size() -> None:
    partition_pages = 3 * page_ranges.PAGES_PER_CHUNK
    heap = Heap(filenodes=[1, 2, 3, 4], pages=4 * partition_pages, largest_file_pages=partition_pages)
    parts = [part.pages for part in plan_read(None, heap, 1000, 0).parts]
    assert len(parts) == 12
    assert parts[1] == (page_ranges.PAGES_PER_CHUNK // 4, page_ranges.PAGES_PER_CHUNK // 2)
    assert {heap.count_pages(part) for part in parts} == {page_ranges.PAGES_PER_CHUNK}
    # Rows of several partitions may have the same ctid.
    (changed_part,) = plan_read(WHOLE_COPY, heap, 1000, 2, '{"(0,1)","(7,2)"}').parts
    assert changed_part == ReadPart(WHOLE_TABLE, 50)


def test_a_table_without_pages_is_read_in_few_parts() -> None:
    """VACUUM may truncate all pages that an interrupted copy has read."""
    assert plan_read(None, unpartitioned_heap(0), 0, 0).parts == (ReadPart(WHOLE_TABLE),)
    finished_pages = (0, page_ranges.PAGES_PER_CHUNK)
    plan = plan_read(Baseline(snapshot_id=1, rows=0, since=50, pages=(finished_pages,)), unpartitioned_heap(0), 0, 0)
    assert len(plan.parts) == 2
    assert unpartitioned_heap(0).count_pages(finished_pages) == page_ranges.PAGES_PER_CHUNK


def test_a_table_without_a_baseline_is_read_in_chunks() -> None:
    plan = plan_read(None, unpartitioned_heap(2 * page_ranges.PAGES_PER_CHUNK + 1), 1000, 0)
    assert plan.extent is ReadExtent.FULL
    assert [part.pages for part in plan.parts] == [
        (0, page_ranges.PAGES_PER_CHUNK),
        (page_ranges.PAGES_PER_CHUNK, 2 * page_ranges.PAGES_PER_CHUNK),
        (2 * page_ranges.PAGES_PER_CHUNK, None),
    ]
    assert {part.since for part in plan.parts} == {None}


def test_a_large_table_is_read_in_larger_chunks() -> None:
    """A first copy of 3.5 TB then writes few files, and maintenance need not merge them."""
    chunks = [63, 64, 13 * 32, 28_672]
    parts = [plan_read(None, unpartitioned_heap(page_ranges.PAGES_PER_CHUNK * count), 1, 0).parts for count in chunks]
    assert [len(parts_of_table) for parts_of_table in parts] == [63, 32, 32, 2206]


def test_an_unchanged_table_is_not_read() -> None:
    assert plan_read(WHOLE_COPY, unpartitioned_heap(10), 1000, 0).parts == ()


def test_changes_and_deletions_are_read_since_the_baseline() -> None:
    for rows, changed_rows in ((1000, 3), (990, 0), (1100, 100)):
        plan = plan_read(WHOLE_COPY, unpartitioned_heap(10), rows, changed_rows)
        assert plan == ReadPlan(ReadExtent.CHANGED, WHOLE_COPY, (ReadPart(WHOLE_TABLE, 50),))


def test_rows_with_known_ctids_are_read_by_them() -> None:
    plan = plan_read(WHOLE_COPY, unpartitioned_heap(40 * page_ranges.PAGES_PER_CHUNK), 1000, 2, '{"(0,1)","(7,2)"}')
    assert plan.parts == (ReadPart(WHOLE_TABLE, 50, '{"(0,1)","(7,2)"}'),)
    assert plan.parts[0].is_small(1_000_000)
    assert plan_read(WHOLE_COPY, unpartitioned_heap(10), 1000, 501, "{}").parts == (ReadPart(WHOLE_TABLE),)


def test_only_a_small_table_is_a_small_part() -> None:
    (part,) = plan_read(None, unpartitioned_heap(250), 5_000, 0).parts
    assert part.is_small(250)
    assert not part.is_small(16_000)


def test_few_changes_in_many_pages_become_few_files() -> None:
    large = 40 * page_ranges.PAGES_PER_CHUNK
    assert len(plan_read(WHOLE_COPY, unpartitioned_heap(large), 1_000_000, 100).parts) == 1
    assert len(plan_read(WHOLE_COPY, unpartitioned_heap(large), 1_000_000, 250_000).parts) == 10


def test_a_table_that_changed_by_half_is_read_in_full() -> None:
    plan = plan_read(WHOLE_COPY, unpartitioned_heap(10), 1000, 501)
    assert (plan.extent, plan.base) == (ReadExtent.FULL, None)


def test_a_table_that_lost_more_than_half_is_read_in_full() -> None:
    """With fewer rows than those to delete, the deletions cost more than a full copy."""
    extents = [plan_read(WHOLE_COPY, unpartitioned_heap(10), rows, 10).extent for rows in (505, 504)]
    assert extents == [ReadExtent.CHANGED, ReadExtent.FULL]


def test_a_resumed_copy_reads_the_rest_and_changes() -> None:
    part = Baseline(snapshot_id=1, rows=10, since=50, pages=((4, 8), (0, 2)))
    plan = plan_read(part, unpartitioned_heap(10), 1000, 0)
    assert (plan.extent, plan.base) == (ReadExtent.RESUMED, part)
    assert plan.parts == (ReadPart((2, 4)), ReadPart((8, None)), ReadPart((4, 8), 50), ReadPart((0, 2), 50))
    assert plan_read(part, unpartitioned_heap(10), 1000, 1, '{"(5,1)"}').parts == plan.parts


@given(RANGES, st.booleans())
def test_finished_and_remaining_pages_are_all_pages(finished: list[tuple[int, int]], to_the_end: bool) -> None:
    ranges: list[PageRange] = [(first, first + length) for first, length in finished]
    if to_the_end and ranges:
        ranges[-1] = (ranges[-1][0], None)
    remaining = find_remaining_pages(ranges)
    for page in range(120):
        assert (
            any(_contains(range_, page) for range_ in ranges) + sum(_contains(range_, page) for range_ in remaining)
            == 1
        )


@given(st.integers(0, 50), st.one_of(st.none(), st.integers(1, 60)), st.integers(0, 70), st.integers(1, 20))
def test_chunks_cover_a_range_once(first: int, length: int | None, table_pages: int, chunk_pages: int) -> None:
    part = (first, None if length is None else first + length)
    chunks = split_pages(part, table_pages, chunk_pages)
    for page in range(150):
        assert sum(_contains(chunk_range, page) for chunk_range in chunks) == _contains(part, page)
    assert all(last is None or last - start <= chunk_pages for start, last in chunks)


def _contains(part: PageRange, page: int) -> bool:
    first, last = part
    return first <= page and (last is None or page < last)
