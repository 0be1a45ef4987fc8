"""The gate of bronze: what it lets pass, what it stops, and how it says so."""

from typing import Final, Literal

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from expectations import bronze, validate
from expectations.alert_findings import build_findings
from expectations.streams import ExpectGapsWithinBudget, ExpectIdInOneTable, ExpectNoLostId
from expectations.validation_result import CheckResult, ValidationFailedError, ValidationResult
from synapse_lakehouse import catalogue
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from tests.support.validation import DAY, DECLARED, RUN, Plant, Rows, change, forget, judge

STRICT: Final = "a warning, and this run was started to fail on any, so it publishes nothing"


def test_healthy_run_passes(settings: Settings) -> None:
    judgement = judge(settings)
    judgement.raise_if_failed()
    assert (judgement.warned, judgement.failed) == (0, 0)
    assert judgement.passed == len(judgement.checks) == 36
    told = {check.sentence for check in judgement.checks}
    assert {
        "bronze.events: every event_id occurs once — 0 rows repeating a key",
        "bronze.deltas: no NULL in stream_id — 0 rows with NULL in the key",
        "bronze.deltas: every (stream_id, room_id) occurs once — 0 rows repeating a key",
        "bronze.events: it has as many rows as the source in the same snapshot — 1,250 rows, 1,250 in the source",
        "stream events: no new deltas.stream_id at or below the bound accepted before — 0 ids came late, the bound was"
        " 1,100",
        "stream backfill: neither the safe bound nor a position ever rises — -90, -80 before",
        "stream events: rows at or below the bound accepted before stay as they were — 0 ids changed (12 read again"
        " since)",
        "stream events: no more than 50 % of the newly closed ids are without a row — 3 of 100 newly closed ids without"
        " a row",
    } <= told
    assert not any("every deltas.stream_id" in sentence for sentence in told), "an id may have several rows there"


