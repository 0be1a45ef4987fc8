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
"""A report begins an incident if it is not older, so that a stop of the watch over night loses none."""


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
    settings: Settings, catalog: Catalog, releases: Sequence[Release]
) -> tuple[list[StreamObservation], list[AlertFinding]]:
    """Observe the source's streams, append to ``audit.stream_watch``, and return observations and findings.

    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy to be observed.
    :raises StreamWritersError: when the configured writers are invalid.
    """
    declared = catalogue.load_catalogue()
    writers = read_configured_writers(declared, settings.lakehouse_stream_writers, settings.synapse_config)
    before = observation_log.read_latest(catalog)
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


def check_reports(settings: Settings) -> list[AlertFinding]:
    """Return a finding with IDs for each report of the last two days. The incident log recognizes earlier ones.

    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy.
    """
    return [
        AlertFinding(
            IncidentKind.NEW_REPORT,
            f"{report.kind} report {report.id}",
            f"{report.reporter_id} reported the {report.kind} {report.reported_id}",
        )
        for report in read_recent_reports(settings, catalogue.load_catalogue(), datetime.now(UTC) - _REPORT_AGE)
    ]


def _read_released_progress(
    catalog: Catalog, latest: Release, since: Mapping[str, datetime]
) -> dict[str, StreamProgress]:
    """The progress in the ``latest`` release, by stream, if it is newer than the last observation (``since``)."""
    if since and min(since.values()) >= latest.published_at:
        return {}
    return {
        row["stream"]: StreamProgress.from_row(row)
        for row in store.read_release_rows(catalog, "audit.stream_positions", latest)
        if row["stream"] not in since or since[row["stream"]] < latest.published_at
    }
