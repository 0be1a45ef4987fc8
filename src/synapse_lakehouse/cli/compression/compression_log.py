"""What ``lakehouse compress`` did, recorded in the lake as soon as each room is done, where there is a lake."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.compressor.outcomes import OutcomeRow
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_RUNS_TABLE, open_catalog
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.printable_text import to_printable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class CompressionLogError(LakehouseError):
    """What was done is done, and the lake does not say so."""


@contextmanager
def open_compression_log(settings: Settings, command: str) -> Iterator[Callable[[OutcomeRow], None]]:
    """Takes what became of a room (``rewriting.recording``) and appends it to ``audit.compression_runs``.

    ``command`` and the time are the id of its run. Nothing that is wrong with the lake stops the work on other rooms.
    Says so where there is no lake.

    :raises CompressionLogError: in the end, where there is a lake that did not take every row; if something else was
        raised, that is raised, and this is only said.
    """
    if not lake_session.may_have_lake(settings):
        rows: list[OutcomeRow] = []
        try:
            yield rows.append
        finally:
            if rows:
                output.echo(
                    "Nothing of this was recorded, so `lakehouse compress history` does not show it: there is no lake "
                    f"in {settings.lakehouse_home}, and LAKEHOUSE_CATALOG_URI names none.",
                    err=True,
                )
        return
    with ExitStack() as stack:
        journal = _Journal(settings, command, stack)
        try:
            yield journal.record
        except BaseException:
            if missing := journal.missing():
                output.echo(f"Error: {missing}", err=True)
            raise
        if missing := journal.missing():
            raise CompressionLogError(missing)


class _Journal:
    """Rows of one run by hand; those that the lake did not take are offered again with the next one and in the end."""

    def __init__(self, settings: Settings, command: str, stack: ExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._catalog: Catalog | None = None
        self._run_id = f"{command} {datetime.now(UTC).isoformat()}"
        self._waiting: list[OutcomeRow] = []
        self._trouble = ""
        self._append()

    def record(self, row: OutcomeRow) -> None:
        self._waiting.append({"run_id": self._run_id, **row})
        self._append()

    def missing(self) -> str:
        """What the lake still does not say after a last try, and what that means; empty if it says all."""
        if self._waiting:
            self._append()
        if not self._waiting:
            return ""
        rooms = dict.fromkeys(row["room_id"] for row in self._waiting)
        return (
            f"What became of {to_printable(', '.join(rooms))} is not recorded in {COMPRESSION_RUNS_TABLE}, and "
            "`lakehouse compress "
            f"history` will not show it: {self._trouble}. What was done to Synapse's database stays, and is right. "
            "Keep what was said above, as it cannot be recorded later, and see that the lake's catalog runs and no "
            "disk is full (`lakehouse doctor`)."
        )

    def _append(self) -> None:
        from synapse_lakehouse.audit import store

        try:
            self._catalog = self._catalog or self._opened()
            if self._waiting:
                # Should an attempt have been heard that failed, a row is there twice, and the last one counts.
                store.append_audit_rows(self._catalog, COMPRESSION_RUNS_TABLE, self._waiting)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the lake, Synapse's database is not to suffer
            if not self._trouble:
                output.echo(
                    f"The lake does not record what becomes of the rooms: {_said(error)}. It is asked again when a "
                    "room is done.",
                    err=True,
                )
            self._trouble = _said(error)
        else:
            self._waiting, self._trouble = [], ""

    def _opened(self) -> "Catalog":
        from synapse_lakehouse.iceberg.write import tables

        with ExitStack() as opening:
            lake = opening.enter_context(connect_services(self._settings, source=False, latest=True))
            catalog = opening.enter_context(closing(open_catalog(lake)))
            tables.ensure_audit_tables(catalog)
            self._stack.push(opening.pop_all())
        return catalog


def _said(error: Exception) -> str:
    return to_printable(str(error).partition("\n")[0].rstrip(".")) or type(error).__name__
