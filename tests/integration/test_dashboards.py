"""Each query of the dashboards returns data from a Prometheus that scraped the metrics of a real run."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from docker.monitoring.dashboards import DASHBOARDS, Panel
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from tests.conftest import PublishedLake
from tests.support.prometheus import Query, prometheus

PANELS = [panel for panels in DASHBOARDS.values() for panel in panels]


@pytest.fixture(scope="module")
def metrics(published: PublishedLake) -> str:
    """Return the metrics after a run, with ten earlier days of lake sizes."""
    now = datetime.now(UTC)
    earlier = [
        {"kind": "lake", "name": "warehouse", "bytes": 10**7 - day * 10**5, "measured_at": now - timedelta(days=day)}
        for day in range(1, 11)
    ]
    with closing(open_catalog(published.settings)) as catalog:
        store.append_audit_rows(catalog, "audit.relation_sizes", earlier, Run("planted", now - timedelta(days=11), now))
    started_at = time.monotonic()
    result = published.lakehouse("metrics")
    assert result.returncode == 0, result.stderr
    # It takes three seconds on an idle machine.
    assert time.monotonic() - started_at < 30
    return result.stdout


@pytest.fixture(scope="module")
def query(metrics: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Yield a function for instant queries of three homeservers' metrics, two of them with the same server_name."""
    other = "".join(line for line in metrics.splitlines(keepends=True) if not line.startswith("#"))
    twin = re.sub('server_name="', 'homeserver="twin",server_name="', other)
    other = re.sub('server_name="[^"]+"', 'server_name="other.example"', other)
    with prometheus(metrics + other + twin, tmp_path_factory.mktemp("prometheus")) as run:
        yield run


@pytest.mark.parametrize("panel", PANELS, ids=[panel.title for panel in PANELS])
def test_a_panel_has_data_of_one_homeserver(panel: Panel, query: Query, published: PublishedLake) -> None:
    promql = panel.query.replace("$server_name", str(published.settings.synapse_server_name))
    assert query(promql.replace("$homeserver", ".*"))
    result = query(promql.replace("$homeserver", ""))
    assert result
    assert {series["metric"].get("homeserver") for series in result} <= {None}
    assert all(series["value"][1] != "NaN" for series in result)
    assert {series["metric"].get("server_name") for series in result} <= {published.settings.synapse_server_name, None}


def test_a_fresh_release_raises_no_alert(query: Query) -> None:
    firing = {series["metric"]["alertname"] for series in query('ALERTS{alertstate="firing"}')}
    assert firing <= {"LakehouseIncident"}


def test_metrics_contain_no_private_text(metrics: str, published: PublishedLake) -> None:
    assert published.source.canaries.list_columns_in(metrics.encode()) == set()
    assert not re.search(r"@|![A-Za-z]|\$[A-Za-z]|\d+\.\d+\.\d+\.\d+", metrics)
