"""Commands as lines, in each dialect of the protocol."""

from collections.abc import Sequence
from typing import Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.dialect import (
    ALL,
    ALL_IS_NOW,
    BATCH,
    NO_ARGUMENTS,
    NO_DEVICE,
    NO_WORDS,
    NOW,
    Dialect,
    GrammarError,
    MalformedCommandError,
    explained,
)
from synapse_lakehouse.replication.protocol.row_json import ENCODER

_LONGEST_NAME: Final = 1000
"""Characters; the names and the token of an RDATA leave room for a row of ``row_json.MOST_BYTES``."""


def format_line(command: Command, dialect: Dialect) -> bytes:
    """The command's line, without a line feed; parsing it gives the command back.

    :raises MalformedCommandError: when a field would break the line, or the dialect has no way to say it.
    """
    word = c.word(command)
    try:
        rest = _rest(command, dialect)
        # A carriage return at the end would be taken for that of the line.
        line = f"{word} {rest}" if rest or dialect is Dialect.REDIS or word.endswith("\r") else word
        if "\n" in line or line.endswith("\r"):
            raise GrammarError("a field holds a line break")
        return line.encode("utf-8", "surrogateescape" if isinstance(command, c.Unknown) else "strict")
    except (GrammarError, ValueError, RecursionError) as error:
        raise MalformedCommandError(word if word in c.WORDS else "a command", explained(error)) from None


def is_word(name: str) -> bool:
    """Whether ``name`` can be a word of a line, as the name of a stream or an instance is."""
    return 0 < len(name) <= _LONGEST_NAME and not any(character.isspace() for character in name)


def _rest(command: Command, dialect: Dialect) -> str:
    match command:
        case c.Rdata(stream, instance, token, row):
            at = BATCH if token is None else str(token)
            return _words(*_source(stream, instance, dialect), at) + " " + ENCODER.encode(row)
        case c.Position(stream, instance, previous, token):
            before = () if dialect is Dialect.TOKENS else (_needed(previous),)
            return _words(*_source(stream, instance, dialect), *before, token)
        case c.Replicate(stream, token):
            if dialect is Dialect.TOKENS:
                if stream == ALL or (stream is None and token is not None):
                    raise GrammarError(ALL_IS_NOW)
                return _words(stream or ALL, NOW if token is None else token)
            if (stream, token) != (None, None):
                raise GrammarError(NO_ARGUMENTS)
            return ""
        case c.UserSync(user_id, is_syncing, last_sync_ms, instance, device_id):
            device = (
                [device_id] if device_id is not None else [NO_DEVICE] if instance and dialect is Dialect.REDIS else []
            )
            known = [] if instance is None else [instance]
            if device_id is not None and (instance is None or device_id == NO_DEVICE):
                raise GrammarError("a device needs an instance, and a name")
            return _words(*known, user_id, *device, "start" if is_syncing else "end", last_sync_ms)
        case c.FederationAck(token, instance):
            return _words(*([] if instance is None else [instance]), token)
        case c.RemovePusher(app_id, push_key, user_id):
            return _words(app_id, push_key, user_id)
        case c.InvalidateCache(cache, keys):
            return _words(cache) + " " + ENCODER.encode(keys)
        case c.LockReleased(instance, name, key):
            return ENCODER.encode([instance, name, key])
        case c.ClearUserSync(text) | c.RemoteServerUp(text) | c.NewActiveTask(text) | c.Server(text):
            return _words(text)
        case c.Unknown(word, text):
            if word in c.WORDS or " " in word:
                raise GrammarError(NO_WORDS)
            return text
        case c.Error(text) | c.Ping(text) | c.Name(text) | c.Sync(text):
            return text


def _words(*values: str | int) -> str:
    words = [str(value) for value in values]
    if any(not word or " " in word for word in words):
        raise GrammarError("a name is empty or has a space in it")
    return " ".join(words)


def _source(stream: str, instance: str | None, dialect: Dialect) -> Sequence[str]:
    if (instance is None) is not (dialect is Dialect.TOKENS):
        raise GrammarError("the dialect of tokens knows no instances, and the others need one")
    return (stream,) if instance is None else (stream, instance)


def _needed(previous: int | None) -> int:
    if previous is None:
        raise GrammarError("the previous position is missing")
    return previous
