"""The SQL that restores lost rows uses no index, because a damaged index may be the cause of the loss."""

from synapse_lakehouse.cli.state.restore_sql import build_restore_sql


def test_the_rows_are_written_without_index_scans() -> None:
    tables = [("state_groups", ("id", "room_id"), ("id",), [(1, "!a"), (2, "!b")])]
    lines = [*build_restore_sql(tables, [(1, "m.room.topic", "", "$before", "$now")])]
    first_statement = next(
        number for number, line in enumerate(lines) if line.startswith(("CREATE", "INSERT", "UPDATE"))
    )
    # Outside a transaction, SET LOCAL has no effect.
    assert lines[0] == "BEGIN;"
    scans = ("indexscan", "bitmapscan", "indexonlyscan")
    assert lines[1].startswith("LOCK TABLE state_groups ")
    assert {*lines[2:first_statement]} == {f"SET LOCAL enable_{scan} = off;" for scan in scans}
    assert lines[-1] == "COMMIT;"
    assert not [line for line in lines[first_statement:-1] if line.startswith(("SET", "RESET", "COMMIT"))]
