"""Connections to Synapse's database, and the errors of failed connections."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import add_session_settings, build_conninfo
from synapse_lakehouse.postgres.errors import (
    ReadError,
    SourceError,
    explain_connection_failure,
    is_invalid_text,
    is_recovery_conflict,
)


def test_keepalives_are_set_unless_the_operator_sets_them() -> None:
    parameters = conninfo_to_dict(add_session_settings("postgresql://reader@db/synapse?keepalives_idle=5", {}))
    assert (parameters["keepalives_idle"], parameters["keepalives_count"], parameters["tcp_user_timeout"]) == (
        "5",
        "3",
        "60000",
    )


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:se@cret@db/synapse", "postgresql://u:se/cret@db/synapse", "postgresql://u@db:port/synapse"]
)
def test_misparsed_password_is_refused_and_not_shown(dsn: str) -> None:
    with pytest.raises(SourceError, match="%2F") as error_info:
        add_session_settings(dsn, {})
    assert "cret" not in str(error_info.value)


def test_sockets_and_keywords_are_parsed() -> None:
    assert conninfo_to_dict(add_session_settings("host=@abstract dbname=synapse", {}))["host"] == "@abstract"
    assert (
        conninfo_to_dict(add_session_settings("postgresql://u:se%40cret@db:5432,other:/synapse", {}))["password"]
        == "se@cret"
    )


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ('FATAL:  database "synapse" does not exist', "SYNAPSE_DSN"),
        ('root certificate file "/root.crt" does not exist', "sslrootcert"),
        ("FATAL:  unsupported startup parameter in options: statement_timeout", "PostgreSQL itself"),
        ("connection refused", "host and port"),
        ('FATAL:  Peer authentication failed for user "reader"', "host and password"),
        ('definition of service "nowhere" not found', "~/.pg_service.conf"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "r", database "s", no encryption', "sslmode"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "r", database "s", SSL encryption', "Add a line"),
        (
            'private key file "/client.key" has group or world access; file must have permissions u=rw (0600) or less'
            " if owned by the current user, or permissions u=rw,g=r (0640) or less if owned by root",
            "chmod 600",
        ),
        ('weak sslmode "prefer" may not be used with sslrootcert=system (use "verify-full")', "verify-full"),
        ('could not load private key file "/client.key": no start line', "sslkey"),
    ],
)
def test_failed_connection_names_the_remedy(message: str, remedy: str) -> None:
    error = explain_connection_failure(psycopg.OperationalError(message), "postgresql://u:secret@db/synapse")
    assert remedy in str(error)
    assert "secret" not in str(error)


def test_a_service_is_named() -> None:
    error = explain_connection_failure(psycopg.OperationalError("connection refused"), "service=synapse")
    assert str(error).startswith("No connection to the service synapse.")


def test_options_of_a_service_stay_in_force(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "services").write_text("[synapse]\nhost=db\noptions=-c search_path=matrix\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    for dsn, expected in (
        ("service=synapse", "-c search_path=matrix -c jit=off"),
        ("postgresql:///?service=synapse", "-c search_path=matrix -c jit=off"),
        ("service=synapse options='-c search_path=own'", "-c search_path=own -c jit=off"),
        ("service=unknown", "-c jit=off"),
    ):
        assert conninfo_to_dict(add_session_settings(dsn, {"jit": "off"}))["options"] == expected


@pytest.mark.parametrize(
    ("dsn", "server", "expected"),
    [
        ("host=db dbname=s", ("db", "192.0.2.1", "5432"), {"host": "db", "hostaddr": "192.0.2.1", "port": "5432"}),
        ("host=a,b port=1,2", ("b", "2001:db8::1", "2"), {"host": "b", "hostaddr": "2001:db8::1", "port": "2"}),
        ("hostaddr=192.0.2.1,192.0.2.2", ("192.0.2.2", "192.0.2.2", "5432"),
         {"host": "192.0.2.2", "hostaddr": "192.0.2.2", "port": "5432"}),
        ("host=a,b hostaddr=127.0.0.1,127.0.0.2", ("b", "127.0.0.2", "5432"),
         {"host": "b", "hostaddr": "127.0.0.2", "port": "5432"}),
        ("host=db.example,db", ("db", "127.0.1.1", "5432"), {"host": "db", "port": "5432"}),
        ("dbname=s", ("/run/postgresql", "", "5432"), {"host": "/run/postgresql", "port": "5432"}),
    ],
)  # fmt: skip
def test_readers_connect_to_the_server_of_the_snapshot(
    dsn: str, server: tuple[str, str, str], expected: dict[str, str]
) -> None:
    settings = Settings(_env_file=None, synapse_dsn=dsn, synapse_server_name="example.org")
    address = dict(zip(("host", "hostaddr", "port"), server, strict=True))
    parameters = conninfo_to_dict(build_conninfo(settings, server=address))
    assert {name: parameters[name] for name in address if name in parameters} == expected


def test_client_encoding_is_always_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    parameters = conninfo_to_dict(add_session_settings("postgresql://reader@db/synapse?client_encoding=LATIN1", {}))
    assert parameters["client_encoding"] == "UTF8"


def test_recovery_conflict_is_recognized_in_any_language() -> None:
    class ConflictError(Exception):
        sqlstate = "40001"

    error = ReadError(ConflictError("FEHLER: Anweisung wird abgebrochen\nDETAIL: mit Daten"))
    assert str(error) == "FEHLER: Anweisung wird abgebrochen (conflict with recovery)"
    assert is_recovery_conflict(error)
    assert is_recovery_conflict(ConflictError())
    assert not is_recovery_conflict(ReadError(psycopg.errors.DivisionByZero("durch Null geteilt")))


def test_text_that_is_not_utf_8_is_recognized_in_any_language() -> None:
    class EncodingError(Exception):
        sqlstate = "22021"

    error = ReadError(EncodingError("FEHLER: ung\u00fcltige Byte-Sequenz"))
    assert is_invalid_text(RuntimeError(f"a worker failed: {error}"))
    assert is_invalid_text(EncodingError())
    assert not is_invalid_text(ReadError(psycopg.errors.DivisionByZero("durch Null geteilt")))
