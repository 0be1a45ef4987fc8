"""Classes of missing, late and duplicate IDs: labelled examples, and rules over random ones."""

from datetime import UTC, datetime

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.checks.operator_acknowledgements import ACKNOWLEDGED_FLAG
from synapse_lakehouse.streams.gaps import classify, record_gaps
from synapse_lakehouse.streams.gaps.classify import (
    PROVISIONAL_FLAG,
    Evidence,
    Explanation,
    GapClass,
    MissingIds,
    PresentId,
    StreamGap,
    StreamWindow,
)
from synapse_lakehouse.streams.sql import EVIDENCE_RANGES, MISSING_RANGES

DUCKDB = duckdb.connect()

# "2-5 | 5": the IDs of the previous release | its bound; "none": there is no previous release.
# "2-9 | 7 of 9": the IDs in the source | the bound now, of the last allocated ID. "4x2": two rows have ID 4.
# "6 delta": evidence of a row with ID 6; "6 room_deleted": the reason of its deletion. An accepted row is evidence.
TRACES = {
    # No gap.
    "an empty stream": ("none", "| 1 of 1", "", ""),
    "all IDs present on the first run": ("none", "2-6 | 6 of 6", "", ""),
    "all IDs present on a later run": ("2-6 | 6", "2-9 | 9 of 9", "", ""),
    "no new row": ("2-6 | 6", "2-6 | 6 of 6", "", ""),
    "idle with an old gap": ("2-3 5-6 | 6", "2-3 5-6 | 6 of 6", "", ""),
    "rows beyond the bound": ("2-6 | 6", "2-9 | 6 of 9", "", ""),
    # In flight.
    "one ID in flight": ("2-6 | 6", "2-6 | 6 of 7", "", "7 in_flight"),
    "in flight between rows": ("2-6 | 6", "2-6 8 | 6 of 8", "", "7 in_flight"),
    "many IDs in flight": ("2-6 | 6", "2-6 9 | 6 of 12", "", "7-8 in_flight; 10-12 in_flight"),
    "in flight on the first run": ("none", "2-4 | 4 of 6", "", "5-6 in_flight"),
    "in flight for several runs": ("2-4 6 | 4", "2-4 6-7 | 4 of 7", "", "5 in_flight"),
    "committed after being in flight": ("2-4 6 | 4", "2-6 | 6 of 6", "", ""),
    "rolled back after being in flight": ("2-4 6 | 4", "2-4 6 | 6 of 6", "", "5 rolled_back"),
    # Rolled back.
    "one ID rolled back": ("2-6 | 6", "2-6 8 | 8 of 8", "", "7 rolled_back"),
    "a run of rollbacks": ("2-6 | 6", "2-6 12 | 12 of 12", "", "7-11 rolled_back"),
    "rolled back at the end": ("2-6 | 6", "2-6 | 8 of 8", "", "7-8 rolled_back"),
    "rolled back at the beginning": ("2-6 | 6", "2-6 8-9 | 9 of 9", "", "7 rolled_back"),
    "rolled back and in flight, side by side": ("2-6 | 6", "2-6 | 8 of 10", "", "7-8 rolled_back; 9-10 in_flight"),
    "only rollbacks": ("| 1", "| 4 of 4", "", "2-4 rolled_back"),
    "history before the first run": ("none", "3 6 | 6 of 6", "", "2 rolled_back before_first_run; "
                                     "4-5 rolled_back before_first_run"),
    "history and the present": ("none", "2 | 3 of 4", "", "3 rolled_back before_first_run; 4 in_flight"),
    "older gaps are not reported again": ("2 6 | 6", "2 6 8 | 8 of 8", "", "7 rolled_back"),
    # Purged.
    "a purged room": ("2-6 | 6", "2-3 6 | 6 of 6", "4-5 room_deleted", "4-5 purged accepted_row"),
    "purged history": ("2-6 | 6", "5-8 | 8 of 8", "2-4 history_purged", "2-4 purged accepted_row"),
    "purged and rolled back": ("2-6 | 6", "2-5 8 | 8 of 8", "6 history_purged",
                               "6 purged accepted_row; 7 rolled_back"),
    "purged above the bound": ("2-6 8 | 6", "2-6 | 8 of 8", "8 room_deleted", "7 rolled_back; 8 purged accepted_row"),
    "a delta that outlived its room": ("none", "2-4 6 | 6 of 6", "5 delta, 5 room_deleted", "5 purged delta"),
    "a row deleted with its event": ("2-6 | 6", "2-5 | 6 of 6", "6 event_gone", "6 purged accepted_row"),
    "a closed account": ("2-6 | 6", "2 5-6 | 6 of 6", "3-4 account_closed", "3-4 purged accepted_row"),
    "purged for two reasons": ("2-6 | 6", "2 5-6 | 6 of 6", "3 room_deleted, 4 history_purged",
                               "3 purged accepted_row; 4 purged accepted_row"),
    "an event stored again under another id": ("2-6 | 6", "2-3 5-7 | 7 of 7", "4 second_life",
                                                 "4 purged accepted_row"),
    # Lost.
    "an accepted row is lost": ("2-6 | 6", "2-3 5-6 | 6 of 6", "", "4 lost accepted_row"),
    "the last accepted row is lost": ("2-6 | 6", "2-5 | 6 of 6", "", "6 lost accepted_row"),
    "a run of rows is lost": ("2-9 | 9", "2-3 8-9 | 9 of 9", "", "4-7 lost accepted_row"),
    "all is lost": ("2-6 | 6", "| 6 of 6", "", "2-6 lost accepted_row"),
    "lost above the bound": ("2-6 8 | 6", "2-7 | 6 of 8", "", "8 lost accepted_row"),
    "lost beside purged": ("2-6 | 6", "2 6 | 6 of 6", "3 room_deleted, 5 room_deleted",
                           "3 purged accepted_row; 4 lost accepted_row; 5 purged accepted_row"),
    "lost by a restore": ("2-9 | 9", "2-6 | 6 of 6", "", "7-9 lost accepted_row"),
    "lost, with a delta as evidence": ("none", "2-4 6 | 6 of 6", "5 delta", "5 lost delta"),
    "lost, with a membership as evidence": ("2-4 | 4", "2-4 6 | 6 of 6", "5 membership", "5 lost membership"),
    "lost, with its JSON as evidence": ("none", "2-4 6 | 6 of 6", "5 event_json", "5 lost event_json"),
    "announced and lost": ("2-4 | 4", "2-4 6 | 6 of 6", "5 rdata", "5 lost rdata"),
    "lost among rollbacks": ("2-4 | 4", "2-4 8 | 8 of 8", "6 delta", "5 rolled_back; 6 lost delta; 7 rolled_back"),
    "a row that has an older id": ("2-6 | 6", "2-5 | 6 of 6", "6 other_id", "6 lost other_id"),
    # Late.
    "late in a gap": ("2-4 6 | 6", "2-6 | 6 of 6", "", "5 late"),
    "late below all others": ("5-6 | 6", "3 5-6 | 6 of 6", "", "3 late"),
    "late at the bound": ("2-5 | 6", "2-6 | 6 of 6", "", "6 late"),
    "late among new ones": ("2-4 6 | 6", "2-6 7 9 | 9 of 9", "", "5 late; 8 rolled_back"),
    "late twice": ("2 6 | 6", "2 4-6 | 6 of 6", "", "4 late; 5 late"),
    "just above the bound is in time": ("2-6 | 6", "2-7 | 7 of 7", "", ""),
    "below the bound, but stored again": ("2-4 6 | 6", "2-6 | 6 of 6", "5 again", ""),
    "late and another lost": ("2-4 6 | 6", "2-3 5-6 | 6 of 6", "", "4 lost accepted_row; 5 late"),
    # Duplicate.
    "an id with two rows": ("2-4 | 4", "2-4 5x2 6 | 6 of 6", "", "5 duplicate"),
    "an accepted id with two rows": ("2-4 | 4", "2-3 4x2 | 4 of 4", "", "4 duplicate"),
    "an id with three rows on the first run": ("none", "2 3x3 | 3 of 3", "", "3 duplicate"),
    "a late id with two rows": ("2 4 | 4", "2 3x2 4 | 4 of 4", "", "3 late; 3 duplicate"),
}  # fmt: skip


