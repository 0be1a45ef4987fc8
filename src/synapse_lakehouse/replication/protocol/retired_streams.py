"""Streams of Synapse's replication, of any release, whose rows no table has."""

from typing import Final

from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY

_RETIRED: Final = frozenset({"current_state_deltas", "groups", "public_rooms", "tag_account_data", "user_signature"})
"""Streams that former releases had. ``current_state_deltas`` became part of ``events``, ``tag_account_data`` of
``account_data``, ``user_signature`` of ``device_lists``; Synapse dropped groups and the stream of public rooms."""

WITHOUT_TABLE: Final = MEMORY_ONLY | _RETIRED
"""A client that asks for all of its streams asks for some of these. They have a position and no rows."""
