"""Views of the dbt project in DuckDB, with which readers without a JVM read the lake."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from jinja2 import Template

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.iceberg.read import duckdb_reader

DBT = PROJECT_FOLDER / "dbt"
SCHEMAS = {"synapse": "bronze", "replication": "bronze"}
"""Name of a dbt source → its schema, where the two differ."""


def render_model(path: str, **variables: str) -> str:
    """Return the SQL of the model at ``path`` in ``dbt/models``."""
    macros = "".join((DBT / "macros" / f"{name}.sql").read_text() for name in ("server_name", "to_timestamp"))
    models = {file.stem: file.relative_to(DBT / "models").parts[0] for file in (DBT / "models").rglob("*.sql")}
    names: dict[str, Any] = {
        "config": lambda **_: "",
        "var": variables.__getitem__,
        "source": lambda source, table: f"{SCHEMAS.get(source, source)}.{table}",
        "ref": lambda name: f"{models[name]}.{name}",
        "is_partial_build": lambda *_: False,
    }
    return str(Template(macros + (DBT / "models" / path).read_text()).render(names))


@contextmanager
def open_lake(
    tables: Iterable[str], models: Iterable[str], functions: Iterable[str] = (), **variables: str
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB database with empty tables, and with views of models.

    :param tables: each with its name and columns, as in ``create table``.
    :param models: paths in ``dbt/models``.
    :param functions: Spark functions that only tables use, each as in ``create macro``.
    """
    with duckdb.connect() as connection:
        for statement in (
            *duckdb_reader.SPARK_FUNCTION_MACROS,
            *(f"create macro {function}" for function in functions),
            "set TimeZone = 'UTC'",
        ):
            connection.execute(statement)
        for schema in ("bronze", "silver", "gold", "audit"):
            connection.execute(f"create schema {schema}")
        for table in tables:
            connection.execute(f"create table {table}")
        for model in models:
            schema, name = Path(model).parts[0], Path(model).stem
            connection.execute(f"create view {schema}.{name} as {render_model(model, **variables)}")
        yield connection
