"""The rules of who may see what, each with one condition wrong."""

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from tests.visibility.holding import VIEW

CHANGES = {
    "rejected events are shown": ("when withheld is not null then withheld", "when false then withheld"),
    "soft-failed events are shown": ("when soft_failed then", "when false then"),
    "administrators are like others": ("and not coalesce(options.sees_soft_failed, false)", ""),
    "administrators do not see spam": (
        "and not (coalesce(options.sees_policy_server_spammy, false) and event.policy_server_spammy)",
        "",
    ),
    "whoever sees spam sees all that soft-failed": (
        "coalesce(options.sees_policy_server_spammy, false) and event.policy_server_spammy",
        "coalesce(options.sees_policy_server_spammy, false)",
    ),
    "dummies are shown": ("when never_sent = 'dummy_event' then", "when false then"),
    "aliases are shown": ("when never_sent = 'room_aliases' then", "when false then"),
    "ignoring has no effect": ("when sender_ignored then", "when false then"),
    "ignoring hides state, too": ("not event.is_state and ignored", "ignored"),
    "nothing expires": ("when expired then", "when false then"),
    "messages expire when they are due": ("event.expires_at < moment.as_of", "event.expires_at <= moment.as_of + 1000"),
    "outliers are shown": ("when outlier then 'outlier'", "when outlier then 'shared'"),
    "own outliers are hidden": ("when outlier and is_own then", "when false then"),
    "world_readable is nothing special": ("when lax_visibility = 'world_readable' and not rings", "when false"),
    "world_readable shows the erased": (
        "case when not event.sender_erased then event.boundary_visibility end",
        "case when not event.sender_erased or event.boundary_visibility = 'world_readable'"
        " then event.boundary_visibility end",
    ),
    "the erased are shown to members": (
        "case when not event.sender_erased then event.boundary_visibility end",
        "event.boundary_visibility",
    ),
    "who peeks sees what is shared": ("lax_visibility = 'shared' and not peeking and", "lax_visibility = 'shared' and"),
    "shared is for members of the time": (
        "when lax_visibility = 'shared' and not peeking and not rings",
        "when lax_visibility = 'shared' and not peeking and not rings and membership = 'join'",
    ),
    "boundaries are as strict as what follows": ("event.boundary_visibility end", "event.history_visibility end"),
    "own leaves are hidden": ("when is_own and ends_a_stay then", "when false then"),
    "own leaves of the erased are whole": ("when is_own and ends_a_stay and sender_erased then", "when false then"),
    "own events count as the state after them": (
        "case when event.member = reader.user_id then event.most_joined else reader.membership end",
        "reader.membership",
    ),
    "the joined are like others": ("when decisive_membership = 'join' then 'joined'", ""),
    "joined shows all": ("when history_visibility = 'joined' then", "when false then"),
    "the invited do not see": ("and coalesce(decisive_membership, '') <> 'invite' then", "then"),
    "who knocks is as good as invited": (
        "coalesce(decisive_membership, '') <> 'invite'",
        "coalesce(decisive_membership, '') not in ('invite', 'knock')",
    ),
    "invited shows all": ("when history_visibility = 'invited' and", "when false and"),
    "who peeks is a member": ("when history_visibility = 'shared' and peeking then", "when false then"),
    "calls ring in public rooms": ("event.rings,", "false as rings,"),
    "erased senders are whole": ("when sender_erased then 'sender_erased'", ""),
    "the redacted are hidden": ("when rule = 'sender_erased' then 'redacted'", ""),
    "a membership is the state's": ("when is_own then own_membership", ""),
    "who never was a member has none": ("coalesce(membership, 'leave')", "membership"),
}
"""What to put in place of what, by what is wrong then."""


def mutants(connection: DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Make the view, which is ``sql``, wrong in each way, one after the other."""
    for wrong, (condition, instead) in CHANGES.items():
        assert condition in sql, f"{wrong}: the view does not say {condition!r} any more"
        connection.execute(f"create or replace view {VIEW} as {sql.replace(condition, instead)}")
        yield wrong
