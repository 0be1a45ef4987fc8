"""Tokens and positions, assembled from RDATA and POSITION commands."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse.replication.protocol import stream_tokens
from synapse_lakehouse.replication.protocol.commands import Position, Rdata
from synapse_lakehouse.replication.protocol.stream_tokens import EndlessTokenError, MissedRange, Progress, Update

EP1 = ("events", "ep1")


def test_the_position_moves_only_with_the_last_row_of_a_token() -> None:
    progress = Progress({EP1: 53})
    assert progress.add_row(Rdata(*EP1, None, ["a"])) is None
    assert progress.add_row(Rdata(*EP1, None, ["b"])) is None
    assert progress.positions == {EP1: 53}
    assert progress.add_row(Rdata(*EP1, 54, ["c"])) == Update(*EP1, 54, (["a"], ["b"], ["c"]))
    assert progress.positions == {EP1: 54}


def test_rows_of_writers_that_take_turns_are_not_mixed() -> None:
    progress = Progress()
    progress.add_row(Rdata("events", "ep1", None, [1]))
    progress.add_row(Rdata("events", "ep2", None, [2]))
    assert progress.add_row(Rdata("events", "ep1", 5, [3])) == Update("events", "ep1", 5, ([1], [3]))
    assert progress.add_row(Rdata("events", "ep2", 6, [4])) == Update("events", "ep2", 6, ([2], [4]))


def test_half_a_token_is_discarded_with_its_connection() -> None:
    progress = Progress({EP1: 53})
    progress.add_row(Rdata(*EP1, None, ["half"]))
    progress.mark_disconnected()
    assert progress.add_row(Rdata(*EP1, 54, ["whole"])) == Update(*EP1, 54, (["whole"],))


def test_half_a_token_is_discarded_at_a_position() -> None:
    progress = Progress({EP1: 53})
    progress.add_row(Rdata(*EP1, None, ["half"]))
    assert progress.receive_position(Position(*EP1, 54, 54)) == MissedRange(*EP1, 53, 54)
    progress.advance(EP1, 54)
    assert progress.add_row(Rdata(*EP1, 55, ["next"])) == Update(*EP1, 55, (["next"],))


def test_repeated_tokens_are_discarded_except_for_caches() -> None:
    progress = Progress({EP1: 53, ("caches", "ep1"): 53})
    assert progress.add_row(Rdata(*EP1, 53, [])) is None
    assert progress.repeated == 1
    assert progress.add_row(Rdata("caches", "ep1", 40, [])) == Update("caches", "ep1", 40, ([],))
    assert progress.positions[("caches", "ep1")] == 53


def test_tracking_starts_at_the_first_position() -> None:
    progress = Progress()
    assert progress.receive_position(Position(*EP1, 53, 53)) is None
    assert progress.positions == {EP1: 53}


def test_a_new_writer_is_missed_from_the_stream_s_position() -> None:
    new, typing = ("events", "ep3"), ("typing", "tw")
    progress = Progress({EP1: 53, ("events", "ep2"): 50, ("typing", "old"): 7})
    assert progress.receive_position(Position(*new, 60, 60)) == MissedRange(*new, 50, 60)
    assert progress.receive_position(Position(*typing, 3, 3)) is None
    progress.advance(EP1, 70)
    progress.mark_disconnected()
    assert progress.start_of(new) == 50, "ep2 is still at 50"
    progress.mark_caught_up()
    assert progress.start_of(new) is None
    assert progress.receive_position(Position(*new, 60, 60)) is None
    assert progress.receive_position(Position("receipts", "w", 9, 9)) is None


@pytest.mark.parametrize(("previous", "token"), [(53, 60), (40, 60), (53, 53)])
def test_a_position_without_a_gap_misses_nothing(previous: int, token: int) -> None:
    progress = Progress({EP1: 53})
    assert progress.receive_position(Position(*EP1, previous, token)) is None
    assert progress.positions == {EP1: token}


def test_a_position_ahead_returns_the_missed_range() -> None:
    progress = Progress({EP1: 53})
    assert progress.receive_position(Position(*EP1, 57, 60)) == MissedRange(*EP1, 53, 60)
    assert progress.positions == {EP1: 53}
    progress.advance(EP1, 60)
    assert progress.receive_position(Position(*EP1, 57, 60)) is None


def test_positions_never_go_back() -> None:
    progress = Progress({EP1: 53})
    progress.receive_position(Position(*EP1, 10, 20))
    assert progress.positions == {EP1: 53}


def test_an_endless_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_tokens, "MAX_UNFINISHED_CHARACTERS", 10 * len("[]"))
    progress = Progress()
    for number in range(10):
        progress.add_row(Rdata("events", f"ep{number}", None, []))
    with pytest.raises(EndlessTokenError):
        progress.add_row(Rdata("events", "ep10", None, []))


def test_a_token_of_very_many_rows_is_one_token() -> None:
    progress = Progress({EP1: 53})
    for number in range(150_000):
        assert progress.add_row(Rdata(*EP1, None, number)) is None
    update = progress.add_row(Rdata(*EP1, 54, 150_000))
    assert update
    assert update.rows == tuple(range(150_001))


TOKENS = st.dictionaries(st.integers(2, 40), st.lists(st.integers(), min_size=1, max_size=4), min_size=1)


@settings(deadline=None)
@given(TOKENS, st.lists(st.integers(0, 60)))
def test_resuming_from_tokens_delivers_each_row_once(tokens: dict[int, list[int]], cuts: list[int]) -> None:
    progress, updates = Progress({EP1: 1}), []
    for cut in [*cuts, None]:
        progress.mark_disconnected()
        start = progress.positions[EP1]
        commands = [
            Rdata(*EP1, token if number == len(rows) - 1 else None, row)
            for token, rows in sorted(tokens.items())
            if token > start
            for number, row in enumerate(rows)
        ]
        updates += [update for command in commands[:cut] if (update := progress.add_row(command))]
    assert [(update.token, list(update.rows)) for update in updates] == sorted(tokens.items())
