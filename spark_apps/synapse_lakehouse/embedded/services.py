"""Fill in what the settings leave out: the embedded PostgreSQL for the catalog, Airflow's metadata and the sample."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from synapse_lakehouse.embedded import postgres, sample
from synapse_lakehouse.settings import Settings

CATALOG_DATABASE = "iceberg"
AIRFLOW_DATABASE = "airflow"


@contextmanager
def connected(settings: Settings | None = None, *, source: bool = True) -> Iterator[Settings]:
    """Settings in which the catalog and the source are set, with their servers running while the context lasts.

    :param source: whether Synapse's database is needed; without it the sample is not restored.
    :raises PostgresError: when the embedded server does not start.
    """
    given = settings or Settings()
    with ExitStack() as stack:
        needs_sample = source and given.uses_sample
        if given.lakehouse_catalog_uri and not needs_sample:
            yield given
            return
        server = stack.enter_context(embedded_server(given))
        found: dict[str, object] = {}
        if not given.lakehouse_catalog_uri:
            server.create_database(CATALOG_DATABASE)
            found["lakehouse_catalog_uri"] = server.dsn(CATALOG_DATABASE)
        if needs_sample:
            found["synapse_dsn"] = sample.restore(server)
            found["synapse_server_name"] = sample.server_name()
            found["synapse_config"] = given.synapse_config or sample.CONFIG
        yield given.model_copy(update=found)


@contextmanager
def embedded_server(settings: Settings) -> Iterator[postgres.Server]:
    """The PostgreSQL server under LAKEHOUSE_HOME."""
    with postgres.running(settings.lakehouse_home / "postgres") as server:
        yield server
