"""Derive findings about the streams of the running Synapse, the replication tap and overdue releases. Pure."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.watch.observe_stream import StreamObservation, find_regression


def check_streams(
    observations: Collection[tuple[Stream, StreamObservation]], configured: Mapping[str, Collection[str]]
) -> list[AlertFinding]:
    """Return findings about observed streams: vanished writers and regressions.

    A vanished writer is a finding only if the configuration names it.

    :param configured: the configured writers, by stream.
    """
    findings = []
    for stream, observation in observations:
        subject = f"stream {stream.name}"
        writers = configured.get(observation.stream, ())
        if vanished := [writer for writer in observation.vanished_writers if writer in writers]:
            description = f"the position of {', '.join(vanished)} vanished, so the stream has no safe bound"
            findings.append(AlertFinding(IncidentKind.WRITER_VANISHED, subject, description))
        if fault := find_regression(stream, observation):
            description = f"{fault.message} Stop all processes of Synapse, then review and run this SQL: {fault.repair}"
            findings.append(AlertFinding(IncidentKind.POSITION_WENT_BACK, subject, description))
    return findings


def check_tap(landed: datetime | None, limit: timedelta, now: datetime) -> list[AlertFinding]:
    """Return a finding if the replication tap has not listened for longer than ``limit``; none if ``limit`` is 0.

    :param landed: time at which the tap last listened; None if no tap was ever used.
    """
    if landed is None or not limit or now - landed <= limit:
        return []
    minutes, allowed = (time / timedelta(minutes=1) for time in (now - landed, limit))
    description = f"the tap has not listened for {minutes:,.0f} minutes (limit: {allowed:,.0f} minutes)"
    return [AlertFinding(IncidentKind.TAP_SILENT, "the replication tap", description)]


def check_releases(
    latest: datetime | None, created_at: datetime, overdue: timedelta, now: datetime
) -> list[AlertFinding]:
    """Return a finding if the latest release is older than ``overdue``.

    :param latest: time of the latest release; None before the first release. Then the age of the lake counts.
    :param created_at: time at which the lake was created.
    """
    since = now - (latest or created_at)
    if since <= overdue:
        return []
    hours, allowed = (f"{time / timedelta(hours=1):,.0f}" for time in (since, overdue))
    subject = "the latest release is" if latest else "there is no release yet, and the lake is"
    description = f"{subject} {hours} hours old (limit: {allowed} hours)"
    return [AlertFinding(IncidentKind.RELEASE_OVERDUE, "the lake", description)]
