"""Digest rows of the lake for the comparison with the source."""

from collections.abc import Iterable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.postgres.rows.range_digest import RowDigest, hash_sum_spark_sql


def digest_hashes(hashed: Iterable[DataFrame]) -> dict[tuple[int, Any], RowDigest]:
    """Return the digest of each unit and range, with one query, because most units are small.

    :param hashed: rows with the columns unit (number), range (name or number) and hash (MD5 as text).
    """
    if not (frames := list(hashed)):
        return {}
    sums = (f.expr(hash_sum_spark_sql(number)) for number in (0, 1))
    digested = reduce(DataFrame.unionAll, frames).groupBy("unit", "range").agg(f.count(f.lit(1)), *sums)
    return {(unit, name): RowDigest(*map(int, digest)) for unit, name, *digest in digested.collect()}
