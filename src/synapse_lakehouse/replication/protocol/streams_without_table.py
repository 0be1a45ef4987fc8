"""Replication streams that have no table in any release of Synapse."""

from typing import Final

from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY_STREAMS

_RETIRED: Final = frozenset({"current_state_deltas", "groups", "public_rooms", "tag_account_data", "user_signature"})
"""Streams of former releases. ``current_state_deltas`` became part of ``events``, ``tag_account_data`` of
``account_data``, and ``user_signature`` of ``device_lists``. Synapse dropped groups and the stream of public rooms."""

STREAMS_WITHOUT_TABLE: Final = MEMORY_ONLY_STREAMS | _RETIRED
"""Streams that are served without rows, because a client may request all streams of its own release."""
