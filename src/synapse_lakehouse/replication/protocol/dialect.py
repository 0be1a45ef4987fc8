"""The dialects of the protocol, their common words, and the errors of a line."""

from enum import StrEnum
from typing import Final

from synapse_lakehouse.errors import LakehouseError

BATCH: Final = "batch"
"""Word in place of a token in an RDATA command that is not the last one of its token."""
NOW: Final = "NOW"
ALL: Final = "ALL"
NO_DEVICE: Final = "None"


class Dialect(StrEnum):
    """A version of the protocol with its transport."""

    TOKENS = "tokens"
    """First version over TCP. A client requests each stream from a token, for all writers together."""
    INSTANCES = "instances"
    """Current version over TCP. Each stream has a position for each instance that writes it."""
    REDIS = "redis"
    """Like INSTANCES, with one command per message on a Redis channel."""


class MalformedCommandError(LakehouseError):
    """A line that breaks the grammar of its command, or a command that its dialect cannot express.

    The message names the command and the reason, and never quotes the line.
    """

    def __init__(self, word: str, reason: str) -> None:
        super().__init__(f"{word}: {reason}")


class GrammarError(LakehouseError):
    """The reason why a line is malformed, without a quote of the line."""


WRONG_WORD_COUNT: Final = "wrong number of words"
ALL_NEEDS_NOW: Final = "ALL can only be combined with NOW"
NO_ARGUMENTS: Final = "this dialect replicates all streams from now on and takes no stream or token"


def describe_malformed_line(error: Exception) -> str:
    """Return the message of a ``GrammarError``. Messages of other errors may quote the line and are replaced."""
    return str(error) if isinstance(error, GrammarError) else "not JSON, or text that cannot be encoded"
