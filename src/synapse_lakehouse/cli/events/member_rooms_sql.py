"""The present membership of a user in each room: whether Synapse treats the user as a member or as peeking."""

from typing import Final

from synapse_lakehouse.iceberg.read.sql_text import quote_literal

MEMBERSHIP_TABLES: Final = ("bronze.local_current_membership", "bronze.room_memberships")


def membership_ctes(user: str) -> str:
    """Return common table expressions over ``MEMBERSHIP_TABLES`` for ``user``.

    ``own_rooms`` has the columns ``room_id`` and ``as_member``. Synapse treats joined users as members, and also users
    that left without forgetting the room. After a leave, backward pagination starts at the leave event, but forward
    pagination and relations continue after the leave event. All other users, including banned users, are peeking: they
    get single events, and pages only of world-readable rooms (``Auth.check_user_in_room_or_world_readable``).
    """
    quoted_user = quote_literal(user)
    return f"""
        remembered as (
            select distinct room_id from bronze.room_memberships where user_id = {quoted_user} and forgotten = 0
        ),
        own_rooms as (
            select
                mine.room_id,
                mine.membership = 'join' or mine.membership = 'leave' and remembered.room_id is not null as as_member
            from bronze.local_current_membership as mine
            left join remembered on mine.room_id = remembered.room_id
            where mine.user_id = {quoted_user}
        )"""  # noqa: S608 - quoted
