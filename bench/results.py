"""What the bench measured, as it is kept in ``results.json``."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.meter import Cost

OURS, JDBC, CONNECTORX, LIMIT = "synapse-lakehouse", "Spark JDBC → Iceberg", "connectorx → Parquet", "COPY to /dev/null"
CONTENDERS = (OURS, JDBC, CONNECTORX, LIMIT)
BARE, SENT = "source sends bare columns", "source sends"
DECODED, ENCODED = "source sends, ADBC decodes", "encode Parquet, verify it"


@dataclass(frozen=True)
class Sample:
    """One copy of a table by a contender: rows, bytes of files, and the cost."""

    round: int
    contender: str
    table: str
    rows: int
    bytes: int
    cost: Cost


@dataclass(frozen=True)
class Stage:
    """A part of our path alone, on one thread: rows and bytes that came out; wall and CPU seconds."""

    table: str
    name: str
    rows: int
    bytes: int
    wall: float
    cpu: float
    source_cpu: float


@dataclass(frozen=True)
class Increment:
    """One run after a change of ``rows`` rows of ``table``, which has ``table_rows``.

    ``wall`` from taking the snapshot to the ledger; ``publishing`` afterwards; ``rows_read`` rows that the source sent;
    ``rows_scanned`` rows that it looked at to find them; ``temp_files`` that it wrote.
    """

    table: str
    table_rows: int
    change: str
    rows: int
    wall: float
    publishing: float
    cpu: float
    source_cpu: float
    rows_read: int
    rows_scanned: int
    temp_files: int


@dataclass
class Results:
    """Everything, with the machine and the versions it was measured on."""

    scale: float
    machine: dict[str, str]
    rows: dict[str, int]
    table_bytes: dict[str, int]
    samples: list[Sample] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    increments: list[Increment] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> Results:
    """What :meth:`Results.write` kept."""
    kept: dict[str, Any] = json.loads(path.read_text())
    samples = [Sample(**one | {"cost": Cost(**one["cost"])}) for one in kept.pop("samples")]
    stages = [Stage(**one) for one in kept.pop("stages")]
    increments = [Increment(**one) for one in kept.pop("increments")]
    return Results(**kept, samples=samples, stages=stages, increments=increments)