@pytest.mark.parametrize(
    ("plant", "severity", "sentences"),
    [
        pytest.param(
            change("table_facts", 0, null_keys=1),
            "fail",
            ["bronze.events: no NULL in event_id — 1 row with NULL in the key"],
            id="NULL key",
        ),
        pytest.param(
            change("table_facts", 1, duplicate_keys=3),
            "fail",
            ["bronze.deltas: every (stream_id, room_id) occurs once — 3 rows repeating a key"],
            id="repeated key",
        ),
        pytest.param(
            change("stream_facts", 0, duplicate_ids=2),
            "fail",
            ["stream events: every events.stream_ordering occurs once — 2 rows repeating an id"],
            id="repeated stream id",
        ),
        pytest.param(
            change("stream_facts", 3, null_ids=4),
            "fail",
            ["stream caches: no NULL in invalidations.stream_id — 4 rows without an id"],
            id="NULL stream id",
        ),
        pytest.param(
            change("stream_facts", 2, late_ids=5),
            "fail",
            [
                "stream backfill: no new events.stream_ordering at or above the bound accepted before — 5 ids came"
                " late, the bound was -80"
            ],
            id="late id",
        ),
        pytest.param(
            change("ledger", 0, rows_source=1251),
            "fail",
            ["bronze.events: it has as many rows as the source in the same snapshot — 1,250 rows, 1,251 in the source"],
            id="a row less than the source",
        ),
        pytest.param(
            change("ledger", 1, rows_written=1249),
            "fail",
            ["bronze.deltas: every row that was read was written — 1,250 read, 1,249 written"],
            id="a row lost on the way",
        ),
        pytest.param(
            change("ledger", 1, hash_written="5f"),
            "fail",
            ["bronze.deltas: its new files hold what was read, by content — content hash 5e read, 5f written"],
            id="a bit that tipped",
        ),
        pytest.param(
            forget("ledger", 1),
            "fail",
            [
                "bronze.deltas: the run's ledger has the table — no row in audit.ledger for this run",
                "bronze.deltas: every row that was read was written — not measured by this run (rows_read)",
                "bronze.deltas: its new files hold what was read, by content — not measured by this run (hash_read)",
                "bronze.deltas: it has as many rows as the source in the same snapshot — not measured by this run"
                " (rows_source)",
            ],
            id="a table forgotten in the ledger",
        ),
        pytest.param(
            forget("table_facts", 0),
            "fail",
            [
                "bronze.events: it has as many rows as the source in the same snapshot — not measured by this run"
                " (rows)",
                "bronze.events: no NULL in event_id — not measured by this run (null_keys)",
                "bronze.events: every event_id occurs once — not measured by this run (duplicate_keys)",
            ],
            id="keys not measured",
        ),
        pytest.param(
            change("stream_positions", 0, safe_bound=1099, went_back=["the safe bound from 1100 to 1099"]),
            "fail",
            [
                "stream events: neither the safe bound nor a position ever falls — the safe bound from 1100 to 1099: "
                "the database is not the one it was"
            ],
            id="position goes down",
        ),
        pytest.param(
            change("stream_positions", 1, went_back=["ep1 from -90 to -79", "ep2 from -80 to -79"]),
            "fail",
            [
                "stream backfill: neither the safe bound nor a position ever rises — ep1 from -90 to -79, ep2 from -80 "
                "to -79: the database is not the one it was"
            ],
            id="negative position goes up",
        ),
        pytest.param(
            change("stream_positions", 0, largest_id=1332),
            "warn",
            [
                "stream events: events_seq is not behind positions and ids — sequence 1,300, furthest position 1,200,"
                " furthest id 1,332"
            ],
            id="sequence behind a row",
        ),
        pytest.param(
            change("stream_positions", 1, writers=[("main", -90), ("persister2", -1301)]),
            "warn",
            [
                "stream backfill: backfill_seq is not behind positions and ids — sequence 1,300, furthest position"
                " 1,301, furthest id 90"
            ],
            id="sequence behind a position",
        ),
        pytest.param(
            change(
                "stream_positions",
                0,
                gaps=[("lost", 1), ("rolled_back", 1200), ("purged", 7)],
                faults=["lost 9 in events (ep1)", "late 2 in deltas"],
            ),
            "fail",
            [
                "stream events: no row is gone that nothing explains — 1 id lost: 9 in events (ep1) (7 purged, 1,200"
                " rolled back)"
            ],
            id="lost row",
        ),
        pytest.param(
            change("stream_positions", 1, gaps=[("changed", 2)], faults=["changed -9..-8 in events"]),
            "fail",
            [
                "stream backfill: rows at or above the bound accepted before stay as they were — 2 ids changed: -9..-8"
                " in events (0 read again since)"
            ],
            id="changed row",
        ),
        pytest.param(
            change("stream_facts", 1, reread_ids=None),
            "fail",
            [
                "stream events: rows at or below the bound accepted before stay as they were — not measured by this"
                " run (deltas.reread_ids)"
            ],
            id="closed rows not compared",
        ),
        pytest.param(
            change("stream_positions", 0, closed_ids=399, rowless_ids=200, gaps=[("rolled_back", 200)]),
            "warn",
            [
                "stream events: no more than 50 % of the newly closed ids are without a row — 200 of 399 newly closed"
                " ids without a row"
            ],
            id="gap budget spent",
        ),
        pytest.param(
            change("stream_positions", 0, rule="assumed"),
            "warn",
            [
                "stream events: its writers are those that are configured — the writers were guessed from the data:"
                " set SYNAPSE_CONFIG or LAKEHOUSE_STREAM_WRITERS"
            ],
            id="assumed bound",
        ),
        pytest.param(
            change(
                "stream_positions",
                0,
                rule="missing_writer",
                safe_bound=None,
                missing_writers=["persister2"],
                vanished_writers=["persister2"],
            ),
            "warn",
            [
                "stream events: no writer lost its position — persister2 had a position and has none any more, so there"
                " is no safe bound"
            ],
            id="vanished writer",
        ),
        pytest.param(
            change(
                "stream_positions",
                0,
                rule="missing_writer",
                safe_bound=None,
                missing_writers=["persiter2"],
                unknown_writers=["persister2"],
            ),
            "warn",
            [
                "stream events: its writers are those that are configured — persister2 wrote and is not configured, no"
                " position of persiter2: do the names fit?"
            ],
            id="misspelled writer",
        ),
        pytest.param(
            change("stream_positions", 0, rule="unknown_writer", unknown_writers=["persister3"]),
            "warn",
            [
                "stream events: its writers are those that are configured — persister3 went on writing and is not"
                " configured"
            ],
            id="unknown writer",
        ),
    ],
)
def test_fault_is_found(settings: Settings, plant: Plant, severity: str, sentences: list[str]) -> None:
    judgement = judge(settings, plant)
    missed = [check for check in judgement.checks if not check.success]
    assert [check.sentence for check in missed] == sentences
    assert {check.severity for check in missed} == {severity}
    if severity == "warn":
        judgement.raise_if_failed()
        assert judgement.warned == len(sentences)
        assert f"warned: {sentences[0]}" in judgement.summary()
        return
    with pytest.raises(ValidationFailedError, match=r"readers still see the release before") as failure:
        judgement.raise_if_failed()
    assert all(sentence in str(failure.value) for sentence in sentences)
    assert judgement.data_docs in str(failure.value)


