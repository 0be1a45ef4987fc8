"""Replication commands as lines in every dialect, and invalid lines."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.encode import encode_line
from synapse_lakehouse.replication.protocol.framing import LineSplitter, LineTooLongError

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters=" \n\r"), min_size=1).filter(
    lambda name: name not in ("ALL", "None")
)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n")).filter(
    lambda text: not text.endswith("\r")
)
TOKENS = st.integers(-(2**63) + 1, 2**63 - 1)
ROWS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda rows: st.lists(rows) | st.dictionaries(st.text(), rows),
    max_leaves=12,
)


def commands(dialect: Dialect) -> st.SearchStrategy[c.Command]:
    """Return a strategy for every command of ``dialect``."""
    tokens = dialect is Dialect.TOKENS
    instances = st.none() if tokens else NAMES
    replicate = st.builds(c.Replicate, NAMES, st.none() | TOKENS) if tokens else st.just(c.Replicate())
    words = st.text(st.characters(min_codepoint=65, max_codepoint=90), min_size=1)
    return st.one_of(
        st.builds(c.Server, NAMES),
        st.builds(c.Rdata, NAMES, instances, st.none() | TOKENS, ROWS),
        st.builds(c.Position, NAMES, instances, st.none() if tokens else TOKENS, TOKENS),
        *(st.builds(kind, TEXTS) for kind in (c.Error, c.Ping, c.Name, c.Sync)),
        replicate | st.just(c.Replicate()),
        st.builds(c.UserSync, NAMES, st.booleans(), TOKENS, st.none() | NAMES),
        st.builds(c.UserSync, NAMES, st.booleans(), TOKENS, NAMES, NAMES),
        st.builds(c.ClearUserSync, NAMES),
        st.builds(c.FederationAck, TOKENS, st.none() | NAMES),
        st.builds(c.RemovePusher, NAMES, NAMES, NAMES),
        st.builds(c.InvalidateCache, NAMES, ROWS),
        st.builds(c.RemoteServerUp, NAMES),
        st.builds(c.LockReleased, st.text(), st.text(), st.text()),
        st.builds(c.NewActiveTask, NAMES),
        st.builds(c.Unknown, words.filter(lambda word: word not in c.WORDS), TEXTS),
    )


LINES = {
    Dialect.TOKENS: {
        "SERVER localhost:8823": c.Server("localhost:8823"),
        "PING 1490197665618": c.Ping("1490197665618"),
        "NAME synapse.app.appservice": c.Name("synapse.app.appservice"),
        "REPLICATE events 53": c.Replicate("events", 53),
        "REPLICATE caches NOW": c.Replicate("caches", None),
        "REPLICATE ALL NOW": c.Replicate(),
        "POSITION backfill 1": c.Position("backfill", None, None, 1),
        'RDATA caches batch ["get_user_by_id",["@a:x.org"],1490197670513]': c.Rdata(
            "caches", None, None, ["get_user_by_id", ["@a:x.org"], 1490197670513]
        ),
        'RDATA events 14 ["$1a:x.org", "!b:x.org", "m.room.guest_access", "", null]': c.Rdata(
            "events", None, 14, ["$1a:x.org", "!b:x.org", "m.room.guest_access", "", None]
        ),
        "USER_SYNC @a:x.org end 1490197670513": c.UserSync("@a:x.org", False, 1490197670513),
        "CLEAR_USER_SYNC PGHkD": c.ClearUserSync("PGHkD"),
        "FEDERATION_ACK 12": c.FederationAck(12),
        "REMOVE_PUSHER org.app key1 @a:x.org": c.RemovePusher("org.app", "key1", "@a:x.org"),
        'INVALIDATE_CACHE get_user_by_id ["@a:x.org", 2]': c.InvalidateCache("get_user_by_id", ["@a:x.org", 2]),
        "REMOTE_SERVER_UP y.org": c.RemoteServerUp("y.org"),
        "SYNC anything at all": c.Sync("anything at all"),
        "ERROR server stopping": c.Error("server stopping"),
    },
    Dialect.INSTANCES: {
        "REPLICATE": c.Replicate(),
        "POSITION events master 53 57": c.Position("events", "master", 53, 57),
        'RDATA events ep1 batch ["ev",["$a","!b:x.org"]]': c.Rdata("events", "ep1", None, ["ev", ["$a", "!b:x.org"]]),
        'RDATA caches master 550953772 ["get_user_by_id", null, 1550574873252]': c.Rdata(
            "caches", "master", 550953772, ["get_user_by_id", None, 1550574873252]
        ),
        "USER_SYNC PGHkD @a:x.org start 1550574873251": c.UserSync("@a:x.org", True, 1550574873251, "PGHkD"),
        "FEDERATION_ACK fed1 12": c.FederationAck(12, "fed1"),
    },
    Dialect.REDIS: {
        "REPLICATE ": c.Replicate(),
        "POSITION device_lists sw1 1 2": c.Position("device_lists", "sw1", 1, 2),
        'RDATA receipts ep2 5 ["!b:x.org","m.read","@a:x.org","$c","main",{"ts":1795216840155}]': c.Rdata(
            "receipts", "ep2", 5, ["!b:x.org", "m.read", "@a:x.org", "$c", "main", {"ts": 1795216840155}]
        ),
        "USER_SYNC PGHkD @a:x.org DEV1 start 1795216947534": c.UserSync(
            "@a:x.org", True, 1795216947534, "PGHkD", "DEV1"
        ),
        "USER_SYNC PGHkD @a:x.org None end 1795216947534": c.UserSync("@a:x.org", False, 1795216947534, "PGHkD"),
        'LOCK_RELEASED ["ep2","new_event_during_purge_lock","!b:x.org"]': c.LockReleased(
            "ep2", "new_event_during_purge_lock", "!b:x.org"
        ),
        "NEW_ACTIVE_TASK aYRrMPhyfajdBZtE": c.NewActiveTask("aYRrMPhyfajdBZtE"),
    },
}
EXAMPLES = [(dialect, line, command) for dialect, lines in LINES.items() for line, command in lines.items()]


@pytest.mark.parametrize(("dialect", "line", "command"), EXAMPLES)
def test_lines_mean_their_commands(dialect: Dialect, line: str, command: c.Command) -> None:
    assert parse_line(line.encode(), dialect) == command
    assert parse_line(encode_line(command, dialect), dialect) == command
    if "[" not in line:
        assert encode_line(command, dialect).decode() == line


@pytest.mark.parametrize("dialect", Dialect)
@settings(deadline=None)
@given(data=st.data())
def test_formatted_commands_parse_back_from_one_line(dialect: Dialect, data: st.DataObject) -> None:
    command = data.draw(commands(dialect))
    line = encode_line(command, dialect)
    assert b"\n" not in line
    assert parse_line(line, dialect) == command


WORDS = st.sampled_from([word.encode() for word in c.WORDS])
CUT_LINES = st.builds(lambda item, length: item[1].encode()[:length], st.sampled_from(EXAMPLES), st.integers(0, 80))


@pytest.mark.parametrize("dialect", Dialect)
@settings(deadline=None)
@given(line=st.binary() | st.builds(lambda word, rest: word + b" " + rest, WORDS, st.binary()) | CUT_LINES)
@example(line=b"RDATA events 1 \xff")
@example(line=b"RDATA events ep1 1 [" + b"[" * 5_000)
@example(line=b"RDATA events 1 [1e999]")
@example(line=b"RDATA events ep1 1 " + b"9" * 5000)
@example(line=b'USER_IP @a:x.org ["secret",\xff]')
@example(line=b"REPLICATE events 53 ")
@example(line=b"\x00\r ")
def test_any_bytes_are_a_command_or_blank_or_refused(dialect: Dialect, line: bytes) -> None:
    try:
        command = parse_line(line, dialect)
    except MalformedCommandError:
        return
    if command is not None:
        assert parse_line(encode_line(command, dialect), dialect) == command


@pytest.mark.parametrize(
    "line",
    [
        "RDATA", "RDATA events", "RDATA events 5", "RDATA events five []", "RDATA  5 []", "RDATA events 5 [1",
        "RDATA events 5 NaN", "RDATA events 9223372036854775808 []", "RDATA events 1_0 []", "RDATA events ٣ []",
        "POSITION events", "POSITION events 1 2", "REPLICATE events", "REPLICATE ALL 5", "USER_SYNC @a:x.org maybe 5",
        "USER_SYNC @a:x.org", "LOCK_RELEASED [1,2,3]", "LOCK_RELEASED {}", "SERVER", "SERVER a b",
        "RDATA events 1 []\nPING 1",
    ],
)  # fmt: skip
def test_incomplete_commands_are_refused(line: str) -> None:
    with pytest.raises(MalformedCommandError):
        parse_line(line.encode(), Dialect.TOKENS)


def test_an_error_quotes_nothing_of_the_line() -> None:
    with pytest.raises(MalformedCommandError) as error_info:
        parse_line(b'RDATA pushers 5 ["@a:x.org","app","secret key",', Dialect.TOKENS)
    assert str(error_info.value) == "RDATA: not JSON, or text that cannot be encoded"
    assert "secret" not in repr(parse_line(b'USER_IP @a:x.org ["secret","127.0.0.1"]', Dialect.REDIS))
    assert "key1" not in repr(c.RemovePusher("app", "key1", "@a:x.org"))


@pytest.mark.parametrize(
    ("command", "dialect"),
    [
        (c.Name("me\nERROR you"), Dialect.TOKENS),
        (c.Server("two words"), Dialect.TOKENS),
        (c.Rdata("events", "ep1", 5, []), Dialect.TOKENS),
        (c.Rdata("events", None, 5, []), Dialect.INSTANCES),
        (c.Rdata("events", "ep1", 5, float("nan")), Dialect.REDIS),
        (c.Position("events", "ep1", None, 5), Dialect.INSTANCES),
        (c.Replicate("events", 5), Dialect.INSTANCES),
        (c.Replicate(None, 5), Dialect.TOKENS),
        (c.Unknown("PING", "1"), Dialect.TOKENS),
        (c.Error("\ud800"), Dialect.TOKENS),
    ],
)
def test_commands_outside_a_dialect_are_refused(command: c.Command, dialect: Dialect) -> None:
    with pytest.raises(MalformedCommandError):
        encode_line(command, dialect)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_do_not_depend_on_the_chunks_received(lines: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(line + b"\n" for line in lines) + b"unfinished"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)))))
    splitter, actual = LineSplitter(), []
    for first, last in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        actual += splitter.feed(sent[first:last])
    assert actual == lines


def test_an_endless_line_is_refused() -> None:
    splitter = LineSplitter(max_bytes=100)
    assert splitter.feed(b"x" * 100 + b"\n" + b"y" * 60) == [b"x" * 100]
    with pytest.raises(LineTooLongError):
        splitter.feed(b"y" * 41)
    with pytest.raises(LineTooLongError):
        LineSplitter(max_bytes=100).feed(b"short\n" + b"z" * 101 + b"\n")
