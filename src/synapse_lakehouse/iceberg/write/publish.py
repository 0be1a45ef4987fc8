"""Publish a run: fast-forward main of every table to the run's branch, then append a row to ``audit.releases``."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import RELEASES_TABLE, Release, ReleaseError, compute_accepted_bounds
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write.branches import load_run_tables
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)
_STAGES = ("bronze", "gold")
_PARALLEL_TABLES = 4


def publish_branch(
    spark: SparkSession, catalog: Catalog, run: Run, server_name: str, require_lease: Callable[[], None]
) -> Release:
    """Move main of every table to the run's branch, tag the interval, drop the branch, then write the release.

    A second call after a crash resumes where the first one stopped.

    :param require_lease: function that raises if the run lost the lake lease. The new holder may have dropped the
        run's branch, so that the tables would look unchanged.
    :raises ReleaseError: when the run was not validated, a check failed, or bronze changed after its validation.
    """
    passed, warned = require_audits_passed(catalog, run)
    require_lease()
    branched = list(load_run_tables(catalog))
    require_unchanged_bronze(catalog, run, branched)
    names = [".".join(table.name()) for table in branched]
    with ThreadPoolExecutor(_PARALLEL_TABLES) as pool:
        heads = list(pool.map(lambda name: fast_forward_main(spark, name, run.branch, run.tag), names))
    tables = {name: head for name, head in zip(names, heads, strict=True) if head is not None}
    positions = {
        row["stream"]: row["safe_bound"] for row in store.read_run_rows(catalog, "audit.stream_positions", run.run_id)
    }
    latest = store.read_latest_release(catalog)
    views = {row["view_name"]: row["sql"] for row in store.read_run_rows(catalog, "audit.views", run.run_id)}
    create_views(spark, {name: sql for name, sql in views.items() if not latest or latest.views.get(name) != sql})
    snapshots = store.read_run_rows(catalog, "audit.snapshots", run.run_id)
    now = datetime.now(UTC)
    release = Release(
        number=latest.number + 1 if latest else 1,
        run_id=run.run_id,
        interval_start=run.start,
        interval_end=run.end,
        branch=run.branch,
        tag=run.tag,
        server_name=server_name,
        tables=tables,
        positions=compute_accepted_bounds(latest, positions),
        views=views,
        checks_passed=passed,
        checks_warned=warned,
        published_at=now,
        partial=sorted(name for snapshot in snapshots for name, _ in snapshot["drifted_tables"] or ()),
        accepted_at=now,
    )
    require_lease()
    append_release(catalog, release)
    return release


def create_views(spark: SparkSession, views: Mapping[str, str]) -> None:
    """Create or replace ``views`` (SQL by name) in the catalog, unless the catalog is a REST catalog without views.

    The command ``lakehouse`` reads the SQL of views from the release.
    """
    try:
        for name, sql in views.items():
            spark.sql(f"create or replace view {name} as {sql}")
    except UnsupportedOperationException:
        log.warning("The REST catalog does not support views, so only `lakehouse query` can read %s", [*views])


def append_release(catalog: Catalog, release: Release) -> None:
    """Append the row that publishes ``release``."""
    maps = {name: sorted(getattr(release, name).items()) for name in ("tables", "positions", "views")}
    store.append_audit_rows(catalog, RELEASES_TABLE, [vars(release) | maps | {"release": release.number}])


def require_audits_passed(catalog: Catalog, run: Run) -> tuple[int, int]:
    """Require that no check blocks publishing; return how many checks passed and how many warned.

    :raises ReleaseError: when a stage was not validated, or a check that blocks publishing failed.
    """
    checks = store.read_run_checks(catalog, run.run_id)
    if missing := [stage for stage in _STAGES if not any(check["stage"] == stage for check in checks)]:
        raise ReleaseError(f"Nothing is published: run {run.run_id} did not validate {' and '.join(missing)}.")
    failed = [check for check in checks if not check["success"]]
    if blocking := [check for check in failed if check["severity"] == "fail"]:
        raise ReleaseError(
            f"Nothing is published: {len(blocking)} checks of run {run.run_id} failed, the first on "
            f"{blocking[0]['subject']} ({blocking[0]['expectation']}). Readers see the previous release."
        )
    return len(checks) - len(failed), len(failed)


def require_unchanged_bronze(catalog: Catalog, run: Run, branched: Iterable[Table]) -> None:
    """Check that no process changed bronze after its validation.

    A drifted table was not copied and has no branch. If an earlier try moved a table's main, main is at the snapshot
    that was validated.

    :raises ReleaseError: when the run's branch of a table is not at the snapshot that ``audit.table_facts`` names.
    """
    facts = store.read_run_rows(catalog, "audit.table_facts", run.run_id)
    measured = {f"bronze.{row['table_name']}": row["snapshot_id"] for row in facts}
    for table in branched:
        name, refs = ".".join(table.name()), table.refs()
        ref = refs.get(run.branch) or refs.get("main")
        head = ref.snapshot_id if ref else None
        if name.startswith("bronze.") and (run.branch in refs or measured.get(name)) and head != measured.get(name):
            raise ReleaseError(
                f"Nothing is published: another process changed {name} after run {run.run_id} validated it. The "
                f"validated Iceberg snapshot is {measured.get(name)}, the present one is {head}. Clear the whole run, "
                "so that it copies and validates again. Readers see the previous release."
            )


def fast_forward_main(spark: SparkSession, name: str, branch: str, tag: str) -> int | None:
    """Move main of a table to ``branch`` (if present), tag main, drop the branch; return the snapshot ID of main."""
    table = load_iceberg_table(spark, name)
    refs = table.refs()
    if refs.containsKey(branch):
        head = refs.get(branch).snapshotId()
        change = table.manageSnapshots().fastForwardBranch("main", branch)
        change = change.replaceTag(tag, head) if refs.containsKey(tag) else change.createTag(tag, head)
        change.removeBranch(branch).commit()
        table.refresh()
    current = table.currentSnapshot()
    return None if current is None else int(current.snapshotId())
