"""Faults of a run's audit rows, each with the checks of bronze that fail."""

from typing import Final

from expectations.metric_expectation import MetricExpectation
from expectations.stream_expectations import (
    ExpectConfiguredWriters,
    ExpectGapsWithinBudget,
    ExpectNoLateId,
    ExpectNoLostId,
    ExpectNoNullStreamId,
    ExpectNoPositionRegression,
    ExpectNoProvisionalBound,
    ExpectNoVanishedWriter,
    ExpectSequenceNotBehind,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from expectations.table_expectations import (
    ExpectContentReadToBeWritten,
    ExpectNoNullKey,
    ExpectRowsOfSource,
    ExpectRowsReadToBeWritten,
    ExpectTableInLedger,
    ExpectUniqueKey,
)
from tests.support.validation import Plant, change, remove

FAULTS: Final[list[tuple[str, Plant, str, list[tuple[type[MetricExpectation], str]], str]]] = [
    ("NULL key", change("table_facts", 0, null_keys=1), "fail", [(ExpectNoNullKey, "bronze.events")], "1 row"),
    (
        "repeated key", change("table_facts", 1, duplicate_keys=3), "fail",
        [(ExpectUniqueKey, "bronze.deltas")], "3 rows",
    ),
    (
        "repeated stream ID", change("stream_facts", 0, duplicate_ids=2), "fail",
        [(ExpectUniqueStreamId, "stream events")], "2 rows",
    ),
    (
        "NULL stream ID", change("stream_facts", 3, null_ids=4), "fail",
        [(ExpectNoNullStreamId, "stream caches")], "4 rows",
    ),
    ("late ID", change("stream_facts", 2, late_ids=5), "fail", [(ExpectNoLateId, "stream backfill")], "5 … -80"),
    (
        "a row less than the source", change("ledger", 0, rows_source=1251), "fail",
        [(ExpectRowsOfSource, "bronze.events")], "1,250 rows … 1,251",
    ),
    (
        "a row that was not written", change("ledger", 1, rows_written=1249), "fail",
        [(ExpectRowsReadToBeWritten, "bronze.deltas")], "1,250 … 1,249",
    ),
    (
        "a flipped bit", change("ledger", 1, hash_written="5f"), "fail",
        [(ExpectContentReadToBeWritten, "bronze.deltas")], "5e … 5f",
    ),
    (
        "a table that the ledger lacks", remove("ledger", 1), "fail",
        [
            (ExpectTableInLedger, "bronze.deltas"),
            (ExpectRowsReadToBeWritten, "bronze.deltas"),
            (ExpectContentReadToBeWritten, "bronze.deltas"),
            (ExpectRowsOfSource, "bronze.deltas"),
        ],
        "audit.ledger … rows_read … hash_read … rows_source",
    ),
    (
        "keys not measured", remove("table_facts", 0), "fail",
        [
            (ExpectRowsOfSource, "bronze.events"),
            (ExpectNoNullKey, "bronze.events"),
            (ExpectUniqueKey, "bronze.events"),
        ],
        "rows … null_keys … duplicate_keys",
    ),
    (
        "position regresses", change("stream_positions", 0, safe_bound=1099, regressions=["ep1 from 1100 to 1099"]),
        "fail", [(ExpectNoPositionRegression, "stream events")], "ep1 from 1100 to 1099",
    ),
    (
        "negative position regresses",
        change("stream_positions", 1, regressions=["ep1 from -90 to -79", "ep2 from -8 to -7"]), "fail",
        [(ExpectNoPositionRegression, "stream backfill")], "ep1 from -90 to -79, ep2 from -8 to -7",
    ),
    (
        "sequence behind a row", change("stream_positions", 0, largest_id=1332), "warn",
        [(ExpectSequenceNotBehind, "stream events")], "1,300 … 1,200 … 1,332",
    ),
    (
        "sequence behind a position", change("stream_positions", 1, writers=[("main", -90), ("persister2", -1301)]),
        "warn", [(ExpectSequenceNotBehind, "stream backfill")], "1,300 … 1,301 … 90",
    ),
    (
        "lost row",
        change(
            "stream_positions", 0, gaps=[("lost", 1), ("rolled_back", 1200), ("purged", 7)],
            faults=["lost 9 in events (ep1)", "late 2 in deltas"],
        ),
        "fail", [(ExpectNoLostId, "stream events")], "1 ID … 9 in events (ep1) … 7 purged … 1,200 rolled back",
    ),
    (
        "changed row", change("stream_positions", 1, gaps=[("changed", 2)], faults=["changed -9..-8 in events"]),
        "fail", [(ExpectUnchangedRows, "stream backfill")], "2 IDs … -9..-8 in events",
    ),
    (
        "closed rows not compared", change("stream_facts", 1, reread_ids=None), "fail",
        [(ExpectUnchangedRows, "stream events")], "deltas.reread_ids",
    ),
    (
        "gap budget exceeded",
        change("stream_positions", 0, closed_ids=399, rowless_ids=200, gaps=[("rolled_back", 200)]),
        "warn", [(ExpectGapsWithinBudget, "stream events")], "200 of 399",
    ),
    (
        "learned writers", change("stream_positions", 0, rule="provisional"), "warn",
        [(ExpectNoProvisionalBound, "writers of the streams")], "events … SYNAPSE_CONFIG … LAKEHOUSE_STREAM_WRITERS",
    ),
    (
        "vanished learned writer",
        change(
            "stream_positions", 0, rule="missing_learned_writer", safe_bound=None, missing_writers=["persister2"],
            vanished_writers=["persister2"],
        ),
        "warn", [(ExpectNoProvisionalBound, "writers of the streams")],
        "events (persister2) … SYNAPSE_CONFIG … LAKEHOUSE_STREAM_WRITERS",
    ),
    (
        "late ID below a provisional bound",
        change(
            "stream_positions", 1, previous_rule="provisional", provisional_gaps=[("late", 2), ("lost", 1)],
            faults=["provisional late -79..-78 in events (ep2)", "provisional lost -70 in events"],
        ),
        "warn", [(ExpectNoProvisionalBound, "writers of the streams")],
        "2 late … 1 lost … -79..-78 in events (ep2) … -70 in events … SYNAPSE_CONFIG … LAKEHOUSE_STREAM_WRITERS",
    ),
    (
        "vanished writer",
        change(
            "stream_positions", 0, rule="missing_writer", safe_bound=None, missing_writers=["persister2"],
            vanished_writers=["persister2"],
        ),
        "warn", [(ExpectNoVanishedWriter, "stream events")], "persister2",
    ),
    (
        "misspelled writer",
        change(
            "stream_positions", 0, rule="missing_writer", safe_bound=None, missing_writers=["persiter2"],
            unknown_writers=["persister2"],
        ),
        "warn", [(ExpectConfiguredWriters, "stream events")], "persister2 … persiter2 … instance_map",
    ),
    (
        "unknown writer", change("stream_positions", 0, rule="unknown_writer", unknown_writers=["persister3"]),
        "warn", [(ExpectConfiguredWriters, "stream events")], "persister3",
    ),
]  # fmt: skip
"""Name, fault, severity, failed checks, and values that their observations contain in this order."""
