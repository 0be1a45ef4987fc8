import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import results
from bench.meter import Cost
from bench.parts import cuts
from bench.picture import draw
from bench.report import write
from bench.results import BARE, CONTENDERS, DECODED, ENCODED, JDBC, LIMIT, OURS, SENT, Increment, Results, Sample, Stage

TABLES = {"event_json": 2_000, "events": 2_000, "state_groups_state": 10_000}
SECONDS = {OURS: 2.0, JDBC: 4.0, LIMIT: 0.5}


@pytest.fixture
def measured() -> Results:
    return Results(
        scale=0.001,
        machine={"Processor": "2 cores, test", "PostgreSQL": "16.14"},
        rows=TABLES,
        table_bytes={table: rows * 1000 for table, rows in TABLES.items()},
        samples=[
            Sample(number, way, table, rows, rows * 100, Cost(SECONDS.get(way, 1.0) * number, 1.0, 0.2, 500_000_000))
            for number in (1, 2, 3)
            for way in CONTENDERS
            for table, rows in TABLES.items()
        ],
        stages=[
            Stage(table, name, rows, rows * 100, 0.1, 0.1, 0.1)
            for table, rows in TABLES.items()
            for name in (BARE, SENT, DECODED, ENCODED)
        ],
        increments=[
            Increment("events", 2_000, change, 0 if change == "nothing" else 100, 0.4, 0.1, 0.3, 0.1, 100, 4_000, 0)
            for change in ("nothing", "added", "changed")
        ],
    )


def test_results_are_read_as_they_were_written(measured: Results, tmp_path: Path) -> None:
    measured.write(tmp_path / "results.json")
    assert results.read(tmp_path / "results.json") == measured


def test_the_report_says_which_goals_were_reached(measured: Results) -> None:
    page = write(measured)
    assert "| times as fast as Spark JDBC → Iceberg | ≥ 1.5 | 2.00 (2.00 to 2.00) | reached |" in page
    assert "| times less CPU than Spark JDBC → Iceberg | ≥ 1.5 | 1.00 (1.00 to 1.00) | missed |" in page
    assert "| of the speed of COPY to /dev/null | ≥ 0.5 | 0.25 (0.25 to 0.25) | missed |" in page
    assert "| MB outside the JVM, at most | ≤ 600 | 500 | reached |" in page
    assert "| s for 100 rows added in 2,000 of `events` | ≤ 0.5 | 0.40 (0.40 to 0.40) | reached |" in page


def test_all_rows_of_a_table_in_the_report_have_as_many_cells_as_its_head(measured: Results) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", write(measured), re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_the_picture_has_a_bar_for_every_way_and_table(measured: Results) -> None:
    picture = ElementTree.fromstring(draw(measured))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert set(TABLES) | set(CONTENDERS) <= set(texts)
    bars = [box for box in picture.iter("{http://www.w3.org/2000/svg}rect") if box.get("height") == "14"]
    assert len(bars) == len(TABLES) * (len(CONTENDERS) + 4)


def test_parts_cover_all_pages_and_small_tables_have_fewer() -> None:
    assert cuts(100, 4) == [0, 25, 50, 75]
    assert cuts(2, 4) == [0, 1]
    assert cuts(0, 4) == [0]
