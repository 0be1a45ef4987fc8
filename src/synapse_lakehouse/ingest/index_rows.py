"""Rows of the copy that an index must contain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.ingest.index_progress import IndexProgress
from synapse_lakehouse.ingest.lake_digests import digest_hashes
from synapse_lakehouse.postgres.indexes.entry_digest import GROUP_DIGITS, choose_groups
from synapse_lakehouse.postgres.indexes.index_faults import Row
from synapse_lakehouse.postgres.indexes.key_range import KeyRange, build_spark_condition, to_spark_predicate
from synapse_lakehouse.postgres.indexes.range_scan import ScannedRange
from synapse_lakehouse.postgres.rows.range_digest import (
    DigestsByRange,
    RowDigest,
    find_differing_ranges,
    row_hash_spark_sql,
)

MAX_EXAMINED: Final = 100_000
"""Maximum number of an index's entries, or of its copied rows, that a run compares one by one.

A run that has found so many faults compares the entries of no further index one by one.
"""


@dataclass
class ExaminedRanges:
    """Ranges of an index whose entries a run compares one by one with the copied ``rows``; ``remaining``: other ranges.

    * ``is_indivisible``: the only range has too many rows or entries. So only groups of hashes that differ are read.
    * ``groups``: names of these groups.
    """

    ranges: list[ScannedRange] = field(default_factory=list)
    remaining: list[ScannedRange] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    is_indivisible: bool = False
    groups: list[str] | None = None


def digest_lake(spark: SparkSession, scanned: Sequence[IndexProgress]) -> dict[tuple[int, int], RowDigest]:
    """Return the copy's digests of all ranges of the ``scanned`` indexes.

    The keys are pairs: the number of the index in ``scanned``, and the number of the range.
    """
    return digest_hashes(_hash_rows(spark, number, unit) for number, unit in enumerate(scanned))


def read_examined(
    spark: SparkSession, unit: IndexProgress, differing: Sequence[tuple[ScannedRange, int]]
) -> ExaminedRanges:
    """Return the first ranges that together have at most ``MAX_EXAMINED`` entries or copied rows.

    If the first range alone has more rows, it is divided at a key of the copy. If no key can divide it, or if it has
    more than ``MAX_EXAMINED`` entries, its rows are not read.

    :param differing: ranges that differ, each with its number of entries or of copied rows, whichever is larger.
    """
    fitting = sum(total <= MAX_EXAMINED for total in accumulate(rows for _, rows in differing))
    parts = [part for part, _ in differing]
    examined = ExaminedRanges(parts[: fitting or 1], parts[fitting or 1 :])
    if ranges := [part.keys for part in examined.ranges if not part.error]:
        rows = _select_rows(spark, unit, ranges)
        if fitting:
            examined.rows = _collect(unit, rows)
        else:
            in_order = rows.orderBy(*(f.asc_nulls_last(name) for name in unit.index.columns))
            first_rows = _collect(unit, in_order.limit(MAX_EXAMINED + 1))
            end = _find_end(first_rows, len(unit.index.columns))
            if end and examined.ranges[0].digest.rows <= MAX_EXAMINED:
                return _divide(examined, end, first_rows)
            examined.is_indivisible = True
    return examined


def read_groups(spark: SparkSession, unit: IndexProgress, examined: ExaminedRanges, entries: DigestsByRange) -> bool:
    """Read the copied rows of the first groups that differ; return whether these are all differing groups.

    Together, the groups have at most ``MAX_EXAMINED`` entries and rows, unless one group alone has more.

    :param entries: the digests of the index's entries by group.
    """
    rows = _select_rows(spark, unit, [part.keys for part in examined.ranges])
    row_hash = f.expr(_build_hash_sql(unit))
    group = f.substring(row_hash, 1, GROUP_DIGITS)
    digests = digest_hashes([rows.select(f.lit(0).alias("unit"), group.alias("range"), row_hash.alias("hash"))])
    copied = {name: digest for (_, name), digest in digests.items()}
    differing = find_differing_ranges(entries, copied)
    examined.groups = choose_groups(differing, entries, copied, MAX_EXAMINED)
    examined.rows = _collect(unit, rows.where(group.isin(examined.groups)))
    return len(examined.groups) == len(differing)


def _collect(unit: IndexProgress, rows: DataFrame) -> list[Row]:
    return [tuple(row) for row in rows.select(*(f"`{name}`" for name in _list_names(unit))).collect()]


def _find_end(rows: Sequence[Row], columns: int) -> Row | None:
    """Return the last key of ``rows`` that can end a range: it has no NULL and is not the first key."""
    if len(rows) <= MAX_EXAMINED:
        return None
    keys = (row[:columns] for row in reversed(rows))
    return next((key for key in keys if None not in key and key != rows[0][:columns]), None)


def _divide(examined: ExaminedRanges, end: Row, rows: Sequence[Row]) -> ExaminedRanges:
    (part,) = examined.ranges
    first, rest = (replace(part, keys=keys) for keys in (KeyRange(part.keys.first, end), KeyRange(end, part.keys.end)))
    return ExaminedRanges([first], [rest, *examined.remaining], [row for row in rows if row[: len(end)] in first.keys])


def _hash_rows(spark: SparkSession, number: int, unit: IndexProgress) -> DataFrame:
    places = [
        f"when {build_spark_condition(unit.index, KeyRange(None, part.keys.end))} then {place}"
        for place, part in enumerate(unit.ranges)
    ]
    return _select_rows(spark, unit, [part.keys for part in unit.ranges]).select(
        f.lit(number).alias("unit"),
        f.expr(f"case {' '.join(places)} end").alias("range"),
        f.expr(_build_hash_sql(unit)).alias("hash"),
    )


def _build_hash_sql(unit: IndexProgress) -> str:
    columns = tuple(map(unit.table.column, _list_names(unit)))
    return row_hash_spark_sql(unit.table.model_copy(update={"columns": columns}))


def _list_names(unit: IndexProgress) -> list[str]:
    return [*unit.index.columns, *unit.identifying_columns]


def _select_rows(spark: SparkSession, unit: IndexProgress, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return the copied rows that the index must contain in ``ranges``, with all columns of the bronze table."""
    condition = " or ".join(f"({build_spark_condition(unit.index, part)})" for part in _join_neighbours(ranges))
    return spark.table(f"bronze.{unit.table.name}").where(f"({to_spark_predicate(unit.index)}) and ({condition})")


def _join_neighbours(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    joined: list[KeyRange] = []
    for part in ranges:
        if joined and joined[-1].end is not None and joined[-1].end == part.first:
            joined[-1] = KeyRange(joined[-1].first, part.end)
        else:
            joined.append(part)
    return joined
