"""SELECTs of the contenders: the lakehouse's SELECT in page ranges, or the SELECT of the stored columns."""

import psycopg
from psycopg import sql

from bench.copy import lakes
from synapse_lakehouse import parquet_writer
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.rows.select_sql import build_select

PARTS = 4
COMPRESSION_LEVEL = parquet_writer.COMPRESSION_LEVEL


def partition_selects(settings: Settings, table: str) -> list[str]:
    """Return SELECTs of :data:`PARTS` page ranges. Together they return each row of ``table`` once."""
    declared = lakes.select_tables(table).table(table)
    with psycopg.connect(str(settings.synapse_dsn)) as connection:
        row = connection.execute("select pg_relation_size(to_regclass(%s)) / 8192", [table]).fetchone()
    assert row is not None
    starts = first_pages(int(row[0]), PARTS)
    return [build_select(declared, pages).as_string() for pages in zip(starts, [*starts[1:], None], strict=True)]


def stored_columns(table: str) -> str:
    """Return the SELECT of the columns that the lakehouse reads, without its projections."""
    declared = lakes.select_tables(table).table(table)
    columns = dict.fromkeys(name for column in declared.columns for name in column.source_columns)
    return (
        sql.SQL("select {} from {}")
        .format(sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table))
        .as_string()
    )


def first_pages(pages: int, parts: int) -> list[int]:
    """Return the first pages of at most ``parts`` ranges of about equal size."""
    return sorted({pages * part // parts for part in range(parts)})
