"""Rows that Synapse deletes with an account are not lost, even if the account is soon reopened."""

from collections.abc import Callable

import pytest

from synapse_lakehouse.config.settings import Settings
from tests.support import stream_lake

_ACCOUNT_DATA = ("account_data", "room_account_data")
_SEQUENCES = {"push_rules_stream": "push_rules_stream_sequence", "account_data": "account_data_sequence"}


@pytest.mark.heavy
def test_push_rules_of_a_reopened_account_are_not_lost(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_lake, "TABLES", (*stream_lake.TABLES, "users", "push_rules_stream"))
    monkeypatch.setattr(stream_lake, "STREAMS", ("push_rules", "account_data"))
    monkeypatch.setattr(stream_lake, "WRITERS", "push_rules:worker1 account_data:worker1")
    with stream_lake.open_measured_lake(new_lake(), source_copy, monkeypatch) as (lake, database):
        users = [name for (name,) in database.run("select name from users order by 1 limit 4").fetchall()]
        closed_user, reopened_user, user_with_loss, new_user = users
        ids = {
            user: [_add_rule(database, user), _add_rule(database, user)]
            for user in (closed_user, reopened_user, user_with_loss)
        }
        for user in (closed_user, reopened_user, user_with_loss):
            database.run(
                "insert into account_data (user_id, account_data_type, stream_id, content, instance_name)"
                " values (%s, 'm.test', nextval('account_data_sequence'), '{}', null)",
                [user],
            )
        _store_positions(database)
        lake.examine()

        for user in (closed_user, reopened_user):
            for table in ("push_rules_stream", *_ACCOUNT_DATA):
                database.run(f"delete from {table} where user_id = %s", [user])
        database.run("update users set deactivated = 1 where name = %s", [closed_user])
        database.run("delete from push_rules_stream where stream_id = any(%s)", [ids[user_with_loss]])
        _add_rule(database, reopened_user)
        _add_rule(database, new_user)
        _store_positions(database)
        findings = {
            (first, last, gap_class, explanation)
            for _, _, first, last, gap_class, _, explanation in lake.examine(publish=False)
        }
    assert findings == {
        (ids[closed_user][0], ids[reopened_user][1], "purged", "account_closed"),
        (*ids[user_with_loss], "lost", None),
    }


def _add_rule(database: stream_lake.Database, user: str) -> int:
    token: int = database.reserve("push_rules_stream_sequence")
    database.run("insert into push_rules_stream values (%s, 1, %s, 'x', 'ADD', null, null, 'worker1')", [token, user])
    return token


def _store_positions(database: stream_lake.Database) -> None:
    for stream, sequence in _SEQUENCES.items():
        (last,) = database.fetch_one(f"select last_value from {sequence}")
        database.run(
            "insert into stream_positions values (%s, 'worker1', %s) on conflict (stream_name, instance_name)"
            " do update set stream_id = excluded.stream_id",
            [stream, last],
        )
