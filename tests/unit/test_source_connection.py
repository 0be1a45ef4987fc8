"""How connections to the source are made."""

from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.source.connection import with_session


def test_a_server_that_is_gone_without_a_word_is_noticed_and_an_operators_own_patience_stays() -> None:
    made = conninfo_to_dict(with_session("postgresql://reader@db/synapse?keepalives_idle=5", {}))
    assert (made["keepalives_idle"], made["keepalives_count"], made["tcp_user_timeout"]) == ("5", "3", "60000")
