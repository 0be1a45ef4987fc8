"""Run all checks of ``lakehouse doctor`` and collect their findings."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from synapse_lakehouse.catalogue import Catalogue, Database, load_catalogue
from synapse_lakehouse.cli.doctor import (
    compressor_role,
    duplicates,
    env_file_readers,
    index_entries,
    lake,
    machine,
    sequences,
    source,
    upgrade,
)
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel
from synapse_lakehouse.config.env_file import ENV_FILE
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedPostgresError
from synapse_lakehouse.local.services import LocalServicesError, connect_services
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.connection import connect, split_by_database
from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.streams.checks import synapse_startup
from synapse_lakehouse.streams.checks.sequences import StreamProgress


@dataclass
class _SourceResult:
    """Findings of the source, and values for the checks of the lake."""

    findings: list[DoctorFinding] = field(default_factory=list)
    progress: dict[str, StreamProgress] = field(default_factory=dict)
    bytes: int | None = None


def examine(
    configured: Settings, *, deep: bool = False, index_tables: Sequence[str] = (), env_files: Sequence[Path] = ()
) -> list[DoctorFinding]:
    """Run all checks and return their findings. Embedded servers run during the checks if the settings need them.

    :param deep: also read every unique key of the source, and the integrity findings of the latest release.
    :param index_tables: with ``deep``, compare the indexes of these tables with the heap, and read no other table.
    :param env_files: files of settings besides ``.env``.
    """
    findings = [
        *machine.check_setting_names(),
        *chain.from_iterable(map(env_file_readers.examine, (ENV_FILE, *env_files))),
        *machine.check_network(),
        *machine.check_configuration(configured),
        *machine.check_java(),
        *machine.check_jars(configured),
        *machine.check_memory(configured),
        *machine.check_catalogue(),
    ]
    declared = source.load_catalogue_or_none()
    needs_server = configured.uses_sample or not configured.lakehouse_catalog_uri
    if needs_server and not (configured.lakehouse_home / "postgres").exists():
        # Check the homeserver's database even before the first run sets up the embedded server.
        result = (
            _SourceResult()
            if configured.uses_sample
            else _source(configured, nullcontext(configured), declared, deep, index_tables)
        )
        result.findings += compressor_role.examine(configured)
        message = f"The embedded PostgreSQL in {configured.lakehouse_home} does not exist yet."
        set_up = DoctorFinding(FindingLevel.WARN, "set-up", message, "Run `make run`, which creates it.")
        return [*findings, *result.findings, *machine.check_disk(configured, result.bytes), set_up]
    with ExitStack() as stack:
        try:
            settings = stack.enter_context(connect_services(configured, source=False))
        except (EmbeddedPostgresError, LocalServicesError) as error:
            return [*findings, *machine.check_disk(configured), DoctorFinding(FindingLevel.FAIL, "lake", str(error))]
        result = _source(configured, connect_services(configured), declared, deep, index_tables)
        findings += [
            *result.findings,
            *compressor_role.examine(configured),
            *machine.check_disk(settings, result.bytes),
            *machine.check_privacy(settings),
        ]
        return [*findings, *lake.examine(settings, declared, result.progress, deep=deep)]


def _source(
    configured: Settings,
    running: AbstractContextManager[Settings],
    declared: Catalogue | None,
    deep: bool,
    index_tables: Sequence[str],
) -> _SourceResult:
    result = _SourceResult()
    try:
        with running as settings:
            for part in split_by_database(settings, declared) if declared else [None]:
                _examine_database(result, settings, part, deep, index_tables, is_sample=configured.uses_sample)
            if declared and settings.synapse_state_dsn and not _is_unreadable(result.findings):
                result.findings += source.compare_databases(settings, declared)
    except (EmbeddedPostgresError, LocalServicesError, SourceError, ReadError) as error:
        result.findings.append(DoctorFinding(FindingLevel.FAIL, "source", str(error)))
    return result


def _is_unreadable(findings: Sequence[DoctorFinding]) -> bool:
    """Return whether a finding reports that a database cannot be read completely."""
    subjects = ("source", "schema", "drift", "rights", "row security")
    return any(finding.level is FindingLevel.FAIL and finding.subject in subjects for finding in findings)


def _examine_database(
    result: _SourceResult,
    settings: Settings,
    declared: Catalogue | None,
    deep: bool,
    index_tables: Sequence[str],
    *,
    is_sample: bool,
) -> None:
    with connect(settings, declared.databases[0] if declared else Database.MAIN) as connection:
        result.findings += source.examine(connection, settings, declared, is_sample=is_sample)
        if declared:
            declared = read_source_catalogue(declared, connection)
            progress = synapse_startup.read_progress(connection, declared)
            result.progress |= progress
            result.findings += sequences.examine(declared, progress)
        result.findings += upgrade.examine(connection)
        if (size := source.measure_database_bytes(connection)) is not None:
            result.bytes = (result.bytes or 0) + size
        if index_tables and declared:
            tables = index_entries.find_tables(load_catalogue(), index_tables)
            in_database = [table for table in tables if table.database in declared.databases]
            result.findings += index_entries.examine(connection, in_database)
        elif deep and declared:
            result.findings += duplicates.examine(connection, declared)
