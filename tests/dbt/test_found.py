"""What is made of rows that were found is what is made of all rows, whatever happened to them."""

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from synapse_lakehouse import catalogue
from tests.conftest import HarshLake
from tests.support.dbt import DbtSession

PART, WHOLE = "run_in_part", "run_whole"
NEVER = 1_000_000_000
MODELS = {
    "silver.event_fields": "event_id",
    "silver.redactions": "event_id, redacts",
    "silver.event_visibility_inputs": "event_id",
    "gold.visibility_intervals": "room_id, user_id, first_position",
}
"""Tables with what puts their rows in order."""
BUILT = tuple(table.partition(".")[2] for table in MODELS)
READ = (
    "bronze.events",
    "bronze.event_json",
    "bronze.rooms",
    "bronze.rejections",
    "bronze.redactions",
    "bronze.room_ban_redactions",
    "bronze.event_to_state_groups",
    "bronze.ex_outlier_stream",
    "bronze.partial_state_events",
    "bronze.un_partial_stated_event_stream",
    "bronze.erased_users",
    "bronze.room_retention",
    "bronze.current_state_events",
    "bronze.room_memberships",
    "bronze.local_current_membership",
)
GROUPS = ("bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state")
STATE = ("silver.state_positions", "silver.state_intervals", "silver.state_faults")
SETTINGS = "type in ('m.room.history_visibility', 'm.room.join_rules') and state_key = ''"


@dataclass
class History:
    """What happens to bronze on a run's branch, and the models that follow it there."""

    lake: HarshLake
    chance: random.Random
    came: int = field(default=0)

    @property
    def session(self) -> DbtSession:
        return self.lake.session

    def sql(self, statement: str) -> list[dict[str, object]]:
        """Rows of ``statement`` on the branch."""
        return self.session.sql(statement, PART)

    def some(self, table: str, column: str, most: int = 4, where: str = "true") -> str:
        """A list for SQL of some values of a column."""
        found = self.sql(f"select distinct {column} as value from bronze.{table} where {where} order by 1")
        values = [row["value"] for row in found if row["value"] is not None]
        chosen = self.chance.sample(values, min(self.chance.randint(1, most), len(values)))
        return ", ".join(repr(one) for one in chosen) or "null"

    def copy(self, table: str, where: str, **other: str) -> None:
        """Add rows like others, with other columns."""
        columns = [column.name for column in catalogue.load_catalogue().table(table).columns]
        values = ", ".join(f"{other.get(name, f'`{name}`')} as `{name}`" for name in columns)
        self.sql(f"insert into bronze.{table} select {values} from bronze.{table} where {where}")

    def add(self, table: str, rows: str) -> None:
        """Add rows."""
        self.sql(f"insert into bronze.{table} {rows}")

    def set(self, table: str, what: str, where: str) -> None:
        """Change rows."""
        self.sql(f"update bronze.{table} set {what} where {where}")

    def drop(self, table: str, column: str, chosen: str) -> None:
        """Take rows away."""
        self.sql(f"delete from bronze.{table} where {column} in ({chosen})")

    def reject(self, chosen: str) -> None:
        """Reject events when they are long there."""
        self.add("rejections", f"select event_id, 'late', 'now' from bronze.events where event_id in ({chosen})")


