"""Runs, visibility, compression and replication rows, with one Synapse release of each group of equal releases.

Schema, traffic, visibility filter, and the classes that parse replication rows are of that release. With
``RECORD_RELEASES=1``, the figures of a release are recorded for docs/reference/synapse-releases.md if its tests pass.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from sample import visibility_answers
from sample.homeserver import SERVER_NAME, homeserver
from sample.releases import REPRESENTATIVES, load_releases, load_results, record_result, release_python
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from sample.traffic.stage import Stage
from synapse_lakehouse import catalogue
from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.events.visibility import set_retention_time
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from tests.conftest import copied_source, lake_maker
from tests.replication.database import Database
from tests.replication.release_client import follow_release
from tests.support.dataframe_compare import differences
from tests.support.reference_compressor import compare, run_reference
from tests.support.scenes import Scene, play
from tests.support.state_database import all_states, read_state
from tests.support.synapse_answers import depart
from tests.support.whole_runs import run
from tests.visibility import holding

pytestmark = pytest.mark.heavy

DECLARED = catalogue.load_catalogue()
RELEASES = {release.version: release for release in load_releases()}
ENOUGH_ANSWERS = 20_000
LEVELS = "100,50,25"
SOFT_FAILED = '{"soft_failed": true}'
SPAM = '{"soft_failed": true, "policy_server_spammy": true}'


def departures(stage: Stage) -> None:
    """Make users leave rooms of the first run, and kick and ban users there."""
    depart(stage)


def fail_softly(dsn: str) -> None:
    """Mark two messages as soft-failed, one because of a policy server. Without federation, Synapse soft-fails none."""
    with psycopg.connect(dsn) as source:
        for number, flags in enumerate((SOFT_FAILED, SPAM)):
            source.execute(
                """
                update event_json set internal_metadata = (internal_metadata::jsonb || %s::jsonb)::text
                where event_id = (
                    select event_id from events join room_stats_state using (room_id)
                    where type = 'm.room.message' and history_visibility = 'world_readable'
                    order by stream_ordering desc limit 1 offset %s
                )
                """,
                [flags, number],
            )


BEFORE: tuple[Scene, ...] = (
    visibility.all_visibilities, visibility.changing_visibility, rooms.retention, rooms.knocking, messages.redactions,
    messages.relations, accounts.devices, accounts.receipts, accounts.presence, accounts.push, accounts.account_data,
    rooms.long_state_chain, messages.calls,
)  # fmt: skip
AFTER: tuple[Scene, ...] = (
    forks.forks, departures, visibility.peeking, accounts.ignoring, moderation.purged_history, rooms.spaces,
    moderation.reports, accounts.profiles, moderation.deleted_rooms,
)  # fmt: skip
CLOSED_ACCOUNTS: tuple[Scene, ...] = (moderation.erasure, accounts.restrictions)


@dataclass(frozen=True)
class ReleaseLake:
    """A lake with two runs of a release's homeserver, which has stopped; ``database``: the name of its database."""

    version: str
    python: Path
    dsn: str
    config: Path
    lake: Settings
    as_of: int
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def database(self) -> str:
        return str(conninfo_to_dict(self.dsn)["dbname"])


@pytest.fixture(scope="module")
def source_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    options = ["fsync=off", "synchronous_commit=off"]
    with embedded_postgres.run_server(tmp_path_factory.mktemp("postgres"), options=options) as server:
        yield server


@pytest.fixture(scope="module", params=REPRESENTATIVES)
def release_lake(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    source_server: EmbeddedServer,
    settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ReleaseLake]:
    release, folder = RELEASES[request.param], tmp_path_factory.mktemp("release")
    with ExitStack() as stack:
        python = stack.enter_context(release_python(release.version, release.released))
        dsn = stack.enter_context(copied_source(source_server, "template0"))
        new_lake = stack.enter_context(lake_maker(server, settings, folder))
        with homeserver(folder / "synapse", dsn=dsn, python=python) as hs:
            lake = new_lake(synapse_dsn=dsn, synapse_server_name=SERVER_NAME, synapse_config=hs.config_path.resolve())
            stage = populate(hs)
            play(stage, BEFORE, release.version)
            settle(dsn)
            fail_softly(dsn)
            run(lake)
            play(stage, AFTER, release.version)
            play(stage, CLOSED_ACCOUNTS, release.version)
            settle(dsn)
        run(lake)
        yield ReleaseLake(release.version, python, dsn, hs.config_path, lake, int(time.time() * 1000))