def test_ids_in_several_tables_are_expected_of_streams_with_several_only() -> None:
    suite = bronze.build_suite(catalogue.load_catalogue())
    of = {one.column for one in suite if isinstance(one, ExpectIdInOneTable)}
    assert of == {f"stream {name}" for name in ("events", "backfill", "pushers", "account_data")}
    judged = ExpectIdInOneTable(column="stream account_data")._judge({"shared_ids": 2})
    assert judged == (False, "2 ids in several tables")


@pytest.mark.parametrize(
    ("missing", "observed"),
    [(["persister4"], "persister4"), (["persister1", "persister2"], "persister1, persister2"), ([], "any writer")],
)
def test_a_writer_that_never_wrote_is_no_fault(settings: Settings, missing: list[str], observed: str) -> None:
    plant = change("stream_positions", 0, rule="missing_writer", safe_bound=None, missing_writers=missing)
    judgement = judge(settings, plant)
    assert all(check.success for check in judgement.checks)
    assert f"no position of {observed} yet, so there is no safe bound" in {check.observed for check in judgement.checks}


def test_a_writer_that_was_removed_and_still_has_a_position_is_no_fault(settings: Settings) -> None:
    judgement = judge(
        settings, change("stream_positions", 0, rule="unconfigured_writer", unknown_writers=["persister3"])
    )
    assert all(check.success for check in judgement.checks)
    assert any("persister3 is not configured" in check.observed for check in judgement.checks)


@pytest.mark.parametrize(
    ("plant", "observed"),
    [
        pytest.param(change("stream_positions", 0, previous_bound=None), "1,200, none before", id="first bound"),
        pytest.param(
            change("stream_positions", 0, safe_bound=None, rule="unused"),
            "no bound now (unused), 1,100 before",
            id="none",
        ),
        pytest.param(change("stream_positions", 0, safe_bound=1100), "1,100, 1,100 before", id="idle"),
    ],
)
def test_bound_that_did_not_go_back(settings: Settings, plant: Plant, observed: str) -> None:
    (check,) = [
        check
        for check in judge(settings, plant).checks
        if check.subject == "stream events" and check.expectation == "neither the safe bound nor a position ever falls"
    ]
    assert (check.success, check.observed) == (True, observed)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(change("stream_positions", 0, closed_ids=99, rowless_ids=99), id="a few"),
        pytest.param(change("stream_positions", 0, closed_ids=400, rowless_ids=200), id="half of them"),
        pytest.param(
            change("stream_positions", 0, closed_ids=400, rowless_ids=390, gaps=[("purged", 1), ("rolled_back", 390)]),
            id="in a run that saw a purge",
        ),
        pytest.param(change("stream_positions", 0, closed_ids=None, rowless_ids=None), id="history"),
        pytest.param(change("stream_positions", 1, closed_ids=4000, rowless_ids=4000), id="where ids are spent freely"),
    ],
)
def test_gaps_that_spend_no_budget(settings: Settings, plant: Plant) -> None:
    assert not judge(settings, plant).warned


