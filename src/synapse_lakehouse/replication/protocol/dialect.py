"""What the protocol's dialects have in common, and what can be wrong with a line."""

from enum import StrEnum
from typing import Final

from synapse_lakehouse.errors import LakehouseError

BATCH: Final = "batch"
"""In place of a token: more rows of the same token follow."""
NOW: Final = "NOW"
ALL: Final = "ALL"
NO_DEVICE: Final = "None"


class Dialect(StrEnum):
    """Who speaks how."""

    TOKENS = "tokens"
    """TCP, the first form: a client asks for each stream from a token; writers are not told apart."""
    INSTANCES = "instances"
    """TCP, the present form: positions of each stream and writing instance."""
    REDIS = "redis"
    """As INSTANCES, one command a message on a Redis channel."""


class MalformedCommandError(LakehouseError):
    """A line that breaks the grammar of its command, or a command that its dialect cannot say.

    The message names the command and the reason, never what the line held.
    """

    def __init__(self, word: str, reason: str) -> None:
        super().__init__(f"{word}: {reason}")


class GrammarError(LakehouseError):
    """Why a line is malformed, in words that quote nothing of it."""


NO_WORDS: Final = "not as many words as it takes"
ALL_IS_NOW: Final = "ALL goes with NOW, and with nothing else"
NO_ARGUMENTS: Final = "this dialect replicates everything from now on, so it takes no stream or token"


def explained(error: Exception) -> str:
    """The reason that ``error`` gives, if it is one of ours; other messages may quote the line."""
    return str(error) if isinstance(error, GrammarError) else "not JSON, or text that cannot be written"
