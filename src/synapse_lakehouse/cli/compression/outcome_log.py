"""Record the outcomes of ``lakehouse compress`` in the lake, room by room, if there is a lake."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.compressor.record_outcome import OutcomeRow
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_RUNS_TABLE, open_catalog
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.printable_text import to_printable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@contextmanager
def open_compression_log(settings: Settings, command: str) -> Iterator[Callable[[OutcomeRow], None]]:
    """Yield a function that appends the outcome of a room to ``audit.compression_runs``.

    The run ID is ``command`` with the time. An error of the lake does not stop the compression of other rooms. Without
    a lake, a note is printed.

    :raises LakehouseError: at the end, when some rows could not be appended. During another exception the message
        is only printed.
    """
    if not lake_session.may_have_lake(settings):
        rows: list[OutcomeRow] = []
        try:
            yield rows.append
        finally:
            if rows:
                output.echo(
                    "The outcomes were not recorded, so `lakehouse compress history` does not show them: there is no "
                    f"lake in {settings.lakehouse_home}, and LAKEHOUSE_CATALOG_URI is not set.",
                    err=True,
                )
        return
    with ExitStack() as stack:
        log = _Log(settings, command, stack)
        try:
            yield log.record
        except BaseException:
            if missing := log.missing():
                output.echo(f"Error: {missing}", err=True)
            raise
        if missing := log.missing():
            raise LakehouseError(missing)


class _Log:
    """Rows of one command; rows that could not be appended are retried with the next row and at the end."""

    def __init__(self, settings: Settings, command: str, stack: ExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._catalog: Catalog | None = None
        self._run_id = f"{command} {datetime.now(UTC).isoformat()}"
        self._pending: list[OutcomeRow] = []
        self._last_error = ""
        self._append()

    def record(self, row: OutcomeRow) -> None:
        self._pending.append({"run_id": self._run_id, **row})
        self._append()

    def missing(self) -> str:
        """Try once more to append; return an error message if rows are still missing, otherwise an empty text."""
        if self._pending:
            self._append()
        if not self._pending:
            return ""
        rooms = dict.fromkeys(row["room_id"] for row in self._pending)
        return (
            f"The outcome of {to_printable(', '.join(rooms))} is not recorded in {COMPRESSION_RUNS_TABLE}, and "
            f"`lakehouse compress history` will not show it: {self._last_error}. The changes in Synapse's database are "
            "correct and stay. Save the output above, because it cannot be recorded later. Check that the lake's "
            "catalog is running and no disk is full (`lakehouse doctor`)."
        )

    def _append(self) -> None:
        from synapse_lakehouse.audit import store

        try:
            self._catalog = self._catalog or self._open()
            if self._pending:
                # If a failed append reached the lake after all, a row exists twice, and readers use the last row.
                store.append_audit_rows(self._catalog, COMPRESSION_RUNS_TABLE, self._pending)
        except Exception as error:  # noqa: BLE001 - an error of the lake must not stop the compression
            if not self._last_error:
                output.echo(
                    f"The lake cannot record the outcomes: {_first_line(error)}. The command tries again after each "
                    "room.",
                    err=True,
                )
            self._last_error = _first_line(error)
        else:
            self._pending, self._last_error = [], ""

    def _open(self) -> "Catalog":
        from synapse_lakehouse.iceberg.write import tables

        with ExitStack() as opening:
            lake = opening.enter_context(connect_services(self._settings, source=False, latest=True))
            catalog = opening.enter_context(closing(open_catalog(lake)))
            tables.ensure_audit_tables(catalog)
            self._stack.push(opening.pop_all())
        return catalog


def _first_line(error: Exception) -> str:
    return to_printable(str(error).partition("\n")[0].rstrip(".")) or type(error).__name__
