"""Random changes of rows in Synapse's database."""

import random

from psycopg import sql

from synapse_lakehouse import catalogue
from tests.support.incremental_lake import IncrementalLake, Source


def run_random_history(lake: IncrementalLake, source: Source, names: list[str], runs: int) -> None:
    """Change, delete and restore random rows before each of several runs; require a lake that equals the source."""
    chance = random.Random(20261121)
    source.execute("select setseed(0.20261121)")
    tables = [catalogue.load_catalogue().table(name) for name in names]
    for table in tables:
        source.execute(sql.SQL("create table {} as table {} with no data").format(*_stash_and_table(table.name)))
    for _ in range(runs):
        for table in tables:
            stash, name = _stash_and_table(table.name)
            share = chance.choice([0.0, 0.02, 0.2, 0.9])
            source.execute(
                sql.SQL(
                    "insert into {} overriding system value select * from {} where random() < 0.5"
                    " on conflict do nothing"
                ).format(name, stash)
            )
            source.execute(sql.SQL("truncate {}").format(stash))
            source.execute(
                sql.SQL(
                    "with gone as (delete from {} where random() < {} returning *) insert into {} table gone"
                ).format(name, sql.Literal(share / 3), stash)
            )
            changeable = (
                {column.source_columns[0] for column in table.columns}
                - _unique_columns(source, table.name)
                - {*table.primary_key}
            )
            column = chance.choice(sorted(changeable) or [""])
            if column:
                source.execute(
                    sql.SQL(
                        "update {t} set {c} = coalesce((select {c} from {t} offset 1 limit 1), {c})"
                        " where random() < {s}"
                    ).format(t=name, c=sql.Identifier(column), s=sql.Literal(share))
                )
        lake.advance()
        assert lake.compare_with_source() == {}


def _stash_and_table(table: str) -> tuple[sql.Identifier, sql.Identifier]:
    return sql.Identifier(f"stash_{table}"), sql.Identifier(table)


def _unique_columns(source: Source, table: str) -> set[object]:
    return {
        name
        for (name,) in source.execute(
            "select attname::text from pg_index"
            " join pg_attribute on attrelid = indrelid and attnum = any(indkey::int2[])"
            " where indrelid = to_regclass(%s) and indisunique",
            [table],
        )
    }
