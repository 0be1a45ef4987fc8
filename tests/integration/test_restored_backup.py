"""The source of the first copy is a restored backup of the primary; the source of the next copies is the primary."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.incremental_lake import IncrementalLake, open_lake_of_tables

pytestmark = pytest.mark.heavy
TABLES = ("presence_stream", "rooms")
PRESENCE = "update presence_stream set state = 'unavailable' where stream_id % 3 = 0"
ROOMS = (
    "update rooms set is_public = not is_public where room_id in (select room_id from rooms order by room_id limit 10)"
)


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Yield a primary with the sample."""
    with embedded_postgres.run_server(tmp_path_factory.mktemp("primary") / "data") as server:
        sample.restore_sample(server)
        yield server


@contextmanager
def run_restored_backup(primary: EmbeddedServer, folder: Path, signal: str | None) -> Iterator[EmbeddedServer]:
    """Run a server on a base backup of the primary; a transaction was open during the backup."""
    data = folder / "restored"
    with psycopg.connect(primary.dsn(sample.SAMPLE_DATABASE)) as writer:
        writer.execute(ROOMS)
        primary.tool("pg_basebackup", "--pgdata", str(data), "--checkpoint", "fast", "--no-sync")
    (folder / "restored.password").write_text(primary.password)
    if signal:
        (data / signal).touch()
        shutil.chown(data / signal, data.owner(), data.group())
    with embedded_postgres.run_server(data, options=["restore_command=false"]) as server:
        yield server


@pytest.mark.parametrize(
    ("signal", "extent"),
    [
        # The server stays in recovery, so its snapshot is an earlier PostgreSQL snapshot of the primary.
        ("standby.signal", "changed"),
        # The server is promoted to a timeline of its own.
        ("recovery.signal", "full"),
        # The server is on the primary's timeline, and its own transactions have the primary's next IDs.
        (None, "full"),
    ],
)
def test_copies_continue_on_the_primary(
    primary: EmbeddedServer, server: EmbeddedServer, settings: Settings, tmp_path: Path, signal: str | None, extent: str
) -> None:
    with run_restored_backup(primary, tmp_path, signal) as backup:
        source = backup.dsn(sample.SAMPLE_DATABASE)
        if signal != "standby.signal":
            with psycopg.connect(source, autocommit=True) as connection:
                while connection.execute("select pg_is_in_recovery()").fetchone() == (True,):
                    time.sleep(0.1)
            _write_transactions(source, 20)
        with open_lake_of_tables(TABLES, server, settings, source, tmp_path) as lake:
            assert lake.compare_with_source() == {}
            with psycopg.connect(primary.dsn(sample.SAMPLE_DATABASE)) as connection:
                connection.execute(PRESENCE)
            # This gives the primary a longer WAL and higher transaction IDs than the restored server has.
            _write_transactions(primary.dsn(sample.SAMPLE_DATABASE), 40)
            lake.settings = lake.settings.model_copy(update={"synapse_dsn": primary.dsn(sample.SAMPLE_DATABASE)})
            assert _advance(lake) == dict.fromkeys(TABLES, extent)
            assert _advance(lake) == dict.fromkeys(TABLES, "none")


def _write_transactions(dsn: str, number: int) -> None:
    """Assign transaction IDs, and switch the WAL segment after each tenth."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for count in range(number):
            connection.execute("select pg_current_xact_id()")
            if count % 10 == 9:
                connection.execute("select pg_switch_wal()")


def _advance(lake: IncrementalLake) -> dict[str, str]:
    """Copy and publish, require that the lake equals the source, and return the read extents."""
    extents = {name: row["extent"] for name, row in lake.advance().items()}
    assert lake.compare_with_source() == {}
    return extents
