"""Decode lines into commands, in each dialect of the protocol.

The grammar comes from the first and the current version of Synapse's documentation of TCP replication, and from the
messages that Synapse publishes on Redis today. The first word of a line names the command; the rest depends on the
command. Rows are JSON, which may contain spaces.
"""

import re
from collections.abc import Callable
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.dialect import (
    ALL,
    ALL_NEEDS_NOW,
    BATCH,
    NO_ARGUMENTS,
    NO_DEVICE,
    NOW,
    WRONG_WORD_COUNT,
    Dialect,
    GrammarError,
    MalformedCommandError,
    describe_malformed_line,
)
from synapse_lakehouse.replication.protocol.row_json import DECODER

_TOKEN: Final = re.compile(r"-?[0-9]{1,19}")
_STATES: Final = {"start": True, "end": False}


def parse_line(line: bytes, dialect: Dialect) -> Command | None:
    """Decode a line without its line feed; return None for a blank line.

    :raises MalformedCommandError: if a known command does not follow its grammar.
    """
    line = line.rstrip(b"\r")
    if not line.strip():
        return None
    start, _, rest = line.partition(b" ")
    word = start.decode("utf-8", "surrogateescape")
    parser = _PARSERS.get(word)
    if b"\n" in line:
        raise MalformedCommandError(word if parser else "a command", "it has more than one line")
    if parser is None:
        upper_word = line.split()[0].decode("utf-8", "replace").upper()
        if upper_word in _PARSERS:
            raise MalformedCommandError(
                upper_word, "write the command in capitals at the start of the line, with one space after it"
            )
        return c.Unknown(word, rest.decode("utf-8", "surrogateescape"))
    try:
        return parser(rest.decode("utf-8"), dialect)
    except UnicodeDecodeError:
        raise MalformedCommandError(word, "the line is not UTF-8") from None
    except (GrammarError, ValueError, RecursionError) as error:
        raise MalformedCommandError(word, describe_malformed_line(error)) from None


def _rdata(rest: str, dialect: Dialect) -> Command:
    if dialect is Dialect.TOKENS:
        stream, at, row = _before_json(rest, 3)
        instance = None
    else:
        stream, instance, at, row = _before_json(rest, 4)
    return c.Rdata(stream, instance, None if at == BATCH else _token(at), DECODER.decode(row))


def _position(rest: str, dialect: Dialect) -> Command:
    if dialect is Dialect.TOKENS:
        stream, token = _split(rest, 2)
        return c.Position(stream, None, None, _token(token))
    stream, instance, previous, token = _split(rest, 4)
    return c.Position(stream, instance, _token(previous), _token(token))


def _replicate(rest: str, dialect: Dialect) -> Command:
    if dialect is not Dialect.TOKENS:
        if rest.strip():
            raise GrammarError(NO_ARGUMENTS)
        return c.Replicate()
    stream, at = _split(rest, 2)
    token = None if at == NOW else _token(at)
    if stream == ALL:
        if token is not None:
            raise GrammarError(ALL_NEEDS_NOW)
        return c.Replicate()
    return c.Replicate(stream, token)


def _user_sync(rest: str, dialect: Dialect) -> Command:
    # Later releases of Synapse added the instance, and then the device, to the same command.
    instance: str | None = None
    device_id: str | None = None
    match _split(rest):
        case [user_id, state, last_sync_ms]:
            pass
        case [instance, user_id, state, last_sync_ms]:
            pass
        case [instance, user_id, device_id, state, last_sync_ms]:
            device_id = None if device_id == NO_DEVICE else device_id
        case _:
            raise GrammarError(WRONG_WORD_COUNT)
    if state not in _STATES:
        raise GrammarError("the state is neither start nor end")
    return c.UserSync(user_id, _STATES[state], _token(last_sync_ms), instance, device_id)


def _federation_ack(rest: str, dialect: Dialect) -> Command:
    match _split(rest):
        case [token]:
            return c.FederationAck(_token(token))
        case [instance, token]:
            return c.FederationAck(_token(token), instance)
    raise GrammarError(WRONG_WORD_COUNT)


def _invalidate_cache(rest: str, dialect: Dialect) -> Command:
    cache, keys = _before_json(rest, 2)
    return c.InvalidateCache(cache, DECODER.decode(keys))


def _lock_released(rest: str, dialect: Dialect) -> Command:
    match DECODER.decode(rest):
        case [str(instance), str(name), str(key)]:
            return c.LockReleased(instance, name, key)
    raise GrammarError("the arguments are not a JSON list of three strings")


def _one_word(make: Callable[[str], Command]) -> "_Parser":
    return lambda rest, dialect: make(*_split(rest, 1))


def _text(make: Callable[[str], Command]) -> "_Parser":
    return lambda rest, dialect: make(rest)


_Parser = Callable[[str, Dialect], Command]
_PARSERS: Final[dict[str, _Parser]] = {
    "RDATA": _rdata,
    "POSITION": _position,
    "REPLICATE": _replicate,
    "USER_SYNC": _user_sync,
    "FEDERATION_ACK": _federation_ack,
    "REMOVE_PUSHER": lambda rest, dialect: c.RemovePusher(*_split(rest, 3)),
    "INVALIDATE_CACHE": _invalidate_cache,
    "LOCK_RELEASED": _lock_released,
    "SERVER": _one_word(c.Server),
    "CLEAR_USER_SYNC": _one_word(c.ClearUserSync),
    "REMOTE_SERVER_UP": _one_word(c.RemoteServerUp),
    "NEW_ACTIVE_TASK": _one_word(c.NewActiveTask),
    "ERROR": _text(c.Error),
    "PING": _text(c.Ping),
    "NAME": _text(c.Name),
    "SYNC": _text(c.Sync),
}


def _split(rest: str, count: int | None = None) -> list[str]:
    words = rest.strip(" ").split(" ")
    if not all(words) or (count is not None and len(words) != count):
        raise GrammarError(WRONG_WORD_COUNT)
    return words


def _before_json(rest: str, count: int) -> list[str]:
    words = rest.split(" ", count - 1)
    if not all(words) or len(words) != count:
        raise GrammarError(WRONG_WORD_COUNT)
    return words


def _token(text: str) -> int:
    if not _TOKEN.fullmatch(text) or abs(token := int(text)) >= 1 << 63:
        raise GrammarError("a token or time is not a 64-bit number")
    return token
