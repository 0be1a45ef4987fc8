"""Read the metrics of a lake through DuckDB, without a JVM, and render them for Prometheus."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from duckdb import DuckDBPyConnection
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from synapse_lakehouse.alerts.incidents import IncidentEvent
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import is_unbranched
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.metrics import families
from synapse_lakehouse.metrics.families import gauge
from synapse_lakehouse.replication import tap_liveness
from synapse_lakehouse.sizes import history
from synapse_lakehouse.sizes.summary import summarize
from synapse_lakehouse.streams.positions.safe_bound import BoundRule

_OF_RUN: Final = "where run_id = getvariable('run') and {written_at} <= getvariable('audited_until')"
_LAST: Final = "qualify row_number() over (partition by {key} order by {written_at} desc) = 1"

_ROWS: Final = f"""
with last as (from audit.ledger {_OF_RUN.format(written_at="written_at")}
              {_LAST.format(key="table_name", written_at="written_at")})
select sum(rows_source) as rows_source, sum(rows_read) as rows_read, sum(rows_written) as rows_written from last
"""  # noqa: S608
_ENDS: Final = f"""
select 'open_run' as task, max(began_at) as ended_at from audit.snapshots {_OF_RUN.format(written_at="began_at")}
union all select 'snapshot_tables', max(written_at) from audit.ledger {_OF_RUN.format(written_at="written_at")}
union all select 'measure_streams', max(measured_at) from audit.stream_positions
  {_OF_RUN.format(written_at="measured_at")}
union all select 'validate_' || stage, max(checked_at) from audit.checks {_OF_RUN.format(written_at="checked_at")}
  group by stage
union all select 'dbt_build', max(tried_at) from audit.views {_OF_RUN.format(written_at="tried_at")}
order by ended_at nulls last
"""  # noqa: S608
"""Time at which each task of a run wrote its last audit row."""
_STREAMS: Final = f"""
select stream, safe_bound, rule = '{BoundRule.PROVISIONAL}' as is_provisional,
  sequence_last_value - if(sequence_is_called, 0, 1) as last_allocated_id,
  len(missing_writers) as missing_writers, measured_at as observed_at, writers, gaps
from audit.stream_positions {_OF_RUN.format(written_at="measured_at")}
{_LAST.format(key="stream", written_at="measured_at")}
"""  # noqa: S608
_WATCHED: Final = f"""
select stream, safe_bound, rule = '{BoundRule.PROVISIONAL}' as is_provisional, last_allocated_id,
  len(missing_writers) as missing_writers, watched_at as observed_at, open_since, writers
from audit.stream_watch where watched_at > now() - interval 2 days {_LAST.format(key="stream", written_at="watched_at")}
"""  # noqa: S608
_INTEGRITY: Final = f"""
from audit.integrity {_OF_RUN.format(written_at="counted_at")} {_LAST.format(key="check_name", written_at="counted_at")}
"""
_LAG: Final = """
select coalesce(commands.instance, '') as instance, count(*) as events,
  median(epoch_ms(commands.received_at) - events.received_ts) / 1000 as median,
  quantile_cont(epoch_ms(commands.received_at) - events.received_ts, 0.95) / 1000 as p95
from bronze.replication_commands commands join bronze.events events on commands.token = events.stream_ordering
where commands.command = 'RDATA' and commands.stream = 'events' and commands.source <> 'database'
  and commands.ordinal = 0 and commands.received_at > getvariable('audited_until') - interval 1 day
  and events.received_ts > epoch_ms(getvariable('audited_until') - interval 2 days)
group by all
"""
"""Delay of replication on the day before the newest release, as in gold.replication_lag."""

_FEDERATION: Final = """
select count(distinct server) as servers, median(median_ms) / 1000 as delay,
  (select count(*) from gold.silent_servers) as silent
from gold.federation_delay where hour > (select max(hour) from gold.federation_delay) - interval 1 day
"""
"""Names of servers are no labels, because there are many, and a name may be an IP address."""


class _Collected(Collector):
    def __init__(self, collected: Iterable[GaugeMetricFamily], labels: Mapping[str, str]) -> None:
        self._collected, self._labels = list(collected), dict(labels)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric families that have samples. Add the labels of the homeserver to each sample."""
        for family in self._collected:
            family.samples = [sample._replace(labels=self._labels | sample.labels) for sample in family.samples]
        return [family for family in self._collected if family.samples]


def render_metrics(connection: DuckDBPyConnection, settings: Settings) -> str:
    """Return all metrics of the lake in Prometheus' text format.

    :raises LakeReadError: when the lake cannot be read.
    """
    releases = duckdb_reader.list_releases(connection, settings)
    release = releases[0] if releases else None
    server_name = (release.server_name if release else None) or settings.synapse_server_name or ""
    # Synapse's own metrics have the label server_name, too. Several homeservers may have the same value.
    labels = {"server_name": server_name}
    if settings.lakehouse_homeserver:
        labels["homeserver"] = settings.lakehouse_homeserver
    registry = CollectorRegistry()
    registry.register(_Collected(_collect(connection, settings, release), labels))
    return generate_latest(registry).decode()


