"""Releases of Synapse: their environments, and recorded facts about the databases that they create.

``python -m sample.releases 1.163.2 2026-10-23`` adds a release and its day to ``releases.json``. A fact is a line such
as ``column events.depth bigint``. The file contains the lines that each release adds and removes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
import yaml

from sample.environment import VERSION, python_with, synapse_python
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres import embedded_postgres

RECORD: Final = Path(__file__).with_name("releases.json")
RESULTS: Final = Path(__file__).with_name("release_results.json")
"""Results of the releases that ``tests/integration/test_each_release.py`` tested."""
SCHEMA: Final = Path(__file__).with_name("synapse_schema.py")

COMPARED_ON: Final = date(2026, 11, 30)
"""Day on which the record was compared with PyPI. It contains all releases of the 24 months before."""

REPRESENTATIVES: Final = (
    "1.120.2", "1.124.0", "1.128.0", "1.133.0", "1.135.2", "1.136.0", "1.144.0", "1.148.0", "1.151.0", "1.152.1",
    VERSION,
)  # fmt: skip
"""One release of each set of releases with the same visibility rules and the same tables, columns and streams."""

_DEPENDENCY_AGE: Final = timedelta(days=7)
"""Dependencies are installed in their versions of this time after the release. Later versions may not fit it."""

_FACTS_SQL: Final = """
select format('column %s.%s %s', relname, attname, format_type(atttypid, atttypmod))
from pg_class join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
where relkind = 'r' and relnamespace = 'public'::regnamespace
union all
select format('unique %s (%s)%s', indrelid::regclass,
              (select string_agg(attname, ' ' order by attname) from pg_attribute
               where attrelid = indrelid and attnum = any((indkey::int2[])[0:indnkeyatts - 1])),
              ' where ' || pg_get_expr(indpred, indrelid))
from pg_index join pg_class on pg_class.oid = indrelid
where indisunique and indisvalid and indexprs is null and relnamespace = 'public'::regnamespace
union all select 'sequence ' || sequencename from pg_sequences where schemaname = 'public'
union all select 'delta ' || file from applied_schema_deltas
union all select 'unfinished ' || update_name from background_updates
"""


@dataclass(frozen=True)
class Release:
    """A release of Synapse, with all ``facts`` about a new database that it creates.

    * ``released``: day of the release, ISO 8601.
    """

    version: str
    released: str
    schema_version: int
    compat_version: int
    facts: frozenset[str] = field(repr=False)

    def list_facts(self, kind: str) -> list[str]:
        """Return the sorted facts of a kind, without the kind: column, unique, sequence, delta, stream, unfinished."""
        return sorted(fact.partition(" ")[2] for fact in self.facts if fact.startswith(f"{kind} "))

    @property
    def columns(self) -> dict[str, dict[str, str]]:
        """Data types of the columns, by table and column."""
        columns: dict[str, dict[str, str]] = {}
        for fact in self.list_facts("column"):
            name, _, data_type = fact.partition(" ")
            table, _, column = name.partition(".")
            columns.setdefault(table, {})[column] = data_type
        return columns

    @property
    def deltas(self) -> set[str]:
        """The schema changes that were applied to the database."""
        return set(self.list_facts("delta"))

    @property
    def rules(self) -> set[str]:
        """The release's visibility rules, among the rules that some supported releases lack."""
        return {name for name, since in load_rules().items() if since["delta"] in self.deltas}

    @property
    def minor(self) -> tuple[int, int]:
        """The release without the patch: ``(1, 120)``."""
        major, minor, _ = self.version.split(".")
        return int(major), int(minor)


def load_releases() -> list[Release]:
    """Return the recorded releases, the oldest first."""
    releases: list[Release] = []
    facts: frozenset[str] = frozenset()
    for version, entry in json.loads(RECORD.read_text(encoding="utf-8")).items():
        facts = facts - frozenset(entry.pop("removed")) | frozenset(entry.pop("added"))
        releases.append(Release(version, facts=facts, **entry))
    return releases


@cache
def load_rules() -> dict[str, dict[str, str]]:
    """Return the visibility rules that a release of Synapse added, by name: its ``release`` and ``delta``."""
    project = yaml.safe_load((PROJECT_FOLDER / "dbt" / "dbt_project.yml").read_text(encoding="utf-8"))
    rules: dict[str, dict[str, str]] = project["vars"]["rules_since"]
    return rules


def load_results() -> dict[str, dict[str, int]]:
    """Return the results of the tested releases, by release."""
    results: dict[str, dict[str, int]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def record_result(version: str, figures: dict[str, int]) -> None:
    """Record the results of a release that passed all tests."""
    results = load_results() | {version: figures}
    ordered = {release.version: results[release.version] for release in load_releases() if release.version in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


@contextmanager
def release_python(version: str, released: str) -> Iterator[Path]:
    """Install a release with its dependencies of that time; yield its Python. Remove the environment at the end.

    :raises ServiceError: if uv is missing or the installation fails.
    """
    if version == VERSION:
        yield synapse_python()
        return
    newest_upload = (date.fromisoformat(released) + _DEPENDENCY_AGE).isoformat()
    options = ["--no-config", "--exclude-newer", newest_upload]
    with tempfile.TemporaryDirectory(prefix=f"synapse-{version}-") as folder:
        yield python_with("matrix-synapse", version, Path(folder), extras="[postgres,redis]", options=options)


def create_database(python: Path, dsn: str) -> list[str]:
    """Create the release's schema in the empty database ``dsn``; return the names of its replication streams."""
    with tempfile.TemporaryDirectory(prefix="synapse-schema-") as folder:
        streams_file = Path(folder) / "streams.json"
        with streams_file.open("wb") as output:
            subprocess.run([python, "-P", SCHEMA, dsn, folder], stdout=output, check=True, stderr=subprocess.PIPE)
        streams: list[str] = json.loads(streams_file.read_text())
        return streams


def read_facts(dsn: str) -> tuple[int, int, set[str]]:
    """Return the database's schema version, its compat version, and all facts except streams."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select version, compat_version from schema_version, schema_compat_version").fetchone()
        assert row is not None
        return row[0], row[1], {fact for (fact,) in connection.execute(_FACTS_SQL.encode())}


def record(version: str, released: str) -> None:
    """Add a release to the record, or replace it."""
    with tempfile.TemporaryDirectory(prefix="synapse-release-") as folder:
        options = ["fsync=off", "synchronous_commit=off"]
        with embedded_postgres.run_server(Path(folder) / "postgres", options=options) as server:
            server.create_database("synapse")
            with release_python(version, released) as python:
                streams = create_database(python, server.dsn("synapse"))
            schema_version, compat_version, facts = read_facts(server.dsn("synapse"))
    facts |= {f"stream {name}" for name in streams}
    added = Release(version, released, schema_version, compat_version, frozenset(facts))
    releases = [added, *(release for release in load_releases() if release.version != version)]
    entries, before = {}, frozenset[str]()
    for release in sorted(releases, key=lambda release: [int(part) for part in release.version.split(".")]):
        entries[release.version] = {
            "released": release.released,
            "schema_version": release.schema_version,
            "compat_version": release.compat_version,
            "added": sorted(release.facts - before),
            "removed": sorted(before - release.facts),
        }
        before = release.facts
    RECORD.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(*sys.argv[1:])
