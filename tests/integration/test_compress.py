"""``lakehouse compress`` on a Synapse's database: what it says, what it writes, and what it never changes."""

import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from synapse_lakehouse.cli import app, compressing
from synapse_lakehouse.cli.compress import INTERRUPTED
from synapse_lakehouse.compression.changes import Changes
from synapse_lakehouse.compression.groups import NONE
from synapse_lakehouse.compression.tables import Contents
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.rewriting import read_cost, writing
from synapse_lakehouse.rewriting.grants import RIGHTS
from synapse_lakehouse.rewriting.load import Load
from synapse_lakehouse.rewriting.transaction import Known, Pace, rewrite, written_out
from tests.state_database import all_states, state_database, store, stored
from tests.state_rooms import KINDS, World, begin, grow

Compress = Callable[..., Result]

EVERY_ROOM = ("--number-of-rooms", "1000")
BEST = ("--strategy", "best")


@pytest.fixture
def compress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compress:
    """``lakehouse compress`` on a database, in this process."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))

    def run(dsn: str, *arguments: str) -> Result:
        monkeypatch.setenv("SYNAPSE_DSN", dsn)
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", dsn)
        return CliRunner().invoke(app, ["compress", *arguments])

    return run


@pytest.fixture
def rooms(server: Server) -> Iterator[tuple[str, World]]:
    """A database with rooms of every kind."""
    world = World(random.Random(4))
    grow(world, begin(world, KINDS, 260), 1400)
    state = {("m.room.member", str(number)): world.event() for number in range(10)}
    for number in range(200):
        state = state | {("m.room.member", str(number % 10)): world.event()}
        world.add("!whole", state)
    with state_database(server) as dsn:
        with psycopg.connect(dsn) as connection:
            # Autovacuum may come while rows are written, and shortens the tables before anybody looked.
            connection.execute("alter table state_groups_state set (autovacuum_enabled = false)")
            connection.execute("alter table state_group_edges set (autovacuum_enabled = false)")
        store(world, dsn)
        yield dsn, world


def rows(done: Result) -> list[dict[str, Any]]:
    """What a command wrote as JSON."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def undo_files(settings_home: Path) -> list[str]:
    """Undo files, in the order in which they were written."""
    return sorted(map(str, (settings_home / "compression" / "undo").glob("*.parquet")))


@pytest.mark.parametrize("strategy", ["levels", "best"])
def test_what_is_planned_is_stored_verified_and_put_back(
    compress: Compress, rooms: tuple[str, World], strategy: str, tmp_path: Path
) -> None:
    dsn, world = rooms
    options = ("--strategy", strategy, *EVERY_ROOM)
    before = stored(dsn)
    planned = rows(compress(dsn, "plan", *options, "--format", "json"))
    dry = rows(compress(dsn, "apply", *options, "--format", "json"))
    assert dry == planned
    assert stored(dsn) == before
    assert sum(one["rows_before"] for one in planned) == sum(map(len, before[1].values()))

    applied = rows(compress(dsn, "apply", *options, "--format", "json", "--yes"))
    edges, held = stored(dsn)
    assert all_states(dsn) == world.states
    assert all(prev < group for group, prev in edges.items())
    assert sum(one["rows_after"] for one in applied) == sum(map(len, held.values())) < sum(map(len, before[1].values()))
    if strategy == "best":
        assert {one["room_id"]: one["rows_after"] for one in applied} == {
            one["room_id"]: one["rows_after"] for one in planned
        }
        assert max(one["longest_chain"] for one in applied) <= 100
    again = rows(compress(dsn, "apply", *options, "--format", "json", "--yes"))
    assert [one["groups_rewritten"] for one in again] == [0] * len(again)

    files = undo_files(tmp_path)
    kept = [argument for file in files for argument in ("--undo", file)]
    verified = rows(compress(dsn, "verify", "--strategy", strategy, *EVERY_ROOM, *kept, "--format", "json"))
    assert {one["faults"] for one in verified} == {""}
    assert sum(one["compared"] for one in verified) >= sum(one["groups_rewritten"] for one in applied)

    assert compress(dsn, "undo", *files).exit_code == 0
    assert stored(dsn) == (edges, held)
    assert compress(dsn, "undo", *files, "--yes").exit_code == 0
    assert stored(dsn) == before


