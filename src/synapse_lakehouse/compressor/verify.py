"""Is a room stored as Synapse needs it, and does it resolve to what it did?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables, encode_tables
from synapse_lakehouse.compressor.undo_file import UndoFile, contents_before
from synapse_lakehouse.numba_jit import Int64Array


@dataclass(frozen=True)
class RoomVerification:
    """A room, and what is wrong with it: nothing, if it is all right."""

    room_id: str
    groups: int
    rows: int
    longest_chain: int | None
    compared: int
    """Groups of the room whose states were held against what undo files say they were."""
    faults: tuple[str, ...]


def verify_room(
    contents: StateTables, room_id: str, max_chain: int | None, kept: Sequence[UndoFile] = ()
) -> RoomVerification:
    """Examine a room: predecessors are older and there, chains at most ``max_chain`` groups long, states as before.

    :param kept: undo files of the room, in any order. What was missing already when they were written is no fault.
    """
    of_room = _of_room(contents, room_id)
    faults, longest, compared = [], None, 0
    was = contents_before(kept, contents)
    missing = np.setdiff1d(_missing(contents), _missing(was)) if kept else _missing(contents)
    if len(missing):
        faults.append(f"{len(missing)} state groups that others hang on are missing, such as {missing[0]}")
    try:
        longest = measure_longest_chain(contents, room_id)
        if max_chain is not None and longest > max_chain:
            faults.append(f"a chain is {longest} state groups long, which is more than {max_chain}")
        if kept:
            compared = len(np.intersect1d(of_room, np.concatenate([one.restorable_groups(contents) for one in kept])))
            wrong = find_differing_groups(was, contents)
            if len(wrong):
                faults.append(f"{len(wrong)} state groups resolve to another state than before, such as {wrong[0]}")
    except InvalidStateGroupsError as error:
        faults.append(str(error))
    rows = int(np.isin(contents.rows["state_group"].to_numpy(), of_room).sum())
    return RoomVerification(room_id, len(of_room), rows, longest, compared, tuple(faults))


def measure_longest_chain(contents: StateTables, room_id: str) -> int:
    """Groups in the longest chain that a group of the room has.

    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    """
    groups = encode_tables(*contents)[0].groups()
    of_room = np.isin(groups.ids, _of_room(contents, room_id))
    return int(groups.chain_nodes()[of_room].max(initial=0))


def _missing(contents: StateTables) -> Int64Array:
    """State groups that others hang on and that are not there."""
    prevs, there = contents.edges["prev_state_group"].to_numpy(), contents.groups["id"].to_numpy()
    return cast(Int64Array, np.setdiff1d(prevs, there))


def _of_room(contents: StateTables, room_id: str) -> Int64Array:
    names = np.array(contents.groups["room_id"].to_pylist(), object)
    return cast(Int64Array, contents.groups["id"].to_numpy()[names == room_id])
