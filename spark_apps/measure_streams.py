"""Measure the run's branch of bronze: keys of every table, ids, positions and safe bounds of every stream."""

from synapse_lakehouse import catalogue
from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.lake import audit, release
from synapse_lakehouse.streams.measure import Measuring
from synapse_lakehouse.streams.writers import configured


def measure_streams(app: SparkApp) -> None:
    """Write ``audit.table_facts``, ``audit.stream_facts`` and ``audit.stream_positions`` of the run."""
    declared = catalogue.load()
    published = audit.releases(app.catalog)
    (snapshot,) = audit.of_run(app.catalog, "audit.snapshots", app.run.run_id)
    ledger = audit.of_run(app.catalog, "audit.ledger", app.run.run_id)
    snapshots = {row["table_name"]: row["snapshot_id"] for row in ledger}
    before = audit.of_run(app.catalog, "audit.table_facts", published[-1].run_id) if published else []
    measuring = Measuring(
        spark=app.spark,
        catalogue=declared,
        run=app.run,
        writers=configured(declared, app.settings.lakehouse_stream_writers, app.settings.synapse_config),
        kept=frozenset(name for name, _ in snapshot["drifted"] or ()),
        sequences={one["name"]: (one["last_value"], one["is_called"]) for one in snapshot["sequences"]},
        accepted=published[-1] if published else None,
        earlier=release.of_interval(published, app.run),
        snapshots=snapshots,
        measured={name: row for row in before if row["snapshot_id"] == snapshots.get(name := row["table_name"], -1)},
    )
    table_facts = measuring.table_facts()
    audit.append(app.catalog, "audit.table_facts", table_facts, app.run)
    app.progress(f"keys of {len(table_facts) - len(measuring.measured)} tables measured, the others are unchanged")
    audit.append(app.catalog, "audit.stream_facts", measuring.stream_facts(), app.run)
    facts = audit.of_run(app.catalog, "audit.stream_facts", app.run.run_id)
    positions = measuring.stream_positions(facts)
    audit.append(app.catalog, "audit.stream_positions", positions, app.run)
    bounded = sum(row["safe_bound"] is not None for row in positions)
    app.progress(f"{len(positions)} streams measured, {bounded} with a safe bound")


if __name__ == "__main__":
    main(__doc__, measure_streams)
