"""How a user stands in each room now, which decides as what Synapse lets the user read its events."""

from typing import Final

from synapse_lakehouse.iceberg.read.sql_text import quote_literal

MEMBERSHIP_TABLES: Final = ("bronze.local_current_membership", "bronze.room_memberships")


def membership_ctes(user: str) -> str:
    """Common table expressions, over ``READS``, of what counts when ``user`` asks for events.

    ``standing``: ``room_id`` and whether the user is answered as a member there (``as_member``).

    So is who is joined, and who left a room and has not forgotten it: Synapse begins such a user's pages at the leave
    where they go backwards, but those that go forwards, and what relates to an event, go on after it. Everybody else
    who is not in a room is refused pages, and peeks at single events at most, banned users among them
    (``Auth.check_user_in_room``, ``PaginationHandler.get_messages``).
    """
    asked = quote_literal(user)
    return f"""
        remembered as (
            select distinct room_id from bronze.room_memberships where user_id = {asked} and forgotten = 0
        ),
        standing as (
            select
                mine.room_id,
                mine.membership = 'join' or mine.membership = 'leave' and remembered.room_id is not null as as_member
            from bronze.local_current_membership as mine
            left join remembered on mine.room_id = remembered.room_id
            where mine.user_id = {asked}
        )"""  # noqa: S608 - quoted
