"""Branches on which tests build the incremental models, in part and as a whole."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.conftest import HarshLake
from tests.support.dbt import DbtSession

PART, WHOLE = "run_in_part", "run_whole"
NEVER_IN_PART = 1_000_000_000
MODELS = {
    "silver.event_fields": "event_id",
    "silver.redactions": "event_id, redacts",
    "silver.event_visibility_inputs": "event_id",
    "gold.visibility_intervals": "room_id, user_id, first_position",
}
"""Incremental tables, with columns that order their rows."""
MODEL_NAMES = tuple(table.partition(".")[2] for table in MODELS)
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
)
GROUP_TABLES = ("bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state")
STATE_TABLES = ("silver.state_positions", "silver.state_intervals", "silver.state_faults")


@contextmanager
def branched_tables(
    lake: HarshLake, names: Iterable[str] = (*BRONZE_TABLES, *GROUP_TABLES, *STATE_TABLES, *MODELS)
) -> Iterator[None]:
    """Branches of ``names`` with the content of the lake's run; they are dropped at the end."""
    for name in names:
        copy_branch(lake.session, name, lake.run.branch, PART)
        for what in ("delete", "update"):
            lake.session.sql(f"alter table {name} set tblproperties ('write.{what}.mode' = 'merge-on-read')")
    try:
        yield
    finally:
        for name in names:
            for run in (PART, WHOLE):
                lake.session.sql(f"alter table {name} drop branch if exists {run}")


def copy_branch(session: DbtSession, name: str, source: str, new: str) -> None:
    """Copy a table's branch ``source`` to ``new``, if it exists."""
    if heads := session.sql(f"select snapshot_id from {name}.refs where name = '{source}'"):
        head = heads[0]["snapshot_id"]
        session.sql(f"alter table {name} create or replace branch {new} as of version {head}")


def build_models(
    lake: HarshLake,
    on: str,
    worth_it: int,
    models: Iterable[str] = MODEL_NAMES,
    most: int | None = None,
) -> dict[str, Any]:
    """Build ``models`` on the branch ``on``; return the result of dbt."""
    settings = lake.settings
    variables = {
        "server_name": settings.synapse_server_name, "retention_enabled": True, "retention_max_lifetime": 1000,
    } | lake.session.increment(on, worth_it, most)  # fmt: skip
    done = lake.session.dbt("run", "--select", *models, "--vars", json.dumps(variables), branch=on)
    assert done["success"], done
    return done


def build_rows(lake: HarshLake, on: str, worth_it: int, most: int | None = None) -> dict[str, list[dict[str, object]]]:
    """Rows of the models after building them on the branch ``on``."""
    build_models(lake, on, worth_it, most=most)
    return {name: lake.session.sql(f"select * from {name} order by {order}", on) for name, order in MODELS.items()}
