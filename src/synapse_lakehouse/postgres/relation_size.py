"""A size in Synapse's database. This module imports no database driver."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class RelationSize:
    """A relation, the database or a replication slot. The fields are columns of ``audit.relation_sizes``."""

    kind: str
    schema_name: str | None
    name: str
    bytes: int | None
    index_bytes: int | None
    live_rows: int | None
    dead_rows: int | None
    last_vacuum: datetime | None
    last_autovacuum: datetime | None
    vacuum_threshold: int | None
    autovacuum_enabled: bool | None
    transaction_id_age: int | None
    freeze_max_age: int | None
    is_active: bool | None
