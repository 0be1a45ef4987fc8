"""Batches of commands are committed once to a real Iceberg table."""

import json
import time
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Progress
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink, MonotonicClock, TapRunningError
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor, hash_json
from tests.replication.commands_table import EP1, new_batch, read_commands
from tests.replication.database import CATALOGUE


def test_each_command_fills_its_columns(catalog: Catalog) -> None:
    sink, progress = IcebergSink(catalog, "redis", Dialect.REDIS), Progress()
    batch = new_batch()
    for command in (c.Rdata(*EP1, None, ["ev", ["$a"]]), c.Rdata(*EP1, 5, ["ev", ["$b"]])):
        if update := progress.add_row(command):
            batch.add(update)
    batch.add(c.Position(*EP1, 5, 7))
    batch.add(Gap(*EP1, 7, 9, 1, "because"))
    batch.add(c.LockReleased("ep1", "lock", "!r"))
    batch.add(c.Unknown("USER_IP", "@a secret"))
    batch.add_positions(progress.positions)
    sink.append(batch)
    rows = read_commands(catalog)
    names = ("command", "stream", "instance", "token", "ordinal", "previous", "row")
    assert [tuple(row[name] for name in names) for row in rows[:4]] == [
        ("RDATA", *EP1, 5, 0, None, '["ev",["$a"]]'),
        ("RDATA", *EP1, 5, 1, None, '["ev",["$b"]]'),
        ("POSITION", *EP1, 7, None, 5, None),
        ("GAP", *EP1, 9, None, 7, None),
    ]
    assert json.loads(rows[4]["fields"]) == {"instance": "ep1", "name": "lock", "key": hash_json("!r")}
    assert "secret" not in json.dumps(rows, default=str)
    assert sink.read_positions() == {EP1: 5}
    assert IcebergSink(catalog, "tcp", Dialect.TOKENS).read_positions() == {}


def test_lone_surrogates_are_replaced(catalog: Catalog) -> None:
    batch = new_batch()
    for line in (b'RDATA push_rules ep1 5 ["@\\ud800:x \\ud83d\\ude00"]', b'LOCK_RELEASED ["\\udfff","lock","key"]'):
        command = parse_line(line, Dialect.REDIS)
        received = Progress().add_row(command) if isinstance(command, c.Rdata) else command
        assert received
        batch.add(received)
    IcebergSink(catalog, "redis", Dialect.REDIS).append(batch)
    push_rule_row, lock_row = read_commands(catalog)
    assert json.loads(push_rule_row["row"]) == ["@\N{REPLACEMENT CHARACTER}:x \N{GRINNING FACE}"]
    assert json.loads(lock_row["fields"])["instance"] == "\N{REPLACEMENT CHARACTER}"


def test_rows_stay_in_order_if_the_clock_is_set_back(catalog: Catalog) -> None:
    for token, hours_back in ((7, 0), (9, 1)):
        clock = MonotonicClock(iter([time.time() - 3600 * hours_back]).__next__)
        sink = IcebergSink(catalog, "redis", Dialect.REDIS, clock=clock)
        sink.read_positions()
        batch = Batch(RowRedactor(CATALOGUE), "redis", Dialect.REDIS, clock)
        batch.add_positions({EP1: token})
        sink.append(batch)
    assert IcebergSink(catalog, "redis", Dialect.REDIS).read_positions() == {EP1: 9}


def test_a_commit_with_a_lost_answer_is_not_repeated(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = IcebergSink(catalog, "redis", Dialect.REDIS, retry_seconds=0.0)
    batch, failures = new_batch(), ["after", "before"]
    batch.add(c.Position(*EP1, 5, 7))
    commit = type(catalog).commit_table

    def commit_with_failures(*arguments: Any, **options: Any) -> Any:
        failure = failures.pop() if failures else None
        if failure == "before":
            raise ConnectionError
        result = commit(*arguments, **options)
        if failure == "after":
            raise ConnectionError
        return result

    monkeypatch.setattr(type(catalog), "commit_table", commit_with_failures)
    sink.append(batch)
    assert [row["command"] for row in read_commands(catalog)] == ["POSITION"]
    assert not failures


def test_the_later_of_two_taps_stops(catalog: Catalog) -> None:
    def open_sink(dialect: Dialect = Dialect.REDIS) -> IcebergSink:
        sink = IcebergSink(catalog, "redis", dialect)
        sink.read_positions()
        return sink

    def build_batch() -> Batch:
        batch = new_batch()
        batch.add(c.Position(*EP1, 5, 7))
        batch.add_positions({EP1: 7})
        return batch

    first, second, tokens_sink = open_sink(), open_sink(), open_sink(Dialect.TOKENS)
    first.append(build_batch())
    tokens_sink.append(build_batch())
    with pytest.raises(TapRunningError):
        second.append(build_batch())
    first.append(build_batch())
    successor = open_sink()
    successor.append(build_batch())
    with pytest.raises(TapRunningError):
        first.append(build_batch())
    assert len(read_commands(catalog, command="TAP")) == 4


def test_a_tap_stops_if_another_one_commits_first(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (IcebergSink(catalog, "redis", Dialect.REDIS, retry_seconds=0.0) for _ in range(2))
    batches = [new_batch(), new_batch()]
    for sink, batch in zip((first, second), batches, strict=True):
        sink.read_positions()
        batch.add(c.Position(*EP1, 5, 7))
        batch.add_positions({EP1: 7})
    commit = type(catalog).commit_table

    def commit_after_second(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(type(catalog), "commit_table", commit)
        second.append(batches[1])
        return commit(*arguments, **options)

    monkeypatch.setattr(type(catalog), "commit_table", commit_after_second)
    with pytest.raises(TapRunningError):
        first.append(batches[0])
    assert len(read_commands(catalog, command="POSITION")) == 1
