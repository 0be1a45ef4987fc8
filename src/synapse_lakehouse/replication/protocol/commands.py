"""The commands of Synapse's replication protocol, the same in every dialect.

A stream's position is the token of the last row that was sent. ``instance`` is the Synapse process that wrote the row,
and None in the dialect without instances. Tokens on the wire count upwards, also in the stream of backfill.
"""

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Server:
    """The first command on a connection: the homeserver's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Rdata:
    """One row of a stream. Only the last row of a token contains the token; other rows contain ``batch`` instead."""

    stream: str
    instance: str | None
    token: int | None
    row: Any


@dataclass(frozen=True, slots=True)
class Position:
    """A stream is at ``token``, and has no row between ``previous`` and ``token``.

    ``previous`` is None in the replication dialect ``tokens``.
    """

    stream: str
    instance: str | None
    previous: int | None
    token: int


@dataclass(frozen=True, slots=True)
class Error:
    """An error; the sender usually closes the connection after it."""

    message: str


@dataclass(frozen=True, slots=True)
class Ping:
    """The sender is alive; ``data`` is usually its time in milliseconds since the epoch."""

    data: str


@dataclass(frozen=True, slots=True)
class Name:
    """The name that a client chose for itself."""

    name: str


@dataclass(frozen=True, slots=True)
class Replicate:
    """A client subscribes to ``stream`` (None: all streams), after ``token`` (None: from now on)."""

    stream: str | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True)
class UserSync:
    """A user started or stopped syncing on an instance; the command may name the device."""

    user_id: str
    is_syncing: bool
    last_sync_ms: int
    instance: str | None = None
    device_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearUserSync:
    """An instance is about to stop, so no user syncs on it any more."""

    instance: str


@dataclass(frozen=True, slots=True)
class FederationAck:
    """The federation stream has been processed up to ``token``."""

    token: int
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class RemovePusher:
    """A push target should be removed. Its key is a secret."""

    app_id: str
    push_key: str = field(repr=False)
    user_id: str


@dataclass(frozen=True, slots=True)
class InvalidateCache:
    """An entry of a cache should be dropped."""

    cache: str
    keys: Any


@dataclass(frozen=True, slots=True)
class RemoteServerUp:
    """Another homeserver can be reached again."""

    server: str


@dataclass(frozen=True, slots=True)
class Sync:
    """A command that only Synapse's own tests send."""

    data: str


@dataclass(frozen=True, slots=True)
class LockReleased:
    """An instance released a lock."""

    instance: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class NewActiveTask:
    """A background task can be started."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A command, or a form of a command, that the lakehouse does not parse.

    Bytes that are not UTF-8 become lone surrogates. ``rest`` may contain secrets, such as the access tokens of
    ``USER_IP``, so it is never shown.
    """

    word: str
    rest: str = field(repr=False)


Command = (
    Server | Rdata | Position | Error | Ping | Name | Replicate | UserSync | ClearUserSync | FederationAck
    | RemovePusher | InvalidateCache | RemoteServerUp | Sync | LockReleased | NewActiveTask | Unknown
)  # fmt: skip

WORDS: Final[dict[str, type]] = {
    "SERVER": Server,
    "RDATA": Rdata,
    "POSITION": Position,
    "ERROR": Error,
    "PING": Ping,
    "NAME": Name,
    "REPLICATE": Replicate,
    "USER_SYNC": UserSync,
    "CLEAR_USER_SYNC": ClearUserSync,
    "FEDERATION_ACK": FederationAck,
    "REMOVE_PUSHER": RemovePusher,
    "INVALIDATE_CACHE": InvalidateCache,
    "REMOTE_SERVER_UP": RemoteServerUp,
    "SYNC": Sync,
    "LOCK_RELEASED": LockReleased,
    "NEW_ACTIVE_TASK": NewActiveTask,
}
"""Commands by the word that starts their line."""

SERVER_COMMANDS: Final = (Server, Rdata, Position)
CLIENT_COMMANDS: Final = (
    Name, Replicate, UserSync, ClearUserSync, FederationAck, RemovePusher, InvalidateCache,
)  # fmt: skip


def command_word(command: Command) -> str:
    """Return the word that starts the command's line."""
    return command.word if isinstance(command, Unknown) else _WORD_OF[type(command)]


_WORD_OF: Final = {kind: name for name, kind in WORDS.items()}
