"""An empty lake, and a session on it that runs dbt commands and SQL."""

from collections.abc import Iterator

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import environment, lake_maker
from tests.support.dbt import DbtSession, dbt_session


@pytest.fixture(scope="module")
def lake(server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield the settings of an empty lake. Some modules define their own fixture ``lake``."""
    with lake_maker(server, settings, tmp_path_factory.mktemp("lake")) as new_lake:
        yield new_lake()


@pytest.fixture(scope="module")
def shared_session(lake: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DbtSession]:
    """Yield the module's session on the lake."""
    with dbt_session(environment(lake), tmp_path_factory.mktemp("session")) as session:
        yield session


@pytest.fixture
def session(shared_session: DbtSession) -> Iterator[DbtSession]:
    """Yield the session on a lake without tables."""
    yield shared_session
    for schema in shared_session.sql("show schemas"):
        for table in shared_session.sql(f"show tables in {schema['namespace']}"):
            shared_session.sql(f"drop table {schema['namespace']}.{table['tableName']}")
