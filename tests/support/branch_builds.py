"""Branches on which tests build the incremental models, from the changed rows or from all rows."""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from tests.conftest import VisibilityLake
from tests.support.dbt import DbtSession

PART, WHOLE = "run_in_part", "run_whole"
FULL = 1_000_000_000
"""A minimum number of rows for reuse that no test reaches."""
MODELS = {
    "silver.event_fields": "event_id",
    "silver.redactions": "redacts, event_id",
    "gold.event_hashes": "event_id",
    "silver.event_visibility_inputs": "event_id",
    "gold.visibility_intervals": "room_id, user_id, first_position",
    "gold.events": "event_id",
    "gold.room_timeline": "event_id",
    "gold.federation_delay": "hour, server",
    "silver.unmatched_states": "event_hash",
    "silver.missing_edges": "event_hash",
    "silver.unmatched_memberships": "event_hash",
    "silver.unmatched_references": "value_hash, reference",
    "silver.repeated_state_rows": "state_group, type, state_key",
    "silver.state_group_delta_rows": "state_group",
}
"""Incremental table → columns that order its rows."""
AFFECTED_KEYS = (
    "affected_event_fields", "changed_events", "affected_redactions", "affected_events", "affected_visibility_inputs",
    "visibility_lookup_events", "changed_event_states", "affected_event_states", "changed_references",
    "changed_state_groups", "affected_timeline_events", "affected_federation_hours",
)  # fmt: skip
MODEL_NAMES = (*AFFECTED_KEYS, *(table.partition(".")[2] for table in MODELS))
BRONZE_TABLES = (
    "bronze.events",
    "bronze.event_json",
    "bronze.rooms",
    "bronze.rejections",
    "bronze.redactions",
    "bronze.room_ban_redactions",
    "bronze.event_to_state_groups",
    "bronze.ex_outlier_stream",
    "bronze.partial_state_events",
    "bronze.un_partial_stated_event_stream",
    "bronze.erased_users",
    "bronze.room_retention",
    "bronze.current_state_events",
    "bronze.room_memberships",
    "bronze.local_current_membership",
    "bronze.event_auth",
    "bronze.event_backward_extremities",
    "bronze.event_edges",
    "bronze.event_forward_extremities",
    "bronze.event_relations",
    "bronze.partial_state_rooms",
    "bronze.receipts_linearized",
    "bronze.room_aliases",
    "bronze.room_depth",
    "bronze.state_events",
)
GROUP_TABLES = ("bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state")
STATE_TABLES = ("silver.state_positions", "silver.state_intervals", "silver.state_faults", "silver.state_changes")


ALL_TABLES = (*BRONZE_TABLES, *GROUP_TABLES, *STATE_TABLES, *MODELS)


@contextmanager
def branched_tables(lake: VisibilityLake, names: Collection[str] = ALL_TABLES) -> Iterator[None]:
    """Set main and the branch ``PART`` of ``names`` to the lake's run. Drop ``PART`` and ``WHOLE`` at the end."""
    for name in names:
        publish(lake.session, [name], lake.run.branch)
        copy_branch(lake.session, name, lake.run.branch, PART)
        for kind in ("delete", "update"):
            lake.session.sql(f"alter table {name} set tblproperties ('write.{kind}.mode' = 'merge-on-read')")
    try:
        yield
    finally:
        for name in names:
            for run in (PART, WHOLE):
                lake.session.sql(f"alter table {name} drop branch if exists {run}")
        publish(lake.session, names, lake.run.branch)


def copy_branch(session: DbtSession, name: str, source: str, new: str) -> None:
    """Copy a table's branch ``source``, if it exists, to the branch ``new``."""
    if head := _head(session, name, source):
        session.sql(f"alter table {name} create or replace branch {new} as of version {head}")


def publish(session: DbtSession, names: Iterable[str] = ALL_TABLES, branch: str = PART) -> None:
    """Set main of the tables to ``branch``, as a release does."""
    for name in names:
        if head := _head(session, name, branch):
            session.sql(f"call lake.system.set_current_snapshot('lake.{name}', {head})")


def _head(session: DbtSession, name: str, branch: str) -> int | None:
    heads = session.sql(f"select snapshot_id from {name}.refs where name = '{branch}'")
    return int(heads[0]["snapshot_id"]) if heads else None


def build_models(
    lake: VisibilityLake, on: str, models: Iterable[str] = MODEL_NAMES, *, is_partial: bool = False, share: float = 1
) -> None:
    """Build ``models`` on the branch ``on``.

    :param is_partial: build only the rows that changed since main.
    :param share: above this share of changed rows, all rows are built.
    """
    variables = {
        "server_name": lake.settings.synapse_server_name, "retention_enabled": True, "retention_max_lifetime": 1000,
        "partial_build_share": share, "changes_are_known": is_partial and lake.session.register_changes(on),
    }  # fmt: skip
    result = lake.session.dbt("run", "--select", *models, "--vars", json.dumps(variables), branch=on)
    assert result["success"], result


def build_rows(
    lake: VisibilityLake, on: str, *, is_partial: bool = False, share: float = 1
) -> dict[str, list[dict[str, object]]]:
    """Build the models on the branch ``on``, and return their rows."""
    build_models(lake, on, is_partial=is_partial, share=share)
    return {name: lake.session.sql(f"select * from {name} order by {order}", on) for name, order in MODELS.items()}
