"""Two readings of the same rooms, compared by what their groups resolve to."""

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables, encode_tables
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.numba_jit import Int64Array


def find_differing_groups(one: StateTables, other: StateTables) -> Int64Array:
    """Ids of the groups that ``state_groups`` has in both, and that do not resolve to the same state.

    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    """
    common = np.intersect1d(_ids(one), _ids(other))
    if not len(common):
        return common
    # One encoding for both, so that codes and fingerprints mean the same. The other keeps its ids, by which
    # what is wrong with it is named; those of the one, which was resolved before as a rule, follow on them.
    apart = max(map(_highest, (one, other))) + 1
    both = (pa.concat_tables([theirs, _shifted(mine, apart)]) for mine, theirs in zip(one, other, strict=True))
    groups = encode_tables(*both)[0].groups()
    found = fingerprint_states(groups)
    here, there = np.searchsorted(groups.ids, common + apart), np.searchsorted(groups.ids, common)
    wrong = (found.sizes[here] != found.sizes[there]) | (found.fingerprints[here] != found.fingerprints[there]).any(1)
    return cast(Int64Array, common[wrong])


def replace_groups(contents: StateTables, groups: Int64Array, other: StateTables) -> StateTables:
    """``contents`` with ``groups`` stored as they are in ``other``."""
    chosen = pa.array(groups)
    edges, rows = (
        pa.concat_tables(
            [
                mine.filter(pc.invert(pc.is_in(mine["state_group"], chosen))),
                theirs.filter(pc.is_in(theirs["state_group"], chosen)).select(mine.column_names),
            ],
            promote_options="permissive",
        )
        for mine, theirs in ((contents.edges, other.edges), (contents.rows, other.rows))
    )
    return StateTables(contents.groups, edges, rows)


def _ids(contents: StateTables) -> Int64Array:
    return cast(Int64Array, contents.groups["id"].to_numpy())


def _highest(contents: StateTables) -> int:
    columns = contents.groups["id"], contents.edges["state_group"], contents.rows["state_group"]
    return max((pc.max(column).as_py() or 0 for column in columns), default=0)


def _shifted(table: pa.Table, by: int) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_integer(field.type):
            table = table.set_column(number, field.name, pc.add(table[field.name], by))
    return table
