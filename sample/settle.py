"""Wait until a homeserver has completed its background work."""

import time

import psycopg

QUIET_SECONDS = 3.0

# Each query returns the amount of pending work.
_PENDING = {
    "background updates": "select count(*) from background_updates",
    "room statistics": """select greatest(0, (select max(stream_id) from current_state_delta_stream)
                          - (select stream_id from stats_incremental_position))""",
    "user directory": """select greatest(0, (select max(stream_id) from current_state_delta_stream)
                         - (select stream_id from user_directory_stream_pos))""",
    "deactivations": "select count(*) from users_pending_deactivation",
    "partial states": "select count(*) from partial_state_rooms",
    "running tasks": "select count(*) from scheduled_tasks where status = 'active'",
}
_POSITIONS = """
select (select jsonb_agg(to_jsonb(p) order by p) from stream_positions p),
       (select jsonb_agg(to_jsonb(s) order by s) from (select sequencename, last_value from pg_sequences
        where sequencename <> 'cache_invalidation_stream_seq') s)
"""


def settle(dsn: str, seconds: float = 180, quiet_seconds: float = QUIET_SECONDS) -> None:
    """Wait until no work is pending and no stream position has changed for ``quiet_seconds``.

    :raises TimeoutError: after ``seconds``. The message names the pending work.
    """
    deadline = time.monotonic() + seconds
    with psycopg.connect(dsn, autocommit=True) as connection:
        last_positions, since = None, time.monotonic()
        while True:
            pending = {name: connection.execute(sql).fetchone() for name, sql in _PENDING.items()}
            open_work = {name: row[0] for name, row in pending.items() if row and row[0]}
            positions = connection.execute(_POSITIONS).fetchone()
            if open_work or positions != last_positions:
                last_positions, since = positions, time.monotonic()
            elif time.monotonic() - since > quiet_seconds:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"Synapse did not settle within {seconds:.0f} s; pending: {open_work or 'streams'}")
            time.sleep(0.5)
