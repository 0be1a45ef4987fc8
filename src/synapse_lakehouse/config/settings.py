"""What an operator can set, from the environment or a ``.env`` file in the current folder."""

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from dotenv import dotenv_values
from pydantic import AwareDatetime, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from synapse_lakehouse.config import libpq_variables
from synapse_lakehouse.errors import LakehouseError

PROJECT_FOLDER = Path(__file__).parents[3]

_ALIKE = 0.85
"""How alike names must be; Synapse's own ``SYNAPSE_CONFIG_PATH`` is not taken for ``SYNAPSE_CONFIG``."""


ENV_FILE: Final = Path(".env")

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


_TEXT: Final = re.compile(r"[^\0\ud800-\udfff]*")
_HEAP: Final = re.compile(r"[1-9][0-9]{0,6}[mgMG]")

MIN_HEAP_BYTES: Final = 512 << 20
"""Bytes. Spark refuses a driver with a heap below 450 MiB."""
MAX_HEAP_BYTES: Final = 1 << 40

MAX_SECONDS: Final = 2_000_000
"""23 days: PostgreSQL counts milliseconds of its timeouts in 31 bits."""

CATALOG_PARAMETERS: Final = frozenset({
    "channel_binding", "connect_timeout", "dbname", "gssencmode", "host", "krbsrvname", "passfile", "password", "port",
    "sslcert", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "target_session_attrs", "user",
})  # fmt: skip
"""Parameters of libpq that Spark's driver of the catalog knows, too; no ``options``, which may change what is found."""

_WITH_VARIABLES: Final = {"synapse_dsn": None, "synapse_write_dsn": None, "lakehouse_catalog_uri": CATALOG_PARAMETERS}
"""Settings that libpq's variables complete, and with which parameters; None: with all."""

MAX_DAYS: Final = 36_500
"""A century: dates end in the year 9999, and in the year 1."""


class EnvFileError(LakehouseError):
    """The file ``.env`` cannot be read; the message says why."""


