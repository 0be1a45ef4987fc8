"""Convert Synapse's three state tables to arrays of codes, and back."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from synapse_lakehouse.compressor.algorithm.in_memory_groups import GroupStore
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups, index_groups
from synapse_lakehouse.numba_jit import Int32Array, Int64Array

_Encoded = tuple[Int32Array, pa.Array]

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
STATE_SCHEMAS: Final = {
    "state_groups": pa.schema({"id": pa.int64(), "room_id": _TEXT}),
    "state_group_edges": pa.schema({"state_group": pa.int64(), "prev_state_group": pa.int64()}),
    "state_groups_state": pa.schema({"state_group": pa.int64(), "type": _TEXT, "state_key": _TEXT, "event_id": _TEXT}),
}
"""The columns that are read from Synapse's tables, in the order of ``StateTables``."""
_ROWS_AT_ONCE: Final = 100_000


class StateTables(NamedTuple):
    """Rows of some rooms in the three tables, in any order, with Synapse's column names."""

    groups: pa.Table
    """id, room_id"""
    edges: pa.Table
    """state_group, prev_state_group"""
    rows: pa.Table
    """state_group, type, state_key, event_id"""


class BatchCollector:
    """Collects batches into one table with dictionary-encoded texts."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._merged, self._pending = schema, schema.empty_table(), list[pa.Table]()

    def add(self, rows: pa.Table) -> None:
        """Add rows; texts need not be dictionary-encoded."""
        self._pending.append(rows.cast(self._schema))
        # Each batch has its own dictionaries. Merge them before they need more memory than one merged dictionary.
        if sum(map(len, self._pending)) > max(len(self._merged), _ROWS_AT_ONCE):
            self.table()

    def table(self) -> pa.Table:
        """Return all rows so far."""
        if self._pending:
            self._merged = pa.concat_tables([self._merged, *self._pending]).unify_dictionaries().combine_chunks()
            self._pending = []
        return self._merged


@dataclass(frozen=True)
class CodeTexts:
    """The texts that the codes stand for."""

    rooms: pa.Array
    types: pa.Array
    state_keys: pa.Array
    events: pa.Array
    key_types: Int32Array
    """For each key code, the code of its type."""
    key_state_keys: Int32Array

    def rows(self, groups: StateGroups, indices: Int64Array | None = None) -> pa.Table:
        """Return rows of ``groups``, or only of the groups at ``indices``: state_group, type, state_key, event_id."""
        chosen = np.arange(len(groups)) if indices is None else indices
        counts = groups.rows[chosen]
        ends = np.cumsum(counts)
        rows = np.arange(counts.sum()) + np.repeat(groups.starts[chosen] - ends + counts, counts)
        keys = groups.keys[rows]
        return pa.table(
            {
                "state_group": np.repeat(groups.ids[chosen], counts),
                "type": self.types.take(pa.array(self.key_types[keys])),
                "state_key": self.state_keys.take(pa.array(self.key_state_keys[keys])),
                "event_id": self.events.take(pa.array(groups.events[rows])),
            }
        )


def encode_tables(
    state_groups: pa.Table, state_group_edges: pa.Table, state_groups_state: pa.Table
) -> tuple[GroupStore, CodeTexts]:
    """Encode the three tables of ``StateTables``; texts may be dictionary-encoded.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    room_codes, rooms = _encode(state_groups["room_id"])
    types, type_names = _encode(state_groups_state["type"])
    state_keys, state_key_names = _encode(state_groups_state["state_key"])
    events, event_names = _encode(state_groups_state["event_id"])
    pairs, keys = _encode_pairs(types, state_keys, len(state_key_names))
    ids = _longs(state_groups["id"])
    groups, copies, present = index_groups(
        ids,
        _longs(state_group_edges["state_group"]),
        _longs(state_group_edges["prev_state_group"]),
        _longs(state_groups_state["state_group"]),
        keys,
        events,
    )
    group_rooms = np.full(len(groups), NONE, np.int32)
    group_rooms[np.searchsorted(groups.ids, ids)] = room_codes
    key_types, key_state_keys = np.divmod(pairs, max(len(state_key_names), 1))
    names = CodeTexts(
        rooms, type_names, state_key_names, event_names, key_types.astype(np.int32), key_state_keys.astype(np.int32)
    )
    return GroupStore(groups, present, group_rooms, copies), names


def _encode(texts: pa.ChunkedArray) -> _Encoded:
    dictionary = texts.dictionary_encode().combine_chunks()
    if isinstance(dictionary, pa.ChunkedArray):
        dictionary = dictionary.unify_dictionaries().combine_chunks()
    return dictionary.indices.to_numpy(zero_copy_only=False).astype(np.int32), dictionary.dictionary


def _encode_pairs(first: Int32Array, second: Int32Array, second_count: int) -> tuple[Int64Array, Int32Array]:
    dictionary = pa.array(first.astype(np.int64) * second_count + second).dictionary_encode()
    return dictionary.dictionary.to_numpy(), dictionary.indices.to_numpy().astype(np.int32)


def _longs(column: pa.ChunkedArray) -> Int64Array:
    return column.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
