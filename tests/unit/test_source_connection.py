"""How connections to the source are made."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.postgres.connection import add_session_settings
from synapse_lakehouse.postgres.errors import ReadError, SourceError, explain_connection_failure, is_recovery_conflict


def test_a_server_that_is_gone_without_a_word_is_noticed_and_an_operators_own_patience_stays() -> None:
    made = conninfo_to_dict(add_session_settings("postgresql://reader@db/synapse?keepalives_idle=5", {}))
    assert (made["keepalives_idle"], made["keepalives_count"], made["tcp_user_timeout"]) == ("5", "3", "60000")


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:se@cret@db/synapse", "postgresql://u:se/cret@db/synapse", "postgresql://u@db:port/synapse"]
)
def test_a_password_that_would_be_taken_for_the_server_is_refused_and_not_told(dsn: str) -> None:
    with pytest.raises(SourceError, match="%2F and %40") as refused:
        add_session_settings(dsn, {})
    assert "cret" not in str(refused.value)


def test_a_socket_and_keywords_are_understood() -> None:
    assert conninfo_to_dict(add_session_settings("host=@abstract dbname=synapse", {}))["host"] == "@abstract"
    assert (
        conninfo_to_dict(add_session_settings("postgresql://u:se%40cret@db:5432,other:/synapse", {}))["password"]
        == "se@cret"
    )


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('FATAL:  database "synapse" does not exist', "that database or role is not"),
        ('root certificate file "/root.crt" does not exist', "sslrootcert"),
        ("FATAL:  unsupported startup parameter in options: statement_timeout", "PostgreSQL itself"),
        ("connection refused", "cannot be reached"),
    ],
)
def test_what_failed_says_what_to_do(said: str, advice: str) -> None:
    assert advice in str(explain_connection_failure(psycopg.OperationalError(said), "postgresql://u:secret@db/synapse"))


def test_text_comes_as_utf_8_whatever_the_operator_s_tools_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    made = conninfo_to_dict(add_session_settings("postgresql://reader@db/synapse?client_encoding=LATIN1", {}))
    assert made["client_encoding"] == "UTF8"


def test_a_standby_s_conflict_is_known_in_any_language() -> None:
    class ConflictError(Exception):
        sqlstate = "40001"

    said = ReadError(ConflictError("FEHLER: Anweisung wird abgebrochen\nDETAIL: mit Daten"))
    assert str(said) == "FEHLER: Anweisung wird abgebrochen (conflict with recovery)"
    assert is_recovery_conflict(said)
    assert is_recovery_conflict(ConflictError())
    assert not is_recovery_conflict(ReadError(psycopg.errors.DivisionByZero("durch Null geteilt")))
