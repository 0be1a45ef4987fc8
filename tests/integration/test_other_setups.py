"""Databases with another set-up are copied: another collation, encoding or schema, TLS, a restored dump."""

import gzip
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sample.certificate import write_certificate
from sample.processes import wait_until
from synapse_lakehouse import catalogue
from synapse_lakehouse.compressor.postgres.connection import open_write_connection
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from synapse_lakehouse.local.postgres.sample import SAMPLE_DUMP, restore_sample
from synapse_lakehouse.postgres.collation import describe_collation, find_collation_faults
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.rows.range_digest import build_digest_query, slice_key_ranges
from tests.support.incremental_lake import open_incremental_lake
from tests.support.postgres_builds import server_of_version
from tests.support.reader_role import reader_role
from tests.support.sockets import listening

pytestmark = pytest.mark.heavy

CHANGES = """
set session_replication_role = replica;
update events set outlier = not outlier where stream_ordering % 50 = 0;
update receipts_linearized set data = '{"ts": 1}' where stream_id % 50 = 1;
delete from event_edges where event_id in (select event_id from events order by event_id limit 30);
insert into rejections select event_id, 'why', 'now' from events order by event_id limit 3;
"""
CHANGED_TABLES = {"events", "receipts_linearized", "event_edges", "rejections"}


@pytest.fixture(scope="module")
def server_18() -> Iterator[EmbeddedServer]:
    with server_of_version("18.4.0") as running:
        yield running


def restore(server: EmbeddedServer, database: str, dump: bytes, *options: str) -> str:
    """Create a database with options of createdb, load an SQL dump into it, and return its URI."""
    server.tool("createdb", "--template", "template0", *options, database)
    strict = ("psql", "-XqAt", "--set", "ON_ERROR_STOP=1", "--single-transaction")
    server.tool(*strict, input=dump, database=database, stdout=subprocess.DEVNULL)
    return server.dsn(database)


def require_equal_copies(settings: Settings, owner: str, extents: set[str] | None = None) -> None:
    """Copy the source, copy it after changes by ``owner``, and copy it without changes; require equal content."""
    with open_incremental_lake(settings) as lake:
        first = {row["extent"] for row in lake.advance().values()}
        assert first == (extents or {"full"})
        assert lake.compare_with_source() == {}
        with psycopg.connect(owner) as source:
            source.execute(CHANGES.encode())
        second = {name: row["extent"] for name, row in lake.advance().items()}
        assert {name for name, extent in second.items() if extent != "none"} == CHANGED_TABLES
        assert lake.compare_with_source() == {}
        assert {row["extent"] for row in lake.advance().values()} == {"none"}


@pytest.mark.parametrize(
    ("database", "options", "fault"),
    [
        ("icu", ["--locale-provider", "icu", "--icu-locale", "da-DK", "--lc-collate", "C", "--lc-ctype", "C"], None),
        ("ascii", ["--encoding", "SQL_ASCII", "--locale", "C"], "SQL_ASCII"),
    ],
)
def test_another_collation_is_copied_and_named(
    server_18: EmbeddedServer, new_lake: Callable[..., Settings], database: str, options: list[str], fault: str | None
) -> None:
    dsn = restore(server_18, database, gzip.decompress(SAMPLE_DUMP.read_bytes()), *options)
    # The comparison needs text; without this option, SQL_ASCII would return bytes.
    dsn = make_conninfo(dsn, client_encoding="utf8")
    settings = new_lake(synapse_dsn=dsn)
    with connect(settings) as connection:
        faults, description = find_collation_faults(connection), describe_collation(connection)
    if fault:
        assert [item.needs_repair and fault in item.message for item in faults] == [True]
    else:
        assert faults == [], "Synapse starts with an ICU locale"
        assert "da-DK" in description
    # In Danish, aa follows z, but each range of keys must be in one of the slices.
    table, rows = catalogue.load_catalogue().table("event_edges"), 0
    with connect(settings) as connection:
        for part in slice_key_ranges(2, 1):
            rows += sum(count for _, count, *_ in connection.execute(build_digest_query(table, part)).fetchall())
        assert connection.execute("select count(*) from event_edges").fetchone() == (rows,)
    require_equal_copies(settings, dsn)


def test_another_schema_is_copied(source_copy: str, new_lake: Callable[..., Settings]) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute('alter schema public rename to "Matrix server"')
        owner.execute("create schema public; create schema matrix")
    dsn = make_conninfo(source_copy, options=r'-c search_path="Matrix\ server"')
    require_equal_copies(new_lake(synapse_dsn=dsn), dsn)


