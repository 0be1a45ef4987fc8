"""Digests of the state at each position, by which the states of two groups are compared without their pieces of state.

The digest of a state is the XOR of the hashes of its pieces, so their order does not matter. A piece that is added,
removed or replaced changes the digest. The digest does not depend on the rows and chains in which Synapse stores the
state.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

DIGEST_COLUMNS: Final = ("state_rows", "digest")


def add_digests(positions: DataFrame, intervals: DataFrame) -> DataFrame:
    """Return ``positions`` with the number of pieces of the state at each position, and the state's digest.

    A piece is added at the first position of its interval, and removed after the last position.

    :param positions: rows of ``silver.state_positions`` without ``DIGEST_COLUMNS``.
    :param intervals: rows of ``silver.state_intervals``, at least all intervals that contain one of the positions.
    """
    intervals = intervals.withColumns(
        {"state_rows": f.lit(1).cast("bigint"), "digest": f.xxhash64("type", "state_key", "event_id")}
    )
    begins = intervals.selectExpr("room_id", "first_position as position", *DIGEST_COLUMNS)
    ends = intervals.selectExpr("room_id", "last_position + 1 as position", "-state_rows as state_rows", "digest")
    changes = positions.unionByName(begins.unionAll(ends), allowMissingColumns=True)
    # The window contains all rows of its last position.
    so_far = "over (partition by room_id order by position range between unbounded preceding and current row)"
    summed = {
        "state_rows": f.expr(f"coalesce(sum(state_rows) {so_far}, 0L)"),
        "digest": f.expr(f"coalesce(bit_xor(digest) {so_far}, 0L)"),
    }
    return changes.withColumns(summed).where("state_group is not null")
