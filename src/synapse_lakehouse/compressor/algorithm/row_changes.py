"""What has to be written to store groups otherwise."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm.estimate import PlannedGroups
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import Int64Array


@dataclass(frozen=True)
class RowChanges:
    """Groups to hang elsewhere, oldest first, each with other rows so that it resolves to the same state.

    As every group keeps its state, they can be written in any order and in any portions.
    """

    ids: Int64Array
    old_edges: Int64Array
    """Pairs of a group and its predecessor now, in the order of ``ids``: of a damaged group there may be several."""
    new: Int64Array
    """Id of its predecessor then, or ``NONE``."""
    rows_per_group: Int64Array
    """Rows of each to delete and to insert."""
    rows: Callable[[Int64Array], pa.Table]
    """Rows that the groups at these places are to have: state_group, type, state_key, event_id."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _work(self) -> Int64Array:
        """Rows and edges to delete and to insert up to each change."""
        return cast(Int64Array, np.concatenate([[0], np.cumsum(self.rows_per_group + 2)]))

    def work(self, start: int, end: int) -> int:
        """Rows and edges to delete and to insert for the changes from ``start`` up to ``end``."""
        return int(self._work[end] - self._work[start])

    def portion_end(self, start: int, most: int) -> int:
        """Where a portion that begins at ``start`` ends: at least one change further, beyond that ``most`` work."""
        end = int(np.searchsorted(self._work, self._work[start] + most, side="right")) - 1
        return max(end, start + 1)

    def edges_of(self, start: int, end: int) -> Int64Array:
        """The pairs of the groups from ``start`` up to ``end``."""
        first, last = np.searchsorted(self.old_edges[:, 0], self.ids[start]), end - 1
        return self.old_edges[first : np.searchsorted(self.old_edges[:, 0], self.ids[last], side="right")]

    def touched_groups(self, start: int, end: int) -> Int64Array:
        """Ids of the groups from ``start`` up to ``end``, and of all that they hang on now or then, ascending."""
        hung = self.edges_of(start, end)[:, 1]
        every = np.unique(np.concatenate([self.ids[start:end], hung, self.new[start:end]]))
        return cast(Int64Array, every[every != NONE])


def compute_changes(planned: PlannedGroups) -> RowChanges:
    """What stores groups as planned: the same groups with the same states."""
    names, before, after, at = planned.names, planned.before, planned.after, np.flatnonzero(planned.changed)
    hung = np.stack([before.ids[at], before.prev_ids()[at]], axis=1)
    return RowChanges(
        before.ids[at],
        hung[hung[:, 1] != NONE],
        after.prev_ids()[at],
        planned.rows_before[at] + after.rows[at],
        lambda places: names.rows(after, at[places]),
    )


def compute_restoring_changes(
    now: tuple[pa.Table, pa.Table], groups: Int64Array, edges: pa.Table, rows: pa.Table
) -> RowChanges:
    """What stores ``groups`` as ``edges`` and ``rows`` have them; ``now`` has the edges and rows of today."""
    rows = rows.sort_by("state_group")
    held = rows["state_group"].to_numpy()
    first, last = np.searchsorted(held, groups), np.searchsorted(held, groups, side="right")
    there = np.sort(now[1]["state_group"].to_numpy())
    present = np.searchsorted(there, groups, side="right") - np.searchsorted(there, groups)

    def rows_of(places: Int64Array) -> pa.Table:
        taken = [np.arange(first[place], last[place]) for place in places]
        return rows.take(pa.array(np.concatenate([np.empty(0, np.int64), *taken])))

    of_groups = now[0].filter(pc.is_in(now[0]["state_group"], pa.array(groups))).sort_by("state_group")
    hung = np.stack([of_groups[name].to_numpy() for name in ("state_group", "prev_state_group")], axis=1)
    return RowChanges(groups, hung, _prevs(edges, groups), present + last - first, rows_of)


def _prevs(edges: pa.Table, groups: Int64Array) -> Int64Array:
    known = dict(zip(edges["state_group"].to_pylist(), edges["prev_state_group"].to_pylist(), strict=True))
    return np.array([known.get(group, NONE) for group in groups.tolist()], np.int64)
