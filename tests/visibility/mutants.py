"""Visibility rules, each with one wrong condition."""

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from tests.visibility.holding import VIEW

CHANGES = {
    "rejected events are shown": ("when withheld is not null then withheld", "when false then withheld"),
    "soft-failed events are shown": ("when soft_failed and", "when false and"),
    "administrators are like others": ("coalesce(options.sees_soft_failed, false)", "false"),
    "administrators do not see spam": ("coalesce(options.sees_policy_server_spammy, false)", "false"),
    "readers of spam see all soft-failed events": ("(sees_spam and policy_server_spammy)", "sees_spam"),
    "dummies are shown": ("when unsent_type = 'dummy_event' then", "when false then"),
    "aliases are shown": ("when unsent_type = 'room_aliases' then", "when false then"),
    "ignoring has no effect": ("ignored.ignored_user_id is not null", "false"),
    "ignoring hides state, too": ("not is_state and ignored.", "ignored."),
    "nothing expires": ("when expires_at < as_of then", "when false then"),
    "messages expire when they are due": ("expires_at < as_of", "expires_at <= as_of + 1000"),
    "outliers are shown": ("when outlier then 'outlier'", "when outlier then 'shared'"),
    "own outliers are hidden": ("when outlier and is_own then", "when false then"),
    "world_readable is nothing special": (
        "when not sender_erased and boundary_visibility = 'world_readable' and not is_call_invite",
        "when false",
    ),
    "world_readable shows the erased": (
        "when not sender_erased and boundary_visibility = 'world_readable' and not is_call_invite",
        "when boundary_visibility = 'world_readable' and not is_call_invite",
    ),
    "the erased are shown to members": (
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
    "peeking readers are members by rule": ("when history_visibility = 'shared' and true then", "when false then"),
    "peeking readers get the outcome of members": (
        "when peeks.peeking then pairs.peeking_outcome",
        "when false then pairs.outcome",
    ),
    "readers meet events of all buckets": ("and events.bucket = reader.bucket", ""),
    "readers meet events of their first bucket": (
        "and buckets.bucket <= cast(least(floor(sqrt(sqrt(greatest(reader.last_position,",
        "and buckets.bucket <= cast(least(floor(sqrt(sqrt(greatest(reader.first_position,",
    ),
    "shared is for members of the time": (
        "= 'shared' and not peeking and not is_call_invite",
        "= 'shared' and not peeking and not is_call_invite and membership_class = 'join'",
    ),
    "boundaries are as strict as what follows": ("boundary_visibility", "history_visibility"),
    "own leaves are hidden": ("when is_own and ends_membership then", "when false then"),
    "own leaves of the erased are whole": ("when is_own and ends_membership and sender_erased then", "when false then"),
    "own events count as the state after them": (
        "case when is_own then widest_membership else membership_class end",
        "membership_class",
    ),
    "own events have no own rules": ("coalesce(event.member = reader.user_id, false) as is_own", "false as is_own"),
    "administrators without ignored users have no own rules": (
        "ignorers.ignorer_user_id is not null or options.user_id is not null",
        "ignorers.ignorer_user_id is not null",
    ),
    "users that ignore others have no own rules": (
        "ignorers.ignorer_user_id is not null or options.user_id is not null",
        "options.user_id is not null",
    ),
    "the joined are like others": ("= 'join' then 'joined'", "= 'nothing' then 'joined'"),
    "joined shows all": ("when history_visibility = 'joined' then", "when false then"),
    "the invited do not see": ("<> 'invite' then", "<> 'nothing' then"),
    "knocking users count as invited": (
        "else 'other' end",
        "when reader.membership = 'knock' then 'invite' else 'other' end",
    ),
    "invited shows all": ("when history_visibility = 'invited' and", "when false and"),
    "peeking readers are members": ("when history_visibility = 'shared' and peeking then", "when false then"),
    "calls ring in public rooms": ("is_call_invite", "false"),
    "erased senders are whole": ("when sender_erased then 'sender_erased'", ""),
    "the redacted are hidden": ("when rule = 'sender_erased' then 'redacted'", ""),
    "a membership is the state's": ("when is_own then membership", ""),
    "users that were never members have no membership": ("coalesce(state_membership, 'leave')", "state_membership"),
}
"""Name of the fault → condition of the view, and its replacement."""


def mutants(connection: DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Replace the view, defined by ``sql``, with each faulty view in turn."""
    for wrong, (condition, instead) in CHANGES.items():
        assert condition in sql, f"{wrong}: the view does not contain {condition!r}"
        connection.execute(f"create or replace view {VIEW} as {sql.replace(condition, instead)}")
        yield wrong