def _collect(
    connection: DuckDBPyConnection, settings: Settings, release: Release | None
) -> Iterator[GaugeMetricFamily]:
    reader, now = _Reader(connection, settings), datetime.now(UTC)
    yield gauge("metrics_timestamp_seconds", "Time at which the lake was read for the metrics.", [((), now)])
    yield from families.release_families(release, settings.overdue_after(now))
    if release:
        duckdb_reader.set_release_variables(connection, release)
        (rows,) = reader.read(_ROWS, "audit.ledger") or [{}]
        yield from families.run_families(rows, _read_durations(reader, release))
        yield from families.integrity_families(reader.read(_INTEGRITY, "audit.integrity"))
        yield from _lag_families(reader, release)
        yield from _federation_families(reader, release)
    yield from families.stream_families(_read_streams(reader, release))
    yield from families.size_families(summarize(history.read_rows(connection, settings)))
    yield from families.incident_families(_read_incidents(reader))
    landed = tap_liveness.read_last_commit_time_by_duckdb(connection, settings)
    yield gauge("tap_timestamp_seconds", "Time at which the replication tap last listened.", [((), landed)])


class _Reader:
    """Queries of audit tables and of tables of the newest release."""

    def __init__(self, connection: DuckDBPyConnection, settings: Settings) -> None:
        self._connection, self._settings = connection, settings
        self._existing = list_catalog_entries(settings)

    def read(self, query: str, *tables: str, release: Release | None = None) -> list[dict[str, Any]]:
        """Return the rows of ``query``; none if the lake, or the release, does not have all of ``tables``."""
        of_release = {*release.tables, *release.views} if release else set[str]()
        for table in tables:
            if table not in (self._existing if release is None or is_unbranched(table) else of_release):
                return []
        duckdb_reader.create_views(self._connection, self._settings, release, tables)
        return duckdb_reader.read_rows(self._connection, query)


def _read_durations(reader: _Reader, release: Release) -> dict[str, float]:
    tables = ("audit.snapshots", "audit.ledger", "audit.stream_positions", "audit.checks", "audit.views")
    ends = [(row["task"], row["ended_at"]) for row in reader.read(_ENDS, *tables) if row["ended_at"]]
    ends.append(("publish_release", release.accepted_at))
    return {task: (ended_at - began_at).total_seconds() for (_, began_at), (task, ended_at) in pairwise(ends)}


def _read_streams(reader: _Reader, release: Release | None) -> list[dict[str, Any]]:
    """Return the newest observation of each stream, with the gaps that the newest release recorded."""
    streams = {row["stream"]: row for row in (reader.read(_STREAMS, "audit.stream_positions") if release else [])}
    for watched in reader.read(_WATCHED, "audit.stream_watch"):
        released = streams.get(watched["stream"], {})
        if not released or released["observed_at"] < watched["observed_at"]:
            streams[watched["stream"]] = released | watched
    for row in streams.values():
        bound, last = row["safe_bound"], row["last_allocated_id"]
        row["open_ids"] = None if None in (bound, last) else max(last - abs(bound), 0)
    return [streams[name] for name in sorted(streams)]


def _lag_families(reader: _Reader, release: Release) -> Iterator[GaugeMetricFamily]:
    rows = reader.read(_LAG, "bronze.replication_commands", "bronze.events", release=release)
    documentation = "Delay of events between Synapse and the replication tap, on the day before the newest release."
    samples = [([row["instance"], quantile], row[name]) for row in rows for quantile, name in _QUANTILES]
    yield gauge("replication_delay_seconds", documentation, samples, ["writer", "quantile"])


def _federation_families(reader: _Reader, release: Release) -> Iterator[GaugeMetricFamily]:
    rows = reader.read(_FEDERATION, "gold.federation_delay", "gold.silent_servers", release=release)
    for name, documentation, column in (
        ("federation_servers", "Servers whose events arrived on the newest day.", "servers"),
        ("federation_delay_seconds", "Median of the median delays by server and hour, on the newest day.", "delay"),
        ("federation_silent_servers", "Servers that fell silent.", "silent"),
    ):
        yield gauge(name, documentation, [((), row[column]) for row in rows])


_QUANTILES: Final = (("0.5", "median"), ("0.95", "p95"))


def _read_incidents(reader: _Reader) -> list[IncidentEvent]:
    names = {field.name for field in fields(IncidentEvent)}
    rows = reader.read('from audit.incidents where sink is null order by "at"', "audit.incidents")
    return [IncidentEvent(**{name: value for name, value in row.items() if name in names}) for row in rows]
