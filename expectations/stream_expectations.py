"""Expectations of a stream, and of its IDs in each backing table.

Metrics of a stream are the columns of ``audit.stream_positions``. Metrics of a backing table have names of the form
``<table>.<column of audit.stream_facts>``.
"""

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Final

from expectations.metric_expectation import MetricExpectation, Metrics, format_count
from synapse_lakehouse.streams.positions.safe_bound import BoundRule

MINIMUM_ROWLESS_IDS: Final = 100
"""If fewer IDs than this have no row, every gap budget is met."""

_LEGAL_CLASSES = ("in_flight", "rolled_back", "purged")

_HEALTHY_RULES = {
    BoundRule.CONFIGURED: "all configured writers have a position",
    BoundRule.UNUSED: "the stream was never used",
    BoundRule.NO_POSITIONS: "Synapse stores no positions of this stream",
}


class _BackingTableExpectation(MetricExpectation, ABC):
    """Expects a count of exceptions among the stream's IDs in ``table`` to be zero."""

    table: str
    metric: ClassVar[str]
    noun: ClassVar[str] = "row"
    words: ClassVar[str]
    fault_class: ClassVar[str] = ""
    """Class of the faults that are listed."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        count = metrics[f"{self.table}.{self.metric}"]
        faults = _list_faults(metrics, self.fault_class, self.table)
        return count == 0, f"{format_count(count, self.noun)} {self.words}{faults}"


class ExpectNoNullStreamId(_BackingTableExpectation):
    """Every row of the table has a stream ID."""

    metric: ClassVar[str] = "null_ids"
    words: ClassVar[str] = "without an ID"


class ExpectUniqueStreamId(_BackingTableExpectation):
    """No ID of the stream occurs twice in the table."""

    metric: ClassVar[str] = "duplicate_ids"
    words: ClassVar[str] = "with a repeated ID"
    fault_class: ClassVar[str] = "duplicate"


class ExpectNoLateId(_BackingTableExpectation):
    """No new ID is at or below the safe bound of an earlier release, unless that bound was provisional."""

    metric: ClassVar[str] = "late_ids"
    noun: ClassVar[str] = "late ID"
    words: ClassVar[str] = "found"
    fault_class: ClassVar[str] = "late"

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        previous = metrics.get("previous_bound")
        if previous is None:
            return True, "the previous release has no bound"
        success, observed = super()._evaluate(metrics)
        return success, f"{observed}; the previous bound is {previous:,}"


class ExpectNoLostId(MetricExpectation):
    """No row is missing without an explanation. Explained gaps are legal, and do not count here."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        gaps = dict(metrics["gaps"])
        lost = gaps.pop("lost", 0)
        legal = ", ".join(
            f"{ids:,} {name.replace('_', ' ')}" for name, ids in sorted(gaps.items()) if name in _LEGAL_CLASSES
        )
        faults = _list_faults(metrics, "lost")
        return lost == 0, f"{format_count(lost, 'ID')} lost{faults}" + (f" ({legal})" if legal else "")


class ExpectUnchangedRows(MetricExpectation):
    """Rows at or below the previous safe bound are unchanged, except in columns that Synapse updates."""

    tables: Sequence[str]

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        changed = dict(metrics["gaps"]).get("changed", 0)
        reread = sum(metrics[f"{table}.reread_ids"] for table in self.tables)
        faults = _list_faults(metrics, "changed")
        return changed == 0, f"{format_count(changed, 'ID')} changed{faults} ({reread:,} read again)"


class ExpectGapsWithinBudget(MetricExpectation):
    """At most ``percent`` of the newly closed IDs have no row.

    The expectation is also met if few IDs lack a row. It is also met if other IDs were purged, because then the IDs
    without a row may have been purged too.
    """

    percent: int

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        closed, rowless = metrics.get("closed_ids"), metrics.get("rowless_ids", 0)
        if closed is None:
            return True, "no IDs were closed: the stream has no safe bound now, or had none before"
        observed = f"{rowless:,} of {format_count(closed, 'newly closed ID')} without a row"
        if dict(metrics["gaps"]).get("purged", 0):
            return True, f"{observed}; other IDs were purged, so these may have been purged too"
        return rowless < MINIMUM_ROWLESS_IDS or rowless * 100 <= closed * self.percent, observed


class ExpectIdInOneTable(MetricExpectation):
    """Each ID is in only one of the stream's tables. This applies to streams that write each ID to one table."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        shared = metrics["shared_ids"]
        faults = _list_faults(metrics, "duplicate", "several tables")
        return shared == 0, f"{format_count(shared, 'ID')} in several tables{faults}"


class ExpectNoPositionRegression(MetricExpectation):
    """The safe bound, the writers' positions and the sequence only advance: upwards, or downwards for negative IDs."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        rule = metrics["rule"]
        bound, previous = metrics.get("safe_bound"), metrics.get("previous_bound")
        if regressions := metrics["regressions"]:
            return False, f"{', '.join(regressions)}: the database was set back to an earlier state"
        if bound is None:
            return True, f"no bound now ({rule}), {_format_bound(previous)} before"
        return True, f"{bound:,} now, {_format_bound(previous)} before"


