"""Check the lake, observe the streams of the running Synapse, record the observations, and return findings."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse import catalogue
from synapse_lakehouse.alerts import live_findings
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.audit import releases as audit_releases
from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.live_stream_positions import read_live_positions
from synapse_lakehouse.postgres.recent_reports import read_recent_reports
from synapse_lakehouse.replication import tap_liveness
from synapse_lakehouse.streams.checks.sequences import StreamProgress
from synapse_lakehouse.streams.positions.configured_writers import read_configured_writers
from synapse_lakehouse.streams.watch import observation_log
from synapse_lakehouse.streams.watch.observe_stream import StreamObservation, find_bound_and_closed_end, observe_stream

_REPORT_AGE: Final = timedelta(days=2)
"""Maximum age of reports that a check reads, counted from the previous check. The incident of an older report ends."""


def check_lake(
    settings: Settings, catalog: Catalog, releases: Sequence[Release]
) -> tuple[datetime | None, list[AlertFinding]]:
    """Return findings about the lake, and the time at which the replication tap last listened (None without a tap)."""
    now = datetime.now(UTC)
    latest = max((release.published_at for release in releases), default=None)
    # For an empty table, the time of the last update is the time of its creation.
    created_at = datetime.fromtimestamp(
        catalog.load_table(audit_releases.RELEASES_TABLE).metadata.last_updated_ms / 1000, UTC
    )
    overdue = settings.overdue_after(now)
    landed, silent = tap_liveness.read_last_commit_time(catalog), timedelta(minutes=settings.lakehouse_tap_minutes)
    return landed, [
        *live_findings.check_releases(latest, created_at, overdue, now),
        *live_findings.check_tap(landed, silent, now),
    ]


def observe_streams(
    settings: Settings, catalog: Catalog, releases: Sequence[Release], before: Mapping[str, StreamObservation]
) -> tuple[list[StreamObservation], list[AlertFinding]]:
    """Observe the source's streams, append the observations to ``audit.stream_watch``, and return them with findings.

    :param before: the latest observation of each stream.
    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy to be observed.
    :raises StreamWritersError: when the configured writers are invalid.
    """
    declared = catalogue.load_catalogue()
    writers = read_configured_writers(declared, settings.lakehouse_stream_writers, settings.synapse_config)
    since = {name: observation.watched_at for name, observation in before.items()}
    released = _read_released_progress(catalog, releases[-1], since) if releases else {}

    def end(stream: Stream, positions: Mapping[str, int], last_allocated_id: int) -> int | None:
        return find_bound_and_closed_end(
            stream, positions, last_allocated_id, writers.get(stream.name), before.get(stream.name)
        )[1]

    live, now = read_live_positions(settings, declared, end), datetime.now(UTC)
    streams = [stream for stream in declared.streams if stream.name in live]
    observations = [
        observe_stream(
            stream, live_end.positions, live_end.last_allocated_id, live_end.ids_beyond_end, writers.get(stream.name),
            before.get(stream.name), now,
            released.get(stream.name),
        )
        for stream, live_end in ((stream, live[stream.name]) for stream in streams)
    ]  # fmt: skip
    observation_log.append_observations(catalog, observations)
    return observations, live_findings.check_streams(list(zip(streams, observations, strict=True)), writers)


def check_reports(settings: Settings, last_look: datetime | None) -> list[AlertFinding]:
    """Return a finding for each report since two days before ``last_look``.

    The incident log already contains incidents of earlier reports, so these reports cause no second message. If there
    are more reports of a kind than are read, one more finding has their number.

    :param last_look: time of the previous check; None at the first check.
    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy.
    """
    findings = []
    since = (last_look or datetime.now(UTC)) - _REPORT_AGE
    for recent in read_recent_reports(settings, catalogue.load_catalogue(), since):
        findings += [
            AlertFinding(
                IncidentKind.NEW_REPORT,
                f"{recent.kind} report {report.id}",
                "a user sent a report",
                details=f"{report.reporter_id} reported the {recent.kind} {report.reported_id}",
            )
            for report in recent.reports
        ]
        if recent.count > len(recent.reports):
            description = f"{recent.count:,} reports are new; only the newest {len(recent.reports)} have alerts"
            findings.append(AlertFinding(IncidentKind.NEW_REPORT, f"{recent.kind} reports", description))
    return findings


def _read_released_progress(
    catalog: Catalog, latest: Release, since: Mapping[str, datetime]
) -> dict[str, StreamProgress]:
    """Return the streams' progress in the ``latest`` release, without streams that were observed after its publication.

    :param since: time of the last observation, by stream.
    """
    if since and min(since.values()) >= latest.published_at:
        return {}
    return {
        row["stream"]: StreamProgress.from_row(row)
        for row in store.read_release_rows(catalog, "audit.stream_positions", latest)
        if row["stream"] not in since or since[row["stream"]] < latest.published_at
    }
