"""Measure state and visibility on the bronze of a large homeserver, and write ``docs/bench-visibility.md``.

``python -m bench.large`` needs neither Synapse nor its database: the data is made, and written to a lake of its own.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import filtering, large_bronze, large_rooms, machine
from bench.large_report import Built, Large, write
from bench.large_rooms import Server
from bench.meter import Meter, server_pid
from bench.worker import Worker
from synapse_lakehouse.embedded import postgres
from synapse_lakehouse.lake import catalog
from synapse_lakehouse.settings import PROJECT, Settings

MORE: Final = 0.001
"""New events of the increment, as a share of those before."""
LARGE: Final = {"lakehouse_driver_memory": "4g", "lakehouse_driver_java_options": "-XX:+UseParallelGC"}
"""What operators of a large server set: heap for large joins, and the compiler and collector that take their time."""
PAIRS: Final = 200_000_000
"""Rooms are asked for, from the largest on, until there are so many pairs."""
PAIRS_OF_SYNAPSE: Final = 1_500_000
"""So many are asked of Synapse, too, which takes minutes."""

_TABLES: Final = ("bronze.events", "bronze.state_groups", "bronze.state_groups_state", "silver.state_intervals",
                  "silver.event_circumstances", "gold.visibility_intervals")  # fmt: skip
_CHANGES: Final = """
    select count(*) from bronze.events
    where type = 'm.room.history_visibility' or type = 'm.room.member' and state_key like '%:bench.example'
"""
_SIZES: Final = """
    select room_id, 2 * events * users
    from (select room_id, count(*) as events from bronze.events group by room_id)
    join (select room_id, count(distinct user_id) + 1 as users from gold.visibility_intervals group by room_id)
    using (room_id)
"""

Progress = Callable[[str], None]


def main(
    scale: Annotated[float, typer.Option(help="1: 10M events in 2,000 rooms, the largest with 100,000 members")] = 1.0,
    report: Annotated[Path, typer.Option(help="folder for bench-visibility.md")] = PROJECT / "docs",
    again: Annotated[bool, typer.Option(help="write the report of the last measurements again")] = False,
) -> None:
    """Resolve the state and build who may see what, in full and after 0.1% new events, and ask for all of it."""
    kept = Settings().lakehouse_home / "bench" / "large.json"
    if not again:
        found = measure(kept.parent / "large", scale, typer.echo)
        kept.write_text(json.dumps(asdict(found), indent=1) + "\n")
    (report / "bench-visibility.md").write_text(write(Large.read(kept)), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench-visibility.md'}.")


def measure(home: Path, scale: float, progress: Progress) -> Large:
    """Make the data in the folder ``home``, and measure."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    server = large_rooms.server(scale, MORE)
    events = len(server.events["room"])
    first = round(events / (1 + MORE))
    with postgres.running(home / "postgres") as lakes:
        pid = server_pid(home / "postgres")
        lakes.create_database("large")
        settings = Settings().model_copy(
            update={
                "lakehouse_home": home,
                "lakehouse_warehouse": str(home / "warehouse"),
                "lakehouse_catalog_uri": lakes.dsn("large"),
                "synapse_server_name": large_bronze.SERVER_NAME,
                **LARGE,
            }
        )
        found = Large(scale, machine.described(), large_rooms.described(server))
        _fill(settings, server, range(first), progress)
        with Worker("bench.deciding:Deciding", settings) as worker:
            found.builds.append(_built(worker, pid, "everything", first, progress))
            rooms, counted = _rooms(worker, PAIRS)
            found.rows = {table: worker.call("rows", f"select count(*) from {table}")[0][0] for table in _TABLES}  # noqa: S608
            found.changes = worker.call("rows", _CHANGES)[0][0]
            found.intervals = worker.call("rows", "select count(user_id) from gold.visibility_intervals")[0][0]
            worker.call("publish")
            found.pairs, found.seconds = worker.call("count", rooms)
            if found.pairs != counted:
                raise AssertionError(f"{found.pairs} pairs were decided of {counted}")
            progress(f"{found.pairs:,} pairs in {found.seconds:.1f} s")
            rooms, _ = _rooms(worker, PAIRS_OF_SYNAPSE)
            found.asked, found.asked_seconds = filtering.ask(settings, lakes, rooms, home / "answers.parquet")
            found.differences = worker.call("differences", rooms, home / "answers.parquet")
            progress(f"{found.asked:,} pairs in {found.asked_seconds:.1f} s by Synapse, {found.differences} differ")
            _fill(settings, server, range(first, events), progress)
            worker.call("new_run")
            found.builds.append(_built(worker, pid, "0.1% new events", events - first, progress))
    return found


def _fill(settings: Settings, server: Server, events: range, progress: Progress) -> None:
    rows = large_bronze.fill(catalog.pyiceberg_catalog(settings), server, events)
    progress(f"{len(events):,} events are {rows:,} rows of bronze")


def _built(worker: Worker, server: int, what: str, events: int, progress: Progress) -> Built:
    with Meter(worker.pid, server, jvm=True) as resolving:
        worker.call("resolve")
    with Meter(worker.pid, server, jvm=True) as building:
        models = worker.call("build")
    assert resolving.cost
    assert building.cost
    progress(f"{what}: state {resolving.cost.wall:.1f} s, visibility {building.cost.wall:.1f} s")
    return Built(what, events, resolving.cost, building.cost, models)


def _rooms(worker: Worker, most: int) -> tuple[list[str], int]:
    """Rooms, from the largest on, with no more than so many pairs, and all pairs of theirs; the smallest at least."""
    chosen, pairs = [], 0
    sizes = sorted(worker.call("rows", _SIZES), key=lambda row: -row[1])
    for room, more in sizes:
        if pairs + more <= max(most, sizes[-1][1]):
            chosen.append(room)
            pairs += more
    return chosen, pairs


if __name__ == "__main__":
    typer.run(main)
