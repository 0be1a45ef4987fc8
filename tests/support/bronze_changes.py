"""Random changes of bronze on a branch, as Synapse or damage causes them."""

import random
from dataclasses import dataclass, field

from synapse_lakehouse import catalogue
from tests.conftest import VisibilityLake
from tests.support.branch_builds import PART
from tests.support.dbt import DbtSession

SETTINGS = "type in ('m.room.history_visibility', 'm.room.join_rules') and state_key = ''"


@dataclass
class BranchedBronze:
    """Change bronze on a run's branch with SQL."""

    lake: VisibilityLake
    chance: random.Random
    batches: int = field(default=0)

    @property
    def session(self) -> DbtSession:
        return self.lake.session

    def sql(self, statement: str) -> list[dict[str, object]]:
        """Return the rows of ``statement`` on the branch."""
        return self.session.sql(statement, PART)

    def some(self, table: str, column: str, maximum: int = 4, condition: str = "true") -> str:
        """Return up to ``maximum`` random values of a column, as a list for SQL."""
        rows = self.sql(f"select distinct {column} as value from bronze.{table} where {condition} order by 1")
        values = [row["value"] for row in rows if row["value"] is not None]
        selected = self.chance.sample(values, min(self.chance.randint(1, maximum), len(values)))
        return ", ".join(repr(value) for value in selected) or "null"

    def copy(self, table: str, condition: str, **changed: str) -> None:
        """Add copies of rows. ``changed`` replaces the values of columns."""
        columns = [column.name for column in catalogue.load_catalogue().table(table).columns]
        values = ", ".join(f"{changed.get(name, f'`{name}`')} as `{name}`" for name in columns)
        self.sql(f"insert into bronze.{table} select {values} from bronze.{table} where {condition}")

    def add(self, table: str, rows: str) -> None:
        """Add rows."""
        self.sql(f"insert into bronze.{table} {rows}")

    def set(self, table: str, assignment: str, condition: str) -> None:
        """Change rows."""
        self.sql(f"update bronze.{table} set {assignment} where {condition}")

    def drop(self, table: str, column: str, values: str) -> None:
        """Delete rows."""
        self.sql(f"delete from bronze.{table} where {column} in ({values})")

    def reject(self, values: str) -> None:
        """Reject accepted events."""
        self.add("rejections", f"select event_id, 'late', 'now' from bronze.events where event_id in ({values})")


