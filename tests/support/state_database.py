"""Databases with Synapse's tables of room state, filled from generated rooms."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa

from bench.compression.synthetic_rooms import STATE_TABLES
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.state_rooms import State, World, resolve_state


@contextmanager
def state_database(server: EmbeddedServer) -> Iterator[str]:
    """Create an empty database with Synapse's tables of room state; yield its URI."""
    name = f"compression_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
        connection.execute(STATE_TABLES.encode())
    yield server.dsn(name)
    server.tool("dropdb", "--force", name)


def store(world: World, dsn: str) -> None:
    """Insert new groups of ``world`` into the database, and delete its purged groups."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        stored_groups = {first for (first,) in cursor.execute("SELECT id FROM state_groups")}
        new = [group for group in world.groups if group not in stored_groups]
        deleted = list(stored_groups - world.groups.keys())
        cursor.execute("DELETE FROM state_groups WHERE id = ANY(%s)", [deleted])
        cursor.execute("DELETE FROM state_group_edges WHERE state_group = ANY(%s)", [deleted])
        deleted = [group for group in deleted if group not in world.rows]
        cursor.execute("DELETE FROM state_groups_state WHERE state_group = ANY(%s)", [deleted])
        with cursor.copy("COPY state_groups FROM STDIN") as copy:
            for group in new:
                copy.write_row((group, world.groups[group], "$any"))
        with cursor.copy("COPY state_group_edges FROM STDIN") as copy:
            for group in new:
                if group in world.edges:
                    copy.write_row((group, world.edges[group]))
        with cursor.copy("COPY state_groups_state FROM STDIN") as copy:
            for group in new:
                for (kind, state_key), event in world.rows[group].items():
                    copy.write_row((group, world.groups[group], kind, state_key, event))


def read_table(dsn: str, columns: str, table: str) -> pa.Table:
    """Return columns of a table, ordered by all of them."""
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {columns}")
        names = columns.split(", ")
        kinds = [
            pa.int64() if name.endswith(("id", "group")) and name not in ("room_id", "event_id") else pa.string()
            for name in names
        ]
        rows = cursor.fetchall()
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table([pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)], names)


def state_tables(dsn: str) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return ``state_groups``, ``state_group_edges`` and ``state_groups_state``."""
    return (
        read_table(dsn, "id, room_id", "state_groups"),
        read_table(dsn, "state_group, prev_state_group", "state_group_edges"),
        read_table(dsn, "state_group, type, state_key, event_id", "state_groups_state"),
    )


def all_states(dsn: str) -> dict[int, State]:
    """Return the resolved state of each group."""
    groups, edges, rows = snapshot(dsn)
    return {group: resolve_state(edges, rows, group) for group in groups}


def read_state(dsn: str) -> tuple[dict[int, int], dict[int, State]]:
    """Return the predecessor and the delta rows of each group."""
    return snapshot(dsn)[1:]


def snapshot(dsn: str) -> tuple[set[int], dict[int, int], dict[int, State]]:
    """Return the groups, predecessors and delta rows of one PostgreSQL snapshot."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        groups = {group for (group,) in connection.execute("SELECT id FROM state_groups")}
        edges: dict[int, int] = dict(
            connection.execute("SELECT state_group, prev_state_group FROM state_group_edges").fetchall()
        )
        rows: dict[int, State] = {}
        for group, kind, state_key, event in connection.execute(
            "SELECT state_group, type, state_key, event_id FROM state_groups_state"
        ):
            assert rows.setdefault(group, {}).setdefault((kind, state_key), event) == event
    return groups, edges, rows
