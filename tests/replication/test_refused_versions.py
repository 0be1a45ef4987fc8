"""``lakehouse replicate serve`` refuses a database of an unsupported version of Synapse, as a run does."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.preflight import explain_unsupported_version
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.replication.service import serve


@pytest.mark.parametrize(("version", "compatible_with"), [(87, 84), (99, 99)])
def test_an_unsupported_version_is_not_served(
    new_lake: Callable[..., Settings], source_copy: str, tmp_path: Path, version: int, compatible_with: int
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = %s", [version])
        owner.execute("update schema_compat_version set compat_version = %s", [compatible_with])
        message = explain_unsupported_version(owner, load_catalogue(), version)
    settings = new_lake(synapse_dsn=source_copy, lakehouse_home=tmp_path)
    with pytest.raises(SourceError) as error:
        serve(settings, Dialect.TOKENS, "127.0.0.1", 0, pytest.fail)
    assert str(error.value) == message


def test_an_incompatible_upgrade_stops_an_open_reader(settings: Settings, source_copy: str) -> None:
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    reader = DatabaseReader(source, load_catalogue(), supported_only=True, examine_seconds=0)
    assert reader.read_positions().by_stream
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 999")
        owner.execute("update schema_compat_version set compat_version = 999")
    with pytest.raises(SourceError, match="schema version 999"):
        reader.read_positions()
