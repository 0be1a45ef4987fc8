"""What a person is shown of a plan before it is applied."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from synapse_lakehouse.compressor.postgres.session import WRITE_DSN_SETTING
from synapse_lakehouse.printable_text import to_chat_text, to_markdown_code, to_printable

_MB: Final = 1_000_000
_MOST: Final = 50
_HEAD: Final = """
| Room | Rows | then | Size | then | Groups to rewrite | Deletes | Inserts | Needs | Longest chain |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def describe_plan(rows: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]], *, may_write: bool) -> str:
    """Markdown: what the plan would give back, what it takes, and every room, or the ``_MOST`` with most to win.

    :param rows: of ``gold.compression_plan``, at least one, the most to win first.
    :param skipped: rows of rooms that cannot be compressed.
    :param may_write: whether the setting for writing is there.
    """
    before, after = (sum(row[name] for row in rows) for name in ("rows_before", "rows_after"))
    freed = sum(row["bytes_before"] - row["bytes_after"] for row in rows)
    needed = sum(row["bytes_needed"] for row in rows)
    parts = [
        f"**{before - after:,} of {before:,} rows ({1 - after / max(before, 1):.0%}) and about {_size(freed)}** of "
        f"`state_groups_state` would be given back to Synapse's database, in {len(rows)} rooms, by the strategy "
        f"`{rows[0]['strategy']}`. Until VACUUM has run, it needs about {_size(needed)} more. Planned from release "
        f"{rows[0]['release']}; what came since then is compressed, too, and no state is changed."
    ]
    if not may_write:
        parts.append(
            f"**{WRITE_DSN_SETTING} is not set, so applying it would fail.** "
            "`lakehouse grants --compress` makes the role."
        )
    parts.append(_HEAD.strip() + "".join(f"\n{_line(row)}" for row in rows[:_MOST]))
    if len(rows) > _MOST:
        parts.append(f"And {len(rows) - _MOST} further rooms: `gold.compression_plan` has them all.")
    parts += [
        f"Left as it is: {to_markdown_code(row['room_id'])}, {to_chat_text(to_printable(row['skipped']))}"
        for row in skipped[:_MOST]
    ]
    return "\n\n".join(parts)


def _line(row: Mapping[str, Any]) -> str:
    cells = (
        to_markdown_code(row["room_id"]), f"{row['rows_before']:,}", f"{row['rows_after']:,}",
        _size(row["bytes_before"]),
        _size(row["bytes_after"]), f"{row['groups_to_rewrite']:,} of {row['groups']:,}",
        f"{row['rows_to_delete']:,}", f"{row['rows_to_insert']:,}", _size(row["bytes_needed"]),
        f"{row['longest_chain_before']} → {row['longest_chain_after']}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _size(number: int) -> str:
    return f"{number / _MB:,.1f} MB" if abs(number) >= _MB else f"{number / 1000:,.0f} kB"