class Happening(History):
    """All that may happen, each thing with its name."""

    def events_come(self) -> None:
        """Each with a state group that rests on the group of one that it is like: trees grow in the middle, too."""
        self.came += 1
        # Of other rooms they could not be loaded: there an event id is the hash of its event.
        rooms = "select room_id from bronze.rooms where room_version in ('1', '2')"
        free = f"event_id in (select event_id from bronze.events where room_id in ({rooms}))"
        of_them = f"event_id in ({self.some('event_to_state_groups', 'event_id', where=free)})"
        new, more = f"concat(event_id, '~{self.came}')", 1_000_000 * self.came
        groups = f"select state_group from bronze.event_to_state_groups where {of_them}"
        self.copy("state_groups", f"id in ({groups})", id=f"id + {more}", event_id="null")
        self.add("state_group_edges", f"select distinct state_group + {more}, state_group from ({groups})")
        self.add(
            "state_groups_state",
            f"""
            select max(state_group) + {more}, room_id, type, state_key, max({new})
            from bronze.events join bronze.event_to_state_groups using (event_id)
            where state_key is not null and {of_them} group by room_id, type, state_key
            """,
        )
        self.copy("event_to_state_groups", of_them, event_id=new, state_group=f"state_group + {more}")
        shift = self.chance.choice([-1000, 0, 1000])
        self.copy("events", of_them, event_id=new, topological_ordering=f"topological_ordering + {shift}")
        own_id, new_id = (f"concat('\"', {one}, '\"')" for one in ("event_id", new))
        self.copy("event_json", of_them, event_id=new, json=f"replace(json, {own_id}, {new_id})")

    def events_go(self) -> None:
        chosen = self.some("events", "event_id")
        for table in self.chance.sample(["events", "event_json", "event_to_state_groups", "redactions"], 2):
            self.drop(table, "event_id", chosen)

    def state_events_go(self) -> None:
        self.drop("events", "event_id", self.some("events", "event_id", where="state_key is not null"))

    def settings_go(self) -> None:
        self.drop("event_json", "event_id", self.some("events", "event_id", 2, SETTINGS))

    def settings_are_rejected(self) -> None:
        self.reject(self.some("events", "event_id", 2, SETTINGS))

    def events_are_rejected_late(self) -> None:
        self.reject(self.some("events", "event_id"))

    def rejections_go(self) -> None:
        self.drop("rejections", "event_id", self.some("rejections", "event_id"))

    def redactions_come(self) -> None:
        redacting = self.some("events", "event_id", where="type = 'm.room.redaction'")
        target = self.some("events", "event_id", 1, "state_key is not null")
        self.copy("redactions", f"event_id in ({redacting})", redacts=target)

    def redactions_go(self) -> None:
        self.drop("redactions", "event_id", self.some("redactions", "event_id", 8))

    def bans_redact(self) -> None:
        banning = self.some("events", "event_id", 1, "type = 'm.room.member'")
        end = self.chance.choice(["null", "0", "stream_ordering"])
        of_others = "event_id in (select redacts from bronze.redactions) or state_key is not null"
        chosen = self.some("events", "event_id", 2, of_others)
        self.add(
            "room_ban_redactions",
            f"""
            select room_id, sender, coalesce({self.chance.choice([banning, "'$unheard of'"])}, '$'), max({end})
            from bronze.events where event_id in ({chosen}) and (room_id, sender) not in (
                select room_id, user_id from bronze.room_ban_redactions
            ) group by room_id, sender
            """,
        )

    def bans_end(self) -> None:
        users = self.some("room_ban_redactions", "user_id")
        self.set("room_ban_redactions", "redact_end_ordering = 1000", f"user_id in ({users})")

    def bans_are_gone(self) -> None:
        self.drop("room_ban_redactions", "user_id", self.some("room_ban_redactions", "user_id"))

    def redacted_events_are_others(self) -> None:
        self.set("events", "room_id = '!elsewhere'", f"event_id in ({self.some('redactions', 'redacts', 8)})")

    def events_replace_others(self) -> None:
        chosen, other = self.some("events", "event_id", 8, "state_key is not null"), self.some("events", "event_id", 1)
        found = """'"replaces_state":"[^"]*"'"""
        # A dollar would be a group of the pattern.
        instead = rf"""concat('"replaces_state":"', replace({other}, '$', '\\$'), '"')"""
        self.set("event_json", f"json = regexp_replace(json, {found}, {instead})", f"event_id in ({chosen})")

    def first_events_of_a_piece_move(self) -> None:
        chosen, to = self.some("events", "event_id", where="state_key is not null"), self.chance.choice([-5, 100_000])
        self.set("events", f"topological_ordering = {to}", f"event_id in ({chosen})")

    def json_is_spoiled(self) -> None:
        spoiled = self.chance.choice(["left(json, 50)", "replace(json, ':', ':NaN')", "concat('\\\\x', hex(json))"])
        where = self.chance.choice(["state_key is not null", SETTINGS, "type = 'm.room.redaction'", "true"])
        self.set("event_json", f"json = {spoiled}", f"event_id in ({self.some('events', 'event_id', 8, where)})")

    def internal_metadata_is_spoiled(self) -> None:
        spoiled = self.chance.choice(["'{'", "'[1]'", '\'{"soft_failed": "true"}\'', "null"])
        where = self.chance.choice(["state_key is not null", SETTINGS, "true"])
        chosen = self.some("events", "event_id", 8, where)
        self.set("event_json", f"internal_metadata = {spoiled}", f"event_id in ({chosen})")

    def outliers_flip(self) -> None:
        self.set("events", "outlier = not outlier", f"event_id in ({self.some('events', 'event_id')})")

    def outliers_get_a_place(self) -> None:
        chosen = self.some("events", "event_id", 8, "state_key is not null")
        self.add(
            "ex_outlier_stream",
            f"select stream_ordering, event_id, 1, 'one' from bronze.events where event_id in ({chosen})",
        )

    def states_of_events_are_partial(self) -> None:
        chosen = self.some("events", "event_id", 8, "state_key is not null")
        self.add("partial_state_events", f"select event_id, room_id from bronze.events where event_id in ({chosen})")

    def states_of_events_are_whole(self) -> None:
        chosen = self.some("events", "event_id", 8, "state_key is not null")
        self.add(
            "un_partial_stated_event_stream",
            f"select stream_ordering, event_id, false, 'one' from bronze.events where event_id in ({chosen})",
        )

    def events_get_other_groups(self) -> None:
        chosen, group = self.some("event_to_state_groups", "event_id"), self.some("state_groups", "id", 1)
        self.set("event_to_state_groups", f"state_group = {group}", f"event_id in ({chosen})")

    def trees_fall_apart(self) -> None:
        self.drop("state_group_edges", "state_group", self.some("state_group_edges", "state_group"))

    def groups_rest_on_each_other(self) -> None:
        one, other = (self.some("state_group_edges", name, 1) for name in ("state_group", "prev_state_group"))
        self.add("state_group_edges", f"values ({other}, {one}), ({one}, {other})")

    def settings_of_groups_are_others(self) -> None:
        groups = self.some("state_groups_state", "state_group", 2, SETTINGS)
        event = self.some("events", "event_id", 1, "type = 'm.room.history_visibility'")
        self.set("state_groups_state", f"event_id = {event}", f"state_group in ({groups}) and {SETTINGS}")

    def settings_of_groups_go(self) -> None:
        groups = self.some("state_groups_state", "state_group", 2, SETTINGS)
        self.sql(f"delete from bronze.state_groups_state where state_group in ({groups}) and {SETTINGS}")

    def rooms_are_of_other_versions(self) -> None:
        version = self.chance.choice(["''", "'11'", "'1'", "'unheard of'"])
        self.set("rooms", f"room_version = {version}", f"room_id in ({self.some('rooms', 'room_id', 1)})")

    def people_are_erased(self) -> None:
        self.sql(f"insert into bronze.erased_users (user_id) values ({self.some('events', 'sender', 1)})")

    def people_are_there_again(self) -> None:
        self.drop("erased_users", "user_id", self.some("erased_users", "user_id", 1))

    def people_were_somewhere(self) -> None:
        room = self.some("rooms", "room_id", 1)
        self.copy("room_memberships", f"event_id in ({self.some('room_memberships', 'event_id')})", room_id=room)

    def people_were_nowhere(self) -> None:
        self.drop("room_memberships", "event_id", self.some("room_memberships", "event_id", 8))
        self.drop("local_current_membership", "user_id", self.some("local_current_membership", "user_id", 1))

    def rooms_keep_messages_otherwise(self) -> None:
        self.set("room_retention", "max_lifetime = 77", f"room_id in ({self.some('room_retention', 'room_id')})")

    def policies_are_no_state_any_more(self) -> None:
        self.drop("current_state_events", "event_id", self.some("room_retention", "event_id"))