def ids(text: str) -> dict[int, int]:
    """Return the number of rows by ID: ``2-4 6x2`` is one row each of IDs 2 to 4, and two of ID 6."""
    actual: dict[int, int] = {}
    for part in text.split():
        numbers, _, rows = part.partition("x")
        first, _, last = numbers.partition("-")
        actual |= dict.fromkeys(range(int(first), int(last or first) + 1), int(rows or 1))
    return actual


def classify_trace(before: str, now: str, evidence_text: str) -> list[StreamGap]:
    """Return the gaps of a trace, computed with the SQL and the functions of a run."""
    before_ranges, _, accepted = before.partition("|")
    in_source, _, position = now.partition("|")
    bound, _, last = position.partition("of")
    before_ids, present = ({}, ids(in_source)) if before == "none" else (ids(before_ranges), ids(in_source))
    window = StreamWindow(int(accepted) if accepted else None, int(bound), int(last))
    words = [part.split() for part in evidence_text.split(",") if part]
    words_by_id = {id_: word for numbers, word in words for id_ in ids(numbers)}
    explained = {id_: word for numbers, word in words if word in set(Explanation) for id_ in ids(numbers)}
    evidenced_ids = dict.fromkeys(before_ids.keys() - present.keys(), Evidence.ACCEPTED_ROW.value)
    evidenced_ids |= {id_: word for numbers, word in words if word in set(Evidence) for id_ in ids(numbers)}
    DUCKDB.execute("create or replace temp table ids (stream text, id bigint)")
    DUCKDB.execute("create or replace temp table windows (stream text, after bigint, until bigint)")
    DUCKDB.execute(
        "create or replace temp table evidenced_ids"
        " (stream text, table_name text, id bigint, evidence text, explanation text)"
    )
    DUCKDB.execute(f"insert into windows values ('s', {window.accepted or 1}, {window.last})")
    DUCKDB.execute("insert into ids select 's', unnest(?::bigint[])", [[*present, *evidenced_ids]])
    for number, evidence in evidenced_ids.items():
        DUCKDB.execute(
            "insert into evidenced_ids values ('s', 't', ?, ?, ?)", [number, evidence, explained.get(number)]
        )
    results: list[StreamGap] = []
    for _, first, last_id in DUCKDB.execute(MISSING_RANGES).fetchall():
        results += classify.classify_missing(MissingIds(first, last_id), window)
    for _, table, evidence, explanation, first, last_id in DUCKDB.execute(EVIDENCE_RANGES).fetchall():
        reason = Explanation(explanation) if explanation else None
        results += classify.classify_missing(MissingIds(first, last_id, table, Evidence(evidence), reason), window)
    for number, rows in present.items():
        results += classify.classify_present(
            PresentId(number, "t", rows, number in before_ids, words_by_id.get(number) == "again"), window
        )
    return sorted(results, key=lambda gap: (gap.first, list(GapClass).index(gap.gap_class)))


