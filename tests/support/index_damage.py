"""Real damage of indexes: their files are changed, or put back as they were before, while the server is stopped."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

Damage = Callable[[bytes, bytes], bytes]
"""From an index's file before and after the change of the rows to the file with which the server is started."""

PAGE_BYTES: Final = 8192

CHANGES: Final = (
    # New rows take the places of the deleted ones: entries of the old index point to rows of other groups.
    """create table lost as
       with chosen as (select state_group from state_groups_state group by 1 having count(*) > 3 order by 1 limit 20)
       select * from state_groups_state where state_group in (select state_group from chosen)""",
    "delete from state_groups_state using lost where state_groups_state.state_group = lost.state_group",
    "vacuum state_groups_state",
    "insert into state_groups_state select state_group + 1000000, room_id, type, state_key, event_id from lost",
    # One row of the highest key gives its place to a row of the next key: the order of the rows stays right.
    "create table last_group as select * from state_groups order by id desc limit 1",
    "delete from state_groups using last_group where state_groups.id = last_group.id",
    "vacuum state_groups",
    "insert into state_groups select id + 1, room_id, event_id from last_group",
    # Of the new rows, none is in the old index.
    "insert into event_json select event_id || 'x', room_id, internal_metadata, json, format_version from event_json"
    " order by event_id limit 7",
)


def put_old_file_back(before: bytes, after: bytes) -> bytes:
    """The index as it was."""
    return before


def clear_last_page(before: bytes, after: bytes) -> bytes:
    """The index without its last page."""
    return after[:-PAGE_BYTES] + bytes(PAGE_BYTES)


DAMAGES: Final[Mapping[str, Damage]] = {
    "state_groups_state_type_idx": put_old_file_back,
    "state_groups_pkey": put_old_file_back,
    "event_json_event_id_key": put_old_file_back,
    "event_edges_event_id_prev_event_id_idx": clear_last_page,
}


@contextmanager
def damaged_sample(
    folder: Path, damages: Mapping[str, Damage] = DAMAGES, changes: tuple[str, ...] = CHANGES
) -> Iterator[tuple[EmbeddedServer, str]]:
    """Yield a server with the sample and the URI of the sample, whose indexes are damaged."""
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
    """Damage after which the entry of the row at ``second`` points to the row at ``first``, too.

    :param first: ctid, such as (0,1). The two rows follow each other in the index.
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
    """The index's file in the data folder, with all pages of this moment."""
    owner.execute("checkpoint")
    row = owner.execute("select pg_relation_filepath(%s::regclass)", [index]).fetchone()
    assert row
    return str(row[0])
