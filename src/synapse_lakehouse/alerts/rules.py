"""What is wrong with the running Synapse's streams, or with the lake that should have followed them. Pure."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.watch.observation import StreamObservation, find_regression


def check_streams(
    looks: Collection[tuple[Stream, StreamObservation]], configured: Mapping[str, Collection[str]]
) -> list[AlertFinding]:
    """What is wrong with the streams that were looked at.

    A writer that has no position any more is only missed where the configuration says that it writes.

    :param configured: writers by stream, where they are known.
    """
    found = []
    for stream, one in looks:
        subject = f"stream {stream.name}"
        if gone := [writer for writer in one.vanished if writer in configured.get(one.stream, ())]:
            said = f"{', '.join(gone)} had a position and has none: what it is writing now cannot be bounded"
            found.append(AlertFinding(IncidentKind.WRITER_VANISHED, subject, said))
        if fault := find_regression(stream, one):
            said = f"{fault.message} To be reviewed, and run with all of Synapse stopped: {fault.repair}"
            found.append(AlertFinding(IncidentKind.POSITION_WENT_BACK, subject, said))
    return found


def check_tap(landed: datetime | None, limit: timedelta, now: datetime) -> list[AlertFinding]:
    """Whether the replication tap is silent. ``landed``: when it last listened, None: none was used; no limit: 0."""
    if landed is None or not limit or now - landed <= limit:
        return []
    minutes, allowed = ((one / timedelta(minutes=1)) for one in (now - landed, limit))
    said = f"it has not listened for {minutes:,.0f} minutes, {allowed:,.0f} are allowed"
    return [AlertFinding(IncidentKind.TAP_SILENT, "the replication tap", said)]


def check_releases(latest: datetime | None, made: datetime, overdue: timedelta, now: datetime) -> list[AlertFinding]:
    """Whether the lake is overdue. ``latest``: when the latest release was published, None: none ever was, since the
    lake was ``made``."""
    since = now - (latest or made)
    if since <= overdue:
        return []
    hours, allowed = (f"{one / timedelta(hours=1):,.0f}" for one in (since, overdue))
    what = "the latest release is" if latest else "there is no release yet, and the lake is"
    said = f"{what} {hours} hours old, {allowed} are allowed"
    return [AlertFinding(IncidentKind.RELEASE_OVERDUE, "the lake", said)]
