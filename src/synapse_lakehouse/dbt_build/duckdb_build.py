"""Rows of a large model, made by DuckDB of what was found.

It carries out dbt's own SQL of the model, which has to be such that DuckDB takes it for the same as Spark. Of few rows
Spark plans for seconds what DuckDB does in tenths of one.
"""

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.sql_text import find_table_names

_MACRO: Final = "create macro try_add(one, other) as try(one + other)"
_OF_WHAT_WAS_FOUND: Final = re.compile(r"select \* from (\S+) /\* of what was found \*/")
"""As ``each_row_of`` writes it (``dbt/macros/increments.sql``)."""


def made(settings: Settings, branch: str, sql: str, found: Mapping[str, pa.Table]) -> pa.Table:
    """Rows of the model with ``sql``, as a reader on ``branch`` finds what it reads beside what was found.

    :param found: ``read_<table>``, rows to read instead of a whole table; with ``replaced``, keys of the rows to make.
    :raises LakeReadError: when the lake cannot be read.
    :raises ValueError: when the model reads a table of which nothing was found.
    """

    def read(relation: re.Match[str]) -> str:
        table = relation[1].rpartition(".")[2].strip("`")
        if (name := f"read_{table}") not in found:
            raise ValueError(f"nothing was found of {table}: see modelling/concerned")
        return f"select * from {name}"  # noqa: S608

    asked = _OF_WHAT_WAS_FOUND.sub(read, sql)
    with duckdb_reader.open_branch(settings, branch, sorted(find_table_names(asked))) as lake:
        lake.execute(_MACRO)
        for name, rows in found.items():
            lake.register(name, rows)
        if "replaced" in found:
            asked = f"from ({asked}\n) semi join replaced using ({', '.join(found['replaced'].column_names)})"
        rows_made: pa.Table = lake.execute(asked).to_arrow_table()
        return rows_made