class Settings(BaseSettings):
    """Settings by their names in the environment, in upper case; an empty value counts as unset."""

    model_config = SettingsConfigDict(
        # Editors on Windows begin a file with a byte order mark.
        env_file=ENV_FILE,
        env_file_encoding="utf-8-sig",
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    def __init__(self, **values: Any) -> None:
        """Read the environment and ``.env``.

        :raises EnvFileError: when ``.env`` cannot be read.
        :raises ValidationError: when a value is wrong.
        """
        try:
            super().__init__(**values)
        except (UnicodeDecodeError, OSError) as problem:
            raise EnvFileError(_unreadable(problem)) from None

    synapse_dsn: str | None = Field(
        None, repr=False, description="libpq URI of Synapse's database, for a read-only role; unset: the shipped sample"
    )
    synapse_server_name: str | None = Field(None, description="server_name of the homeserver; needed with SYNAPSE_DSN")
    synapse_write_dsn: str | None = Field(
        None,
        repr=False,
        description="libpq URI of Synapse's database for a role that may compress state; only for that",
    )
    synapse_config: Path | None = Field(
        None,
        description="path of a homeserver.yaml to read stream_writers, retention and state_compressor from; optional",
    )
    lakehouse_home: Path = Field(
        Path(".lakehouse"), description="folder for everything the platform keeps on this machine"
    )
    lakehouse_catalog_uri: str | None = Field(
        None,
        repr=False,
        description="Iceberg catalog: postgresql:// (JDBC catalog) or http(s):// (REST); unset: embedded PostgreSQL",
    )
    lakehouse_catalog_properties: Annotated[dict[str, str], NoDecode] = Field(
        {}, repr=False, description="further Iceberg catalog properties as JSON, such as S3 endpoint and region"
    )
    lakehouse_warehouse: str | None = Field(
        None, description="where table files go: a folder or s3://bucket/prefix; unset: a folder of LAKEHOUSE_HOME"
    )
    lakehouse_stream_writers: str = Field(
        "",
        description="writers per stream, as 'events:persister1,persister2 receipts:worker1'; wins over SYNAPSE_CONFIG",
    )
    lakehouse_acknowledged_ids: str = Field(
        "",
        description="lost, late, repeated or changed ids to publish with once, as 'events:4711,4800..4810 receipts:77'",
    )
    lakehouse_acknowledged_rooms: str = Field(
        "",
        description="room IDs, with spaces between them, of which events that are lost without a known ID are accepted",
    )
    lakehouse_source_connections: Annotated[int, Field(ge=2, le=64)] = Field(
        4, description="most connections that a snapshot opens to Synapse's database"
    )
    lakehouse_statement_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = Field(
        3600, description="longest single statement on Synapse's database, in seconds"
    )
    lakehouse_on_drift: Literal["fail", "partial"] = Field(
        "fail",
        description="where a table lost a column, or a column its type: fail the run, or leave that table (partial)",
    )
    lakehouse_lease_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        300, description="a holder of the lake lease that has not renewed it for so long counts as dead"
    )
    lakehouse_lease_wait_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] = Field(
        900, description="how long a run waits for another one to release the lake lease before it refuses"
    )
    lakehouse_erasure_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = Field(
        30, description="days that earlier releases stay readable; what only they hold is then deleted for good"
    )
    lakehouse_retention_enabled: bool | None = Field(
        None, description="whether Synapse hides expired messages; unset: as retention in SYNAPSE_CONFIG says, or not"
    )
    lakehouse_retention_max_lifetime: str | None = Field(
        None, description="how long messages live where a room does not say, such as 90d; wins over SYNAPSE_CONFIG"
    )
    lakehouse_as_of: AwareDatetime | None = Field(
        None, description="moment at which expiry is judged, as 2026-11-20T00:00:00Z; unset: when the run read Synapse"
    )
    lakehouse_feed_length: Annotated[int, Field(ge=1)] = Field(
        1000, description="most events of each user's list of what is new, gold.user_event_feed"
    )
    lakehouse_recent_rooms: Annotated[int, Field(ge=1)] = Field(
        20, description="rooms of each user, those that changed last, in gold.recent_events"
    )
    lakehouse_recent_events: Annotated[int, Field(ge=1)] = Field(
        20, description="latest events of each of these rooms in gold.recent_events"
    )
    lakehouse_parity_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = Field(
        60,
        description="most seconds of Synapse's database that a maintenance run may take to compare it with the lake",
    )
    lakehouse_alert_urls: str = Field(
        "",
        repr=False,
        description="where alerts go, as Apprise URLs separated by spaces: matrixs://token@host/!room, mailtos://, jsons://",
    )
    lakehouse_runbooks: str = Field(
        "docs/runbooks", description="where alerts say that the runbooks are: a URL, or the folder in the checkout"
    )
    lakehouse_data_docs_url: str | None = Field(
        None, description="URL under which people find LAKEHOUSE_HOME/data_docs, for alerts; unset: the file itself"
    )
    lakehouse_overdue_hours: Annotated[int, Field(ge=1, le=24 * MAX_DAYS)] = Field(
        26, description="a lake whose latest release is older than so many hours is overdue, and somebody is told"
    )
    lakehouse_gap_budget: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None,
        description="percent of a stream's newly closed ids that may be without a row before somebody is told;"
        " unset: as the catalogue says of each stream, 50 of events",
    )
    lakehouse_stale_hours: Annotated[int, Field(ge=0, le=24 * MAX_DAYS)] = Field(
        24,
        description="somebody is told of a stream that stands still for so many hours while its writers work, and of a"
        " standby that replays nothing; 0: never",
    )
    lakehouse_tap_minutes: Annotated[int, Field(ge=0, le=1440 * MAX_DAYS)] = Field(
        15,
        description="a replication tap that did not listen for so many minutes is silent, and somebody is told;"
        " 0: never",
    )
    lakehouse_replication_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = Field(
        30, description="replication commands go from the lake after so many days, with the next maintenance; 0: never"
    )
    lakehouse_redis_url: str | None = Field(
        None, repr=False, description="Synapse's Redis, as redis://:password@host:6379, for `lakehouse replicate tap`"
    )
    # The section state_compressor of SYNAPSE_CONFIG, and its defaults, apply where these are unset.
    lakehouse_compressor_enabled: str | None = Field(
        None, description="true: the state compressor runs by itself; unset: as state_compressor in SYNAPSE_CONFIG says"
    )
    lakehouse_compressor_chunk_size: str | None = Field(
        None, description="about how many state groups the compressor works on at once; 500 by default"
    )
    lakehouse_compressor_number_of_rooms: str | None = Field(
        None, description="how many rooms, those with the most uncompressed state, a run compresses; 5 by default"
    )
    lakehouse_compressor_default_levels: str | None = Field(
        None, description="sizes of the levels, the most granular first; 100,50,25 by default"
    )
    lakehouse_compressor_time_between_runs: str | None = Field(
        None, description="time between runs of the compressor, such as 12h; 1d by default"
    )
    lakehouse_compressor_strategy: str | None = Field(
        None, description="levels (as Synapse's own compressor, the default), or best (as few rows as can be found)"
    )
    lakehouse_compressor_max_chain: str | None = Field(
        None, description="for best: most state groups that have to be read for the state of one; 100 by default"
    )
    lakehouse_compressor_rooms: str | None = Field(
        None, description="rooms that a run compresses, with spaces between them, instead of a number of rooms"
    )
    lakehouse_compressor_apply: str | None = Field(
        None, description="true: the DAG state_compression applies what it planned without asking for approval"
    )
    lakehouse_compressor_busy_sessions: str | None = Field(
        None,
        description="the compressor pauses while more sessions of the database are in a transaction; 20 by default",
    )
    lakehouse_compressor_lag_megabytes: str | None = Field(
        None, description="the compressor pauses while a replica is further behind than so many MB; 64 by default"
    )
    lakehouse_ui_hosts: str = Field(
        "",
        description="further host names of Airflow's pages, with spaces between; 127.0.0.1 and localhost always work",
    )
    lakehouse_spark_packages: str = Field(
        "",
        description="further Maven packages for Spark, with commas, as group:artifact:version@sha256:… (of the jar)",
    )
    lakehouse_spark_secret_file: Path | None = Field(
        None, description="file of mode 600 with the Spark properties of a standalone cluster; unset: one machine"
    )
    lakehouse_driver_memory: str = Field(
        "2g", description="heap of each Spark driver; what DuckDB finds beside it has as much"
    )
    lakehouse_driver_java_options: str = Field(
        # Without its second compiler a JVM keeps 48 MB for compiled code, which building all models fills.
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        description="JVM options of Spark drivers; the default starts quickly, -XX:+UseParallelGC suits large servers",
    )
    lakehouse_log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = Field("WARN", description="log level of Spark")

    @field_validator("*", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            raise ValueError("is not UTF-8, or has a NUL")
        return value

    @field_validator("lakehouse_driver_memory")
    @classmethod
    def _is_a_heap(cls, memory: str) -> str:
        if not (_HEAP.fullmatch(memory) and MIN_HEAP_BYTES <= parse_heap_size(memory) <= MAX_HEAP_BYTES):
            raise ValueError("should be a whole number with the unit m or g, from 512m to 1024g, such as 2g")
        return memory

    @field_validator("lakehouse_driver_java_options")
    @classmethod
    def _has_no_heap(cls, options: str) -> str:
        if "-Xmx" in options or "-XX:MaxHeapSize" in options:
            raise ValueError("should not set the heap: LAKEHOUSE_DRIVER_MEMORY does, such as 2g")
        return options

    @field_validator("lakehouse_home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().resolve()

    @field_validator("lakehouse_ui_hosts")
    @classmethod
    def _names(cls, hosts: str) -> str:
        if wrong := [host for host in hosts.split() if not _HOST.fullmatch(host)]:
            raise ValueError(
                f"{wrong[0]!r} is not the name of a host, such as airflow.example.org: leave out http and port"
            )
        return hosts

    @field_validator("lakehouse_catalog_properties", mode="before")
    @classmethod
    def _decoded(cls, properties: object) -> object:
        if not isinstance(properties, str):
            return properties
        try:
            return json.loads(properties)
        except ValueError:
            raise ValueError('should be a JSON object, such as {"s3.region": "eu-central-1"}') from None

    @model_validator(mode="after")
    def _apply_libpq_variables(self) -> "Settings":
        """What a URI leaves out comes from libpq's variables, except for the embedded PostgreSQL."""
        for name, only in _WITH_VARIABLES.items():
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

    @property
    def allows_partial_copy(self) -> bool:
        """Whether tables that drifted from the catalogue may be left out."""
        return self.lakehouse_on_drift == "partial"

    @property
    def warehouse(self) -> str:
        """URI of the warehouse, without a trailing slash."""
        where = (self.lakehouse_warehouse or str(self.lakehouse_home / "warehouse")).rstrip("/")
        return where if "://" in where else Path(where).expanduser().resolve().as_uri()

    @property
    def uses_sample(self) -> bool:
        """Whether the shipped sample stands in for a homeserver's database."""
        return self.synapse_dsn is None

    def to_environment(self) -> dict[str, str]:
        """These settings as environment variables, for a child process."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {
            name.upper(): json.dumps(value) if isinstance(value, dict) else str(value) for name, value in values.items()
        }


def parse_heap_size(memory: str) -> int:
    """Bytes of a heap as Java's ``-Xmx`` takes it, of megabytes or gigabytes, such as 2g."""
    return int(memory[:-1]) << {"m": 20, "g": 30}[memory[-1].lower()]


def read_env_file() -> dict[str, str | None]:
    """By name what ``.env`` in the current folder sets."""
    return dotenv_values(ENV_FILE, encoding="utf-8-sig")


def _unreadable(problem: UnicodeDecodeError | OSError) -> str:
    where = ENV_FILE.absolute()
    if isinstance(problem, OSError):
        return f"{where} cannot be read: {problem.strerror}. Let this user read it, or delete it."
    line = problem.object[: problem.start].count(b"\n") + 1
    return f"{where} is not UTF-8, first in line {line}. Save it as UTF-8."


def find_misspelled_names(names: Iterable[str]) -> dict[str, str | None]:
    """Names of the environment that look like settings and are none, with the one that was probably meant."""
    known = [name.upper() for name in Settings.model_fields]
    found: dict[str, str | None] = {}
    for name in sorted({one.upper() for one in names} - set(known)):
        alike = get_close_matches(name, known, 1, _ALIKE)
        if name.startswith("LAKEHOUSE_") or alike:
            found[name] = alike[0] if alike else None
    return found
