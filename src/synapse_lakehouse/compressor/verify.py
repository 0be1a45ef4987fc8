"""Verify how a room is stored, and that its states equal the states in its undo files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups
from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables, encode_tables
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.undo_file import UndoFile, contents_before
from synapse_lakehouse.numba_jit import Int64Array


@dataclass(frozen=True)
class RoomVerification:
    """The verification of a room; ``faults`` is empty if the room is correct."""

    room_id: str
    groups: int
    rows: int
    longest_chain: int | None
    compared: int
    """Groups of the room whose states were compared with undo files."""
    faults: tuple[str, ...]


def verify_room(
    contents: StateTables, room_id: str, max_chain: int | None, undo_files: Sequence[UndoFile] = ()
) -> RoomVerification:
    """Verify a room: predecessors exist and are older, chains have at most ``max_chain`` groups, states are as before.

    :param undo_files: undo files of the room, in any order. Predecessors that were already missing before the
        compression are no fault.
    """
    group_ids = _room_groups(contents, room_id)
    faults, longest, compared = [], None, 0
    before = contents_before(undo_files, contents)
    missing = np.setdiff1d(_missing(contents), _missing(before)) if undo_files else _missing(contents)
    if len(missing):
        faults.append(f"{len(missing)} predecessors are missing, such as state group {missing[0]}")
    try:
        longest = measure_longest_chain(contents, room_id)
        if max_chain is not None and longest > max_chain:
            faults.append(f"a chain has {longest} state groups, more than {max_chain}")
        if undo_files:
            compared = len(
                np.intersect1d(group_ids, np.concatenate([file.restorable_groups(contents) for file in undo_files]))
            )
            changed = find_differing_groups(before, contents)
            if len(changed):
                faults.append(f"{len(changed)} state groups have another state than before, such as {changed[0]}")
    except InvalidStateGroupsError as error:
        faults.append(str(error))
    rows = int(np.isin(contents.rows["state_group"].to_numpy(), group_ids).sum())
    return RoomVerification(room_id, len(group_ids), rows, longest, compared, tuple(faults))


def measure_longest_chain(contents: StateTables, room_id: str) -> int:
    """Return the length of the longest chain of a group of the room.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    groups = encode_tables(*contents)[0].groups()
    is_in_room = np.isin(groups.ids, _room_groups(contents, room_id))
    return int(groups.chain_nodes()[is_in_room].max(initial=0))


def _missing(contents: StateTables) -> Int64Array:
    """Return the predecessors that do not exist."""
    prevs, existing = contents.edges["prev_state_group"].to_numpy(), contents.groups["id"].to_numpy()
    return cast(Int64Array, np.setdiff1d(prevs, existing))


def _room_groups(contents: StateTables, room_id: str) -> Int64Array:
    names = np.array(contents.groups["room_id"].to_pylist(), object)
    return cast(Int64Array, contents.groups["id"].to_numpy()[names == room_id])
