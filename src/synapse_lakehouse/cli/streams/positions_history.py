"""``lakehouse positions --history``: the samples of the DAG stream_watch."""

from datetime import timedelta
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import to_printable

_TABLE: Final = "audit.stream_watch"
_CHART_SAMPLES: Final = 24
"""Number of samples in the chart of a stream, for two hours."""
_BARS: Final = "▁▂▃▄▅▆▇█"

SUMMARY: Final = f"""
with samples as (
    select *, case when safe_bound is not null then greatest(last_allocated_id - abs(safe_bound), 0) end as lag,
           row_number() over (partition by stream order by watched_at desc) as ago,
           max(watched_at) over () as latest
    from {_TABLE}
)
select stream, arg_max(last_allocated_id, watched_at),
       arg_max(last_allocated_id, watched_at) - min(last_allocated_id) filter (watched_at >= latest - interval 1 hour),
       arg_max(last_allocated_id, watched_at) - min(last_allocated_id) filter (watched_at >= latest - interval 1 day),
       arg_max_null(lag, watched_at), max(watched_at), arg_max_null(open_since, watched_at),
       list(lag order by watched_at) filter (ago <= {_CHART_SAMPLES}), arg_max(vanished_writers, watched_at)
from samples group by stream order by stream
"""  # noqa: S608


def show_history(format: output.OutputFormat) -> None:
    """Write a table with one line per stream. CSV and JSON contain one line per sample."""
    with lake_session.open_lake() as (settings, connection):
        if _TABLE not in list_catalog_entries(settings):
            raise LakeReadError(_NO_SAMPLES)
        duckdb_reader.create_views(connection, settings, None, [_TABLE])
        result = connection.execute(
            SUMMARY if format is output.OutputFormat.TABLE else f"from {_TABLE} order by watched_at, stream"
        )
        names, rows = [column[0] for column in result.description or ()], result.fetchall()
    if not rows:
        raise LakeReadError(_NO_SAMPLES)
    if format is not output.OutputFormat.TABLE:
        output.write_rows(names, rows, format)
        return
    console = output.create_console()
    console.print(f"Latest samples of the streams, {output.format_time(rows[0][5].replace(microsecond=0))}")
    console.print(_render_samples(rows))


_NO_SAMPLES: Final = (
    "There are no samples of the streams yet. The DAG stream_watch takes them every five minutes: start `make ui`."
)


def _render_samples(rows: list[tuple[Any, ...]]) -> Table:
    table = output.create_table("Stream")
    for heading in ("Last ID", "In an hour", "In a day", "Open", "For"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"Open, last {_CHART_SAMPLES} samples", no_wrap=True)
    table.add_column("Vanished")
    for stream, last_allocated_id, hour, day, lag, watched_at, since, lags, vanished in rows:
        minutes = f"{(watched_at - since) / timedelta(minutes=1):,.0f} min" if since else ""
        table.add_row(
            stream, *(f"{count:,}" for count in (last_allocated_id, hour, day)), "-" if lag is None else f"{lag:,}",
            minutes, draw_bars(lags), Text(to_printable(", ".join(vanished)), style="red"),
        )  # fmt: skip
    return table


def draw_bars(values: list[int | None]) -> str:
    """Return a bar for each value, scaled to the maximum; a dot for None."""
    highest = max((value or 0 for value in values), default=0)
    steps = len(_BARS) - 1
    return "".join("·" if value is None else _BARS[value * steps // highest if highest else 0] for value in values)
