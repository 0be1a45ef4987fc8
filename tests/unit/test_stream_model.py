"""A model of streams as Synapse's documentation defines them, and the safe bound from stored positions."""

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID, compute_bound, extend_without_gap
from synapse_lakehouse.streams.sql import GAPLESS_RUNS
from tests.support.stream_model import Database, Position, Rdata, Reader, Stream

DUCKDB = duckdb.connect()

DOCUMENTED_STEPS = [
    ("reserve", 2, 1),
    ("reserve", 3, 1),
    ("complete", 3, 1),
    ("complete", 2, 3),
    ("reserve", 4, 3),
    ("reserve", 5, 3),
    ("reserve", 6, 3),
    ("complete", 5, 3),
    ("complete", 4, 5),
    ("complete", 6, 6),
]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_documented_example_step_by_step(sign: int) -> None:
    stream = Stream(["master"], sign=sign, stored={"master": sign})
    for action, token, current in DOCUMENTED_STEPS:
        if action == "reserve":
            assert stream.reserve("master") == sign * token
        else:
            stream.complete(sign * token)
        tokens = (stream.minimum("master"), stream.maximum("master"), stream.linear_minimum(), stream.linear_maximum())
        assert tokens == (sign * current,) * 4, (action, token)


def test_each_token_is_sent_once() -> None:
    stream = Stream(["ep1", "ep2"])
    first, second, third = stream.reserve("ep1"), stream.reserve("ep2"), stream.reserve("ep1")
    assert stream.complete(third, rows=3) == []
    assert stream.complete(second) == [Rdata("ep2", second, 1)]
    assert stream.complete(first, succeeded=False) == [Rdata("ep1", first, 0), Rdata("ep1", third, 3)]


def test_a_restarted_writer_resumes_from_the_database() -> None:
    stream = Stream(["ep1", "ep2"])
    stored, lost = stream.reserve("ep1"), stream.reserve("ep1")
    stream.end(stored, rows=1)
    stream.start("ep1")
    assert stream.awaiting("ep1") == stream.open == set()
    assert stream.position("ep1") == lost
    assert stream.minimum("ep1") is None
    assert stream.database().writers == {stored: "ep1"}


def test_the_linear_minimum_needs_all_writers() -> None:
    stream = Stream(["ep1", "ep2"])
    stream.complete(stream.reserve("ep1"))
    assert stream.linear_minimum() is None
    stream.complete(stream.reserve("ep2"))
    assert stream.linear_minimum() == 2
    stream.start("admin script")
    assert stream.linear_minimum() is None


def test_an_idle_writer_bounds_only_the_minimum() -> None:
    stream = Stream(["ep1", "ep2"], stored={"ep1": 5, "ep2": 5})
    for _ in range(3):
        stream.complete(stream.reserve("ep1"))
    assert (stream.minimum("ep2"), stream.linear_minimum()) == (5, 5)
    assert (stream.maximum("ep2"), stream.linear_maximum()) == (8, 8)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["events", "backfill"]), st.sets(st.integers(1, 40)), min_size=1),
    st.integers(0, 20),
)
def test_the_gapless_runs_query_equals_the_computation(ids: dict[str, set[int]], minimum: int) -> None:
    rows = [
        f"('{stream}', {id_ - minimum})" for stream, stream_ids in ids.items() for id_ in stream_ids if id_ > minimum
    ]
    beyond = (
        f"from (values {', '.join(rows + rows[:1])}) _ (stream, distance)"
        if rows
        else "select '' as stream, 0 as distance where false"
    )
    DUCKDB.execute(f"create or replace temp view beyond as {beyond}")
    runs = dict(DUCKDB.execute(GAPLESS_RUNS).fetchall())
    for stream, stream_ids in ids.items():
        sign = -1 if stream == "backfill" else 1
        end = extend_without_gap(sign * minimum, [sign * id_ for id_ in stream_ids], sign=sign)
        assert sign * end == minimum + runs.get(stream, 0)


WRITERS = st.sampled_from(["ep1", "ep2", "ep3"])


