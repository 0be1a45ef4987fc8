"""The catalogue equals a real Synapse's database and the source of the Synapse release."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.catalogue import LoadMode, load_catalogue
from synapse_lakehouse.compressor.postgres import progress_tables
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access.schema_drift import (
    ALL_COLUMNS_SQL,
    SchemaDrift,
    find_drift,
    find_drifted_tables,
    find_unknown_objects,
)

Connection = psycopg.Connection[tuple[Any, ...]]

MEMORY_ONLY_STREAMS = {"typing", "presence_federation", "federation"}
NO_REPLICATION_STREAM = {"e2e_cross_signing_keys"}
PRIVATE_METADATA = {"device_id", "token_id", "txn_id", "delay_id"}
METADATA_IN_OTHER_COLUMNS = {"outlier", "stream_ordering", "instance_name"}
METADATA_NEVER_STORED = {"redacted_by"}


@pytest.fixture
def connection(server: EmbeddedServer, sample_dsn: str) -> Iterator[Connection]:
    """Yield a superuser's connection to the sample. All changes are rolled back."""
    with psycopg.connect(server.dsn(str(conninfo_to_dict(sample_dsn)["dbname"]))) as superuser:
        yield superuser
        superuser.rollback()


def to_tuples(drifts: list[SchemaDrift]) -> list[tuple[str, str | None, str]]:
    return [(drift.table, drift.column, drift.kind) for drift in drifts]


def test_a_synapse_database_fits(connection: Connection) -> None:
    assert find_drift(load_catalogue(), connection) == []


def test_unenforced_keys_have_no_unique_index(connection: Connection) -> None:
    tables_with_enforced_key = [
        table.model_copy(update={"key_enforced": True})
        for table in load_catalogue().tables
        if not table.key_enforced and table.primary_key
    ]
    drifts = find_drift(load_catalogue().model_copy(update={"tables": tuple(tables_with_enforced_key)}), connection)
    assert {drift.table for drift in drifts} == {table.name for table in tables_with_enforced_key}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("alter table events rename column depth to height", [("events", "depth", "missing_column")]),
        ("alter table users alter column creation_ts type integer", [("users", "creation_ts", "changed_type")]),
        ("alter table threads rename to strands", [("threads", None, "missing_table")]),
        ("drop index ignored_users_uniqueness", [("ignored_users", None, "missing_unique_key")]),
        ("drop index receipts_linearized_unique_index", [("receipts_linearized", None, "missing_unique_key")]),
        ("alter sequence receipts_sequence rename to slips", [("receipts_sequence", None, "missing_sequence")]),
        ("alter table event_auth_chains rename to chains", [("event_auth_chains", "chain_id", "missing_column")]),
        ("alter table devices drop column last_seen", [("devices", "last_seen", "missing_column")]),
        (
            "alter table account_data rename column account_data_type to kind",
            [("account_data", "account_data_type", "missing_column")],
        ),
    ],
)
def test_a_schema_change_is_reported(
    connection: Connection, change: str, expected: list[tuple[str, str | None, str]]
) -> None:
    connection.execute(change.encode())
    drifts = find_drift(load_catalogue(), connection)
    assert to_tuples(drifts) == expected
    assert all((drift.column or drift.table) in drift.message for drift in drifts)


def test_unlisted_tables_are_no_drift_and_new_ones_are_listed(connection: Connection) -> None:
    assert find_unknown_objects(load_catalogue(), connection) == []
    connection.execute("alter table events add column novelty text")
    connection.execute("alter table user_threepids add column novelty text")
    connection.execute("alter table users drop column password_hash")
    connection.execute("create table novelties (id bigint primary key)")
    connection.execute(
        "create table _temp_populate_user_directory_rooms (room_id text not null, events bigint not null)"
    )
    assert find_drift(load_catalogue(), connection) == []
    assert find_unknown_objects(load_catalogue(), connection) == [
        "events.novelty",
        "novelties",
        "user_threepids.novelty",
    ]


def test_tables_of_tools_are_not_new(connection: Connection) -> None:
    """Compressors and synapse_port_db store their progress in Synapse's database."""
    for statement in progress_tables.CREATE_STATEMENTS:
        connection.execute(statement.encode())
    connection.execute("create table port_from_sqlite3 (table_name varchar(100), forward_rowid bigint)")
    assert find_unknown_objects(load_catalogue(), connection) == []


def test_excluded_columns_exist_and_are_not_copied(connection: Connection) -> None:
    """The catalogue and the list of excluded columns together are Synapse's schema."""
    catalogue = {
        table.name: {name for column in table.columns for name in column.source_columns}
        for table in load_catalogue().tables
    }
    lines = []
    for name, columns in connection.execute(ALL_COLUMNS_SQL):
        if other_columns := [column for column in columns if column not in catalogue.get(name, ())]:
            lines.append(f"{name}: {' '.join(other_columns)}\n")
    excluded_columns = PROJECT_FOLDER / "src/synapse_lakehouse/postgres/excluded_columns.txt"
    assert excluded_columns.read_text() == "".join(lines)


