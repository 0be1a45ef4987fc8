"""What is expected of a source that is at work: that the streams, and what the lake reads of it, go on with it.

Measures are what three runs saw: ``first``, which is old enough, ``middle``, the release before, and ``last``, this
one; there are none while the lake is too young. Standing still is no fault where nobody works.
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
    """No writer goes on writing while its position stays, and not all ids that are handed out stay without a row."""

    hours: int
    judges_rows: bool

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        if "first" not in measures:
            return True, _too_young(self.hours)
        seen = measures["first"], measures["middle"], measures["last"]
        said = [
            f"{writer} wrote {rows:,} rows and stays at {position:,}"
            for writer, (position, rows) in sorted(find_stalled_writers(*seen).items())
        ]
        if self.judges_rows and (ids := count_ids_without_rows(*seen)):
            said.append(f"{ids:,} ids were handed out and none has a row")
        since = f"since {measures['since']:%Y-%m-%d %H:%M} UTC"
        return not said, f"{since}: {'; '.join(said)}" if said else f"nothing stands still {since}"


class ExpectStandbyToReplay(MetricExpectation):
    """A standby that is read goes on replaying what its primary writes."""

    hours: int

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        if "first" not in measures:
            return True, _too_young(self.hours)
        first, last = measures["first"], measures["last"]
        if not last["in_recovery"]:
            return True, "it is no standby"
        same = all(first[name] == last[name] for name in ("wal_lsn", "system_identifier", "in_recovery"))
        return (
            not same,
            f"{'nothing' if same else 'something'} was replayed since {measures['since']:%Y-%m-%d %H:%M} UTC",
        )


def build_suite(catalogue: Catalogue, hours: int) -> list[MetricExpectation]:
    """What is expected of the source, and of each stream that has positions; nothing where ``hours`` is 0."""
    if not hours:
        return []
    return [
        ExpectStandbyToReplay(
            column=SOURCE_SUBJECT, hours=hours, severity=WARN, description="a standby follows its primary"
        ),
        *(
            ExpectStreamToAdvance(
                column=f"stream {stream.name}",
                hours=hours,
                judges_rows=stream.gap_budget is not None,
                severity=WARN,
                description="it moves on as its writers do",
            )
            for stream in catalogue.streams
            if stream.stream_positions
        ),
    ]


def collect_metrics(
    snapshots: Sequence[Rows], positions: Sequence[Rows], facts: Sequence[Rows]
) -> dict[str, dict[str, Any]]:
    """Measures by subject, out of rows of ``audit.snapshots``, ``stream_positions`` and ``stream_facts``.

    :param snapshots: as the others, those of the first, the middle and the last run; no runs while there are too few.
    """
    if not snapshots:
        return {SOURCE_SUBJECT: {}}
    since = {"since": snapshots[0][0]["taken_at"]}
    names = ("first", "middle", "last")
    found = {SOURCE_SUBJECT: since | {name: rows[0] for name, rows in zip(names, snapshots, strict=True)}}
    by_run = [_seen(*one) for one in zip(positions, facts, strict=True)]
    for stream in by_run[-1]:
        if all(stream in one for one in by_run):
            found[f"stream {stream}"] = since | {name: one[stream] for name, one in zip(names, by_run, strict=True)}
    return found


def _seen(positions: Rows, facts: Rows) -> dict[str, StreamSample]:
    return {
        row["stream"]: StreamSample(
            positions=dict(row["writers"] or ()),
            rows={
                (fact["table_name"], writer): rows
                for fact in facts
                if fact["stream"] == row["stream"]
                for writer, rows in fact["rows_by_writer"] or ()
            },
            handed_out=row["sequence_last_value"] - (0 if row["sequence_is_called"] else 1),
            largest=row["largest_id"],
        )
        for row in positions
    }


def _too_young(hours: int) -> str:
    return f"the lake knows nothing from {hours} hours ago"
