"""The recorded faults of indexes: rows of ``silver.index_faults``."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.spark_app import SparkApp

FAULTS_TABLE: Final = "silver.index_faults"


def count_recorded_faults(catalog: Catalog) -> Counter[tuple[str, int]]:
    """Return the number of published faults, by index and filenode."""
    recorded = catalog.load_table(FAULTS_TABLE).scan(selected_fields=("index_name", "filenode")).to_arrow()
    return Counter((row["index_name"], row["filenode"]) for row in recorded.to_pylist())


def store_faults(
    spark: SparkSession,
    app: SparkApp,
    checks: Sequence[Mapping[str, Any]],
    unread: Collection[str],
    faults: Sequence[Mapping[str, Any]],
) -> None:
    """Replace the recorded faults by the ``faults`` of this run, and by earlier faults that may still exist.

    An earlier fault may still exist until a later pass through its index is complete, or the index is rebuilt.

    :param checks: rows of ``audit.index_checks`` of all indexes of the copied tables.
    :param unread: tables whose indexes are unknown, because the run did not copy them. Their faults stay.
    :param faults: rows of ``silver.index_faults``.
    """
    table = app.catalog.load_table(FAULTS_TABLE)
    # The faults of a pass stay until the next pass is complete. An index that cannot be compared has no pass, so all of
    # its faults stay.
    oldest = {(row["index_name"], row["filenode"]): row.get("pass", 1) - 1 for row in checks}
    earlier = [
        row
        for row in table.scan().to_arrow().to_pylist()
        if row["table_name"] in unread
        or row["pass"] >= oldest.get((row["index_name"], row["filenode"]), row["pass"] + 1)
    ]
    rows = {(row["index_name"], row["kind"], row["key"]): row for row in (*earlier, *faults)}
    content = [rows[key] for key in sorted(rows)]
    fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    schema = spark.table(FAULTS_TABLE).schema
    frame = spark.createDataFrame([tuple(row[name] for name in schema.names) for row in content], schema)
    input_fingerprint.replace_table(spark, FAULTS_TABLE, app.run.branch, frame, fingerprint)