def label(gap: StreamGap) -> str:
    numbers = str(gap.first) if gap.first == gap.last else f"{gap.first}-{gap.last}"
    evidence = gap.evidence.value if gap.evidence else None
    return " ".join(filter(None, [numbers, gap.gap_class.value, evidence, *gap.flags]))


@pytest.mark.parametrize("name", TRACES)
def test_a_labelled_trace_is_classified(name: str) -> None:
    before, now, evidence, expected = TRACES[name]
    assert "; ".join(map(label, classify_trace(before, now, evidence))) == expected


def test_traces_have_every_class_evidence_and_explanation() -> None:
    words = " ".join(" ".join(trace) for trace in TRACES.values())
    assert len(TRACES) >= 40
    # Changed contents of rows are tested in tests/spark/test_closed_rows.py.
    for item in (*({*GapClass} - {GapClass.CHANGED}), *Evidence, *Explanation):
        assert item.value in words, item


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(2, 30)), st.integers(1, 30), st.integers(0, 5), st.sets(st.integers(2, 30)), st.booleans())
def test_every_closed_id_has_a_row_or_one_gap(
    previous_ids: set[int], accepted: int, more: int, new_ids: set[int], is_first: bool
) -> None:
    bound, last = accepted + more, accepted + more + 3
    released = {id_ for id_ in previous_ids if id_ <= last}
    present = released | {id_ for id_ in new_ids if accepted < id_ <= last}
    before = "none" if is_first else f"{' '.join(map(str, released))} | {accepted}"
    actual = classify_trace(before, f"{' '.join(map(str, present))} | {bound} of {last}", "")
    assert not [gap for gap in actual if gap.gap_class in classify.FAULT_CLASSES]
    reported = [number for gap in actual for number in range(gap.first, gap.last + 1)]
    after = 1 if is_first else accepted
    assert sorted(reported) == sorted(set(range(after + 1, last + 1)) - present)
    assert all((gap.last <= bound) is (gap.gap_class is GapClass.ROLLED_BACK) for gap in actual)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(2, 4_000_000), max_size=8), st.integers(2, 4_000_000))
