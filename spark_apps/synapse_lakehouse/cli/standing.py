"""How a user stands in each room now, which decides as what Synapse lets the user read its events."""

from typing import Final

from synapse_lakehouse.lake import duck

READS: Final = ("bronze.local_current_membership", "bronze.room_memberships")


def tables(user: str) -> str:
    """Common table expressions, over ``READS`` and ``gold.events``, of what counts when ``user`` asks for events.

    ``standing``: ``room_id``, whether the user is ``joined``, and the place of a leave up to which the user may page.
    ``of_left``: of rooms with such a leave, each ``event_id`` and whether it is ``before_leave``.

    Who left a room and has not forgotten it is answered as a member up to the leave, where Synapse starts the pages of
    such a user (``PaginationHandler.get_messages``). Everybody else who is not in a room is refused pages, and peeks at
    single events at most, banned users among them (``Auth.check_user_in_room``).
    """
    asked = duck.literal(user)
    return f"""
        remembered as (
            select distinct room_id from bronze.room_memberships where user_id = {asked} and forgotten = 0
        ),
        standing as (
            select mine.room_id, mine.membership = 'join' as joined, last.topological_ordering, last.stream_ordering
            from bronze.local_current_membership as mine
            left join remembered on mine.room_id = remembered.room_id
            left join gold.events as last
                on mine.event_id = last.event_id and mine.membership = 'leave' and remembered.room_id is not null
            where mine.user_id = {asked}
        ),
        of_left as (
            select
                event_id,
                (events.topological_ordering, events.stream_ordering)
                    <= (standing.topological_ordering, standing.stream_ordering) as before_leave
            from gold.events as events
            join standing using (room_id)
            where standing.topological_ordering is not null
        )"""  # noqa: S608 - quoted
