"""Rules: findings about the streams of the running Synapse, the replication tap and overdue releases. Pure."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.watch.observation import StreamObservation, find_regression


def check_streams(
    looks: Collection[tuple[Stream, StreamObservation]], configured: Mapping[str, Collection[str]]
) -> list[AlertFinding]:
    """Findings about the observed streams: vanished writers and regressions.

    A writer without a position is a finding only if the configuration names it.

    :param configured: writers by stream, where they are known.
    """
    found = []
    for stream, one in looks:
        subject = f"stream {stream.name}"
        if gone := [writer for writer in one.vanished_writers if writer in configured.get(one.stream, ())]:
            description = f"{', '.join(gone)} had a position and has none: what it is writing now cannot be bounded"
            found.append(AlertFinding(IncidentKind.WRITER_VANISHED, subject, description))
        if fault := find_regression(stream, one):
            description = f"{fault.message} To be reviewed, and run with all of Synapse stopped: {fault.repair}"
            found.append(AlertFinding(IncidentKind.POSITION_WENT_BACK, subject, description))
    return found


def check_tap(landed: datetime | None, limit: timedelta, now: datetime) -> list[AlertFinding]:
    """A finding if the replication tap has been silent for longer than ``limit``; with limit 0 there is none.

    :param landed: time at which the tap last listened; None if no tap was ever used.
    """
    if landed is None or not limit or now - landed <= limit:
        return []
    minutes, allowed = ((one / timedelta(minutes=1)) for one in (now - landed, limit))
    description = f"it has not listened for {minutes:,.0f} minutes, {allowed:,.0f} are allowed"
    return [AlertFinding(IncidentKind.TAP_SILENT, "the replication tap", description)]


def check_releases(latest: datetime | None, made: datetime, overdue: timedelta, now: datetime) -> list[AlertFinding]:
    """A finding if the latest release is older than ``overdue``.

    :param latest: time of the latest release; None before the first one: then the age of the lake counts.
    :param made: time at which the lake was created.
    """
    since = now - (latest or made)
    if since <= overdue:
        return []
    hours, allowed = (f"{one / timedelta(hours=1):,.0f}" for one in (since, overdue))
    what = "the latest release is" if latest else "there is no release yet, and the lake is"
    description = f"{what} {hours} hours old, {allowed} are allowed"
    return [AlertFinding(IncidentKind.RELEASE_OVERDUE, "the lake", description)]