KINDS = [name for name in vars(Happening) if not name.startswith("_")]


@contextmanager
def beginning(lake: HarshLake, names: Iterable[str] = (*READ, *GROUPS, *STATE, *MODELS)) -> Iterator[None]:
    """Branches on which tables are as the lake's run left them; afterwards they are gone."""
    for name in names:
        branch(lake.session, name, lake.run.branch, PART)
        for what in ("delete", "update"):
            lake.session.sql(f"alter table {name} set tblproperties ('write.{what}.mode' = 'merge-on-read')")
    try:
        yield
    finally:
        for name in names:
            for one in (PART, WHOLE):
                lake.session.sql(f"alter table {name} drop branch if exists {one}")


def branch(session: DbtSession, name: str, source: str, new: str) -> None:
    """Let a table's branch ``new`` be what ``source`` is, where it has that."""
    if heads := session.sql(f"select snapshot_id from {name}.refs where name = '{source}'"):
        head = heads[0]["snapshot_id"]
        session.sql(f"alter table {name} create or replace branch {new} as of version {head}")


def run(
    lake: HarshLake,
    on: str,
    worth_it: int,
    models: Iterable[str] = BUILT,
    most: int | None = None,
) -> dict[str, Any]:
    """Build ``models`` on the branch ``on``; what dbt said of it."""
    settings = lake.settings
    told = {
        "server_name": settings.synapse_server_name, "retention_enabled": True, "retention_max_lifetime": 1000,
    } | lake.session.increment(on, worth_it, most)  # fmt: skip
    done = lake.session.dbt("run", "--select", *models, "--vars", json.dumps(told), branch=on)
    assert done["success"], done
    return done


