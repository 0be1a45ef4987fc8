"""A homeserver of each set of releases that differ: run, increment, visibility, compression, replication rows.

Every part is of that release: schema, traffic, visibility filter, and the classes that parse replication rows. With
``RECORD_RELEASES=1``, the figures of a release that went through are recorded for docs/reference/synapse-releases.md.
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
    """Leaves, kicks and bans in rooms of the first run."""
    depart(stage)


def fail_softly(dsn: str) -> None:
    """Mark two messages as soft-failed, one of them because of a policy server. Without federation, no event is."""
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
class Copied:
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
def copied(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    source_server: EmbeddedServer,
    settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    release, folder = RELEASES[request.param], tmp_path_factory.mktemp("release")
    with ExitStack() as stack:
        python = stack.enter_context(release_python(release.version, release.released))
        dsn = stack.enter_context(copied_source(source_server, "template0"))
        make = stack.enter_context(lake_maker(server, settings, folder))
        with homeserver(folder / "synapse", dsn=dsn, python=python) as hs:
            lake = make(synapse_dsn=dsn, synapse_server_name=SERVER_NAME, synapse_config=hs.config_path.resolve())
            stage = populate(hs)
            play(stage, BEFORE, release.version)
            settle(dsn)
            fail_softly(dsn)
            run(lake)
            play(stage, AFTER, release.version)
            play(stage, CLOSED_ACCOUNTS, release.version)
            settle(dsn)
        run(lake)
        yield Copied(release.version, python, dsn, hs.config_path, lake, int(time.time() * 1000))


def test_the_copy_equals_the_database(copied: Copied) -> None:
    with duckdb_reader.open_duckdb(copied.lake) as lake, psycopg.connect(copied.dsn) as source:
        absent = set(find_absent_objects(DECLARED, source))
        release = duckdb_reader.get_release(lake, copied.lake)
        duckdb_reader.create_views(lake, copied.lake, release, [*release.tables, "audit.checks", "audit.ledger"])
        present = DECLARED.restrict_to_source(absent).copied_tables()
        differ = {table.name: differences(table, lake, source) for table in present}
        assert {name: counts for name, counts in differ.items() if counts != (0, 0)} == {}
        assert set(RELEASES[copied.version].columns) >= {table.name for table in present}
        for table in DECLARED.copied_tables():
            if table.name in absent:
                assert lake.execute(f"select count(*) from bronze.{table.name}").fetchone() == (0,)
        failed = "select stage, expectation, subject, observed from audit.checks where not success"
        assert lake.execute(failed).fetchall() == []
        extents = "select distinct extent from audit.ledger where run_id = $1"
        assert {extent for (extent,) in lake.execute(extents, [release.run_id]).fetchall()} >= {"changed", "none"}


def test_visibility_is_that_of_the_release(copied: Copied, source_server: EmbeddedServer, tmp_path: Path) -> None:
    config = yaml.safe_load(copied.config.read_text())
    sections = {key: config[key] for key in ("server_name", "retention")}
    # Synapse writes to its database while it answers.
    with copied_source(source_server, copied.database) as dsn:
        path = tmp_path / "answers.parquet"
        visibility_answers.record(dsn, path, copied.as_of, sections, python=copied.python)
    recorded = visibility_answers.load(path)
    assert len(recorded.answers) >= ENOUGH_ANSWERS
    assert set(recorded.answers["outcome"].cast("string").to_pylist()) == {"full", "redacted", "hidden"}
    with duckdb_reader.open_duckdb(copied.lake) as lake:
        holding.bind_release(lake, copied.lake, duckdb_reader.get_release(lake, copied.lake))
        set_retention_time(lake, recorded.about["as_of"])
        assert visibility_answers.differences(lake, recorded) == []
    copied.figures["visibility_answers"] = len(recorded.answers)


def test_compression_equals_the_reference(
    copied: Copied, source_server: EmbeddedServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with copied_source(source_server, copied.database) as dsn:
        before = all_states(dsn)
        steps = compare(dsn, 50, LEVELS, 10_000)
        assert sum(step.rows_before - step.rows_after for step in steps if not step.is_skipped) > 100
        assert all_states(dsn) == before
    with copied_source(source_server, copied.database) as own, copied_source(source_server, copied.database) as twin:
        run_reference(twin, 50, LEVELS, 10_000)
        monkeypatch.setenv("LAKEHOUSE_HOME", str(settings.lakehouse_home))
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", own)
        options = ["--levels", LEVELS, "--chunk-size", "50", "--number-of-rooms", "10000", "--yes"]
        result = CliRunner().invoke(app, ["compress", "apply", *options])
        assert result.exit_code == 0, result.output
        assert read_state(own) == read_state(twin)
        assert all_states(own) == before
    copied.figures["saved_state_rows"] = sum(
        step.rows_before - step.rows_after for step in steps if not step.is_skipped
    )


def test_the_release_parses_its_replication_rows(copied: Copied, source_server: EmbeddedServer) -> None:
    with copied_source(source_server, copied.database) as dsn:
        own = copied.lake.model_copy(update={"synapse_dsn": dsn})
        with Database(own) as database:
            relevant, streams = follow_release(database, copied.version, copied.python)
            rows = sum(map(len, relevant.values()))
            assert rows > 1000
            assert len(streams) >= 12
            assert {stream for stream, _, _ in relevant} > {"events", "receipts", "account_data", "caches"}
    copied.figures["replication_rows"] = rows


def test_the_release_is_in_the_record(copied: Copied) -> None:
    assert len(copied.figures) == 3, "a test before failed, or was not selected"
    if os.environ.get("RECORD_RELEASES"):
        record_result(copied.version, copied.figures)
    assert load_results()[copied.version].keys() == copied.figures.keys()
