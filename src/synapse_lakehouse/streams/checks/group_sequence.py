"""Compare the sequence of state groups with the groups that events of the main database name."""

from typing import Final

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.live_stream_positions import read_last_sequence_value
from synapse_lakehouse.streams.checks.sequences import SequenceFault

_SEQUENCE: Final = "state_group_id_seq"


def find_group_sequence_fault(main: Connection, state: Connection) -> SequenceFault | None:
    """Return a fault if events name groups beyond the sequence of the state database, else None.

    This happens if the state database alone was set back. Synapse compares its sequence with ``state_groups`` only.

    :param state: a primary, or a standby that has replayed what ``main`` sees.
    """
    # Synapse has an index on the column.
    row = main.execute("select max(state_group) from event_to_state_groups").fetchone()
    named = (row[0] if row else None) or 0
    # The sequence is read last. Otherwise new events would seem to be beyond it.
    last = read_last_sequence_value(state, _SEQUENCE)
    if named <= last:
        return None
    return SequenceFault(
        f"The sequence {_SEQUENCE} has assigned IDs up to {last}, but events in SYNAPSE_DSN name state groups up to "
        f"{named}: the state database was set back alone. Synapse assigns these IDs again, also after a restart, and "
        "such events then have the state of other events.",
        f"select setval('{_SEQUENCE}', greatest({named}, (select max(id) from state_groups)));",  # noqa: S608
    )
