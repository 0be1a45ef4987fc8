"""Canaries: recognizable values in all columns that the catalogue does not list, and a search for them in files."""

import gzip
import io
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.postgres.access.grants import build_grants_sql

Owner = psycopg.Connection[tuple[Any, ...]]

COLUMNS = """
select table_name::text, column_name::text,
       case when character_maximum_length < 16 then 'short' else data_type::text end,
       is_nullable = 'NO' and column_default is null
from information_schema.columns
where table_schema = 'public' and is_generated = 'NEVER' and is_identity = 'NO' order by 1, 2
"""
LONGEST_BODY = """
with messages as (
  select json::jsonb -> 'content' ->> 'body' as body
  from event_json join events using (event_id) where type = 'm.room.message' and json not like '%\\u0000%'
)
select body from messages where body ~ '^[A-Za-z ]{12,40}$' order by length(body) desc, body limit 1
"""
TEXTUAL = {"text", "character varying", "jsonb", "bytea", "ARRAY"}

BESIDE_PROJECTIONS = {
    "event_json.internal_metadata token": (
        "update event_json set internal_metadata = (internal_metadata::jsonb || jsonb_build_object('token_id', {c},"
        " 'device_id', {c}, 'txn_id', {c}, 'delay_id', {c}))::text"
    ),
    "account_data.content": (
        "update account_data set content = json_build_object({c}, {c})::text"
        " where account_data_type <> 'io.element.synapse.admin_client_config'"
    ),
    "account_data.content of the projected type": (
        "update account_data set content = (content::jsonb || jsonb_build_object('other', {c}))::text"
        " where account_data_type = 'io.element.synapse.admin_client_config'"
    ),
    "receipts_linearized.data": (
        "update receipts_linearized set data = (data::jsonb || jsonb_build_object('other', {c}))::text"
    ),
}
"""Place → statement that adds keys to a JSON value of which the catalogue copies only a part."""


class Canaries:
    """Values that start with the same random mark. ``places``: where each is planted, such as ``table.column``."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(6)
        self.places: list[str] = []

    def create_canary(self, place: str) -> str:
        """Return a new value for ``place``."""
        self.places.append(place)
        return f"{self.mark}{len(self.places) - 1:04d}"

    def plant(self, owner: Owner) -> None:
        """Write a canary to each text column that the catalogue does not list, in all tables of a Synapse database."""
        owner.execute("set session_replication_role = replica")
        tables: dict[str, dict[str, tuple[str, bool]]] = {}
        for table, column, kind, required in owner.execute(COLUMNS):
            tables.setdefault(table, {})[column] = (kind, required)
        for table, columns in tables.items():
            copied = _copied_columns(table)
            values = {
                column: self._value(f"{table}.{column}", kind)
                for column, (kind, _) in columns.items()
                if kind in TEXTUAL and (copied is None or column not in copied)
            }
            if values:
                self._write(owner, table, values, columns, may_insert=copied is None)
        for place, statement in BESIDE_PROJECTIONS.items():
            planting = sql.SQL(statement).format(c=sql.Literal(self.create_canary(place)))
            assert owner.execute(planting).rowcount, place

    def list_columns_in(self, content: bytes) -> set[str]:
        """Return the places whose canaries are in ``content``, as text or in hexadecimal digits."""
        mark = self.mark.encode()
        results = set()
        for needle, digit in ((mark, 1), (mark.hex().encode(), 2)):
            position = content.find(needle)
            while position >= 0:
                start = position + len(needle)
                number = content[start : start + 4 * digit]
                results.add(self.places[int(number if digit == 1 else bytes.fromhex(number.decode()))])
                position = content.find(needle, start)
        return results

    def _value(self, place: str, kind: str) -> sql.Composable:
        value = sql.Literal(self.create_canary(place))
        forms = {"jsonb": "jsonb_build_object({0}, {0})", "bytea": "convert_to({0}, 'UTF8')", "ARRAY": "array[{0}]"}
        return sql.SQL(forms.get(kind, "{0}")).format(value)

    def _write(
        self,
        owner: Owner,
        table: str,
        values: dict[str, sql.Composable],
        columns: dict[str, tuple[str, bool]],
        may_insert: bool,
    ) -> None:
        name = sql.Identifier(table)
        pairs = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(column), value) for column, value in values.items()
        )
        update = sql.SQL("update {0} set {1} where ctid = (select min(ctid) from {0})").format(name, pairs)
        if owner.execute(update).rowcount or not may_insert:
            return
        required_values = {
            column: sql.SQL("true" if kind == "boolean" else "1")
            for column, (kind, required) in columns.items()
            if required and column not in values
        }
        row = values | required_values
        owner.execute(
            sql.SQL("insert into {} ({}) values ({})").format(
                name, sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(row.values())
            )
        )


@dataclass(frozen=True)
class PlantedSample:
    """The sample with canaries. ``dsn``: URI of the role from ``lakehouse grants``. ``owner``: URI of the owner."""

    dsn: str
    owner: str
    password: str
    canaries: Canaries
    copied: str
    """A room's topic. It is copied, so a search must find it."""
    body: str
    """The body of a message. It is copied, so a search must find it."""