def test_the_copy_equals_the_database(release_lake: ReleaseLake) -> None:
    with duckdb_reader.open_duckdb(release_lake.lake) as lake, psycopg.connect(release_lake.dsn) as source:
        absent = set(find_absent_objects(DECLARED, source))
        release = duckdb_reader.get_release(lake, release_lake.lake)
        duckdb_reader.create_views(lake, release_lake.lake, release, [*release.tables, "audit.checks", "audit.ledger"])
        present = DECLARED.restrict_to_source(absent).copied_tables()
        differ = {table.name: differences(table, lake, source) for table in present}
        assert {name: counts for name, counts in differ.items() if counts != (0, 0)} == {}
        assert set(RELEASES[release_lake.version].columns) >= {table.name for table in present}
        for table in DECLARED.copied_tables():
            if table.name in absent:
                assert lake.execute(f"select count(*) from bronze.{table.name}").fetchone() == (0,)
        failed = "select stage, expectation, subject, observed from audit.checks where not success"
        assert lake.execute(failed).fetchall() == []
        extents = "select distinct extent from audit.ledger where run_id = $1"
        assert {extent for (extent,) in lake.execute(extents, [release.run_id]).fetchall()} >= {"changed", "none"}


def test_visibility_is_that_of_the_release(
    release_lake: ReleaseLake, source_server: EmbeddedServer, tmp_path: Path
) -> None:
    config = yaml.safe_load(release_lake.config.read_text())
    sections = {key: config[key] for key in ("server_name", "retention")}
    # Synapse writes to its database while it answers requests.
    with copied_source(source_server, release_lake.database) as dsn:
        path = tmp_path / "answers.parquet"
        visibility_answers.record(dsn, path, release_lake.as_of, sections, python=release_lake.python)
    recorded = visibility_answers.load(path)
    assert len(recorded.answers) >= ENOUGH_ANSWERS
    assert set(recorded.answers["outcome"].cast("string").to_pylist()) == {"full", "redacted", "hidden"}
    with duckdb_reader.open_duckdb(release_lake.lake) as lake:
        holding.bind_release(lake, release_lake.lake, duckdb_reader.get_release(lake, release_lake.lake))
        set_retention_time(lake, recorded.about["as_of"])
        assert visibility_answers.differences(lake, recorded) == []
    release_lake.figures["visibility_answers"] = len(recorded.answers)


def test_compression_equals_the_reference(
    release_lake: ReleaseLake, source_server: EmbeddedServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with copied_source(source_server, release_lake.database) as dsn:
        before = all_states(dsn)
        steps = compare(dsn, 50, LEVELS, 10_000)
        assert sum(step.rows_before - step.rows_after for step in steps if not step.is_skipped) > 100
        assert all_states(dsn) == before
    with (
        copied_source(source_server, release_lake.database) as own,
        copied_source(source_server, release_lake.database) as twin,
    ):
        run_reference(twin, 50, LEVELS, 10_000)
        monkeypatch.setenv("LAKEHOUSE_HOME", str(settings.lakehouse_home))
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", own)
        options = ["--levels", LEVELS, "--chunk-size", "50", "--number-of-rooms", "10000", "--yes"]
        result = CliRunner().invoke(app, ["compress", "apply", *options])
        assert result.exit_code == 0, result.output
        assert read_state(own) == read_state(twin)
        assert all_states(own) == before
    release_lake.figures["saved_state_rows"] = sum(
        step.rows_before - step.rows_after for step in steps if not step.is_skipped
    )


def test_the_release_parses_its_replication_rows(release_lake: ReleaseLake, source_server: EmbeddedServer) -> None:
    with copied_source(source_server, release_lake.database) as dsn:
        own = release_lake.lake.model_copy(update={"synapse_dsn": dsn})
        with Database(own) as database:
            relevant, streams = follow_release(database, release_lake.version, release_lake.python)
            rows = sum(map(len, relevant.values()))
            assert rows > 1000
            assert len(streams) >= 12
            assert {stream for stream, _, _ in relevant} > {"events", "receipts", "account_data", "caches"}
    release_lake.figures["replication_rows"] = rows


def test_the_release_is_in_the_record(release_lake: ReleaseLake) -> None:
    assert len(release_lake.figures) == 3, "an earlier test failed or was not selected"
    if os.environ.get("RECORD_RELEASES"):
        record_result(release_lake.version, release_lake.figures)
    assert load_results()[release_lake.version].keys() == release_lake.figures.keys()
