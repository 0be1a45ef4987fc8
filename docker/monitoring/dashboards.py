"""``make dashboards``: write the Grafana dashboards in ``docker/monitoring/dashboards`` from the panels below."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER: Final = Path(__file__).parent / "dashboards"

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="prometheus")
_WIDTH: Final = 24
_HEIGHT: Final = 8
P: Final = "synapse_lakehouse_"
SERVER: Final = 'server_name="$server_name",homeserver=~"$homeserver"'
"""The homeserver that the user of the dashboard selects. A single homeserver has no label ``homeserver``."""
LABELS: Final = f"{{{SERVER}}}"


@dataclass(frozen=True)
class Panel:
    """A panel with one query. ``unit``: Grafana's name of the unit. ``is_number``: show a number instead of a graph."""

    title: str
    query: str
    unit: str = "short"
    legend: str = "__auto"
    is_number: bool = False


DASHBOARDS: Final = {
    "Lakehouse": [
        Panel("Newest release", f"{P}release_number{LABELS}", is_number=True),
        Panel("Age of the release", f"time() - {P}release_timestamp_seconds{LABELS}", "s", is_number=True),
        Panel("Open incidents", f"sum({P}incidents_open{LABELS})", is_number=True),
        Panel("Serious findings", f"sum({P}integrity_serious_findings{LABELS})", is_number=True),
        Panel("Open stream IDs", f"{P}stream_open_ids{LABELS}", legend="{{stream}}"),
        Panel("Allocated stream IDs", f"{P}stream_last_allocated_id{LABELS}", legend="{{stream}}"),
        Panel("Writers behind the last ID", f"{P}stream_last_allocated_id{LABELS} - on (stream, homeserver)"
              f" group_right abs({P}stream_writer_position{LABELS})", legend="{{stream}} {{writer}}"),
        Panel("Findings by check", f"{P}integrity_findings{LABELS}", legend="{{check}}"),
        Panel("Incidents by kind", f"{P}incidents_open{LABELS}", legend="{{kind}}"),
        Panel("Duration of the last run by task", f"{P}run_task_duration_seconds{LABELS}", "s", "{{task}}"),
        Panel("Silent servers", f"{P}federation_silent_servers{LABELS}"),
        Panel("Rows that the last run read", f"{P}run_rows_read{LABELS}"),
        Panel("Rows that the last run wrote", f"{P}run_rows_written{LABELS}"),
    ],
    "Database": [
        Panel("Synapse's database", f'{P}disk_used_bytes{{disk="source",{SERVER}}}', "bytes", is_number=True),
        Panel("The lake", f'{P}disk_used_bytes{{disk="lake",{SERVER}}}', "bytes", is_number=True),
        Panel("Free for the lake", f'{P}disk_free_bytes{{disk="lake",{SERVER}}}', "bytes", is_number=True),
        Panel("WAL that slots hold", f"sum({P}replication_slot_held_bytes{LABELS}) or vector(0)", "bytes",
              is_number=True),
        Panel("Largest relations", f"topk(10, {P}relation_size_bytes{LABELS})", "bytes", "{{relation}}"),
        Panel("Largest indexes", f"topk(10, {P}relation_index_bytes{LABELS})", "bytes", "{{relation}}"),
        Panel("Growth", f"{P}disk_growth_bytes_per_second{LABELS}", "Bps", "{{disk}}"),
        Panel("Time until the disk is full", f"{P}disk_full_seconds{LABELS}", "s", "{{disk}}"),
        Panel("Dead rows", f"topk(10, {P}relation_dead_rows{LABELS})", legend="{{relation}}"),
        Panel("Overdue vacuums", f"sum({P}relation_vacuum_overdue{LABELS})"),
        Panel("Age of transaction IDs", f"max({P}relation_transaction_id_age{LABELS})"),
        Panel("Age of the measurement", f"time() - {P}sizes_timestamp_seconds{LABELS}", "s"),
    ],
}  # fmt: skip


def build_dashboards() -> dict[Path, str]:
    """Return the content of each dashboard file, by path."""
    return {FOLDER / f"{title.lower()}.json": _build(title, panels) for title, panels in DASHBOARDS.items()}


def _build(title: str, panels: list[Panel]) -> str:
    builder = dashboard.Dashboard(f"Synapse lakehouse: {title.lower()}").uid(f"synapse-lakehouse-{title.lower()}")
    builder = builder.tags(["synapse-lakehouse"]).readonly().time("now-7d", "now").refresh("5m").timezone("utc")
    for name, label, series in (
        ("server_name", "Server name", "release_number"),
        ("homeserver", "Homeserver", 'release_number{server_name="$server_name"}'),
    ):
        values = dashboard.QueryVariable(name).query(f"label_values({P}{series}, {name})").label(label)
        values = values.datasource(_SOURCE).refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        builder = builder.with_variable(values.include_all(True).all_value(".*") if name == "homeserver" else values)
    for panel in panels:
        query = prometheus.Dataquery().expr(panel.query).legend_format(panel.legend)
        chart = stat.Panel() if panel.is_number else timeseries.Panel()
        width = _WIDTH // 4 if panel.is_number else _WIDTH // 2
        chart = chart.title(panel.title).unit(panel.unit).datasource(_SOURCE).with_target(query)
        builder = builder.with_panel(chart.span(width).height(_HEIGHT // 2 if panel.is_number else _HEIGHT))
    plain = json.loads(JSONEncoder(sort_keys=True).encode(builder.build()))
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path, content in build_dashboards().items():
        path.write_text(content, encoding="utf-8")