class ExpectSequenceNotBehind(MetricExpectation):
    """The sequence has assigned every ID that a row or a position contains.

    Synapse does not start if a sequence is behind a position. If a sequence is behind rows only, Synapse advances it.
    Sequences count up even where the IDs are negative. ID 1 counts as assigned from the start.
    """

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        last = metrics["sequence_last_value"] - (0 if metrics["sequence_is_called"] else 1)
        position = max((abs(value) for value in metrics["positions"]), default=0)
        row = abs(metrics.get("largest_id", 0))
        observed = f"sequence {last:,}, furthest position {position:,}, furthest ID {row:,}"
        return max(last, 1) >= max(position, row), observed


class ExpectNoVanishedWriter(MetricExpectation):
    """Every configured writer that had a position still has a position. Otherwise the stream has no safe bound.

    :class:`ExpectNoProvisionalBound` reports learned writers.
    """

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        vanished = ", ".join(sorted(metrics.get("vanished_writers", ())))
        if metrics["rule"] != BoundRule.MISSING_WRITER.value or not vanished:
            return True, "no configured writer lost its position"
        return False, f"{vanished} lost its position, so there is no safe bound"


class ExpectConfiguredWriters(MetricExpectation):
    """No writer contradicts the configuration. :class:`ExpectNoProvisionalBound` reports a missing configuration.

    If a configured writer has not written yet, it has no position, and the stream has no bound. This is not a fault.
    """

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        rule = BoundRule(metrics["rule"])
        missing, unknown = (", ".join(sorted(metrics.get(f"{name}_writers", ()))) for name in ("missing", "unknown"))
        if rule is BoundRule.UNKNOWN_WRITER or (rule is BoundRule.PROVISIONAL and unknown):
            return False, f"{unknown} continues to write and is not configured"
        if rule is BoundRule.PROVISIONAL:
            return True, "the bound is provisional, because it depends on writers that were learned from the data"
        if rule is BoundRule.MISSING_LEARNED_WRITER:
            writers = f"the learned writer {missing}" if missing else "any writer"
            return True, f"no position of {writers}, so there is no safe bound"
        if rule is BoundRule.MISSING_WRITER and unknown:
            return False, (
                f"{unknown} wrote and is not configured, and there is no position of {missing}; compare "
                "`stream_writers` in homeserver.yaml with `instance_map`"
            )
        if rule is BoundRule.MISSING_WRITER:
            return True, f"no position of {missing or 'any writer'} yet, so there is no safe bound"
        if rule is BoundRule.UNCONFIGURED_WRITER:
            return True, f"{unknown} is not configured; its position limits the bound until Synapse deletes it"
        if rule is BoundRule.NOT_COPIED:
            return False, "one of its tables could not be copied, so the bound of the previous release stays"
        return True, _HEALTHY_RULES[rule]


class ExpectNoProvisionalBound(MetricExpectation):
    """The writers of all streams come from the configuration, so that the safe bounds are proven.

    Only this check reports faults that depend on learned writers: provisional or missing bounds, late and lost IDs.
    """

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        provisional, missing, gaps = (
            metrics[name] for name in ("provisional_streams", "missing_learned_writers", "provisional_gaps")
        )
        observed = []
        if provisional:
            bounds = f"the bounds of {format_count(len(provisional), 'stream')} are provisional"
            observed.append(f"{bounds}: {', '.join(provisional)}")
        behind = [f"{stream} ({', '.join(writers)})" for stream, writers in provisional.items() if writers]
        if missing:
            streams = [f"{stream} ({', '.join(writers) or 'any writer'})" for stream, writers in missing.items()]
            count = format_count(len(streams), "stream")
            observed.append(f"{count} without a bound, because a learned writer has no position: {', '.join(streams)}")
        if gaps:
            counts = ", ".join(f"{ids:,} {name}" for name, ids in sorted(gaps.items()))
            faults = "".join(_list_faults(metrics, f"provisional {name}") for name in sorted(gaps))
            observed.append(f"IDs at or below a provisional bound: {counts}{faults}")
        if not observed:
            return True, "no bound is provisional"
        return False, (
            f"{'; '.join(observed)}. Set SYNAPSE_CONFIG to homeserver.yaml, or set LAKEHOUSE_STREAM_WRITERS. If one of "
            "these settings is set, a bound stays provisional until the positions of all writers reach it"
            + (f". Writers with a position below the bound: {', '.join(behind)}" if behind else "")
        )


def _list_faults(metrics: Metrics, fault_class: str, table: str = "") -> str:
    """Format IDs and writers of the first faults of a class, such as ``: 4711..4713 in events (persister1)``."""
    prefix = f"{fault_class} "
    faults = [fault.removeprefix(prefix) for fault in metrics.get("faults", []) if fault.startswith(prefix)]
    listed = [fault for fault in faults if not table or fault.partition(" in ")[2].partition(" (")[0] == table]
    return f": {', '.join(listed)}" if listed else ""


def _format_bound(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