def test_a_budget_that_is_set_wins_where_there_is_one() -> None:
    def budgets(gap_budget: int | None) -> dict[str, int]:
        expected = bronze.build_suite(catalogue.load_catalogue(), gap_budget=gap_budget)
        return {one.column: one.percent for one in expected if isinstance(one, ExpectGapsWithinBudget)}

    assert budgets(None)["stream events"] == 50
    assert set(budgets(80).values()) == {80}
    assert not {"stream backfill", "stream push_rules", "stream receipts"} & budgets(80).keys(), "ids are spent freely"


def test_a_table_that_was_left_as_it_was_is_not_blamed(settings: Settings) -> None:
    def plant(rows: Rows) -> None:
        rows["snapshots"][0]["drifted"] = [
            ("deltas", "deltas has no column room_id."),
            ("invalidations", "Gone."),
        ]
        rows["ledger"] = [row for row in rows["ledger"] if row["table_name"] != "deltas"]
        rows["stream_facts"] = [row for row in rows["stream_facts"] if row["table_name"] != "invalidations"]
        rows["stream_positions"][0] |= {"rule": "held", "safe_bound": 1100}

    judgement = judge(settings, plant)
    assert judgement.failed == 0
    assert [check.sentence for check in judgement.warnings] == [
        "bronze.deltas: the source's schema lets it be copied — left as it was: deltas has no column room_id.",
        "bronze.invalidations: the source's schema lets it be copied — left as it was: Gone.",
        "stream events: its writers are those that are configured — a table of it could not be copied, so its bound"
        " stays where it was",
    ]


def test_what_the_catalogue_has_never_heard_of_is_named(settings: Settings) -> None:
    judgement = judge(settings, change("snapshots", 0, novelties=["polls", "events.mood"]))
    assert judgement.failed == 0
    assert [check.sentence for check in judgement.warnings] == [
        "schema of the source: the catalogue knows all of its tables and columns — not copied: polls, events.mood"
    ]


def test_rows_may_repeat_where_the_catalogue_says_so(settings: Settings) -> None:
    deltas = DECLARED.table("deltas").model_copy(update={"key_enforced": False, "repeats_keys": True})
    declared = DECLARED.model_copy(
        update={"tables": (DECLARED.table("events"), deltas, DECLARED.table("invalidations"))}
    )
    assert not judge(settings, change("table_facts", 1, duplicate_keys=1), declared).failed
    assert judge(settings, change("table_facts", 1, null_keys=1), declared).failed
    assert judge(settings, change("table_facts", 0, duplicate_keys=1), declared).failed


def test_sequence_that_was_never_called(settings: Settings) -> None:
    fresh = {"sequence_last_value": 1, "sequence_is_called": False, "largest_id": None, "writers": [("main", 1)]}
    judgement = judge(settings, change("stream_positions", 0, safe_bound=1, previous_bound=None, **fresh))
    assert judgement.warned == 0, "id 1 counts as handed out from the start"


def test_every_table_and_stream_of_the_catalogue_is_judged() -> None:
    known = catalogue.load_catalogue()
    subjects = [one.column for one in bronze.build_suite(known)]
    assert {name for name in subjects if name.startswith("bronze.")} == {
        f"bronze.{one.name}" for one in known.copied_tables()
    }
    assert {name for name in subjects if name.startswith("stream ")} == {f"stream {one.name}" for one in known.streams}
    told = [(one.column, one.description) for one in bronze.build_suite(known)]
    assert len(told) == len(set(told)), "audit.checks tells checks apart by subject and expectation"


