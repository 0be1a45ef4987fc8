"""Mutants of the visibility view, each with one wrong condition."""

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from tests.visibility.holding import VIEW

MUTATIONS = {
    "rejected events are shown": ("when withheld is not null then withheld", "when false then withheld"),
    "soft-failed events are shown": ("when soft_failed and", "when false and"),
    "administrators have no options": ("coalesce(options.sees_soft_failed, false)", "false"),
    "administrators do not see spam": ("coalesce(options.sees_policy_server_spammy, false)", "false"),
    "readers of spam see all soft-failed events": ("(sees_spam and policy_server_spammy)", "sees_spam"),
    "dummy events are shown": ("when unsent_type = 'dummy_event' then", "when false then"),
    "m.room.aliases events are shown": ("when unsent_type = 'room_aliases' then", "when false then"),
    "ignored users are shown": ("ignored.ignored_user_id is not null", "false"),
    "state of ignored users is hidden": ("not is_state and ignored.", "ignored."),
    "messages never expire": ("when expires_at < as_of then", "when false then"),
    "messages expire when they are due": ("expires_at < as_of", "expires_at <= as_of + 1000"),
    "outliers are shown": ("when outlier then 'outlier'", "when outlier then 'shared'"),
    "own outliers are hidden": ("when outlier and is_own then", "when false then"),
    "world_readable has no effect": (
        "when not sender_erased and boundary_visibility = 'world_readable' and not is_call_invite",
        "when false",
    ),
    "world_readable shows events of erased senders": (
        "when not sender_erased and boundary_visibility = 'world_readable' and not is_call_invite",
        "when boundary_visibility = 'world_readable' and not is_call_invite",
    ),
    "members see shared events of erased senders": (
        "when not sender_erased and boundary_visibility = 'shared' and",
        "when boundary_visibility = 'shared' and",
    ),
    "peeking readers see shared events": (
        "= 'shared' and not peeking and not is_call_invite",
        "= 'shared' and not is_call_invite",
    ),
    "peeking readers see shared events by rule": (
        "= 'shared' and not true and not is_call_invite",
        "= 'shared' and not is_call_invite",
    ),
    "rules of peeking readers are those of members": (
        "when history_visibility = 'shared' and true then",
        "when false then",
    ),
    "peeking readers get the outcome of members": (
        "when peeks.peeking then pairs.peeking_outcome",
        "when false then pairs.outcome",
    ),
    "readers are joined to events of all buckets": ("and events.bucket = reader.bucket", ""),
    "readers are joined to events of their first bucket only": (
        "and buckets.bucket <= cast(least(floor(sqrt(sqrt(greatest(reader.last_position,",
        "and buckets.bucket <= cast(least(floor(sqrt(sqrt(greatest(reader.first_position,",
    ),
    "only members at the event see shared events": (
        "= 'shared' and not peeking and not is_call_invite",
        "= 'shared' and not peeking and not is_call_invite and membership_class = 'join'",
    ),
    "boundaries have the visibility after them": ("boundary_visibility", "history_visibility"),
    "own leaves are hidden": ("when is_own and ends_membership then", "when false then"),
    "own leaves of erased senders are not redacted": (
        "when is_own and ends_membership and sender_erased then",
        "when false then",
    ),
    "own events have the membership after them": (
        "case when is_own then widest_membership else membership_class end",
        "membership_class",
    ),
    "own events have the rules of other events": (
        "coalesce(event.member = reader.user_id, false) as is_own",
        "false as is_own",
    ),
    "administrators without ignored users have the rules of other users": (
        "ignorers.ignorer_user_id is not null or options.user_id is not null",
        "ignorers.ignorer_user_id is not null",
    ),
    "users that ignore users have the rules of other users": (
        "ignorers.ignorer_user_id is not null or options.user_id is not null",
        "options.user_id is not null",
    ),
    "joined users have the membership of other users": ("= 'join' then 'joined'", "= 'nothing' then 'joined'"),
    "visibility joined shows all events": ("when history_visibility = 'joined' then", "when false then"),
    "invited users do not see invited events": ("<> 'invite' then", "<> 'nothing' then"),
    "knocking users count as invited": (
        "else 'other' end",
        "when reader.membership = 'knock' then 'invite' else 'other' end",
    ),
    "visibility invited shows all events": ("when history_visibility = 'invited' and", "when false and"),
    "peeking readers are members": ("when history_visibility = 'shared' and peeking then", "when false then"),
    "call invites are shown in public rooms": ("is_call_invite", "false"),
    "events of erased senders are not redacted": ("when sender_erased then 'sender_erased'", ""),
    "redacted events are hidden": ("when rule = 'sender_erased' then 'redacted'", ""),
    "own events have the membership of the state": ("when is_own then membership", ""),
    "users that were never members have no membership": ("coalesce(state_membership, 'leave')", "state_membership"),
}
"""Name of the mutant → condition of the view, and its replacement."""


def mutants(connection: DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Replace the view, which ``sql`` defines, by each mutant in turn; yield the mutant's name."""
    for name, (condition, replacement) in MUTATIONS.items():
        assert condition in sql, f"{name}: the view does not contain {condition!r}"
        connection.execute(f"create or replace view {VIEW} as {sql.replace(condition, replacement)}")
        yield name
