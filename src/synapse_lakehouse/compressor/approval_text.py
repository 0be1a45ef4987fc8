"""The text that an approver reads before a plan is applied."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from synapse_lakehouse.compressor.postgres.session_settings import WRITE_DSN_SETTING
from synapse_lakehouse.printable_text import to_chat_text, to_markdown_code, to_printable

_MB: Final = 1_000_000
_MAXIMUM_ROOMS: Final = 50
_TABLE_HEAD: Final = """
| Room | Rows | after | Size | after | Groups to rewrite | Deletes | Inserts | Temporary | Longest chain |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def describe_plan(rows: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]], *, may_write: bool) -> str:
    """Return Markdown: rows and bytes that the plan saves, bytes that it needs, and a table of at most 50 rooms.

    :param rows: rows of ``gold.compression_plan``, largest savings first; at least one row.
    :param skipped: rows of ``gold.compression_plan`` of rooms that cannot be compressed.
    :param may_write: whether SYNAPSE_WRITE_DSN is set.
    """
    before, after = (sum(row[name] for row in rows) for name in ("rows_before", "rows_after"))
    freed = sum(row["bytes_before"] - row["bytes_after"] for row in rows)
    needed = sum(row["bytes_needed"] for row in rows)
    parts = [
        f"**{before - after:,} of {before:,} rows ({1 - after / max(before, 1):.0%}) and about {_size(freed)}** of "
        f"`state_groups_state` can be freed in Synapse's database, in {len(rows)} rooms, with the strategy "
        f"`{rows[0]['strategy']}`. Until VACUUM has run, about {_size(needed)} of additional disk space are needed. "
        f"The plan is based on release {rows[0]['release']}; newer state groups are compressed, too. No state changes."
    ]
    if not may_write:
        parts.append(
            f"**{WRITE_DSN_SETTING} is not set, so the task apply would fail.** `lakehouse grants --compress` prints "
            "the SQL that creates its role."
        )
    parts.append(_TABLE_HEAD.strip() + "".join(f"\n{_line(row)}" for row in rows[:_MAXIMUM_ROOMS]))
    if len(rows) > _MAXIMUM_ROOMS:
        parts.append(f"{len(rows) - _MAXIMUM_ROOMS} more rooms: see `gold.compression_plan`.")
    parts += [
        f"Skipped: {to_markdown_code(row['room_id'])}, {to_chat_text(to_printable(row['skipped']))}"
        for row in skipped[:_MAXIMUM_ROOMS]
    ]
    return "\n\n".join(parts)


def _line(row: Mapping[str, Any]) -> str:
    cells = (
        to_markdown_code(row["room_id"]), f"{row['rows_before']:,}", f"{row['rows_after']:,}",
        _size(row["bytes_before"]), _size(row["bytes_after"]), f"{row['groups_to_rewrite']:,} of {row['groups']:,}",
        f"{row['rows_to_delete']:,}", f"{row['rows_to_insert']:,}", _size(row["bytes_needed"]),
        f"{row['longest_chain_before']} → {row['longest_chain_after']}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _size(number: int) -> str:
    return f"{number / _MB:,.1f} MB" if abs(number) >= _MB else f"{number / 1000:,.0f} kB"
