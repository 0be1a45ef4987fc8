"""The published copy of the sample: every row of every catalogued table, byte for byte, and nothing else."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.lake import duck
from synapse_lakehouse.source.projection import select
from tests.comparison import differences
from tests.conftest import Published

CREDENTIALS = """
select token from access_tokens
union select token from refresh_tokens
union select password_hash from users
union select key_json from e2e_device_keys_json
union select pushkey from pushers
union select ip from user_ips where ip <> '127.0.0.1'
union select message_json from device_inbox
"""
PERSONAL = """
select user_agent from user_ips
union select display_name from devices
union select content from account_data where account_data_type <> 'io.element.synapse.admin_client_config'
union select content from room_account_data
union select status_msg from presence_stream
union select reason from event_reports
"""
LONG_ENOUGH_TO_TELL = 8


@pytest.fixture(scope="module")
def lake(published: Published) -> Iterator[duck.DuckDBPyConnection]:
    with duck.connect(published.settings) as connection:
        release = duck.release(connection, published.settings)
        duck.bind(connection, published.settings, release, release.tables)
        yield connection


@pytest.fixture(scope="module")
def source(sample_dsn: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(sample_dsn) as connection:
        yield connection


@pytest.mark.parametrize("table", catalogue.load().copied(), ids=lambda table: table.name)
def test_every_row_is_there_with_the_same_content(
    table: catalogue.Table, lake: duck.DuckDBPyConnection, source: psycopg.Connection[tuple[object, ...]]
) -> None:
    assert differences(table, lake, source) == (0, 0)


def test_event_json_is_byte_for_byte_the_same(
    lake: duck.DuckDBPyConnection, source: psycopg.Connection[tuple[object, ...]]
) -> None:
    here = dict(lake.execute("select event_id, sha256(json) from bronze.event_json").fetchall())
    there = {
        event_id: hashlib.sha256(bytes(json)).hexdigest()
        for event_id, json in source.execute("select event_id, convert_to(json, 'UTF8') from event_json")
    }
    assert here == there
    assert len(here) > 3000


def test_no_secret_is_anywhere_in_the_lake_or_its_logs(
    published: Published, source: psycopg.Connection[tuple[object, ...]]
) -> None:
    listed = [row for table in catalogue.load().copied() for row in source.execute(select(table))]
    catalogued = "\n".join(value for row in listed for value in row if isinstance(value, str))
    credentials, personal = (_values(source, query) for query in (CREDENTIALS, PERSONAL))
    # People also say such words in messages and room names, which are copied.
    secrets = credentials | {value for value in personal if value not in catalogued}
    assert len(credentials) > 50
    assert len(secrets) > len(credentials)
    home = published.settings.lakehouse_home
    warehouse = Path(published.settings.warehouse.removeprefix("file://"))
    found = {
        (str(path.relative_to(home)), secret)
        for path in warehouse.rglob("*.parquet")
        for text in _texts(pq.read_table(path))
        for secret in secrets
        if secret in text
    }
    for path in [*home.rglob("*.log"), *home.rglob("*.html"), *home.rglob("*.json")]:
        text = path.read_text(errors="replace")
        found |= {(str(path.relative_to(home)), secret) for secret in secrets if secret in text}
    assert not found
    password = published.settings.synapse_dsn or ""
    for path in home.rglob("*.log"):
        assert psycopg.conninfo.conninfo_to_dict(password)["password"] not in path.read_text(errors="replace")


def test_the_summary_names_what_was_done_and_where_to_look(published: Published) -> None:
    for words in ("Release 1", "event_json", "Stream positions", "Checks", "0 failed", "Data Docs", "make ui"):
        assert words in published.output
    assert published.output.count("lakehouse query") == 3


def _values(source: psycopg.Connection[tuple[object, ...]], query: str) -> set[str]:
    values = {str(value) for (value,) in source.execute(query.encode()) if value}
    return {value for value in values if len(value) >= LONG_ENOUGH_TO_TELL}


def _texts(table: pa.Table) -> Iterator[str]:
    """All text of a table, a column at a time."""
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield "\n".join(value for value in column.to_pylist() if value)
