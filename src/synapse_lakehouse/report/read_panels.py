"""Read the rows of panels from the lake."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, is_unbranched
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import find_table_names
from synapse_lakehouse.report.panel import Panel, Row

MAX_ROWS: Final = 50_000
"""Maximum number of rows of a query. Queries have their own limits. This one applies if a lake has very many series."""


@dataclass(frozen=True)
class PanelRows:
    """The rows of a panel. ``reason``: a sentence why there are no rows. ``is_unread``: whether the query failed."""

    panel: Panel
    rows: Sequence[Row]
    reason: str = ""
    is_unread: bool = False

    @property
    def is_known(self) -> bool:
        """Return whether the query ran, even if it returned no row."""
        return bool(self.rows) or self.reason == self.panel.empty


@dataclass(frozen=True)
class PanelReader:
    """Reads panels at ``release``; None before the first release."""

    connection: DuckDBPyConnection
    settings: Settings
    release: Release | None

    def read(self, panel: Panel) -> PanelRows:
        """Return the rows of ``panel``. If its part of the lake cannot be read, return the reason instead of rows."""
        names = find_tables(panel)
        if missing := [name for name in names if not self.has_table(name)]:
            return PanelRows(panel, [], f"The lake has no {' and no '.join(missing)} yet.")
        try:
            duckdb_reader.create_views(self.connection, self.settings, self.release, names)
            rows = duckdb_reader.read_rows(self.connection, panel.sql, MAX_ROWS)
            derived = panel.derive(rows, self.connection, self.settings)
        except (duckdb.Error, LakeReadError) as error:
            return PanelRows(panel, [], f"This part could not be read: {str(error).splitlines()[0]}", is_unread=True)
        return PanelRows(panel, derived, "" if derived else panel.empty)

    def has_table(self, name: str) -> bool:
        """Return whether the lake has the table at the release."""
        if is_unbranched(name):
            return name in list_catalog_entries(self.settings)
        return self.release is not None and (name in self.release.tables or name in self.release.views)


def find_tables(panel: Panel) -> list[str]:
    """Return the tables that the query of ``panel`` reads, such as ``gold.events``."""
    return sorted(name for name in find_table_names(panel.sql) if name.partition(".")[0] in SCHEMAS)
