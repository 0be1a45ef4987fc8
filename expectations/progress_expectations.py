"""Expectations of an active source: its streams advance, and a standby replays WAL.

Metrics are samples of three runs: ``first`` (an old release), ``middle`` (the previous release) and ``last`` (this
run). Without an old release there are no metrics. An idle source does not fail.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from expectations.metric_expectation import WARN, MetricExpectation, Metrics
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.streams.checks.stalled_writers import StreamSample, count_ids_without_rows, find_stalled_writers

SOURCE_SUBJECT: Final = "the source"

Row = Mapping[str, Any]
Rows = Sequence[Row]


class ExpectStreamToAdvance(MetricExpectation):
    """Every writer that adds rows advances its position, and at least one newly assigned ID has a row."""

    hours: int
    expects_rows: bool

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        if "first" not in metrics:
            return True, _no_old_release(self.hours)
        samples = metrics["first"], metrics["middle"], metrics["last"]
        faults = [
            f"{writer} wrote {rows:,} rows, but its position stays at {position:,}"
            for writer, (position, rows) in sorted(find_stalled_writers(*samples).items())
        ]
        if self.expects_rows and (ids := count_ids_without_rows(*samples)):
            faults.append(f"{ids:,} IDs were assigned, and no assigned ID has a row")
        since = f"since {metrics['since']:%Y-%m-%d %H:%M} UTC"
        return not faults, f"{since}: {'; '.join(faults)}" if faults else f"nothing is stalled {since}"


class ExpectStandbyToReplay(MetricExpectation):
    """If a database of the source is a standby, it replays the WAL of its primary."""

    hours: int

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        if "first" not in metrics:
            return True, _no_old_release(self.hours)
        first, last = (_list_standbys(metrics[name]) for name in ("first", "last"))
        if not last:
            return True, "the source is not a standby"
        stalled = [name for name, position in last.items() if first.get(name) == position]
        replayed = f"{' and '.join(stalled)} replayed no WAL" if stalled else "WAL was replayed"
        return not stalled, f"{replayed} since {metrics['since']:%Y-%m-%d %H:%M} UTC"


def build_suite(catalogue: Catalogue, hours: int) -> list[MetricExpectation]:
    """Return expectations of the source, and of each stream with positions; none if ``hours`` is 0."""
    if not hours:
        return []
    return [
        ExpectStandbyToReplay(
            column=SOURCE_SUBJECT, hours=hours, severity=WARN, description="a standby replays its primary's WAL"
        ),
        *(
            ExpectStreamToAdvance(
                column=f"stream {stream.name}",
                hours=hours,
                expects_rows=stream.gap_budget is not None,
                severity=WARN,
                description="the stream advances while its writers write",
            )
            for stream in catalogue.streams
            if stream.stream_positions
        ),
    ]


def collect_metrics(
    snapshots: Sequence[Rows], positions: Sequence[Rows], facts: Sequence[Rows]
) -> dict[str, dict[str, Any]]:
    """Return metrics by subject, from rows of ``audit.snapshots``, ``stream_positions`` and ``stream_facts``.

    :param snapshots: like the other parameters, the rows of the first, the middle and the last run; empty without an
        old release.
    """
    if not snapshots:
        return {SOURCE_SUBJECT: {}}
    since = {"since": snapshots[0][0]["taken_at"]}
    names = ("first", "middle", "last")
    metrics = {SOURCE_SUBJECT: since | {name: rows[0] for name, rows in zip(names, snapshots, strict=True)}}
    runs = [_samples(*rows) for rows in zip(positions, facts, strict=True)]
    for stream in runs[-1]:
        if all(stream in samples for samples in runs):
            metrics[f"stream {stream}"] = since | {
                name: samples[stream] for name, samples in zip(names, runs, strict=True)
            }
    return metrics


def _samples(positions: Rows, facts: Rows) -> dict[str, StreamSample]:
    return {
        row["stream"]: StreamSample(
            positions=dict(row["writers"] or ()),
            rows={
                (fact["table_name"], writer): rows
                for fact in facts
                if fact["stream"] == row["stream"]
                for writer, rows in fact["rows_by_writer"] or ()
            },
            last_allocated_id=row["sequence_last_value"] - (0 if row["sequence_is_called"] else 1),
            largest=row["largest_id"],
        )
        for row in positions
    }


def _list_standbys(row: Row) -> dict[str, tuple[Any, ...]]:
    """Return WAL position and system identifier of each standby, by database, from a row of ``audit.snapshots``."""
    databases = {"main": row if row["in_recovery"] else None}
    databases["state"] = row["state_snapshot"] if row["state_in_recovery"] else None
    return {
        name: (position["wal_lsn"], position["system_identifier"]) for name, position in databases.items() if position
    }


def _no_old_release(hours: int) -> str:
    return f"no release is {hours} hours old"
