"""Encode commands as lines, in each dialect of the protocol."""

from collections.abc import Sequence
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
from synapse_lakehouse.replication.protocol.row_json import ENCODER

_LONGEST_NAME: Final = 1000
"""Maximum number of characters of a name, so that a row of ``row_json.MAX_ROW_BYTES`` fits in an RDATA line."""


def encode_line(command: Command, dialect: Dialect) -> bytes:
    """Return the command as a line, without a line feed. :func:`parse_line` reverses the encoding.

    :raises MalformedCommandError: if a field would break the line, or the dialect cannot express the command.
    """
    word = c.command_word(command)
    try:
        rest = _encode_arguments(command, dialect)
        # A parser would drop a carriage return at the end as part of the line break.
        line = f"{word} {rest}" if rest or dialect is Dialect.REDIS or word.endswith("\r") else word
        if "\n" in line or line.endswith("\r"):
            raise GrammarError("a field contains a line break")
        return line.encode("utf-8", "surrogateescape" if isinstance(command, c.Unknown) else "strict")
    except (GrammarError, ValueError, RecursionError) as error:
        raise MalformedCommandError(word if word in c.WORDS else "a command", describe_malformed_line(error)) from None


def is_valid_word(name: str) -> bool:
    """Return whether ``name`` can be a word of a line, such as a stream or an instance."""
    return 0 < len(name) <= _LONGEST_NAME and not any(character.isspace() for character in name)


def _encode_arguments(command: Command, dialect: Dialect) -> str:
    match command:
        case c.Rdata(stream, instance, token, row):
            at = BATCH if token is None else str(token)
            return _join_words(*_source_words(stream, instance, dialect), at) + " " + ENCODER.encode(row)
        case c.Position(stream, instance, previous, token):
            before = () if dialect is Dialect.TOKENS else (_require_previous(previous),)
            return _join_words(*_source_words(stream, instance, dialect), *before, token)
        case c.Replicate(stream, token):
            if dialect is Dialect.TOKENS:
                if stream == ALL or (stream is None and token is not None):
                    raise GrammarError(ALL_NEEDS_NOW)
                return _join_words(stream or ALL, NOW if token is None else token)
            if (stream, token) != (None, None):
                raise GrammarError(NO_ARGUMENTS)
            return ""
        case c.UserSync(user_id, is_syncing, last_sync_ms, instance, device_id):
            device = (
                [device_id] if device_id is not None else [NO_DEVICE] if instance and dialect is Dialect.REDIS else []
            )
            instances = [] if instance is None else [instance]
            if device_id is not None and (instance is None or device_id == NO_DEVICE):
                raise GrammarError("a device needs an instance and a name")
            return _join_words(*instances, user_id, *device, "start" if is_syncing else "end", last_sync_ms)
        case c.FederationAck(token, instance):
            return _join_words(*([] if instance is None else [instance]), token)
        case c.RemovePusher(app_id, push_key, user_id):
            return _join_words(app_id, push_key, user_id)
        case c.InvalidateCache(cache, keys):
            return _join_words(cache) + " " + ENCODER.encode(keys)
        case c.LockReleased(instance, name, key):
            return ENCODER.encode([instance, name, key])
        case c.ClearUserSync(text) | c.RemoteServerUp(text) | c.NewActiveTask(text) | c.Server(text):
            return _join_words(text)
        case c.Unknown(word, text):
            if word in c.WORDS or " " in word:
                raise GrammarError(WRONG_WORD_COUNT)
            return text
        case c.Error(text) | c.Ping(text) | c.Name(text) | c.Sync(text):
            return text


def _join_words(*values: str | int) -> str:
    words = [str(value) for value in values]
    if any(not word or " " in word for word in words):
        raise GrammarError("a name is empty or contains a space")
    return " ".join(words)


def _source_words(stream: str, instance: str | None, dialect: Dialect) -> Sequence[str]:
    if (instance is None) is not (dialect is Dialect.TOKENS):
        raise GrammarError("an instance name is required, except in the dialect tokens, which allows none")
    return (stream,) if instance is None else (stream, instance)


def _require_previous(previous: int | None) -> int:
    if previous is None:
        raise GrammarError("the previous position is missing")
    return previous
