"""The report of ``bench.streams``."""

from bench.meter import Cost
from bench.streams import Measured, write


def test_each_run_has_a_line() -> None:
    found = {"ids": 999_000, "duplicates": 0, "late": 0, "gaps": 1000, "bounds": 14}
    page = write(
        {"Processor": "2 cores"},
        [
            Measured("all of them", 1_000_000, found, Cost(12.34, 20.0, 0.5, 1_234_567_890)),
            Measured("0.1% new ids", 1_001_000, found | {"gaps": 1}, Cost(5.0, 7.0, 0.5, 1_200_000_000)),
        ],
    )
    assert "| 1,000,000 | all of them | 999,000 | 1,000 | 12.3 | 20.0 | 1,235 |" in page
    assert "| 1,001,000 | 0.1% new ids | 999,000 | 1 | 5.0 | 7.0 | 1,200 |" in page
