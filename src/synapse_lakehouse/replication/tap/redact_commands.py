"""Commands without secrets: push keys, cache keys and lock keys are hashed."""

import re
from dataclasses import fields
from typing import Any, Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.tap.redact_fields import hash_json

_COMMAND_WORD: Final = re.compile("[A-Z][A-Z_]{2,29}")
_HASHED: Final = {(c.RemovePusher, "push_key"), (c.InvalidateCache, "keys"), (c.LockReleased, "key")}


def redact_command(command: Command) -> dict[str, Any]:
    """Return the command's word and fields; fields that may be private are hashed.

    Of an unknown command, only the length remains, and the word if it looks like a word of the protocol.
    """
    if isinstance(command, c.Unknown):
        word = {"word": command.word} if _COMMAND_WORD.fullmatch(command.word) else {}
        return {"command": "unknown", **word, "length": len(command.word) + len(command.rest)}
    redacted = {
        field.name: hash_json(value) if (type(command), field.name) in _HASHED and value is not None else value
        for field in fields(command)
        for value in [getattr(command, field.name)]
    }
    return {"command": c.command_word(command)} | redacted
