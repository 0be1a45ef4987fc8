"""Compare the states of the same groups at two times."""

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables, encode_tables
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.numba_jit import Int64Array


def find_differing_groups(before: StateTables, after: StateTables) -> Int64Array:
    """Return the IDs of groups that exist in ``before`` and in ``after``, but with different states.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    common = np.intersect1d(_ids(before), _ids(after))
    if not len(common):
        return common
    # Fingerprints are comparable only if both tables are encoded with the same codes. The IDs of ``before`` are
    # shifted; errors name the IDs of ``after``.
    offset = max(map(_highest, (before, after))) + 1
    both = (pa.concat_tables([new, _shift_ids(old, offset)]) for old, new in zip(before, after, strict=True))
    groups = encode_tables(*both)[0].groups()
    states = fingerprint_states(groups)
    old, new = np.searchsorted(groups.ids, common + offset), np.searchsorted(groups.ids, common)
    differs = (states.sizes[old] != states.sizes[new]) | (states.fingerprints[old] != states.fingerprints[new]).any(1)
    return cast(Int64Array, common[differs])


def replace_groups(contents: StateTables, groups: Int64Array, other: StateTables) -> StateTables:
    """Return ``contents`` with the edges and rows of ``groups`` taken from ``other``."""
    group_ids = pa.array(groups)
    edges, rows = (
        pa.concat_tables(
            [
                table.filter(pc.invert(pc.is_in(table["state_group"], group_ids))),
                other_table.filter(pc.is_in(other_table["state_group"], group_ids)).select(table.column_names),
            ],
            promote_options="permissive",
        )
        for table, other_table in ((contents.edges, other.edges), (contents.rows, other.rows))
    )
    return StateTables(contents.groups, edges, rows)


def _ids(contents: StateTables) -> Int64Array:
    return cast(Int64Array, contents.groups["id"].to_numpy())


def _highest(contents: StateTables) -> int:
    columns = contents.groups["id"], contents.edges["state_group"], contents.rows["state_group"]
    return max((pc.max(column).as_py() or 0 for column in columns), default=0)


def _shift_ids(table: pa.Table, offset: int) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_integer(field.type):
            table = table.set_column(number, field.name, pc.add(table[field.name], offset))
    return table