def test_each_range_of_missing_ids_is_one_gap(present: set[int], last: int) -> None:
    numbers = " ".join(str(id_) for id_ in present if id_ <= last)
    actual = classify_trace("none", f"{numbers} | {last} of {last}", "")
    ends = sorted(id_ for id_ in present if id_ <= last)
    expected = [(low + 1, high - 1) for low, high in zip([1, *ends], [*ends, last + 1], strict=True) if high > low + 1]
    assert [(gap.first, gap.last) for gap in actual] == expected


ACCEPTED_IS_PROVISIONAL = StreamWindow(6, 9, 12, is_accepted_provisional=True)
BOUND_IS_PROVISIONAL = StreamWindow(6, 9, 12, is_bound_provisional=True)


@pytest.mark.parametrize(
    ("gap", "window", "is_flagged"),
    [
        (PresentId(4, "t"), ACCEPTED_IS_PROVISIONAL, True),
        (PresentId(4, "t"), BOUND_IS_PROVISIONAL, False),
        (PresentId(4, "t", rows=2, was_accepted=True), ACCEPTED_IS_PROVISIONAL, False),
        (MissingIds(4, 4, "t", Evidence.OTHER_ID), ACCEPTED_IS_PROVISIONAL, True),
        (MissingIds(4, 4, "t", Evidence.OTHER_ID), BOUND_IS_PROVISIONAL, False),
        (MissingIds(8, 8, "t", Evidence.RDATA), BOUND_IS_PROVISIONAL, True),
        (MissingIds(8, 8, "t", Evidence.RDATA), ACCEPTED_IS_PROVISIONAL, False),
        (MissingIds(8, 8, "t", Evidence.RDATA, Explanation.ROOM_DELETED), BOUND_IS_PROVISIONAL, False),
        (MissingIds(4, 4, "t", Evidence.ACCEPTED_ROW), ACCEPTED_IS_PROVISIONAL, False),
        (MissingIds(8, 8, "t", Evidence.DELTA), BOUND_IS_PROVISIONAL, False),
        (MissingIds(8, 8), BOUND_IS_PROVISIONAL, False),
    ],
)
def test_faults_that_need_a_provisional_bound_are_flagged(
    gap: PresentId | MissingIds, window: StreamWindow, is_flagged: bool
) -> None:
    if isinstance(gap, PresentId):
        (classified,) = classify.classify_present(gap, window)
    else:
        (classified,) = classify.classify_missing(gap, window)
    assert (PROVISIONAL_FLAG in classified.flags) is is_flagged


def test_flagged_faults_are_counted_apart() -> None:
    stream = catalogue.load_catalogue().stream("events")
    counts = record_gaps.GapCounts({"events": StreamWindow(6, 9, 12)})
    flags = (PROVISIONAL_FLAG,)
    for gap in (
        StreamGap(4, 5, GapClass.LATE, "events", flags=flags),
        StreamGap(8, 8, GapClass.LOST, "events", Evidence.RDATA, flags=flags),
        StreamGap(3, 3, GapClass.LOST, "events", Evidence.ACCEPTED_ROW),
        StreamGap(2, 2, GapClass.LATE, "events", flags=(*flags, ACKNOWLEDGED_FLAG)),
    ):
        counts.add(stream, gap)
    columns = counts.position_columns("events", lambda *_: ["ep2"])
    assert columns["gaps"] == [("lost", 1)]
    assert columns["provisional_gaps"] == [("late", 2), ("lost", 1)]
    assert columns["faults"] == [
        "provisional late 4..5 in events (ep2)", "provisional lost 8 in events (ep2)", "lost 3 in events (ep2)",
    ]  # fmt: skip
    assert columns["rowless_ids"] == 1
    fact = {"stream": "events", "table_name": "events", "late_ids": 3, "duplicate_ids": 0}
    assert counts.correct_fact(fact)["late_ids"] == 0


def test_streams_that_count_downwards_are_mirrored() -> None:
    declared = catalogue.load_catalogue()
    gap = StreamGap(7, 9, GapClass.ROLLED_BACK)
    rows = [record_gaps._row(declared.stream(name), gap, datetime.now(UTC)) for name in ("events", "backfill")]
    assert [(row["first_id"], row["last_id"]) for row in rows] == [(7, 9), (-9, -7)]