@contextmanager
def planted_sample(folder: Path) -> Iterator[PlantedSample]:
    """Run a server with a :class:`PlantedSample`, with its files in ``folder``."""
    canaries, name, password = Canaries(), "canary_reader", secrets.token_hex(12)
    with embedded_postgres.run_server(folder) as server:
        dsn = sample.restore_sample(server)
        with psycopg.connect(dsn) as owner:
            canaries.plant(owner)
            owner.execute(build_grants_sql(catalogue.load_catalogue(), Settings(_env_file=None), name).encode())
            owner.execute(f"alter role {name} password '{password}'".encode())
            longest = "select topic from room_stats_state where topic is not null order by length(topic) desc limit 1"
            ((topic,),) = owner.execute(longest).fetchall()
            ((body,),) = owner.execute(LONGEST_BODY).fetchall()
        yield PlantedSample(make_conninfo(dsn, user=name, password=password), dsn, password, canaries, topic, body)


def contents(home: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the content of each file under ``home``, as stored and decompressed. Symbolic links are not followed."""
    for path in home.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            # The running PostgreSQL server deletes files.
            continue
        yield path, raw
        if raw[:4] == b"PAR1":
            yield path, _arrow(pq.read_table(io.BytesIO(raw)))
        elif raw[:4] == b"Obj\x01":
            yield path, b"".join(_avro_blocks(raw))
        elif raw[:2] == b"\x1f\x8b":
            yield path, gzip.decompress(raw)
        elif path.suffix == ".html":
            yield path, raw.replace(b"<wbr>", b"")
        elif raw[:4] == b"\x28\xb5\x2f\xfd":
            yield path, pa.input_stream(path, compression="zstd").read()


def _copied_columns(table: str) -> set[str] | None:
    """Return the columns of ``table`` of which at least a part is copied; None if the catalogue lacks the table."""
    try:
        columns = catalogue.load_catalogue().table(table).columns
    except KeyError:
        return None
    return {name for column in columns for name in column.source_columns}


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _avro_blocks(raw: bytes) -> Iterator[bytes]:
    """Yield the decompressed blocks of an Avro file. Iceberg's writers use the codecs null and deflate."""
    stream = io.BytesIO(raw[4:])
    codec = b"null"
    while count := _long(stream):
        if count < 0:
            _long(stream)
        for _ in range(abs(count)):
            key, value = stream.read(_long(stream)), stream.read(_long(stream))
            codec = value if key == b"avro.codec" else codec
    assert codec in (b"null", b"deflate")
    stream.read(16)
    while stream.tell() < len(raw) - 4:
        _long(stream)
        block = stream.read(_long(stream))
        yield zlib.decompress(block, wbits=-15) if codec == b"deflate" else block
        stream.read(16)


def _long(stream: io.BytesIO) -> int:
    value, shift = 0, 0
    while True:
        byte = stream.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