def test_a_drifted_table_is_reported_with_all_differences(connection: Connection) -> None:
    connection.execute("alter table room_depth drop column min_depth")
    connection.execute("alter table users drop column creation_ts, alter column approved type text")
    connection.execute("drop index ignored_users_uniqueness")
    drifts = find_drifted_tables(load_catalogue(), connection)
    assert drifts.keys() == {"room_depth", "users"}
    assert "creation_ts" in drifts["users"]
    assert "users.approved has the type text" in drifts["users"]


def test_every_position_belongs_to_a_stream(connection: Connection) -> None:
    positions = {name for (name,) in connection.execute("select distinct stream_name from stream_positions")}
    assert positions
    assert positions <= {stream.stream_positions for stream in load_catalogue().streams}


def test_the_schema_version_is_supported(connection: Connection, synapse_facts: dict[str, Any]) -> None:
    catalogue = load_catalogue()
    assert synapse_facts["schema_version"] == catalogue.newest_schema_version
    version_row = connection.execute("select version from schema_version").fetchone()
    assert version_row is not None
    assert catalogue.oldest_schema_version <= version_row[0] <= catalogue.newest_schema_version


def test_the_streams_are_synapses_streams(synapse_facts: dict[str, Any]) -> None:
    assert {stream.name for stream in load_catalogue().streams} == set(synapse_facts["streams"]) - MEMORY_ONLY_STREAMS


def test_each_stream_is_numbered_as_synapse_numbers_it(synapse_facts: dict[str, Any]) -> None:
    catalogue = load_catalogue()
    uncatalogued_columns = catalogue.uncatalogued_id_columns()
    writers = {"[]": "any", "['master']": "master"}
    synapse = {
        generator["sequence_name"]: (
            generator["stream_name"] if generator["writers"] != "[]" else None,
            writers.get(generator["writers"]) or generator["writers"].rpartition(".")[2],
            "positive" if generator["positive"] else "negative",
            {tuple(backing) for backing in generator["tables"] if backing[0] not in uncatalogued_columns},
        )
        for generator in synapse_facts["generators"]
        if generator["stream_name"] not in NO_REPLICATION_STREAM
    }
    declared = {
        stream.sequence: (
            stream.stream_positions,
            stream.writers,
            stream.sign,
            {(table.name, table.writer_column, column) for table, column in catalogue.backing_tables(stream.name)},
        )
        for stream in catalogue.streams
    }
    assert declared == synapse


def test_synapse_s_startup_checks_are_repeated(synapse_facts: dict[str, Any]) -> None:
    catalogue = load_catalogue()
    synapse: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for generator in synapse_facts["generators"]:
        synapse[generator["sequence_name"]] |= {(table, column) for table, _, column in generator["tables"]}
    for sequence, (table, column) in synapse_facts["sequences"].items():
        if table:
            synapse[sequence].add((table, column))
    declared: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for stream in catalogue.streams:
        declared[stream.sequence] |= {(table.name, column) for table, column in catalogue.backing_tables(stream.name)}
    for sequence in catalogue.checked_at_start:
        declared[sequence.name] |= set(sequence.ids.items())
    assert declared == synapse

    positions = {generator["sequence_name"]: generator["stream_name"] for generator in synapse_facts["generators"]}
    for sequence in catalogue.checked_at_start:
        if sequence.name not in {stream.sequence for stream in catalogue.streams}:
            assert sequence.stream_positions == positions.get(sequence.name)


def test_all_event_metadata_but_the_private_is_projected(synapse_facts: dict[str, Any]) -> None:
    projection = load_catalogue().table("event_json").column("internal_metadata").projection
    assert projection is not None
    assert projection.kind == "json_keys"
    stored_metadata = set(synapse_facts["internal_metadata"]) - METADATA_IN_OTHER_COLUMNS - METADATA_NEVER_STORED
    assert set(projection.keys) == stored_metadata - PRIVATE_METADATA


def test_the_administrators_switches_are_projected(synapse_facts: dict[str, Any]) -> None:
    projection = load_catalogue().table("account_data").column("content").projection
    assert projection is not None
    assert projection.kind == "json_keys_of_type"
    assert sorted(projection.keys) == synapse_facts["admin_client_config"]


def test_ids_of_a_stream_are_unique_where_synapse_enforces_it(connection: Connection) -> None:
    """A table with a unique index on only its stream ID is not declared with repeated IDs."""
    single = {
        (table, column)
        for table, column in connection.execute(
            "select indrelid::regclass::text, attname::text from pg_index"
            " join pg_attribute on attrelid = indrelid and attnum = indkey[0]"
            " where indisunique and indnkeyatts = 1 and indpred is null"
        )
    }
    for table in load_catalogue().tables:
        if table.repeats_ids:
            assert not {(table.name, column) for column in table.streams.values()} & single
            assert table.load in (LoadMode.APPEND, LoadMode.MEASURE)
