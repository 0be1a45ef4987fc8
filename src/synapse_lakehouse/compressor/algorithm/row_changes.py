"""The edges and rows to write so that groups are stored as planned."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm.plan_room import PlannedGroups
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import Int64Array


@dataclass(frozen=True)
class RowChanges:
    """Groups to rewrite, the oldest first: each gets another predecessor or other rows for the same state.

    The changes can be written in any order and in any portions, because no state changes.
    """

    ids: Int64Array
    old_edges: Int64Array
    """Present edges (group, predecessor), in the order of ``ids``. A damaged group may have several."""
    new_prev: Int64Array
    """ID of the new predecessor of each group, or ``NONE``."""
    rows_per_group: Int64Array
    """Rows to delete and to insert for each group."""
    rows: Callable[[Int64Array], pa.Table]
    """Returns the new rows of the groups at these indices: state_group, type, state_key, event_id."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _work(self) -> Int64Array:
        """Number of rows and of edges to delete and to insert, cumulative over the groups; the first element is 0."""
        return cast(Int64Array, np.concatenate([[0], np.cumsum(self.rows_per_group + 2)]))

    def work(self, start: int, end: int) -> int:
        """Return the number of rows and edges to delete and to insert for the groups from ``start`` to ``end``."""
        return int(self._work[end] - self._work[start])

    def portion_end(self, start: int, maximum: int) -> int:
        """Return the end of a portion from ``start``: at most ``maximum`` rows and edges, but at least one group."""
        end = int(np.searchsorted(self._work, self._work[start] + maximum, side="right")) - 1
        return max(end, start + 1)

    def edges_of(self, start: int, end: int) -> Int64Array:
        """Return the present edges of the groups from ``start`` to ``end``."""
        first, last = np.searchsorted(self.old_edges[:, 0], self.ids[start]), end - 1
        return self.old_edges[first : np.searchsorted(self.old_edges[:, 0], self.ids[last], side="right")]

    def touched_groups(self, start: int, end: int) -> Int64Array:
        """Return ascending IDs of the groups from ``start`` to ``end``, and of their present and new predecessors."""
        predecessors = self.edges_of(start, end)[:, 1]
        ids = np.unique(np.concatenate([self.ids[start:end], predecessors, self.new_prev[start:end]]))
        return cast(Int64Array, ids[ids != NONE])


def compute_changes(planned: PlannedGroups) -> RowChanges:
    """Compute the changes that store groups as planned."""
    texts, before, after = planned.names, planned.before, planned.after
    changed = np.flatnonzero(planned.changed)
    edges = np.stack([before.ids[changed], before.prev_ids()[changed]], axis=1)
    return RowChanges(
        before.ids[changed],
        edges[edges[:, 1] != NONE],
        after.prev_ids()[changed],
        planned.rows_before[changed] + after.rows[changed],
        lambda indices: texts.rows(after, changed[indices]),
    )


def compute_restoring_changes(
    now: tuple[pa.Table, pa.Table], groups: Int64Array, edges: pa.Table, rows: pa.Table
) -> RowChanges:
    """Return the changes that store ``groups`` with ``edges`` and ``rows``; ``now``: the present edges and rows."""
    rows = rows.sort_by("state_group")
    row_groups = rows["state_group"].to_numpy()
    first, last = np.searchsorted(row_groups, groups), np.searchsorted(row_groups, groups, side="right")
    present_groups = np.sort(now[1]["state_group"].to_numpy())
    present_rows = np.searchsorted(present_groups, groups, side="right") - np.searchsorted(present_groups, groups)

    def select_rows(indices: Int64Array) -> pa.Table:
        ranges = [np.arange(first[index], last[index]) for index in indices]
        return rows.take(pa.array(np.concatenate([np.empty(0, np.int64), *ranges])))

    present_edges = now[0].filter(pc.is_in(now[0]["state_group"], pa.array(groups))).sort_by("state_group")
    old_edges = np.stack([present_edges[name].to_numpy() for name in ("state_group", "prev_state_group")], axis=1)
    return RowChanges(groups, old_edges, _predecessors(edges, groups), present_rows + last - first, select_rows)


def _predecessors(edges: pa.Table, groups: Int64Array) -> Int64Array:
    prev_of = dict(zip(edges["state_group"].to_pylist(), edges["prev_state_group"].to_pylist(), strict=True))
    return np.array([prev_of.get(group, NONE) for group in groups.tolist()], np.int64)