def test_the_sample_is_compressed_room_by_room(compress: Compress, source_copy: str) -> None:
    before = all_states(source_copy)
    planned = rows(compress(source_copy, "plan", *BEST, "--format", "json"))
    assert len(planned) == 5
    chosen = planned[1]["room_id"]
    (done,) = rows(compress(source_copy, "apply", *BEST, "--room", chosen, "--yes", "--format", "json"))
    assert done["groups_rewritten"] == planned[1]["groups_to_rewrite"] > 0
    assert done["rows_after"] == planned[1]["rows_after"] < planned[1]["rows_before"]
    assert all_states(source_copy) == before
    assert chosen not in {one["room_id"] for one in rows(compress(source_copy, "plan", *BEST, "--format", "json"))}


def test_what_is_given_back_is_room_for_new_rows_after_vacuum_and_the_disk_s_after_vacuum_full(
    compress: Compress, rooms: tuple[str, World]
) -> None:
    dsn, world = rooms
    with psycopg.connect(dsn, autocommit=True) as connection:

        def on_disk() -> int:
            return connection.execute("select pg_relation_size('state_groups_state')").fetchone()[0]  # type: ignore[index]

        at_first = on_disk()
        applied = rows(compress(dsn, "apply", *BEST, *EVERY_ROOM, "--yes", "--format", "json"))
        freed = sum(one["rows_before"] - one["rows_after"] for one in applied)
        assert freed > 0
        assert on_disk() >= at_first, "new rows were written beside the old ones"
        connection.execute("vacuum state_groups_state")
        vacuumed = on_disk()
        connection.execute(
            "insert into state_groups_state select state_group, room_id, type, 'again' || n, event_id"
            " from state_groups_state, generate_series(1, 20) n limit %s", [freed],
        )  # fmt: skip
        assert on_disk() == vacuumed, "the new rows fit into the room that was given back"
        connection.execute("delete from state_groups_state where state_key like 'again%'")
        connection.execute("vacuum full state_groups_state")
        assert on_disk() < min(vacuumed, at_first)
    assert all_states(dsn) == world.states


