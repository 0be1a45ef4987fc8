"""The operator's settings, from the environment or from ``.env`` in the current folder."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AwareDatetime, ByteSize, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from synapse_lakehouse.config import check_paths, env_file, libpq_variables
from synapse_lakehouse.config.limits import MAX_DAYS, MAX_SECONDS
from synapse_lakehouse.config.schedule import Schedule
from synapse_lakehouse.config.setting_types import (
    AbsolutePath,
    AcknowledgedRooms,
    CronExpression,
    HeapSize,
    HostNames,
    JavaOptions,
    JsonObject,
    TimeZone,
    check_text,
)

PROJECT_FOLDER = Path(__file__).parents[3]

_URI_SETTINGS: Final = {
    "synapse_dsn": None,
    "synapse_state_dsn": None,
    "synapse_write_dsn": None,
    "lakehouse_catalog_uri": libpq_variables.CATALOG_PARAMETERS,
}
"""Settings with URIs to which libpq's variables are applied, each with the parameters that may be added (None: all)."""


class Settings(BaseSettings):
    """The settings. Their names in the environment are in upper case. Variables without a value are ignored."""

    model_config = SettingsConfigDict(
        env_file=env_file.ENV_FILE,
        env_file_encoding=env_file.ENCODING,
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    def __init__(self, **values: Any) -> None:
        """Read the environment and ``.env``.

        :raises EnvFileError: when ``.env``, or a line of it, cannot be read.
        :raises ValidationError: when a value is wrong.
        """
        values.setdefault("_env_file", env_file.choose_env_file())
        try:
            env_file.require_assignments(values["_env_file"])
            super().__init__(**values)
        except (UnicodeDecodeError, OSError) as error:
            raise env_file.explain_unreadable_file(error) from None

    synapse_dsn: str | None = Field(
        None, repr=False, description="libpq URI of Synapse's database, for a read-only role; unset: the shipped sample"
    )
    synapse_state_dsn: str | None = Field(
        None, repr=False, description="libpq URI of Synapse's state database, if state has a database of its own"
    )
    synapse_server_name: str | None = Field(None, description="server_name of the homeserver; needed with SYNAPSE_DSN")
    synapse_write_dsn: str | None = Field(
        None, repr=False, description="libpq URI of the database with Synapse's state, for the compressor's role"
    )
    synapse_config: Path | None = Field(
        None,
        description="paths of homeserver.yaml and of further files or folders, separated by colons; the lakehouse"
        " reads stream_writers, retention and state_compressor from them",
    )
    lakehouse_home: AbsolutePath = Field(Path(".lakehouse"), description="folder for all local files of the platform")
    lakehouse_homeservers: AbsolutePath | None = Field(
        None, description="folder with a file NAME.env for each homeserver, if one Airflow copies several homeservers"
    )
    lakehouse_homeserver: str | None = Field(None, description="NAME of the homeserver to which commands apply")
    lakehouse_catalog_uri: str | None = Field(
        None, repr=False, description="Iceberg catalog: postgresql:// or http(s):// (REST); unset: embedded PostgreSQL"
    )
    lakehouse_catalog_properties: JsonObject = Field(
        {}, repr=False, description="further Iceberg catalog properties as JSON, such as S3 endpoint and region"
    )
    lakehouse_warehouse: Annotated[str, AfterValidator(check_paths.check_warehouse)] | None = Field(
        None, description="location of table files: a folder or s3://bucket/prefix; unset: a folder in LAKEHOUSE_HOME"
    )
    lakehouse_stream_writers: str = Field(
        "", description="stream writers, like 'events:persister1,persister2 receipts:worker1'; overrides SYNAPSE_CONFIG"
    )
    lakehouse_acknowledged_ids: str = Field(
        "",
        description="lost, late, duplicate or changed stream IDs that block no run, like 'events:4711,4800..4810"
        " receipts:77'; set it for one run",
    )
    lakehouse_acknowledged_rooms: AcknowledgedRooms = Field(
        "",
        description="rooms whose event_lost findings get the severity info, like '!a:example.org'; ROOM@TIME: also the"
        " state_group_changed findings of changes that a run found before TIME",
    )
    lakehouse_source_connections: Annotated[int, Field(ge=2, le=64)] = Field(
        4, description="maximum number of connections of a run to Synapse's database"
    )
    lakehouse_statement_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = Field(
        3600, description="statement timeout on Synapse's database, in seconds"
    )
    lakehouse_source_disk_bytes: ByteSize | None = Field(
        None, description="disk space for Synapse's database and its WAL, such as 500GiB, for forecasts and alerts"
    )
    lakehouse_on_drift: Literal["fail", "partial"] = Field(
        "fail",
        description="if a table cannot be copied, for example because a column is missing: fail ends the run, partial"
        " publishes the table's previous rows",
    )
    lakehouse_lease_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        300, description="seconds after which a lake lease that is not renewed expires"
    )
    lakehouse_lease_wait_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] = Field(
        21_600, description="seconds that a run waits for another run to release the lake lease"
    )
    lakehouse_erasure_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = Field(
        30, description="days for which a release is readable; later, content that only this release has is deleted"
    )
    lakehouse_retention_enabled: bool | None = Field(
        None, description="whether Synapse hides expired messages; unset: as in SYNAPSE_CONFIG, or false"
    )
    lakehouse_retention_max_lifetime: str | None = Field(
        None, description="message lifetime in rooms without a retention policy, such as 90d; overrides SYNAPSE_CONFIG"
    )
    lakehouse_as_of: AwareDatetime | None = Field(
        None, description="time for which retention is evaluated, like 2026-11-20T00:00:00Z; unset: time of the copy"
    )
    lakehouse_feed_length: Annotated[int, Field(ge=1)] = Field(
        1000, description="maximum number of events per user in gold.user_event_feed"
    )
    lakehouse_recent_rooms: Annotated[int, Field(ge=1)] = Field(
        20, description="number of most recently changed rooms per user in gold.recent_events"
    )
    lakehouse_recent_events: Annotated[int, Field(ge=1)] = Field(
        20, description="number of latest events per room in gold.recent_events"
    )
    lakehouse_parity_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = Field(
        60, description="time limit in seconds for the nightly reconciliation with Synapse's database"
    )
    lakehouse_index_check_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] = Field(
        60, description="time limit in seconds for the nightly comparison of indexes with the copy; 0: no comparison"
    )
    lakehouse_alert_urls: str = Field(
        "", repr=False, description="Apprise URLs for alerts, separated by spaces, like matrixs://token@host/!room"
    )
    lakehouse_runbooks: str = Field(
        "docs/runbooks", description="location of the runbooks, for links in alerts: a URL, or a folder of the checkout"
    )
    lakehouse_metrics_file: Path | None = Field(None, description="*.prom file for node_exporter's textfile collector")
    lakehouse_metrics_token: str | None = Field(
        None, repr=False, description="token for Prometheus to read /lakehouse/metrics in Airflow; unset: no access"
    )
    lakehouse_data_docs_url: str | None = Field(None, description="URL of the Data Docs, for links; unset: their path")
    lakehouse_schedule: CronExpression = Field(
        "0 0 * * *", description="times of runs: cron expression of five fields, or @hourly, @daily, @weekly, @monthly"
    )
    lakehouse_timezone: TimeZone = Field("UTC", description="time zone of LAKEHOUSE_SCHEDULE, such as Europe/Berlin")
    lakehouse_overdue_hours: Annotated[int, Field(ge=1, le=24 * MAX_DAYS)] | None = Field(
        None,
        description="hours without a release after which an alert is sent; unset: longest time between two runs + 2 h",
    )
    lakehouse_gap_budget: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="percentage of a stream's new IDs without a row above which an alert is sent; unset: 50"
    )
    lakehouse_stale_hours: Annotated[int, Field(ge=0, le=24 * MAX_DAYS)] = Field(
        24,
        description="hours after which an alert is sent if a writer writes rows but its position stays the same, if"
        " new IDs get no row, or if a standby replays no WAL; 0: never",
    )
    lakehouse_tap_minutes: Annotated[int, Field(ge=0, le=1440 * MAX_DAYS)] = Field(
        15, description="minutes after which an alert is sent if no replication tap listens any more; 0: never"
    )
    lakehouse_replication_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = Field(
        30, description="days after which maintenance deletes the commands that a replication tap recorded; 0: never"
    )
    lakehouse_redis_url: str | None = Field(
        None, repr=False, description="URL of Synapse's Redis for the replication tap: redis://:password@host:6379"
    )
    # If one of these is unset, the section state_compressor of SYNAPSE_CONFIG applies, or else the default.
    lakehouse_compressor_enabled: str | None = Field(
        None, description="true: the state compressor runs on a schedule; unset: as in SYNAPSE_CONFIG, or false"
    )
    lakehouse_compressor_chunk_size: str | None = Field(
        None, description="strategy levels: approximate number of state groups compressed at once; default 500"
    )
    lakehouse_compressor_number_of_rooms: str | None = Field(
        None, description="number of rooms that a run compresses: those with the most uncompressed state; default 5"
    )
    lakehouse_compressor_default_levels: str | None = Field(
        None, description="strategy levels: sizes of the levels, the lowest level first; default 100,50,25"
    )
    lakehouse_compressor_time_between_runs: str | None = Field(
        None, description="time between runs of the compressor, such as 12h; default 1d"
    )
    lakehouse_compressor_strategy: str | None = Field(
        None, description="levels (default; same result as Synapse's own compressor), or best (fewer rows)"
    )
    lakehouse_compressor_max_chain: str | None = Field(
        None, description="strategy best: maximum number of state groups in a chain; default 100"
    )
    lakehouse_compressor_rooms: str | None = Field(
        None, description="IDs of the rooms that a run compresses, separated by spaces, instead of a number of rooms"
    )
    lakehouse_compressor_apply: str | None = Field(
        None, description="true: the DAG state_compression applies its plan without approval"
    )
    lakehouse_compressor_busy_sessions: str | None = Field(
        None, description="the compressor pauses while more sessions than this are in a transaction; default 20"
    )
    lakehouse_compressor_lag_megabytes: str | None = Field(
        None, description="the compressor pauses while a replica lags by more than this number of MB; default 64"
    )
    lakehouse_ui_hosts: HostNames = Field(
        "", description="host names of Airflow's UI in addition to localhost, separated by spaces"
    )
    lakehouse_spark_packages: str = Field(
        "", description="further Maven packages for Spark, comma-separated: group:artifact:version@sha256:…"
    )
    lakehouse_spark_secret_file: Path | None = Field(
        None, description="file of mode 600 with the Spark properties of a standalone cluster; unset: a local Spark"
    )
    lakehouse_spark_properties: JsonObject = Field(
        {}, repr=False, description="further Spark properties as JSON, such as executor instances, cores and memory"
    )
    lakehouse_driver_memory: HeapSize = Field("2g", description="heap of each Spark driver")
    lakehouse_driver_java_options: JavaOptions = Field(
        # Without the second compiler, a JVM reserves only 48 MB for compiled code. All models together need more.
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        description="JVM options of Spark drivers; the default starts quickly, -XX:+UseParallelGC suits large servers",
    )
    lakehouse_log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = Field("WARN", description="log level of Spark")

    _check_text = field_validator("*", mode="before")(check_text)

    @model_validator(mode="after")
    def _apply_libpq_variables(self) -> "Settings":
        """Add the parameters of libpq's variables to all URIs except the URI of the embedded PostgreSQL."""
        for name, only in _URI_SETTINGS.items():
            uri = getattr(self, name)
            if uri and not uri.startswith(("http://", "https://")) and not self._is_embedded(uri):
                setattr(self, name, libpq_variables.apply_to_uri(uri, only))
        return self

    def _is_embedded(self, uri: str) -> bool:
        try:
            port = (self.lakehouse_home / "postgres" / "postmaster.pid").read_text().splitlines()[3].strip()
        except (OSError, IndexError):
            return False
        return f"@127.0.0.1:{port}/" in uri

    @model_validator(mode="after")
    def _check_schedule(self) -> "Settings":
        self.schedule.require_existing_times(datetime.now(UTC))
        return self

    @property
    def schedule(self) -> Schedule:
        """The schedule of the DAG ``lakehouse``."""
        return Schedule(self.lakehouse_schedule, self.lakehouse_timezone)

    def overdue_after(self, now: datetime) -> timedelta:
        """Return the age from which on a lake without a new release is overdue."""
        hours = self.lakehouse_overdue_hours
        return self.schedule.overdue_after(now) if hours is None else timedelta(hours=hours)

    @property
    def allows_partial_copy(self) -> bool:
        """Whether a run may leave out tables that drifted from the catalogue."""
        return self.lakehouse_on_drift == "partial"

    @property
    def warehouse(self) -> str:
        """URI of the warehouse, without a trailing slash."""
        location = (self.lakehouse_warehouse or str(self.lake_folder / "warehouse")).rstrip("/")
        return location if "://" in location else check_paths.resolve_path(Path(location)).as_uri()

    @property
    def lake_folder(self) -> Path:
        """The folder for local files about this lake. If there are several homeservers, each has its own folder."""
        home, name = self.lakehouse_home, self.lakehouse_homeserver
        return home / "homeservers" / name if name else home

    @property
    def uses_sample(self) -> bool:
        """Whether the shipped sample replaces a homeserver's database."""
        return self.synapse_dsn is None and self.lakehouse_homeservers is None

    def to_environment(self) -> dict[str, str]:
        """Return these settings as environment variables, for a child process."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {
            name.upper(): json.dumps(value) if isinstance(value, dict) else str(value) for name, value in values.items()
        }
