"""How others read a table: the lakehouse's own SELECT, cut by pages into one part a connection; or bare columns."""

import psycopg
from psycopg import sql

from bench import lakes
from synapse_lakehouse import parquet_writer
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.rows.select_sql import build_select

PARTS = 4
COMPRESSION_LEVEL = parquet_writer.COMPRESSION_LEVEL


def statements(settings: Settings, table: str) -> list[str]:
    """SELECTs that together give every row of ``table`` once."""
    declared = lakes.declared(table).table(table)
    with psycopg.connect(str(settings.synapse_dsn)) as connection:
        row = connection.execute("select pg_relation_size(to_regclass(%s)) / 8192", [table]).fetchone()
    assert row is not None
    ends = cuts(int(row[0]), PARTS)
    return [build_select(declared, pages).as_string() for pages in zip(ends, [*ends[1:], None], strict=True)]


def bare(table: str) -> str:
    """SELECT of the columns that the lakehouse reads of ``table``, as they are stored, without its projections."""
    declared = lakes.declared(table).table(table)
    columns = dict.fromkeys(name for column in declared.columns for name in column.source_columns)
    return (
        sql.SQL("select {} from {}")
        .format(sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table))
        .as_string()
    )


def cuts(pages: int, parts: int) -> list[int]:
    """First pages of at most ``parts`` parts of about equal size."""
    return sorted({pages * part // parts for part in range(parts)})