def built(lake: HarshLake, on: str, worth_it: int, most: int | None = None) -> dict[str, list[dict[str, object]]]:
    """Rows of the models after building them on the branch ``on``."""
    run(lake, on, worth_it, most=most)
    return {name: lake.session.sql(f"select * from {name} order by {order}", on) for name, order in MODELS.items()}


def _hold(lake: HarshLake, kinds: list[list[str]], seed: str) -> None:
    history = Happening(lake, random.Random(seed))
    with beginning(lake):
        everything = len(built(lake, PART, NEVER)["silver.event_visibility_inputs"])
        shares = []
        for happening in kinds:
            for name in happening:
                getattr(history, name)()
            lake.session.resolve(PART, NEVER)
            for table in (*READ, *STATE):
                branch(lake.session, table, PART, WHOLE)
            in_part, whole = built(lake, PART, 0), built(lake, WHOLE, NEVER)
            shares.append(lake.session.written("silver.event_visibility_inputs", PART) / everything)
            for model in MODELS:
                different = set(map(repr, in_part[model])) ^ set(map(repr, whole[model]))
                assert different == set(), (happening, model)
                assert len(in_part[model]) == len(whole[model]), (happening, model)
            print(happening, f"{shares[-1]:.1%}")
        assert sorted(shares)[len(shares) // 2] < 0.2


def test_what_duckdb_makes_of_what_is_found_is_what_spark_makes_of_all(harsh: HarshLake) -> None:
    history, made = Happening(harsh, random.Random("few")), list(MODELS)[1:]
    models = [name.partition(".")[2] for name in made]
    with beginning(harsh):
        history.people_were_somewhere()
        history.outliers_flip()
        history.redactions_go()
        for table in (*READ, *STATE, *MODELS):
            branch(harsh.session, table, PART, WHOLE)
        of_found, of_all = (run(harsh, on, worth_it, models) for on, worth_it in ((PART, 0), (WHOLE, NEVER)))
        assert sum("rows are concerned" in line for line in of_found["told"]) == 2
        assert sum("rows to read" in line for line in of_found["told"]) == 1
        assert not of_all["told"]
        for model in made:
            rows = [harsh.session.sql(f"select * from {model} order by {MODELS[model]}", on) for on in (PART, WHOLE)]
            assert rows[0] == rows[1]
        assert harsh.session.written("gold.visibility_intervals", PART) == len(rows[0])
        # Nothing is looked for where nothing changed.
        assert not run(harsh, PART, 0, models)["told"]


def test_a_table_of_which_rows_may_be_missing_is_made_whole(harsh: HarshLake) -> None:
    """As after a run that could not tell whether it had taken rows away."""
    with beginning(harsh, [*READ, *MODELS]):
        told = json.dumps({"server_name": harsh.settings.synapse_server_name, "read_from": {"redactions": "unknown"}})
        written = []
        for found in ("anew", None, "anew"):
            if found:
                harsh.session.sql(f"set synapse_lakehouse.found.redactions = {found}")
            done = harsh.session.dbt("run", "--select", "redactions", "--vars", told, branch=PART)
            assert done["success"], done
            (counted,) = harsh.session.sql("select count(*) as snapshots from silver.redactions.snapshots")
            written.append(int(str(counted["snapshots"])))
        assert [written[1] - written[0], written[2] - written[1]] == [0, 1]


@pytest.mark.heavy
def test_circumstances_in_part_are_those_of_all(harsh: HarshLake) -> None:
    _hold(
        harsh,
        [
            [
                "events_come", "settings_are_rejected", "redactions_go", "events_go", "people_are_erased",
                "outliers_get_a_place", "states_of_events_are_whole",
            ]
        ],
        "few",
    )  # fmt: skip


@pytest.mark.heavy
def test_where_too_much_changed_all_is_made_anew(harsh: HarshLake) -> None:
    history = Happening(harsh, random.Random("too much"))
    with beginning(harsh):
        before = built(harsh, PART, NEVER)["silver.event_visibility_inputs"]
        history.set("events", "outlier = not outlier", "true")
        after = built(harsh, PART, 0, most=len(before) - 1)["silver.event_visibility_inputs"]
        assert harsh.session.written("silver.event_visibility_inputs", PART) == len(after) == len(before)
        assert [row["outlier"] for row in after] == [not row["outlier"] for row in before]


@pytest.mark.heavy
def test_circumstances_in_part_are_those_of_all_whatever_happens(harsh: HarshLake) -> None:
    chance = random.Random("much")
    _hold(harsh, [*([name] for name in KINDS), *(chance.sample(KINDS, 3) for _ in range(10))], "much")