def test_a_restored_dump_is_copied_in_full(
    server: EmbeddedServer, source_copy: str, new_lake: Callable[..., Settings]
) -> None:
    """A restored dump has other transaction IDs and ctids than the database that the lake has copied."""
    settings = new_lake(synapse_dsn=source_copy)
    with open_incremental_lake(settings) as lake:
        lake.advance()
        name = conninfo_to_dict(source_copy)["dbname"]
        dump = server.tool("pg_dump", "--no-owner", database=str(name), stdout=subprocess.PIPE).stdout
        restored_dsn = restore(server, f"{name}_restored", dump, "--locale", "C")
        lake.settings = settings.model_copy(update={"synapse_dsn": restored_dsn})
        assert {row["extent"] for row in lake.advance().values()} == {"full"}
        assert lake.compare_with_source() == {}
        with psycopg.connect(restored_dsn) as owner:
            owner.execute(CHANGES.encode())
        assert {name for name, row in lake.advance().items() if row["extent"] != "none"} == CHANGED_TABLES
        assert lake.compare_with_source() == {}
    server.tool("dropdb", "--force", f"{name}_restored")


def test_tls_with_client_certificates(
    server_18: EmbeddedServer, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    dsn = restore_sample(server_18, "source_tls")
    folders = {name: tmp_path / name for name in ("localhost", "postgres", "stranger")}
    for name, folder in folders.items():
        folder.mkdir()
        write_certificate(folder, name)
    data = server_18.log.parent
    for source, name in (("localhost/tls.crt", "server.crt"), ("localhost/tls.key", "server.key"),
                         ("postgres/tls.crt", "clients.crt")):  # fmt: skip
        shutil.copyfile(tmp_path / source, data / name)
        (data / name).chmod(0o600)
        shutil.chown(data / name, data.owner(), data.group())
    hba = data / "pg_hba.conf"
    # A password is required only from the other tests' connections, which have no TLS.
    hba.write_text("hostssl all all 127.0.0.1/32 cert\n" + hba.read_text())
    with psycopg.connect(dsn, autocommit=True) as owner:
        for name, value in (("ssl_ca_file", "clients.crt"), ("ssl", "on")):
            owner.execute(f"alter system set {name} = '{value}'".encode())
        owner.execute("select pg_reload_conf()")
    certificates = {
        name: {"sslcert": f"{folder}/tls.crt", "sslkey": f"{folder}/tls.key"} for name, folder in folders.items()
    }
    ca = str(folders["localhost"] / "tls.crt")
    tls_dsn = make_conninfo(
        dsn, host="localhost", password="", sslmode="verify-full", sslrootcert=ca, **certificates["postgres"]
    )
    require_equal_copies(new_lake(synapse_dsn=tls_dsn), tls_dsn)
    stranger_dsn = make_conninfo(tls_dsn, **certificates["stranger"])
    with pytest.raises(SourceError, match="TLS"), connect(new_lake(synapse_dsn=stranger_dsn)):
        pass


@contextmanager
def pgbouncer(dsn: str, **options: str) -> Iterator[str]:
    """Run PgBouncer in front of a database, and yield its URI. PgBouncer refuses to run as root."""
    parts, port = conninfo_to_dict(dsn), find_free_port()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lines = {"listen_addr": "127.0.0.1", "listen_port": port, "auth_type": "plain", "auth_file": f"{folder}/users",
                 "unix_socket_dir": "", **options}  # fmt: skip
        users, file = Path(folder, "users"), Path(folder, "pgbouncer.ini")
        users.write_text(f'"{parts["user"]}" "{parts["password"]}"\n')
        databases = f"[databases]\n* = host=127.0.0.1 port={parts['port']}\n[pgbouncer]\n"
        file.write_text(databases + "".join(f"{name} = {value}\n" for name, value in lines.items()))
        Path(folder).chmod(0o711)
        user = "nobody" if os.geteuid() == 0 else None
        log = Path(folder, "log")
        with (
            log.open("wb") as output,
            subprocess.Popen(["/usr/sbin/pgbouncer", file], user=user, stderr=output) as process,
        ):
            try:
                wait_until(lambda: bool(listening(process.pid)), process, "PgBouncer", log)
                yield make_conninfo(dsn, port=port)
            finally:
                process.terminate()


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_is_refused_with_the_reason(source_copy: str, new_lake: Callable[..., Settings], mode: str) -> None:
    """This includes the roles of ``lakehouse grants``, whose settings apply to a pooled session."""
    settings = new_lake(synapse_dsn=source_copy)

    def read(dsn: str) -> AbstractContextManager[Connection]:
        return connect(settings.model_copy(update={"synapse_dsn": dsn}))

    with reader_role(settings, source_copy) as reader, reader_role(settings, source_copy, "--compress") as compressor:
        for open_connection, dsn in (
            (read, source_copy), (read, reader.dsn),
            (open_write_connection, source_copy), (open_write_connection, compressor.dsn),
        ):  # fmt: skip
            with open_connection(dsn):
                pass
            require_refused(open_connection, dsn, pool_mode=mode)
            require_refused(open_connection, dsn, pool_mode=mode, ignore_startup_parameters="options")


def require_refused(
    open_connection: Callable[[str], AbstractContextManager[Connection]], dsn: str, **options: str
) -> None:
    """Require that a connection to ``dsn`` through PgBouncer is refused."""
    with pgbouncer(dsn, **options) as pooled, pytest.raises(SourceError, match="pooler"), open_connection(pooled):
        pass
