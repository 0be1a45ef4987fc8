"""Check the lake: catalog, releases, remaining branches, lease and replication tap."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit import releases
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor import release_integrity, sequences, upgrade
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.cli.state.lost_rows import list_readable_releases
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader, run_branches
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.replication import tap_liveness
from synapse_lakehouse.report.overall_status import advise_run
from synapse_lakehouse.streams.checks.sequences import StreamProgress


def examine(
    settings: Settings, declared: Catalogue | None, progress: Mapping[str, StreamProgress], *, deep: bool = False
) -> Findings:
    """Check that the lake is readable, that no branches remain, and that the source is not behind the latest release.

    :param progress: present progress of the source's streams.
    :param deep: also return integrity faults of the source.
    """
    try:
        entries = list_catalog_entries(settings)
        if not entries:
            yield DoctorFinding(
                FindingLevel.WARN, "lake", "The catalog has no tables yet.", advise_run(settings.lakehouse_homeserver)
            )
            return
        yield DoctorFinding(FindingLevel.OK, "lake", f"{len(entries)} tables and views in the catalog")
        with duckdb_reader.open_duckdb(settings) as connection:
            duckdb_reader.require_current_format(connection, settings)
            yield from _releases(connection, settings)
            if declared:
                yield from sequences.compare_with_release(connection, settings, declared, progress)
            yield from upgrade.examine_history(connection, settings)
            yield from _branches(connection, settings)
            yield from _tap(connection, settings)
            if deep:
                yield from release_integrity.examine(connection, settings)
    except LakeReadError as error:
        yield DoctorFinding(FindingLevel.FAIL, "lake", str(error))


def _releases(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    all_releases = duckdb_reader.list_releases(connection, settings)
    if not all_releases:
        yield DoctorFinding(
            FindingLevel.WARN, "releases", "There is no release yet.", advise_run(settings.lakehouse_homeserver)
        )
        return
    latest = all_releases[0]
    days = (datetime.now(UTC) - latest.published_at).total_seconds() / 86400
    message = f"{len(all_releases)}, the latest is {latest.number}, published {days:.1f} days ago"
    if readable := list_readable_releases(connection, settings):
        since = output.format_time(readable[-1].published_at.replace(microsecond=0))
        message += f"; lost state can be restored from release {readable[-1].number} ({since}) on"
    yield DoctorFinding(FindingLevel.OK, "releases", message)
    if problem := releases.describe_server_mismatch(latest, settings.synapse_server_name or sample.read_server_name()):
        yield DoctorFinding(FindingLevel.FAIL, "homeserver", problem)


def _tap(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    committed_at = tap_liveness.read_last_commit_time_by_duckdb(connection, settings)
    if committed_at is None:
        return
    age = datetime.now(UTC) - committed_at
    message = f"the tap last listened {age.total_seconds() / 60:,.0f} minutes ago"
    if settings.lakehouse_tap_minutes and age > timedelta(minutes=settings.lakehouse_tap_minutes):
        advice = "Start the tap with `lakehouse replicate tap`, or set LAKEHOUSE_TAP_MINUTES=0 if you do not use a tap."
        yield DoctorFinding(FindingLevel.WARN, "replication tap", message, advice)
    else:
        yield DoctorFinding(FindingLevel.OK, "replication tap", message)


def _branches(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    lease = run_branches.read_lease_holder(connection, settings)
    active = lease.branch if lease and datetime.now(UTC) < lease.until else None
    names = [branch.name for branch in run_branches.list_branches(connection, settings)]
    if remaining := [name for name in names if name != active]:
        message = f"{len(remaining)} branches of unpublished runs remain: {', '.join(remaining)}."
        advice = f"When you no longer need them, drop them: uv run lakehouse branches drop {' '.join(remaining)}"
        yield DoctorFinding(FindingLevel.WARN, "branches", message, advice)
    else:
        yield DoctorFinding(FindingLevel.OK, "branches", "no branches of failed runs remain")
    if lease is None:
        yield DoctorFinding(FindingLevel.OK, "lease", "free")
        return
    until = output.format_time(lease.until.replace(microsecond=0))
    if active:
        message = f"run {lease.holder} is active; its lease expires at {until} unless it is renewed"
        yield DoctorFinding(FindingLevel.OK, "lease", message)
    else:
        message = f"The lease of run {lease.holder} expired at {until} without a renewal: the run probably crashed."
        yield DoctorFinding(
            FindingLevel.WARN, "lease", message, "The next run acquires the lease. Check the log of the crashed run."
        )
