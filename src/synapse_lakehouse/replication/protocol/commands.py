"""The commands of Synapse's replication protocol, the same in every dialect.

A stream's position is the token of the last row that was sent; ``instance`` names the Synapse process that wrote it,
and is None in the dialect that knows no instances. Tokens count upwards on the wire, backfill's too.
"""

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Server:
    """Who is spoken to: the homeserver's name. The first command on a connection."""

    name: str


@dataclass(frozen=True, slots=True)
class Rdata:
    """One row of a stream. All rows of a token but the last come without it (``batch`` on the wire)."""

    stream: str
    instance: str | None
    token: int | None
    row: Any


@dataclass(frozen=True, slots=True)
class Position:
    """A stream stands at ``token``, and there is no row between ``previous`` and it.

    ``previous`` is None in the dialect that does not tell it.
    """

    stream: str
    instance: str | None
    previous: int | None
    token: int


@dataclass(frozen=True, slots=True)
class Error:
    """Something went wrong; the connection is usually closed."""

    message: str


@dataclass(frozen=True, slots=True)
class Ping:
    """The sender is alive; ``data`` is usually its time in milliseconds since the epoch."""

    data: str


@dataclass(frozen=True, slots=True)
class Name:
    """What a client wants to be called."""

    name: str


@dataclass(frozen=True, slots=True)
class Replicate:
    """A client subscribes: to ``stream`` (None: all), to what follows ``token`` (None: from now on)."""

    stream: str | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True)
class UserSync:
    """A user has started or stopped syncing on an instance, with a device where it is told."""

    user_id: str
    is_syncing: bool
    last_sync_ms: int
    instance: str | None = None
    device_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearUserSync:
    """Nobody syncs on an instance any more: it is about to stop."""

    instance: str


@dataclass(frozen=True, slots=True)
class FederationAck:
    """Everything in the federation stream up to ``token`` has been dealt with."""

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
    """An entry of a cache should be forgotten."""

    cache: str
    keys: Any


@dataclass(frozen=True, slots=True)
class RemoteServerUp:
    """Another homeserver can be reached again."""

    server: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Only in Synapse's own tests."""

    data: str


@dataclass(frozen=True, slots=True)
class LockReleased:
    """An instance let go of a lock."""

    instance: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class NewActiveTask:
    """A background task can be taken up."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A command, or a form of one, that the lakehouse does not know.

    Bytes that are not UTF-8 are kept as lone surrogates. ``rest`` may hold anything, such as the access tokens of
    ``USER_IP``: it is for counting, never for showing.
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

ONLY_SERVERS_SEND: Final = (Server, Rdata, Position)
ONLY_CLIENTS_SEND: Final = (
    Name, Replicate, UserSync, ClearUserSync, FederationAck, RemovePusher, InvalidateCache,
)  # fmt: skip


def word(command: Command) -> str:
    """The word that starts the command's line."""
    return command.word if isinstance(command, Unknown) else _WORD_OF[type(command)]


_WORD_OF: Final = {kind: name for name, kind in WORDS.items()}