class BronzeChanges(BranchedBronze):
    """The possible changes, one a method."""

    def add_events(self) -> None:
        """Add copies of events. The state group of each is a delta of the group of the copied event."""
        self.batches += 1
        # In later room versions, the event ID is a hash of the event.
        rooms = "select room_id from bronze.rooms where room_version in ('1', '2')"
        free = f"event_id in (select event_id from bronze.events where room_id in ({rooms}))"
        is_selected = f"event_id in ({self.some('event_to_state_groups', 'event_id', condition=free)})"
        new, id_offset = f"concat(event_id, '~{self.batches}')", 1_000_000 * self.batches
        groups = f"select state_group from bronze.event_to_state_groups where {is_selected}"
        self.copy("state_groups", f"id in ({groups})", id=f"id + {id_offset}", event_id="null")
        self.add("state_group_edges", f"select distinct state_group + {id_offset}, state_group from ({groups})")
        self.add(
            "state_groups_state",
            f"""
            select max(state_group) + {id_offset}, room_id, type, state_key, max({new})
            from bronze.events join bronze.event_to_state_groups using (event_id)
            where state_key is not null and {is_selected} group by room_id, type, state_key
            """,
        )
        self.copy("event_to_state_groups", is_selected, event_id=new, state_group=f"state_group + {id_offset}")
        shift = self.chance.choice([-1000, 0, 1000])
        self.copy("events", is_selected, event_id=new, topological_ordering=f"topological_ordering + {shift}")
        own_id, new_id = (f"concat('\"', {item}, '\"')" for item in ("event_id", new))
        self.copy("event_json", is_selected, event_id=new, json=f"replace(json, {own_id}, {new_id})")

    def delete_events(self) -> None:
        selected = self.some("events", "event_id")
        for table in self.chance.sample(["events", "event_json", "event_to_state_groups", "redactions"], 2):
            self.drop(table, "event_id", selected)

    def delete_state_events(self) -> None:
        self.drop("events", "event_id", self.some("events", "event_id", condition="state_key is not null"))

    def delete_room_settings(self) -> None:
        self.drop("event_json", "event_id", self.some("events", "event_id", 2, SETTINGS))

    def reject_room_settings(self) -> None:
        self.reject(self.some("events", "event_id", 2, SETTINGS))

    def reject_accepted_events(self) -> None:
        self.reject(self.some("events", "event_id"))

    def delete_rejections(self) -> None:
        self.drop("rejections", "event_id", self.some("rejections", "event_id"))

    def add_redactions(self) -> None:
        redacting = self.some("events", "event_id", condition="type = 'm.room.redaction'")
        target = self.some("events", "event_id", 1, "state_key is not null")
        self.copy("redactions", f"event_id in ({redacting})", redacts=target)

    def delete_redactions(self) -> None:
        self.drop("redactions", "event_id", self.some("redactions", "event_id", 8))

    def add_redacting_bans(self) -> None:
        banning = self.some("events", "event_id", 1, "type = 'm.room.member'")
        end = self.chance.choice(["null", "0", "stream_ordering"])
        condition = "event_id in (select redacts from bronze.redactions) or state_key is not null"
        selected = self.some("events", "event_id", 2, condition)
        self.add(
            "room_ban_redactions",
            f"""
            select room_id, sender, coalesce({self.chance.choice([banning, "'$unheard of'"])}, '$'), max({end})
            from bronze.events where event_id in ({selected}) and (room_id, sender) not in (
                select room_id, user_id from bronze.room_ban_redactions
            ) group by room_id, sender
            """,
        )

    def end_redacting_bans(self) -> None:
        users = self.some("room_ban_redactions", "user_id")
        self.set("room_ban_redactions", "redact_end_ordering = 1000", f"user_id in ({users})")

    def delete_redacting_bans(self) -> None:
        self.drop("room_ban_redactions", "user_id", self.some("room_ban_redactions", "user_id"))

    def move_redacted_events(self) -> None:
        self.set("events", "room_id = '!elsewhere'", f"event_id in ({self.some('redactions', 'redacts', 8)})")

    def change_replaced_state(self) -> None:
        selected, other = (
            self.some("events", "event_id", 8, "state_key is not null"),
            self.some("events", "event_id", 1),
        )
        pattern = """'"replaces_state":"[^"]*"'"""
        # An unescaped dollar refers to a group of the pattern.
        replacement = rf"""concat('"replaces_state":"', replace({other}, '$', '\\$'), '"')"""
        self.set("event_json", f"json = regexp_replace(json, {pattern}, {replacement})", f"event_id in ({selected})")

    def change_depths_of_state_events(self) -> None:
        selected, depth = (
            self.some("events", "event_id", condition="state_key is not null"),
            self.chance.choice([-5, 100_000]),
        )
        self.set("events", f"topological_ordering = {depth}", f"event_id in ({selected})")

    def corrupt_json(self) -> None:
        invalid = self.chance.choice(["left(json, 50)", "replace(json, ':', ':NaN')", "concat('\\\\x', hex(json))"])
        condition = self.chance.choice(["state_key is not null", SETTINGS, "type = 'm.room.redaction'", "true"])
        self.set("event_json", f"json = {invalid}", f"event_id in ({self.some('events', 'event_id', 8, condition)})")

    def corrupt_internal_metadata(self) -> None:
        invalid = self.chance.choice(["'{'", "'[1]'", '\'{"soft_failed": "true"}\'', "null"])
        condition = self.chance.choice(["state_key is not null", SETTINGS, "true"])
        selected = self.some("events", "event_id", 8, condition)
        self.set("event_json", f"internal_metadata = {invalid}", f"event_id in ({selected})")

    def change_times_and_senders(self) -> None:
        """Give events, half of the time only those of other servers, another time, and another server's sender."""
        later = "try_add(received_ts, 3600000)"
        received = self.chance.choice(
            [later, "received_ts - 400 * 3600000L", "null", "-1", "253402300799999", str(2**63 - 1)]
        )
        sent = self.chance.choice(["origin_server_ts", "received_ts - 40 * 86400000L", "0"])
        sender = self.chance.choice(["'@far:elsewhere'", "sender"])
        condition = self.chance.choice(["true", "sender not like '%:synapse.example' and not outlier"])
        self.set(
            "events",
            f"sender = {sender}, received_ts = {received}, origin_server_ts = {sent}",
            f"event_id in ({self.some('events', 'event_id', 8, condition)})",
        )

    def toggle_outliers(self) -> None:
        self.set("events", "outlier = not outlier", f"event_id in ({self.some('events', 'event_id')})")

    def add_positions_of_outliers(self) -> None:
        selected = self.some("events", "event_id", 8, "state_key is not null")
        self.add(
            "ex_outlier_stream",
            f"select stream_ordering, event_id, 1, 'one' from bronze.events where event_id in ({selected})",
        )

    def mark_partial_states(self) -> None:
        selected = self.some("events", "event_id", 8, "state_key is not null")
        self.add("partial_state_events", f"select event_id, room_id from bronze.events where event_id in ({selected})")

    def complete_partial_states(self) -> None:
        selected = self.some("events", "event_id", 8, "state_key is not null")
        self.add(
            "un_partial_stated_event_stream",
            f"select stream_ordering, event_id, false, 'one' from bronze.events where event_id in ({selected})",
        )

    def change_groups_of_events(self) -> None:
        selected, group = self.some("event_to_state_groups", "event_id"), self.some("state_groups", "id", 1)
        self.set("event_to_state_groups", f"state_group = {group}", f"event_id in ({selected})")

    def delete_event_edges(self) -> None:
        self.drop("event_edges", "prev_event_id", self.some("event_edges", "prev_event_id"))
        self.drop("event_auth", "event_id", self.some("event_auth", "event_id", 8))

    def change_extremities(self) -> None:
        """Delete and add forward and backward extremities."""
        columns = {"event_forward_extremities": "event_id", "event_backward_extremities": "prev_event_id"}
        for extremities, column in columns.items():
            self.drop(extremities, "event_id", self.some(extremities, "event_id", 8))
            selected = self.some("event_edges", column, 8)
            self.add(
                extremities,
                f"select distinct edges.{column}, events.room_id from bronze.event_edges as edges"
                f" join bronze.events as events using (event_id) where edges.{column} in ({selected})"
                f" and edges.{column} not in (select event_id from bronze.{extremities})",
            )

    def delete_group_edges(self) -> None:
        self.drop("state_group_edges", "state_group", self.some("state_group_edges", "state_group"))

    def create_group_cycle(self) -> None:
        first, other = (self.some("state_group_edges", name, 1) for name in ("state_group", "prev_state_group"))
        self.add("state_group_edges", f"values ({other}, {first}), ({first}, {other})")

    def change_settings_of_groups(self) -> None:
        groups = self.some("state_groups_state", "state_group", 2, SETTINGS)
        event = self.some("events", "event_id", 1, "type = 'm.room.history_visibility'")
        self.set("state_groups_state", f"event_id = {event}", f"state_group in ({groups}) and {SETTINGS}")

    def delete_settings_of_groups(self) -> None:
        groups = self.some("state_groups_state", "state_group", 2, SETTINGS)
        self.sql(f"delete from bronze.state_groups_state where state_group in ({groups}) and {SETTINGS}")

    def repeat_settings_of_groups(self) -> None:
        groups = self.some("state_groups_state", "state_group", 2, SETTINGS)
        event = self.some("events", "event_id", 1, "type = 'm.room.history_visibility'")
        self.copy("state_groups_state", f"state_group in ({groups}) and {SETTINGS}", event_id=event)

    def change_room_versions(self) -> None:
        version = self.chance.choice(["''", "'11'", "'1'", "'unheard of'"])
        self.set("rooms", f"room_version = {version}", f"room_id in ({self.some('rooms', 'room_id', 1)})")

    def erase_users(self) -> None:
        self.sql(f"insert into bronze.erased_users (user_id) values ({self.some('events', 'sender', 1)})")

    def cancel_erasures(self) -> None:
        self.drop("erased_users", "user_id", self.some("erased_users", "user_id", 1))

    def add_memberships(self) -> None:
        room = self.some("rooms", "room_id", 1)
        self.copy("room_memberships", f"event_id in ({self.some('room_memberships', 'event_id')})", room_id=room)

    def delete_memberships(self) -> None:
        self.drop("room_memberships", "event_id", self.some("room_memberships", "event_id", 8))
        self.drop("local_current_membership", "user_id", self.some("local_current_membership", "user_id", 1))

    def change_retention(self) -> None:
        self.set("room_retention", "max_lifetime = 77", f"room_id in ({self.some('room_retention', 'room_id')})")

    def delete_current_retention_events(self) -> None:
        self.drop("current_state_events", "event_id", self.some("room_retention", "event_id"))


CHANGES = [name for name in vars(BronzeChanges) if not name.startswith("_")]
