"""Replication coverage reports rows that a tap or bronze lacks, with the reason."""

from contextlib import closing
from typing import Any

import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.replication.coverage.measure_coverage import TABLE
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Update
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from tests.replication.database import CATALOGUE
from tests.support.stream_lake import Database, MeasuredLake

P1, P2, RECEIPTS = ("events", "persister1"), ("events", "persister2"), ("receipts", "worker1")


class Tap:
    """Writes received commands to the lake; its positions are those of the last command."""

    def __init__(self, settings: Settings, **positions: int) -> None:
        self._settings = settings
        self.positions: dict[tuple[str, str | None], int] = {
            P1: positions["events"],
            P2: positions["events"],
            RECEIPTS: positions["receipts"],
        }

    def receive(self, *items: Update | Gap | c.Position) -> None:
        batch = Batch(RowRedactor(CATALOGUE), "redis", Dialect.REDIS)
        for item in items:
            batch.add(item)
            source, upto = (item.stream, item.instance), item.upto if isinstance(item, Gap) else item.token
            self.positions[source] = max(self.positions[source], upto)
        batch.add_positions(self.positions)
        with closing(open_catalog(self._settings)) as catalog:
            sink = IcebergSink(catalog, "redis", Dialect.REDIS)
            sink.read_positions()
            sink.append(batch)


def event_update(
    token: int, event_id: str, room_id: str, state_key: str | None = None, *, is_read: bool = False
) -> Update:
    row = ["ev", [event_id, room_id, "m.room.message", state_key, None, None, None, False, False]]
    return Update(*P2, token, (row,), is_read)


def read_coverage(lake: MeasuredLake) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the latest run's rows by stream and writer."""
    with closing(open_catalog(lake.settings)) as catalog:
        run = store.read_releases(catalog)[-1].run_id
        return {(row["stream"], row["instance"]): row for row in store.read_run_rows(catalog, TABLE, run)}


def reasons(row: dict[str, Any]) -> set[tuple[str, str, int, int]]:
    return {(part["side"], part["reason"], part["first_id"], part["last_id"]) for part in row["missing"]}


@pytest.mark.heavy
def test_missing_rows_are_found_on_both_sides_with_reasons(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    start_position = source.store()
    (receipt,) = source.fetch_one("select stream_id from stream_positions where stream_name = 'receipts'")
    tap = Tap(lake.settings, events=start_position, receipts=receipt)
    tap.receive(c.Position(*P2, start_position, start_position))
    lake.examine()
    assert {(row["after"], row["upto"], row["ids"]) for row in read_coverage(lake).values()} == {
        (start_position, start_position, 0), (receipt, receipt, 0)
    }  # fmt: skip

    rooms = source.run(
        "select room_id, max(depth) from events where state_key is null and stream_ordering > 0"
        " group by room_id having count(*) > 8 order by count(*) desc limit 3"
    ).fetchall()
    room = rooms[2][0]
    (template_event,) = source.fetch_one(
        "select event_id from events where room_id = %s and state_key is null limit 1", room
    )
    ids = _write_and_receive(source, tap, rooms, template_event, start_position)
    source.store()
    source.reserve()
    open_id = source.reserve()
    tap.receive(event_update(open_id, source.write(template_event, open_id), room))
    gaps = lake.examine()

    gaps_by_event = {name: (first, *rest) for stream, _, first, _, *rest in gaps for name, id_ in ids.items()
             if stream == "events" and id_ == first}  # fmt: skip
    assert gaps_by_event == {
        "purged": (ids["purged"], "purged", "rdata", "history_purged"),
        "deleted": (ids["deleted"], "purged", "rdata", "room_deleted"),
        "lost": (ids["lost"], "lost", "rdata", None),
        "moved": (ids["moved"], "purged", "rdata", "second_life"),
        "rolled_back": (ids["rolled_back"], "rolled_back", None, None),
    }
    _check_rows(read_coverage(lake), ids, start_position, lake.bound())

    # A run without a new command writes no row. A later run compares the command above the bound.
    source.store()
    lake.examine()
    assert read_coverage(lake) == {}
    next_id = source.reserve()
    tap.receive(event_update(next_id, source.write(template_event, next_id), room))
    source.store()
    lake.examine()
    row = read_coverage(lake)[P2]
    assert (row["upto"], row["token_regressions"], reasons(row)) == (next_id, 0, set())
    assert (row["ids"], row["tokens_received"]) == (2, 2)


def _write_and_receive(
    source: Database, tap: Tap, rooms: list[tuple[str, int]], template_event: str, start_position: int
) -> dict[str, int]:
    """Write events and receive commands, so that each side lacks rows for every reason. Return the IDs."""
    (purged_room, depth), (deleted_room, _), (room, _) = rooms
    ids = {name: source.reserve() for name in (
        "received", "read", "unread", "unannounced", "purged", "deleted", "lost", "lost_state", "moved", "rolled_back",
    )}  # fmt: skip
    events = {name: source.write(template_event, ids[name]) for name in ("received", "read", "unread", "unannounced")}
    ids["receipt"] = source.reserve("receipts_sequence")
    tap.receive(
        event_update(ids["received"], events["received"], room),
        event_update(ids["read"], events["read"], room, is_read=True),
        Gap(*P2, ids["received"], ids["unread"], 1, "because"),
        event_update(ids["purged"], "$purged", purged_room),
        event_update(ids["deleted"], "$deleted", deleted_room, ""),
        event_update(ids["lost"], "$lost", room),
        event_update(ids["lost_state"], "$lost_state", purged_room, "state"),
        event_update(ids["moved"], events["received"], room),
        c.Position(*P2, ids["received"], ids["received"]),
        Update(*RECEIPTS, ids["receipt"], (["!r", "m.read", "@a", "$a", None, {"ts": 5}],)),
    )
    source.purge(purged_room, depth), source.delete(deleted_room)
    tap.receive(c.Position(*P1, start_position, ids["rolled_back"]), c.Position(*P2, ids["moved"], ids["rolled_back"]))
    source.run("update stream_positions set stream_id = %s where stream_name = 'receipts'", [ids["receipt"]])
    return ids


def _check_rows(
    rows: dict[tuple[str, str], dict[str, Any]], ids: dict[str, int], start_position: int, bound: int
) -> None:
    row = rows[P2]
    assert reasons(row) == {
        ("wire", "gap: because", ids["unread"], ids["unread"]),
        ("wire", "never_announced", ids["unannounced"], ids["unannounced"]),
        ("lake", "history_purged", ids["purged"], ids["purged"]),
        ("lake", "room_deleted", ids["deleted"], ids["deleted"]),
        ("lake", "lost", ids["lost"], ids["lost_state"]),
        ("lake", "second_life", ids["moved"], ids["moved"]),
    }
    counts = ("tokens_received", "tokens_read", "rows", "gaps", "missed", "unexplained", "rowless", "token_regressions")
    assert {name: row[name] for name in ("after", "ids", *counts)} == {
        "after": start_position, "ids": 4, "tokens_received": 6, "tokens_read": 1, "rows": 7, "gaps": 1, "missed": 2,
        "unexplained": 1, "rowless": 5, "token_regressions": 1,
    }  # fmt: skip
    assert reasons(rows[RECEIPTS]) == {("lake", "replaced", ids["receipt"], ids["receipt"])}
    assert rows[P1]["upto"] == row["upto"] == bound