class Streaming(RuleBasedStateMachine):
    """Random actions of writers of a stream. Its database and its messages are checked after every action."""

    @initialize(
        sign=st.sampled_from([1, -1]), configured=st.sets(WRITERS, min_size=1, max_size=2), is_new=st.booleans()
    )
    def begin(self, sign: int, configured: set[str], is_new: bool) -> None:
        self.sign = sign
        self.stream = Stream(configured, sign=sign, stored={} if is_new else dict.fromkeys(configured, sign * FIRST_ID))
        self.reader = Reader(configured, self.stream.replicate(), sign=sign)
        self.sent: list[Rdata] = []
        self.accepted = FIRST_ID
        self.last_values: dict[str, int] = {}

    def awaiting(self) -> list[tuple[str, int]]:
        return [
            (writer, token) for writer in sorted(self.stream.writers) for token in sorted(self.stream.awaiting(writer))
        ]

    @rule(writer=WRITERS)
    def reserve(self, writer: str) -> None:
        if writer in self.stream.writers:
            self.stream.reserve(writer)

    @precondition(lambda self: self.stream.open)
    @rule(data=st.data(), rows=st.integers(0, 2))
    def end(self, data: Any, rows: int) -> None:
        token = data.draw(st.sampled_from(sorted(self.stream.open)))
        assert not rows or self.sign * token > self.accepted, "a row was committed below an accepted bound"
        self.stream.end(token, rows)

    @precondition(lambda self: self.awaiting())
    @rule(data=st.data(), rows=st.integers(0, 2), succeeded=st.booleans())
    def complete(self, data: Any, rows: int, succeeded: bool) -> None:
        writer, token = data.draw(st.sampled_from(self.awaiting()))
        if token in self.stream.open and rows and succeeded:
            assert self.sign * token > self.accepted, "a row was committed below an accepted bound"
        before = self.sign * self.stream.position(writer)
        commands = self.stream.complete(token, rows, succeeded=succeeded)
        sent_tokens = [self.sign * command.token for command in commands]
        assert sent_tokens == sorted(set(sent_tokens))
        assert all(before < sent_token <= self.sign * self.stream.position(writer) for sent_token in sent_tokens)
        for command in commands:
            assert command not in self.sent
            self.sent.append(command)
            self.reader.receive(command)

    @rule(writer=WRITERS, sender=WRITERS)
    def receive_position(self, writer: str, sender: str) -> None:
        if {writer, sender} <= self.stream.writers:
            self.stream.receive_position(writer, Position(sender, self.stream.position(sender)))

    @rule(writer=WRITERS)
    def start(self, writer: str) -> None:
        if writer not in self.stream.writers:
            self.stream.configured.add(writer)
            self.last_values.pop("linear minimum", None)
            self.reader = Reader(self.stream.configured, self.stream.replicate(), sign=self.sign)
        self.stream.start(writer)

    @rule(writer=WRITERS, forgotten=st.booleans())
    def remove(self, writer: str, forgotten: bool) -> None:
        if writer in self.stream.writers and len(self.stream.writers) > 1:
            self.stream.remove(writer)
            for name in ("minimum", "maximum", "position"):
                self.last_values.pop(f"{name} of {writer}", None)
            if forgotten:
                self.stream.forget(writer)

    @invariant()
    def is_monotonic(self) -> None:
        tokens: dict[str, int | None] = {
            "linear minimum": self.stream.linear_minimum(),
            "linear maximum": self.stream.linear_maximum(),
        }
        for writer in self.stream.writers:
            tokens[f"minimum of {writer}"] = self.stream.minimum(writer)
            tokens[f"maximum of {writer}"] = self.stream.maximum(writer)
            tokens[f"position of {writer}"] = self.stream.position(writer)
        for name, value in tokens.items():
            if value is not None:
                assert self.sign * value >= self.sign * self.last_values.get(name, value), name
                self.last_values[name] = value

    @invariant()
    def minimum_is_at_most_maximum(self) -> None:
        linear_minimum, linear_maximum = self.stream.linear_minimum(), self.stream.linear_maximum()
        for writer in self.stream.writers:
            minimum, maximum = self.stream.minimum(writer), self.stream.maximum(writer)
            assert self.sign * linear_maximum <= self.sign * maximum
            assert minimum is None or self.sign * minimum <= self.sign * maximum
            if linear_minimum is not None:
                assert minimum is not None
                assert self.sign * linear_minimum <= self.sign * minimum
        assert linear_minimum is None or self.sign * linear_minimum <= self.sign * linear_maximum
        assert all(self.sign * linear_maximum < self.sign * token for token in self.stream.open)

    @invariant()
    def no_writer_passes_its_open_tokens(self) -> None:
        for writer in self.stream.writers:
            open_tokens = self.stream.awaiting(writer)
            assert all(self.sign * self.stream.position(writer) < self.sign * token for token in open_tokens)

    @invariant()
    def a_reader_is_never_ahead(self) -> None:
        current = self.reader.find_complete_id()
        if current is not None and self.reader.writers >= self.stream.writers:
            assert all(self.sign * current < self.sign * token for token in self.stream.open)

    @invariant()
    def the_bound_of_the_database_is_safe(self) -> None:
        database = self.stream.database()
        bound = compute_database_bound(database, frozenset(self.stream.configured), self.sign)
        if bound is None:
            return
        linear_minimum = self.stream.linear_minimum()
        assert linear_minimum is not None
        assert self.sign * bound <= self.sign * self.stream.linear_maximum()
        # The remaining position of a removed writer limits the bound.
        assert self.sign * linear_minimum <= self.sign * bound or not database.positions.keys() <= self.stream.writers
        self.accepted = max(self.accepted, self.sign * bound)

    @invariant()
    def a_position_of_an_unconfigured_writer_counts(self) -> None:
        database = self.stream.database()
        if database.positions.keys() >= self.stream.writers:
            for writer in self.stream.configured:
                bound = compute_database_bound(database, frozenset({writer}), self.sign)
                assert bound is not None
                assert self.sign * bound <= self.sign * self.stream.linear_maximum()


def compute_database_bound(database: Database, configured: frozenset[str], sign: int) -> int | None:
    positions, is_used = database.positions, database.is_called
    bound = compute_bound(positions, configured, database.writers.values(), sign=sign, is_used=is_used)
    return None if bound.minimum is None else extend_without_gap(bound.minimum, database.writers, sign=sign)


Streaming.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_laws_of_streams = Streaming.TestCase
