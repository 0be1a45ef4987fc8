"""Rows that tests write to bronze without a run."""

from collections.abc import Collection, Iterable

import pyarrow as pa
from pyiceberg.catalog import Catalog

from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.write import tables

GROUP_TABLES = ("state_groups", "state_group_edges", "state_groups_state")


def create_tables(catalog: Catalog, names: Collection[str]) -> None:
    """Create the bronze tables ``names``."""
    declared = catalogue.load_catalogue()
    tables.ensure_tables(catalog, declared.model_copy(update={"tables": tuple(map(declared.table, names))}))


def append(catalog: Catalog, name: str, rows: Iterable[dict[str, object]]) -> None:
    """Append rows to a bronze table."""
    schema = tables.get_arrow_schema(catalogue.load_catalogue().table(name))
    catalog.load_table(f"bronze.{name}").append(pa.Table.from_pylist(list(rows), schema=schema))


def append_groups(
    catalog: Catalog, groups: dict[int, str], edges: dict[int, int], states: dict[int, dict[str, str]]
) -> None:
    """Append state groups. Each parameter is by group: rooms, predecessors and state events by type."""
    append(catalog, "state_groups", ({"id": group, "room_id": room} for group, room in groups.items()))
    append(
        catalog, "state_group_edges",
        ({"state_group": group, "prev_state_group": previous} for group, previous in edges.items()),
    )  # fmt: skip
    rows = (
        {"state_group": group, "type": type, "state_key": "", "event_id": event_id}
        for group, state in states.items()
        for type, event_id in state.items()
    )
    append(catalog, "state_groups_state", rows)
