"""Tables that are made anew as a whole, but only when what they are made of changed.

Each snapshot says what it was made of, as the dbt materialization ``rebuild`` has it too (``dbt/macros/rebuild.sql``).
"""

import hashlib
from typing import Final

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.lake.tables import load_or_none

_PROPERTY: Final = "made-of"


def ingredients(catalog: Catalog, branch: str, tables: list[str], version: str) -> str:
    """What a table is made of: the rows of ``tables`` as ``branch`` has them, and the ``version`` of the rules."""
    made = [version, *(str(made_of(catalog, name, branch)) for name in tables)]
    return hashlib.sha256(" ".join(made).encode()).hexdigest()


def made_of(catalog: Catalog, name: str, branch: str) -> str | None:
    """What the rows of a table were made of, as a reader on ``branch`` finds them; its snapshot, where none says."""
    table = load_or_none(catalog, name)
    refs = table.refs() if table else {}
    ref = refs.get(branch) or refs.get("main")
    snapshot = table.snapshot_by_id(ref.snapshot_id) if table and ref else None
    if snapshot is None:
        return None
    return (snapshot.summary.get(_PROPERTY) if snapshot.summary else None) or str(snapshot.snapshot_id)


def replace(spark: SparkSession, name: str, rows: DataFrame, made_now: str) -> None:
    """Replace the whole content of a table by ``rows``, as one commit on the session's branch."""
    rows.createOrReplaceTempView("remade")
    spark.sql(f"""
        insert into {name} with (`snapshot-property.{_PROPERTY}` = '{made_now}') replace where true
        select {", ".join(spark.table(name).columns)} from remade
    """)  # noqa: S608
