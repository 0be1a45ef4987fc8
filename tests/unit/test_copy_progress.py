"""The progress line of a table during its copy."""

from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.postgres.rows.copy_to_parquet import WrittenPart


def written_part(rows: int, size: int, seconds: float) -> WrittenPart:
    return WrittenPart("x.parquet", rows, size, 0, 0, seconds)


def test_the_progress_of_a_copy_has_the_remaining_time() -> None:
    progress = CopyProgress(total_pages=400).advance(written_part(1_000, 3_000_000, 2.0), 100, now=10.0)
    assert str(progress) == "1,000 of about 4,000 rows, 3.0 MB, 500 rows/s, 0:00:06 left"
    progress_with_count = CopyProgress(total_pages=400).advance(
        written_part(1_000, 3_000_000, 2.0), 100, 3_900, now=10.0
    )
    assert str(progress_with_count) == "1,000 of 3,900 rows, 3.0 MB, 500 rows/s, 0:00:06 left"


def test_concurrent_parts_count_elapsed_time_once() -> None:
    progress = CopyProgress(total_pages=4)
    for now in (10.0, 10.5, 12.0, 12.5):
        progress = progress.advance(written_part(100, 1_000, 2.0), 1, now=now)
    assert str(progress) == "400 rows, 0.0 MB, 89 rows/s"
    assert progress.seconds == 4.5


@given(st.lists(st.integers(1, 50), min_size=1))
def test_a_table_is_finished_with_its_last_page(parts: list[int]) -> None:
    progress = CopyProgress(total_pages=sum(parts))
    for number, pages in enumerate(parts, 1):
        progress = progress.advance(written_part(0, 0, 0.0), pages, now=float(number))
        assert progress.is_finished == (number == len(parts))
        assert ("left" in str(progress)) != progress.is_finished