def test_what_reading_costs_before_and_after_is_measured_as_synapse_reads(
    compress: Compress, rooms: tuple[str, World]
) -> None:
    dsn, world = rooms
    (done,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    assert done["rows_after"] < done["rows_before"]
    assert done["chain_before"] == 1, "every group was whole"
    assert 1 < done["chain_after"] <= 100
    assert done["read_ms_before"] > 0
    assert done["read_ms_after"] > 0
    assert done["disk_bytes_after"] >= done["disk_bytes_before"] > 0
    (again,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    assert again["chain_before"] is None, "nothing is to be written, so nothing is measured"
    group = max(group for group, room in world.groups.items() if room == "!whole")
    with psycopg.connect(dsn) as connection:
        cost = read_cost.measured(connection, [group, group - 1])
        assert cost
        assert cost.groups == (group, group - 1)
        assert read_cost.measured(connection, [group, group - 1], seconds=0).groups == (group,)  # type: ignore[union-attr]
        chain, state = connection.execute(read_cost._READ.encode(), {"group": group}).fetchone()  # type: ignore[misc]
    assert state == len(world.states[group])
    assert chain <= 100


def test_any_text_is_written_as_it_is(rooms: tuple[str, World]) -> None:
    texts = [
        "",
        " ",
        "NULL",
        "\\N",
        "\\.",
        "a,b",
        '"',
        '""',
        "it's",
        "\r",
        "\r\n",
        "two\nlines",
        "\t",
        "\\",
        "ünï✓😀",
        "\x7f",
    ]
    found = pa.table(
        {
            "state_group": pa.array([7] * len(texts), pa.int64()),
            "type": pa.array(texts).dictionary_encode(),
            "state_key": texts,
            "event_id": pa.array(texts[::-1]).dictionary_encode(),
        }
    )
    nothing = np.array([NONE])
    wanted = Changes(np.array([7]), nothing, nothing, np.array([len(texts)]), lambda places: found)
    room = 'a "room", too'
    known = Known(Contents(pa.table({"id": [7], "room_id": [room]}), pa.table({}), pa.table({})), room)
    with psycopg.connect(rooms[0]) as connection:
        connection.execute("insert into state_groups values (7, %s, '$') on conflict do nothing", [room])
        connection.execute("delete from state_group_edges where state_group = 7")
        new_rows = written_out(wanted, np.arange(1), known)
        assert not len(rewrite(connection, wanted, 0, 1, known, new_rows))
        read = connection.execute(
            "select room_id, type, state_key, event_id from state_groups_state where state_group = 7 order by ctid"
        ).fetchall()
    assert read == [(room, *texts) for texts in zip(texts, texts, texts[::-1], strict=True)]


def test_groups_are_sampled_from_the_oldest_to_the_newest() -> None:
    assert read_cost.sampled(np.array([7])) == [7]
    found = read_cost.sampled(np.arange(1000)[::-1])
    assert (len(found), found[0], found[-1]) == (20, 0, 999)
    assert read_cost.sampled(np.arange(0)) == []


def test_what_synapse_may_delete_is_left_alone_and_handed_over_on_request(compress: Compress, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as connection:
        connection.execute("delete from state_groups_pending_deletion")
        found = connection.execute(
            "select id, room_id from state_groups where id not in (select state_group from event_to_state_groups)"
            " and id not in (select prev_state_group from state_group_edges) order by room_id limit 20"
        ).fetchall()
        nobodys, pending = {group for group, _ in found}, found[0][0]
        chosen = [argument for room in {room for _, room in found[:-1]} for argument in ("--room", room)]
        connection.execute(
            "insert into state_groups_pending_deletion (state_group, insertion_ts) values (%s, 1)", [pending]
        )
        before = stored(source_copy)
        options = (*BEST, *chosen, "--yes")
        rows(compress(source_copy, "apply", *options, "--format", "json"))
        after = stored(source_copy)
        for group in nobodys:
            assert after[0].get(group) == before[0].get(group)
            assert after[1].get(group) == before[1].get(group)
        assert not nobodys & set(after[0].values())
        assert connection.execute("select count(*) from state_groups_pending_deletion").fetchone() == (1,)

        done = rows(compress(source_copy, "apply", *options, "--hand-over-unreferenced", "--format", "json"))
        marked = {group for (group,) in connection.execute("select state_group from state_groups_pending_deletion")}
        assert {group for group, room in found if room in chosen} <= marked
        assert len(marked) == 1 + sum(one["handed_over"] for one in done)
        used = {group for (group,) in connection.execute("select state_group from event_to_state_groups")}
        assert not marked & used
        assert all(group in marked for group, prev in after[0].items() if prev in marked)


def test_a_room_that_reads_otherwise_afterwards_is_put_back(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, _ = rooms
    before = stored(dsn)
    rewrite = writing.rewrite

    def spoil(*arguments: Any) -> Any:
        left = rewrite(*arguments)
        arguments[0].execute(
            "update state_groups_state set event_id = '$wrong' where ctid = (select min(ctid) from state_groups_state"
            " where state_group = %s)",
            [int(arguments[1].ids[arguments[2]])],
        )
        monkeypatch.setattr(writing, "rewrite", rewrite)
        return left

    monkeypatch.setattr(writing, "rewrite", spoil)
    done = compress(dsn, "apply", *BEST, "--room", "!0:it's.example", "--yes")
    assert done.exit_code == 1
    assert "put back" in done.stderr
    assert stored(dsn) == before


def test_what_an_interrupted_attempt_wrote_is_compared_by_the_next(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dsn, world = rooms
    rewrite = writing.rewrite

    def spoil_and_stop(*arguments: Any) -> Any:
        if arguments[2]:
            raise KeyboardInterrupt
        left = rewrite(*arguments)
        arguments[0].execute(
            "update state_groups_state set event_id = '$wrong' where state_group = %s", [int(arguments[1].ids[0])]
        )
        return left

    monkeypatch.setattr(compressing, "Writer", partial(writing.Writer, pace=Pace(seconds=0, work=50)))
    monkeypatch.setattr(writing, "rewrite", spoil_and_stop)
    options = ("apply", *BEST, "--room", "!whole", "--yes")
    assert compress(dsn, *options).exit_code == INTERRUPTED
    monkeypatch.setattr(writing, "rewrite", rewrite)
    spoiled = stored(dsn)
    assert all_states(dsn) != world.states

    for _ in range(2):
        again = compress(dsn, *options)
        assert again.exit_code == 1
        assert "since compressing !whole was interrupted. Nothing more is written" in again.stderr
        assert stored(dsn) == spoiled
    assert compress(dsn, "undo", *undo_files(tmp_path), "--repair", "--yes").exit_code == 0
    assert all_states(dsn) == world.states
    assert compress(dsn, *options).exit_code == 0
    assert all_states(dsn) == world.states


def test_a_room_that_cannot_be_resolved_afterwards_is_not_called_left(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, _ = rooms
    rewrite = writing.rewrite

    def second_edge(*arguments: Any) -> Any:
        left = rewrite(*arguments)
        # The last that this transaction wrote.
        group = int(arguments[1].ids[arguments[3] - 1])
        arguments[0].execute(
            "insert into state_group_edges select %(group)s, min(id) from state_groups where room_id = '!whole'"
            " and id not in (select prev_state_group from state_group_edges where state_group = %(group)s)",
            {"group": group},
        )
        monkeypatch.setattr(writing, "rewrite", rewrite)
        return left

    monkeypatch.setattr(writing, "rewrite", second_edge)
    done = compress(dsn, "apply", *BEST, "--room", "!whole", "--yes")
    assert done.exit_code == 1
    assert "cannot be resolved any more" in done.stderr
    assert "undo --repair" in done.stderr


def test_only_groups_that_an_undo_file_has_count_as_compared(
    compress: Compress, rooms: tuple[str, World], tmp_path: Path
) -> None:
    dsn, _ = rooms
    (applied,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    kept = ("--undo", *undo_files(tmp_path))
    verified = rows(compress(dsn, "verify", "--room", "!whole", *kept, "--format", "json"))
    assert [one["compared"] for one in verified] == [applied["groups_rewritten"]]


@pytest.mark.parametrize("strategy", ["levels", "best"])
def test_what_is_stopped_anywhere_goes_on_to_what_would_have_been(
    compress: Compress, server: Server, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    dsn, world = rooms
    options = ("--strategy", strategy, "--levels", "9,4", "--chunk-size", "60", *EVERY_ROOM, "--yes")
    rewrite, left = writing.rewrite, 0
    monkeypatch.setattr(compressing, "Writer", partial(writing.Writer, pace=Pace(seconds=0, work=50)))

    def stop(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return rewrite(*arguments)

    with state_database(server) as twin:
        store(world, twin)
        assert compress(twin, "apply", *options).exit_code == 0
        expected = stored(twin)
    monkeypatch.setattr(writing, "rewrite", stop)
    stops = 0
    while True:
        left = 5 + 8 * stops
        done = compress(dsn, "apply", *options)
        if done.exit_code == 0:
            break
        assert done.exit_code == INTERRUPTED, done.output
        assert "Stopped. Every state is as it was" in done.stderr
        assert all_states(dsn) == world.states
        stops += 1
    assert stops > 2
    if strategy == "levels":
        assert stored(dsn) == expected
    else:
        assert sum(map(len, stored(dsn)[1].values())) <= 1.02 * sum(map(len, expected[1].values()))


def test_who_holds_locks_for_long_is_not_waited_for(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, world = rooms
    monkeypatch.setattr(writing, "_TRIES", 1)
    options = (*BEST, "--room", "!whole", "--yes", "--format", "json")
    with psycopg.connect(dsn) as deleter:
        deleter.execute("select from state_groups where room_id = '!whole' for update")
        (locked,) = rows(compress(dsn, "apply", *options))
        assert locked["groups_rewritten"] == 0 < locked["groups_left"]
        assert locked["skipped"].startswith("the rest: somebody holds locks")
    (free,) = rows(compress(dsn, "apply", *options))
    assert (free["groups_rewritten"], free["groups_left"], free["skipped"]) == (locked["groups_left"], 0, None)
    assert all_states(dsn) == world.states


def test_it_waits_while_the_database_is_busy(rooms: tuple[str, World]) -> None:
    dsn, _ = rooms
    told: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as connection, psycopg.connect(dsn) as busy:
        load = Load(connection, sessions=0, lag_bytes=0, told=lambda why: (told.append(why), busy.rollback())[0])
        load.wait()
        assert told == []
        load = replace(load)
        busy.execute("select 1")
        load.wait()
    assert told == ["waiting: 1 sessions are in a transaction"]
    assert load.paused > 0


def test_another_compressors_work_is_noticed(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, world = rooms
    rows(compress(dsn, "apply", "--room", "!7:it's.example", "--yes", "--format", "json"))
    rewrite = writing.rewrite

    def meddle(*arguments: Any) -> Any:
        with psycopg.connect(dsn) as other:
            other.execute(
                "insert into state_compressor_progress values (%s, 1) on conflict do nothing", ["!0:it's.example"]
            )
        return rewrite(*arguments)

    monkeypatch.setattr(writing, "rewrite", meddle)
    done = compress(dsn, "apply", *BEST, "--room", "!0:it's.example", "--yes")
    assert done.exit_code == 1
    assert "Another compressor works on !0:it's.example" in done.stderr
    assert all_states(dsn) == world.states


def test_whoever_says_how_many_rooms_gets_the_largest(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, _ = rooms
    monkeypatch.setenv("LAKEHOUSE_COMPRESSOR_ROOMS", "!whole")
    assert [one["room_id"] for one in rows(compress(dsn, "plan", "--format", "json"))] == ["!whole"]
    assert len(rows(compress(dsn, "plan", "--number-of-rooms", "3", "--format", "json"))) == 3


def test_a_synapse_that_deletes_state_groups_at_once_is_not_compressed(
    compress: Compress, rooms: tuple[str, World]
) -> None:
    dsn, _ = rooms
    before = stored(dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("drop table state_groups_pending_deletion cascade")
    done = compress(dsn, "apply", *BEST, "--yes")
    assert done.exit_code == 1
    assert "Upgrade Synapse" in done.stderr
    assert stored(dsn) == before


def test_only_one_of_ours_works_on_a_database(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    from synapse_lakehouse.rewriting import connection

    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", 0.1)
    with connection.writing(rooms[0]):
        done = compress(rooms[0], "apply", "--yes")
    assert done.exit_code == 1
    assert "Another `lakehouse compress apply` is at work" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--levels", ""], "positive whole numbers"),
        (["--levels", "0,5"], "positive whole numbers"),
        (["--levels", "-5"], "positive whole numbers"),
        (["--levels", "a"], "positive whole numbers"),
        (["--levels", "99999999999999999999"], "positive whole numbers"),
        (["--strategy", "worst"], "levels or best"),
        (["--chunk-size", "0"], "should be greater than or equal to 1"),
        (["--max-chain", "0"], "should be greater than or equal to 1"),
    ],
)
def test_options_that_mean_nothing_are_refused(compress: Compress, options: list[str], message: str) -> None:
    done = compress("postgresql://nobody@127.0.0.1:1/nothing", "plan", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_bad_groups_are_skipped_and_never_changed(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, world = rooms
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "update state_group_edges set prev_state_group = 1000000 where state_group = %s", [max(world.edges)]
        )
    bad = world.groups[max(world.edges)]
    done = rows(compress(dsn, "apply", *BEST, *EVERY_ROOM, "--yes", "--format", "json"))
    (skipped,) = [one for one in done if one["skipped"]]
    assert skipped["room_id"] == bad
    assert "is not older" in skipped["skipped"]
    found = compress(dsn, "verify", "--room", bad)
    assert found.exit_code == 1
    assert "is not older" in " ".join(found.output.split())
    assert "missing" in found.output


def test_errors_are_for_people(compress: Compress, rooms: tuple[str, World], server: Server) -> None:
    dsn, _ = rooms
    unknown = compress(dsn, "plan", "--room", "!nowhere")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: There is no room !nowhere with state in this database.\n")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create role looker login password 'p'")
        try:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("grant select on all tables in schema public to looker")
            looking = psycopg.conninfo.make_conninfo(dsn, user="looker", password="p")
            assert compress(looking, "plan").exit_code == 0
            refused = compress(looking, "apply", "--yes")
            assert refused.exit_code == 1
            assert "may not write" in refused.stderr
            assert "lakehouse grants --compress" in refused.stderr
        finally:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("drop owned by looker")
            connection.execute("drop role looker")
    elsewhere = compress(server.dsn(), "plan")
    assert elsewhere.exit_code == 1
    assert "is not a Synapse homeserver's" in elsewhere.stderr
    nobody = compress("postgresql://nobody:p@127.0.0.1:1/nothing", "plan")
    assert (nobody.exit_code, "Check host and port in SYNAPSE_DSN" in nobody.stderr) == (1, True)


def test_apply_needs_its_own_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["compress", "apply"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: SYNAPSE_WRITE_DSN is not set")


def test_a_file_that_is_no_undo_file_is_refused(compress: Compress, rooms: tuple[str, World], tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_text("nothing")
    done = compress(rooms[0], "verify", "--undo", str(file))
    assert done.exit_code == 1
    assert "cannot be read as an undo file" in done.stderr


def test_the_role_for_it_can_compress_and_do_nothing_else(compress: Compress, source_copy: str) -> None:
    name = f"compressor_{uuid.uuid4().hex[:8]}"
    script = CliRunner().invoke(app, ["grants", "--compress", "--role", name])
    reader = CliRunner().invoke(app, ["grants", "--role", f"{name}_reader"])
    with psycopg.connect(source_copy, autocommit=True) as owner:
        for _ in range(2):
            owner.execute(script.stdout.encode())
        owner.execute(reader.stdout.encode())
        owner.execute(f"alter role {name} password 'p'".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(source_copy, user=name, password="p")
            options = (*BEST, "--number-of-rooms", "3", "--yes", "--hand-over-unreferenced", "--format", "json")
            assert any(one["groups_rewritten"] for one in rows(compress(dsn, "apply", *options)))
            owner.execute(f"alter role {name}_reader password 'p'".encode())
            reading = psycopg.conninfo.make_conninfo(source_copy, user=f"{name}_reader", password="p")
            assert rows(compress(reading, "plan", "--format", "json"))
            with psycopg.connect(dsn, autocommit=True) as session:
                tables = [
                    table
                    for (table,) in owner.execute("select tablename from pg_tables where schemaname = 'public'")
                    if table not in RIGHTS
                ]
                for statement in (
                    *(f"select from {table}" for table in tables),
                    *(f"delete from {table}" for table in [*tables, "state_groups", "state_groups_pending_deletion"]),
                    "update state_groups set id = id", "insert into state_groups values (1, '', '')",
                    "truncate state_groups_state", "create table public.mine (id int)",
                ):  # fmt: skip
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        session.execute(statement.encode())
        finally:
            owner.execute(f"drop owned by {name}, {name}_reader; drop role {name}, {name}_reader".encode())
