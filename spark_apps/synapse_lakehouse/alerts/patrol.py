"""One look at the streams of the running Synapse: it is kept, and what is wrong is found."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog

from synapse_lakehouse import catalogue
from synapse_lakehouse.alerts import watching
from synapse_lakehouse.alerts.incidents import Finding
from synapse_lakehouse.lake import audit, tables, taps
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.live import standings
from synapse_lakehouse.streams import watch_history
from synapse_lakehouse.streams.sequences import Standing
from synapse_lakehouse.streams.watch import Look, look
from synapse_lakehouse.streams.writers import configured


def patrol(settings: Settings, catalog: Catalog) -> tuple[list[Look], datetime | None, list[Finding]]:
    """Look at every stream and append the looks to ``audit.stream_watch``.

    The looks; when the replication tap last landed something, if one was ever used; and what is wrong.

    :raises SourceError: when the source cannot be connected to.
    :raises ReadFailed: when it is too busy to be watched.
    :raises WritersError: when the configured writers cannot be understood.
    """
    declared = catalogue.load()
    writers = configured(declared, settings.lakehouse_stream_writers, settings.synapse_config)
    tables.ensure_audit(catalog)
    before = watch_history.last(catalog)
    releases = audit.releases(catalog)
    since = {name: one.watched_at for name, one in before.items()}
    released = _released(catalog, releases[-1], since) if releases else {}
    found, now = standings(settings, declared), datetime.now(UTC)
    looks = [
        (
            stream,
            look(
                stream, one.positions, one.handed_out, one.beyond, writers.get(stream.name), before.get(stream.name),
                now, released.get(stream.name),
            ),
        )
        for stream, one in ((stream, found[stream.name]) for stream in declared.streams)
    ]  # fmt: skip
    watch_history.record(catalog, [one for _, one in looks])
    latest = max((one.published_at for one in releases), default=None)
    overdue = timedelta(hours=settings.lakehouse_overdue_hours)
    landed, silent = taps.last_landed(catalog), timedelta(minutes=settings.lakehouse_tap_minutes)
    wrong = [*watching.of_looks(looks, writers), *watching.of_releases(latest, overdue, now)]
    return [one for _, one in looks], landed, wrong + watching.of_tap(landed, silent, now)


def _released(catalog: Catalog, latest: Release, since: Mapping[str, datetime]) -> dict[str, Standing]:
    """How far streams are in a release, where it was published after they were looked at (``since``), or nobody did."""
    if all(at >= latest.published_at for at in since.values()) and since:
        return {}
    return {
        row["stream"]: Standing(row["sequence_last_value"] - (not row["sequence_is_called"]), dict(row["writers"]), {})
        for row in audit.of_run(catalog, "audit.stream_positions", latest.run_id)
        if row["stream"] not in since or since[row["stream"]] < latest.published_at
    }
