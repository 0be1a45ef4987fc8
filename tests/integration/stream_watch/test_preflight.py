"""The task ``preflight`` reports faults that would stop Synapse's next start, while Synapse still runs."""

import json
from collections.abc import Callable

import psycopg
import pytest
from airflow.sdk.exceptions import AirflowFailException

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.orchestration.stream_watch_tasks import preflight, watch_streams
from synapse_lakehouse.postgres.access.preflight import explain_unsupported_version
from synapse_lakehouse.postgres.errors import ReadError
from tests.conftest import lakehouse, use_settings
from tests.integration.stream_watch.conftest import WRITERS, Samples
from tests.support.split_source import split_source

OF_ANOTHER_HOMESERVER = "update local_current_membership set user_id = replace(user_id, ':', ':other.')"


def test_faults_that_stop_synapse_s_start_are_reported(source_copy: str, take_samples: Callable[[], Samples]) -> None:
    take_samples()
    preflight()

    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("select setval('events_stream_seq', 5)")
    with pytest.raises(
        AirflowFailException, match=r"Synapse will refuse to start(?s:.*)select setval\('events_stream_seq', "
    ):
        preflight()


@pytest.mark.parametrize("task", [watch_streams, preflight])
@pytest.mark.parametrize(("version", "compatible_with"), [(87, 84), (99, 99)])
def test_an_unsupported_version_is_refused(
    source_copy: str, take_samples: Callable[[], Samples], task: Callable[[], None], version: int, compatible_with: int
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("update schema_version set version = %s", [version])
        synapse.execute("update schema_compat_version set compat_version = %s", [compatible_with])
        message = explain_unsupported_version(synapse, load_catalogue(), version)
    with pytest.raises(AirflowFailException) as error:
        task()
    assert str(error.value) == message


@pytest.mark.parametrize("task", [watch_streams, preflight])
def test_the_database_of_another_homeserver_is_refused(
    source_copy: str, take_samples: Callable[[], Samples], task: Callable[[], None]
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute(OF_ANOTHER_HOMESERVER)
    with pytest.raises(AirflowFailException, match=r"other\.synapse\.example.*SYNAPSE_DSN"):
        task()


def test_sequences_without_a_stream_are_checked(source_copy: str, take_samples: Callable[[], Samples]) -> None:
    take_samples()
    last_ids = {}
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("insert into application_services_txns (as_id, txn_id, event_ids) values ('bridge', 7, '[]')")
        for sequence, table, column in (
            ("state_group_id_seq", "state_groups", "id"),
            ("event_auth_chain_id", "event_auth_chains", "chain_id"),
            ("application_services_txn_id_seq", "application_services_txns", "txn_id"),
        ):
            (last_ids[sequence],) = synapse.execute(f"select max({column}) from {table}".encode()).fetchone() or (0,)
            synapse.execute(f"select setval('{sequence}', 2)".encode())
        synapse.execute("insert into stream_positions values ('e2e_cross_signing_keys', 'master', 10000)")
        synapse.execute("insert into device_lists_remote_pending values (20000, '@far:away.example', 'DEVICE')")
    with pytest.raises(AirflowFailException) as error:
        preflight()
    repairs = {"e2e_cross_signing_keys_sequence": 10000, "device_lists_sequence": 20000} | last_ids
    for sequence, end in repairs.items():
        assert f"select setval('{sequence}', {end});" in str(error.value)
    assert str(error.value).count("setval") == len(repairs)
    assert "master" in str(error.value)


def test_the_sequence_of_a_state_database_is_checked(
    server: EmbeddedServer, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    with split_source(server) as (main, state):
        settings = new_lake(synapse_dsn=main, synapse_state_dsn=state, lakehouse_stream_writers=WRITERS)
        use_settings(settings, monkeypatch)
        watch_streams()
        preflight()
        with psycopg.connect(state, autocommit=True) as synapse:
            (last_id,) = synapse.execute("select max(id) from state_groups").fetchone() or (0,)
            synapse.execute("select setval('state_group_id_seq', 2)")
        with pytest.raises(AirflowFailException, match=rf"setval\('state_group_id_seq', {last_id}\)"):
            preflight()
        with psycopg.connect(state, autocommit=True) as synapse:
            synapse.execute("delete from state_groups where id = %s", [last_id])
            synapse.execute("select setval('state_group_id_seq', %s)", [last_id - 1])
        # The state database alone was set back.
        with pytest.raises(AirflowFailException, match=rf"greatest\({last_id}, "):
            preflight()
        result = lakehouse(settings, "positions", "--history", "--format", "json")
        assert {row["stream"] for row in json.loads(result.stdout)} >= {"events", "receipts"}


def test_preflight_fails_if_a_stream_is_unreadable(source_copy: str, take_samples: Callable[[], Samples]) -> None:
    take_samples()
    with psycopg.connect(source_copy, autocommit=True) as synapse:
        synapse.execute("alter table receipts_linearized rename to receipts_elsewhere")
    with pytest.raises(ReadError):
        preflight()
