"""A database with the encoding SQL_ASCII: valid text is read, and other text is refused with the reason."""

from collections import Counter
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.postgres.collation import find_collation_faults
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.errors import InvalidTextError
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from synapse_lakehouse.postgres.rows.key_buckets import count_rows_per_bucket, get_bucket_width
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot

ALIASES = catalogue.load_catalogue().table("room_aliases")


@pytest.fixture
def source(settings: Settings, source_copy: str) -> Settings:
    """Return settings of a database with this encoding, and with an alias whose third byte is within a character."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("insert into room_aliases (room_alias, room_id) values ('#xé:example.org', '!room')")
        owner.execute("set allow_system_table_mods = on")
        owner.execute("update pg_database set encoding = 0 where datname = current_database()")
    return settings.model_copy(update={"synapse_dsn": source_copy})


def test_valid_text_is_grouped_by_its_bytes(source: Settings) -> None:
    with connect(source) as connection:
        (fault,) = find_collation_faults(connection)
        assert fault.needs_repair
        assert "SQL_ASCII" in fault.message
        aliases = connection.execute("select convert_to(room_alias, 'SQL_ASCII') from room_aliases").fetchall()
        counts = count_rows_per_bucket(connection, ALIASES, get_bucket_width(ALIASES))
    assert counts == Counter(alias[:3].hex() for (alias,) in aliases)
    assert counts["#xé".encode()[:3].hex()] == 1


def test_text_that_is_not_utf_8_is_refused(source: Settings, source_copy: str, tmp_path: Path) -> None:
    with psycopg.connect(source_copy) as owner:
        owner.execute("update room_aliases set room_alias = '#' || chr(233) where room_id = '!room'")

    def read(in_worker: bool) -> None:
        with export_snapshot(source, catalogue.load_catalogue()) as (connection, snapshot):
            if in_worker:
                copy_chunks([_chunk(source, snapshot.name, tmp_path)])
            connection.execute("select room_alias from room_aliases")

    for in_worker in (True, False):
        with pytest.raises(InvalidTextError, match="SQL_ASCII"):
            read(in_worker)


def _chunk(source: Settings, snapshot: str, folder: Path) -> ReadChunk:
    return ReadChunk(
        conninfo=build_conninfo(source),
        snapshot=snapshot,
        statement=build_select(ALIASES).as_string(),
        schema=pa.schema(get_arrow_schema(ALIASES)),
        unique_columns=(),
        folder=folder.as_uri(),
        io_properties={},
    )
