"""Measure full copies, their stages, and increments, and write ``docs/bench.md``."""

import os
from typing import Annotated

import typer
from psycopg import sql

from bench.copy import full_copies, increments, stages
from bench.copy.source_database import TABLES, SourceDatabase, filled_database
from bench.machine import describe_machine
from bench.report import DOCS, Folder, Table, write_page
from synapse_lakehouse.config.settings import Settings

PACKAGES = ("pyspark", "pyarrow", "adbc-driver-postgresql", "connectorx")


def main(
    scale: Annotated[float, typer.Option(help="1: 2M rows in events and event_json, 10M in state_groups_state")] = 1.0,
    increment_scale: Annotated[float, typer.Option(help="scale for increments")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="repetitions of every measurement")] = 5,
    folder: Folder = DOCS,
) -> None:
    """Compare the lakehouse's copy with its peers and with PostgreSQL's COPY, on generated data."""
    home = Settings().lakehouse_home / "bench"
    with filled_database(home, scale) as source:
        with source.connect() as connection:
            (version,) = connection.execute("select current_setting('server_version')").fetchone() or ("?",)
        machine = describe_machine(PACKAGES, PostgreSQL=version, Scale=f"{scale:g}", Rounds=str(rounds))
        sizes = measure_tables(source)
        copies = full_copies.measure_full_copies(source, home, rounds)
        runs = stages.measure_stages(source, home, rounds)
    with filled_database(home, increment_scale) as source:
        increment_table = increments.table(increments.measure_increments(source, home, rounds))
    stage_tables = stages.tables(runs, copies, os.cpu_count() or 1)
    write_page("bench.md", folder, machine, sizes, *full_copies.tables(copies), *stage_tables, increment_table)


def measure_tables(source: SourceDatabase) -> Table:
    """Return rows, and heap bytes per row, of each table."""
    rows = []
    with source.connect() as connection:
        for table in TABLES:
            query = sql.SQL("select count(*), pg_relation_size({}) from {}").format(table, sql.Identifier(table))
            count, size = connection.execute(query).fetchone() or (0, 0)
            rows.append((table, int(count), round(size / max(count, 1))))
    return Table("Source tables", ("table", "rows", "bytes per row in PostgreSQL"), rows)


if __name__ == "__main__":
    typer.run(main)
