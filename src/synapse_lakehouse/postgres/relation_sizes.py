"""Measure every relation of Synapse's database, the database, and the WAL that replication slots hold."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import psycopg
from psycopg.rows import class_row

from synapse_lakehouse.catalogue import Catalogue, load_catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.preflight import require_server_name
from synapse_lakehouse.postgres.access.state_database import read_database_identity
from synapse_lakehouse.postgres.connection import Connection, connect, split_by_database
from synapse_lakehouse.postgres.relation_size import RelationSize

_MAX_ATTEMPTS: Final = 3
"""Maximum number of measurements. A measurement fails if a session locks a relation after the locks were read."""

_TIMEOUTS: Final = "set local lock_timeout = '500ms'; set local statement_timeout = '60s'"

_RELATIONS: Final = """
with locked as materialized (
  select distinct relation as oid from pg_locks
  where mode = 'AccessExclusiveLock' and relation is not null
    and database = (select oid from pg_database where datname = current_database())
), relations as (
  select pg_class.oid, nspname, relname, relispartition, relkind, reltuples, reloptions, reltoastrelid, relfrozenxid,
    (select relfrozenxid from pg_class toast where toast.oid = pg_class.reltoastrelid) as toast_frozenxid,
    not %(with_sizes)s or exists (
      select from locked where locked.oid in (pg_class.oid, reltoastrelid)
        or locked.oid in (select indexrelid from pg_index where indrelid in (pg_class.oid, reltoastrelid))
    ) as is_locked
  from pg_class join pg_namespace on pg_namespace.oid = relnamespace
  where relkind in ('r', 'm') and relpersistence <> 't' and not starts_with(nspname, 'pg_')
    and nspname <> 'information_schema'
), options as (
  select oid,
    coalesce(max(option_value) filter (where option_name = 'autovacuum_enabled'), 'true')::boolean
      and current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean as is_enabled,
    coalesce(max(option_value) filter (where option_name = 'autovacuum_vacuum_threshold'),
      current_setting('autovacuum_vacuum_threshold'))::float8 as threshold,
    coalesce(max(option_value) filter (where option_name = 'autovacuum_vacuum_scale_factor'),
      current_setting('autovacuum_vacuum_scale_factor'))::float8 as scale_factor,
    coalesce(max(option_value) filter (where option_name = 'autovacuum_vacuum_max_threshold'),
      current_setting('autovacuum_vacuum_max_threshold', true), '-1')::float8 as max_threshold,
    least((max(option_value) filter (where option_name = 'autovacuum_freeze_max_age'))::bigint,
      current_setting('autovacuum_freeze_max_age')::bigint) as freeze_max_age
  from relations left join lateral pg_options_to_table(reloptions) on true group by oid
)
select case when relkind = 'm' then 'materialized_view' when relispartition then 'partition' else 'table' end as kind,
  nspname as schema_name, relations.relname as name,
  case when not is_locked then pg_table_size(oid) + pg_indexes_size(oid) end as bytes,
  case when not is_locked then pg_indexes_size(oid) end as index_bytes,
  coalesce(nullif(n_live_tup, 0), nullif(reltuples, -1)::bigint, 0) as live_rows,
  case when not pg_is_in_recovery() then n_dead_tup end as dead_rows,
  greatest(last_vacuum, last_autovacuum) as last_vacuum, last_autovacuum,
  least(threshold + scale_factor * greatest(reltuples, 0), nullif(max_threshold, -1))::bigint as vacuum_threshold,
  is_enabled as autovacuum_enabled,
  greatest(nullif(age(relfrozenxid), 2147483647), nullif(age(toast_frozenxid), 2147483647)) as transaction_id_age,
  freeze_max_age, null as is_active
from relations join options using (oid) left join pg_stat_all_tables on relid = oid
"""
"""Relations with a heap of their own. A function that measures a relation waits for its lock. Therefore relations that
a session has locked, or waits to lock, in ACCESS EXCLUSIVE mode are not measured. Ages of 2147483647 mean no ID."""

_DATABASE_AND_SLOTS: Final = """
select 'database' as kind, null as schema_name, datname as name, pg_database_size(oid) as bytes,
  null::bigint as index_bytes, null::bigint as live_rows, null::bigint as dead_rows, null::timestamptz as last_vacuum,
  null::timestamptz as last_autovacuum, null::bigint as vacuum_threshold, null::boolean as autovacuum_enabled,
  age(datfrozenxid) as transaction_id_age, current_setting('autovacuum_freeze_max_age')::bigint as freeze_max_age,
  null::boolean as is_active
from pg_database where datname = current_database()
union all
select 'replication_slot', null, slot_name, greatest(pg_wal_lsn_diff(
    case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, restart_lsn), 0)::bigint,
  null, null, null, null, null, null, null, greatest(age(xmin), age(catalog_xmin)), null, active
from pg_replication_slots
order by kind
"""


def read_relation_sizes(settings: Settings) -> list[RelationSize]:
    """Return all relations, the database and the replication slots.

    If state has a database of its own, the database's size is the sum of both databases, and its transaction ID age is
    the larger one. Slots of another server than main's have the suffix " (state)". The role needs only the grants that
    the check of the server name needs. A relation that another session has locked in ACCESS EXCLUSIVE mode has no size.

    :raises SourceError: when no connection can be made, or the database belongs to another homeserver.
    :raises ReadError: when a statement fails, or takes longer than a minute.
    """
    server_starts = list[datetime]()
    databases, sizes = list[RelationSize](), dict[tuple[str, str | None, str], RelationSize]()
    for part in split_by_database(settings, load_catalogue()):
        names = {table.name for table in part.tables}
        with connect(settings, part.databases[0]) as connection:
            _require_own_database(connection, part, settings)
            database, *slots = _read(connection, _DATABASE_AND_SLOTS)
            databases.append(database)
            server_starts.append(read_database_identity(connection).server_started_at)
            if server_starts[0] != server_starts[-1]:
                slots = [replace(slot, name=f"{slot.name} (state)") for slot in slots]
            for size in [*_read_relations(connection), *slots]:
                # Each database has tables such as schema_version, and main may have former tables of state.
                key = (size.kind, size.schema_name, size.name)
                sizes[key] = size if size.name in names else sizes.get(key, size)
    oldest = max(databases, key=lambda size: size.transaction_id_age or 0)
    total = replace(oldest, name=databases[0].name, bytes=sum(size.bytes or 0 for size in databases))
    return [*sizes.values(), total]


def _require_own_database(connection: Connection, catalogue: Catalogue, settings: Settings) -> None:
    connection.execute(_TIMEOUTS)
    # While a session rewrites the table of users, this check cannot run, and the sizes are more useful than the check.
    with suppress(psycopg.errors.LockNotAvailable):
        require_server_name(connection, catalogue, settings)
    connection.rollback()


def _read_relations(connection: Connection) -> list[RelationSize]:
    for _ in range(_MAX_ATTEMPTS):
        try:
            return _read(connection, _RELATIONS, with_sizes=True)
        except psycopg.errors.LockNotAvailable:
            connection.rollback()
    return _read(connection, _RELATIONS, with_sizes=False)


def _read(connection: Connection, query: str, **parameters: bool) -> list[RelationSize]:
    connection.execute(_TIMEOUTS)
    with connection.cursor(row_factory=class_row(RelationSize)) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()