def test_gate_reads_the_runs_measures_and_records_its_checks(settings: Settings) -> None:
    catalog = InMemoryCatalog("lake", warehouse=settings.warehouse)
    tables.ensure_audit_tables(catalog)
    known = catalogue.load_catalogue()
    store.append_audit_rows(catalog, "audit.snapshots", [{"novelties": [], "drifted": [], "taken_at": DAY}], RUN)
    store.append_audit_rows(
        catalog, "audit.ledger",
        [{"table_name": one.name, "rows_source": 7, "rows_read": 7, "rows_written": 7, "hash_read": "0",
          "hash_written": "0", "written_at": DAY}
         for one in known.copied_tables()], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.table_facts",
        [{"table_name": one.name, "rows": 7, "null_keys": 0, "duplicate_keys": int(one.name == "events"),
          "measured_at": DAY} for one in known.copied_tables()], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.stream_positions",
        [{"stream": one.name, "writers": [("main", 1)], "missing_writers": [], "rule": "configured", "safe_bound": 1,
          "sequence_last_value": 2, "sequence_is_called": True, "gaps": [], "shared_ids": 0, "faults": [],
          "went_back": [], "measured_at": DAY}
         for one in known.streams], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.stream_facts",
        [{"stream": one.name, "table_name": backing.name, "null_ids": 0, "duplicate_ids": 0, "reread_ids": 0,
              "measured_at": DAY}
         for one in known.streams for backing, _ in known.backing_tables(one.name)], RUN,
    )  # fmt: skip
    other = Run("another", RUN.start, RUN.end)
    store.append_audit_rows(catalog, "audit.table_facts", [{"table_name": "rooms", "rows": 0, "null_keys": 9}], other)

    judgement = validate.validate_bronze(settings, catalog, RUN)

    assert [check.sentence for check in judgement.failures] == [
        "bronze.events: every event_id occurs once — 1 row repeating a key"
    ]
    assert judgement.warned == 0, "no tap is used, so nothing is expected of one"
    rows: pa.Table = catalog.load_table("audit.checks").scan().to_arrow()
    columns = ("suite", "subject", "expectation", "severity", "success", "observed")
    recorded = [{name: row[name] for name in columns} for row in rows.to_pylist()]
    assert recorded == [{name: getattr(check, name) for name in columns} for check in judgement.checks]
    assert set(zip(rows["stage"].to_pylist(), rows["run_id"].to_pylist(), strict=True)) == {("bronze", RUN.run_id)}


@pytest.mark.parametrize(
    ("first", "strict", "blocked", "warned"),
    [
        (False, False, "readers have the release before", "a warning: it keeps no release from being published"),
        (True, False, "there is no release yet", "a warning: it keeps no release from being published"),
        (False, True, "readers have the release before", f"{STRICT}; readers have the release before"),
        (True, True, "there is no release yet", f"{STRICT}; there is no release yet"),
    ],
)
def test_an_alert_says_what_follows_and_a_failure_counts_more_than_a_warning(
    first: bool, strict: bool, blocked: str, warned: str
) -> None:
    def check(subject: str, severity: Literal["fail", "warn"], observed: str) -> CheckResult:
        return CheckResult(
            "bronze", ExpectNoLostId.expectation_type, subject, "no row is gone", severity, False, observed
        )

    judgement = ValidationResult(
        "bronze", [check("a", "warn", "1 id"), check("a", "fail", "2 ids"), check("b", "warn", "3 ids")], ""
    )
    assert build_findings(judgement, is_first=first, fails_on_warnings=strict) == [
        AlertFinding(
            IncidentKind.LOST_IDS, "a", "no row is gone — 2 ids\nno row is gone — 1 id",
            f"nothing is published while this is so; {blocked}",
        ),
        AlertFinding(IncidentKind.LOST_IDS, "b", "no row is gone — 3 ids", warned),
    ]  # fmt: skip
