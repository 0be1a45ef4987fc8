"""What is expected of a stream, and of its ids in each table that backs it.

Measures of a stream are the columns of ``audit.stream_positions``; those of a backing table are named
``<table>.<column of audit.stream_facts>``.
"""

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Final

from expectations.metric_expectation import MetricExpectation, Metrics, format_count
from synapse_lakehouse.streams.positions.safe_bound import BoundRule

MINIMUM_ROWLESS_IDS: Final = 100
"""Fewer ids than this without a row are nobody's concern, whatever their share."""

_LEGAL = ("in_flight", "rolled_back", "purged")

_FINE = {
    BoundRule.CONFIGURED: "all configured writers have a position",
    BoundRule.UNUSED: "it was never used",
    BoundRule.NO_POSITIONS: "Synapse keeps no positions of it",
}


class _BackingExpectation(MetricExpectation, ABC):
    """Expects a count of exceptions among the stream's ids in ``table`` to be zero."""

    table: str
    counts: ClassVar[str]
    noun: ClassVar[str] = "row"
    words: ClassVar[str]
    fault: ClassVar[str] = ""
    """Class of the faults to name."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        found = measures[f"{self.table}.{self.counts}"]
        return found == 0, f"{format_count(found, self.noun)} {self.words}{_named(measures, self.fault, self.table)}"


class ExpectNoNullStreamId(_BackingExpectation):
    """Every row of the table has its place in the stream."""

    counts: ClassVar[str] = "null_ids"
    words: ClassVar[str] = "without an id"


class ExpectUniqueStreamId(_BackingExpectation):
    """No id of the stream occurs a second time in the table."""

    counts: ClassVar[str] = "duplicate_ids"
    words: ClassVar[str] = "repeating an id"
    fault: ClassVar[str] = "duplicate"


class ExpectNoLateId(_BackingExpectation):
    """No id appears at or below a bound that an earlier release accepted."""

    counts: ClassVar[str] = "late_ids"
    noun: ClassVar[str] = "id"
    words: ClassVar[str] = "came late"
    fault: ClassVar[str] = "late"

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        previous = measures.get("previous_bound")
        if previous is None:
            return True, "no bound was accepted before"
        success, observed = super()._judge(measures)
        return success, f"{observed}, the bound was {previous:,}"


class ExpectNoLostId(MetricExpectation):
    """No row that was there is gone without an explanation. Gaps are legal, and are not counted here."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        gaps = dict(measures["gaps"])
        lost = gaps.pop("lost", 0)
        others = ", ".join(f"{ids:,} {name.replace('_', ' ')}" for name, ids in sorted(gaps.items()) if name in _LEGAL)
        where = _named(measures, "lost")
        return lost == 0, f"{format_count(lost, 'id')} lost{where}" + (f" ({others})" if others else "")


class ExpectUnchangedRows(MetricExpectation):
    """Rows that an earlier release accepted say what they said, by content, but for columns that Synapse sets anew."""

    tables: Sequence[str]

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        changed = dict(measures["gaps"]).get("changed", 0)
        reread = sum(measures[f"{table}.reread_ids"] for table in self.tables)
        return (
            changed == 0,
            f"{format_count(changed, 'id')} changed{_named(measures, 'changed')} ({reread:,} read again since)",
        )


class ExpectGapsWithinBudget(MetricExpectation):
    """Not too many of the newly closed ids are without a row. Where ids were purged it is not known whether they had
    one, and a few missing ones are no share to speak of."""

    percent: int

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        closed, rowless = measures.get("closed_ids"), measures.get("rowless_ids", 0)
        if closed is None:
            return True, "no ids were closed between two bounds"
        observed = f"{rowless:,} of {format_count(closed, 'newly closed id')} without a row"
        if dict(measures["gaps"]).get("purged", 0):
            return True, f"{observed}; others were purged, so these may have been, too"
        return rowless < MINIMUM_ROWLESS_IDS or rowless * 100 <= closed * self.percent, observed


class ExpectIdInOneTable(MetricExpectation):
    """No id of the stream is in two of its tables, where each id is in one."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        shared = measures["shared_ids"]
        return (
            shared == 0,
            f"{format_count(shared, 'id')} in several tables{_named(measures, 'duplicate', 'several tables')}",
        )


class ExpectNoPositionRegression(MetricExpectation):
    """The safe bound, the writers' positions and the sequence move in one direction: up, and for negative ids down."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        rule = measures["rule"]
        bound, previous = measures.get("safe_bound"), measures.get("previous_bound")
        if fell := measures["went_back"]:
            return False, f"{', '.join(fell)}: the database is not the one it was"
        if bound is None:
            return True, f"no bound now ({rule}), {_number(previous)} before"
        if previous is None:
            return True, f"{bound:,}, none before"
        return True, f"{bound:,}, {previous:,} before"


class ExpectSequenceNotBehind(MetricExpectation):
    """The sequence has handed out every id that a row or a position shows. When Synapse starts, it moves one that is
    behind rows on, and refuses to start with one that is behind a position.

    Sequences count up even where the ids are negative. Id 1 counts as handed out from the start.
    """

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        last = measures["sequence_last_value"] - (0 if measures["sequence_is_called"] else 1)
        position = max((abs(value) for value in measures["positions"]), default=0)
        row = abs(measures.get("largest_id", 0))
        observed = f"sequence {last:,}, furthest position {position:,}, furthest id {row:,}"
        return max(last, 1) >= max(position, row), observed


class ExpectNoVanishedWriter(MetricExpectation):
    """Every writer that ever had a position has one: without it nobody knows up to where the stream is complete."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        vanished = ", ".join(sorted(measures.get("vanished_writers", ())))
        if measures["rule"] != BoundRule.MISSING_WRITER.value or not vanished:
            return True, "none has vanished"
        return False, f"{vanished} had a position and has none any more, so there is no safe bound"


class ExpectConfiguredWriters(MetricExpectation):
    """The stream's writers come from the configuration, so the safe bound is a proof.

    A configured writer that never wrote has no position yet: until then there is no bound, and nothing wrong.
    """

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        rule = BoundRule(measures["rule"])
        missing, unknown = (", ".join(sorted(measures.get(f"{name}_writers", ()))) for name in ("missing", "unknown"))
        if rule is BoundRule.ASSUMED:
            return False, "the writers were guessed from the data: set SYNAPSE_CONFIG or LAKEHOUSE_STREAM_WRITERS"
        if rule is BoundRule.MISSING_WRITER and unknown:
            return False, f"{unknown} wrote and is not configured, no position of {missing}: do the names fit?"
        if rule is BoundRule.MISSING_WRITER:
            return True, f"no position of {missing or 'any writer'} yet, so there is no safe bound"
        if rule is BoundRule.UNKNOWN_WRITER:
            return False, f"{unknown} went on writing and is not configured"
        if rule is BoundRule.UNCONFIGURED_WRITER:
            return (
                True,
                f"{unknown} is not configured and has a position that holds the bound, until Synapse deletes it",
            )
        if rule is BoundRule.HELD:
            return False, "a table of it could not be copied, so its bound stays where it was"
        return True, _FINE[rule]


def _named(measures: Metrics, fault: str, table: str = "") -> str:
    """The ids of some faults of a class and who wrote them, as in ``: 4711..4713 in events (persister1)``."""
    found = [one.removeprefix(f"{fault} ") for one in measures.get("faults", []) if one.startswith(f"{fault} ")]
    named = [one for one in found if not table or one.partition(" in ")[2].partition(" (")[0] == table]
    return f": {', '.join(named)}" if named else ""


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
