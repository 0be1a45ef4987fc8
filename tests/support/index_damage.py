"""Damage indexes of PostgreSQL: change their files, or restore earlier files, while the server is stopped."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

Damage = Callable[[bytes, bytes], bytes]
"""Function that returns the damaged index file, from the file before and the file after the rows change."""

PAGE_BYTES: Final = 8192

CHANGES: Final = (
    # New rows take the places of deleted rows. Entries of the old index then point to rows of other groups.
    """create table lost as
       with chosen as (select state_group from state_groups_state group by 1 having count(*) > 3 order by 1 limit 20)
       select * from state_groups_state where state_group in (select state_group from chosen)""",
    "delete from state_groups_state using lost where state_groups_state.state_group = lost.state_group",
    "vacuum state_groups_state",
    "insert into state_groups_state select state_group + 1000000, room_id, type, state_key, event_id from lost",
    # A row with the next key takes the place of the row with the highest key. The order of the rows stays right.
    "create table last_group as select * from state_groups order by id desc limit 1",
    "delete from state_groups using last_group where state_groups.id = last_group.id",
    "vacuum state_groups",
    "insert into state_groups select id + 1, room_id, event_id from last_group",
    # The old index contains none of the new rows.
    "insert into event_json select event_id || 'x', room_id, internal_metadata, json, format_version from event_json"
    " order by event_id limit 7",
)


def restore_old_file(before: bytes, after: bytes) -> bytes:
    """Return the index before the rows changed."""
    return before


def clear_last_page(before: bytes, after: bytes) -> bytes:
    """Return the index with zeros in its last page."""
    return after[:-PAGE_BYTES] + bytes(PAGE_BYTES)


DAMAGES: Final[Mapping[str, Damage]] = {
    "state_groups_state_type_idx": restore_old_file,
    "state_groups_pkey": restore_old_file,
    "event_json_event_id_key": restore_old_file,
    "event_edges_event_id_prev_event_id_idx": clear_last_page,
}


@contextmanager
def damaged_sample(
    folder: Path, damages: Mapping[str, Damage] = DAMAGES, changes: tuple[str, ...] = CHANGES
) -> Iterator[tuple[EmbeddedServer, str]]:
    """Run a server with a sample whose indexes are damaged; yield the server and the sample's URI."""
    with (
        embedded_postgres.run_server(folder) as server,
        psycopg.connect(sample.restore_sample(server), autocommit=True) as owner,
    ):
        paths = {name: folder / _index_file(owner, name) for name in damages}
        before = {name: path.read_bytes() for name, path in paths.items()}
        for statement in changes:
            owner.execute(statement.encode())
        owner.execute("checkpoint")
    for name, path in paths.items():
        path.write_bytes(damages[name](before[name], path.read_bytes()))
    with embedded_postgres.run_server(folder) as server:
        yield server, server.dsn(sample.SAMPLE_DATABASE)


def repeat_entry(first: str, second: str) -> Damage:
    """Return damage that points the entry of the row ``second`` to the row ``first``.

    :param first: ctid, such as (0,1). In the index, the row ``second`` follows the row ``first``.
    """

    def damage(before: bytes, after: bytes) -> bytes:
        pair = _item_pointer(first) + _item_pointer(second)
        assert after.count(pair) == 1
        return after.replace(pair, 2 * _item_pointer(first))

    return damage


def _item_pointer(ctid: str) -> bytes:
    block, offset = map(int, ctid.strip("()").split(","))
    return b"".join(part.to_bytes(2, "little") for part in (block >> 16, block & 0xFFFF, offset))


def _index_file(owner: psycopg.Connection, index: str) -> str:
    """Return the path of the index in the data folder, after all of its pages are written."""
    owner.execute("checkpoint")
    row = owner.execute("select pg_relation_filepath(%s::regclass)", [index]).fetchone()
    assert row
    return str(row[0])
