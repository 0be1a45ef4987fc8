"""Tables that the source's release of Synapse lacks: they are empty in the lake."""

from datetime import UTC, datetime
from typing import Any, Final

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.write.commits import describe_snapshot, replace_content, set_or_remove_branch
from synapse_lakehouse.ingest.read_plan import ReadExtent
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession
from synapse_lakehouse.ingest.table_copy import hash_parts

_ROWS: Final = "total-records"


def clear_absent_table(session: SnapshotSession, table: Table) -> dict[str, Any]:
    """Delete all rows of ``table`` on the run's branch, unless main has none; return the row of ``audit.ledger``."""
    app, name = session.app, f"bronze.{table.name}"
    set_or_remove_branch(app.spark, name, app.run.branch, None)
    lake = app.catalog.load_table(name)
    main = lake.current_snapshot()
    rows = int(main.summary.additional_properties.get(_ROWS) or 0) if main and main.summary else 0
    if main and not rows:
        commit = describe_snapshot(lake, main.snapshot_id)
    else:
        commit = replace_content(app.spark, name, app.run.branch, [], {"lakehouse.run": app.run.run_id})
    counts = dict.fromkeys(("rows_source", "rows_read", "rows_written", "rows_replaced", "heap_pages", "seconds"), 0)
    return {
        "branch": app.run.branch,
        "table_name": table.name,
        "load": table.load.value,
        "extent": ReadExtent.ABSENT.value,
        "statement": None,
        **counts,
        **hash_parts([]),
        "ranges": [],
        "rows_deleted": rows,
        "files": commit.files,
        "bytes": commit.bytes,
        "snapshot_id": commit.snapshot_id,
        "written_at": datetime.now(UTC),
    }
