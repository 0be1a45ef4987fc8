"""SQL over stream ids, for Spark, and for DuckDB in tests. Ids are distances: without the sign of negative streams."""

from typing import Final

GAPLESS_RUNS: Final = """
select stream, max(distance) as run
from (
    select stream, distance, row_number() over (partition by stream order by distance) as n
    from (select distinct stream, distance from beyond)
)
where distance = n group by stream
"""
"""As :func:`positions.gapless_end`: ids that follow a stream's minimum without a gap.

Reads ``beyond``: stream and distance from the minimum, over zero. Gives stream and run; no row where there is none.
"""
