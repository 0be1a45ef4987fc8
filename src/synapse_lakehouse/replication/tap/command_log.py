"""Commands as they may be kept: without keys, tokens and addresses."""

import re
from dataclasses import fields
from typing import Any, Final

from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.tap.redact_fields import hash_of

_WORD: Final = re.compile("[A-Z][A-Z_]{2,29}")
_HASHED: Final = {(c.RemovePusher, "push_key"), (c.InvalidateCache, "keys"), (c.LockReleased, "key")}


def record(command: Command) -> dict[str, Any]:
    """The command's word and fields. What may be private is hashed.

    Of an unknown command only the length is told, and the word if it is one as the protocol has them.
    """
    if isinstance(command, c.Unknown):
        word = {"word": command.word} if _WORD.fullmatch(command.word) else {}
        return {"command": "unknown", **word, "length": len(command.word) + len(command.rest)}
    kept = {
        field.name: hash_of(value) if (type(command), field.name) in _HASHED and value is not None else value
        for field in fields(command)
        for value in [getattr(command, field.name)]
    }
    return {"command": c.word(command)} | kept
