"""A Matrix client: methods for requests of the client-server API, sent to the Synapse process that serves them."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import httpx

# Only the process that writes the stream serves these paths.
_STREAM_PATHS = re.compile(
    r"/rooms/[^/]+/(typing|receipt|read_markers)"
    r"|/user/[^/]+/(account_data|rooms/[^/]+/(account_data|tags))"
    r"|/presence/|/pushrules/|/sendToDevice/"
    r"|/keys/(upload|device_signing/upload|signatures/upload)"
    r"|/thread/[^/]+/subscription"
)
V3 = "/_matrix/client/v3"
V1 = "/_matrix/client/v1"
UNSTABLE = "/_matrix/client/unstable"
ADMIN = "/_synapse/admin"

Json = dict[str, Any]


class Options(TypedDict, total=False):
    """Options of a request.

    ``params``: query parameters. ``via``: the process that receives the request. ``raw``: body instead of JSON.
    """

    params: Mapping[str, str]
    via: str
    raw: bytes


class MatrixError(RuntimeError):
    """The homeserver refused a request.

    :ivar status: HTTP status.
    :ivar errcode: Matrix error code, such as M_FORBIDDEN.
    """

    def __init__(self, method: str, path: str, status: int, content: Json) -> None:
        self.status = status
        self.errcode = str(content.get("errcode", ""))
        super().__init__(f"{method} {path} was refused: {status} {self.errcode} {content.get('error', '')}")


class Connection:
    """HTTP connections to the processes of a homeserver. Threads may share it.

    :param urls: process name → base URL.
    :param main: the process that serves all paths except those of ``stream_worker``.
    :param stream_worker: the process that writes the other streams and serves their paths.
    """

    def __init__(self, urls: Mapping[str, str], main: str, stream_worker: str) -> None:
        self.urls = dict(urls)
        self._main = main
        self._stream_worker = stream_worker
        self._http = httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_connections=None))
        self.transactions = itertools.count(1)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(
        self, method: str, path: str, json: object = None, *, token: str | None = None, **options: Unpack[Options]
    ) -> Json:
        """Send a request to the process ``via`` or to the process that serves ``path``; return the response.

        :raises MatrixError: if the status of the response is not 2xx.
        """
        name = options.get("via") or (self._stream_worker if _STREAM_PATHS.search(path) else self._main)
        response = self._http.request(
            method,
            self.urls[name] + path,
            json=json if method != "GET" and "raw" not in options else None,
            content=options.get("raw"),
            params=options.get("params"),
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        content = response.json() if response.content else {}
        if content.get("errcode") == "M_UNRECOGNIZED" and name == self._stream_worker != self._main:
            # In earlier releases, only the main process can write some streams.
            return self.request(method, path, json, token=token, **options | {"via": self._main})
        if not response.is_success:
            raise MatrixError(method, path, response.status_code, content)
        return dict(content)


class Client:
    """A logged-in user (or application service) of a homeserver.

    :ivar user_id: ``@localpart:server``.
    :ivar device_id: the device of the login, empty for an application service.
    """

    def __init__(
        self, connection: Connection, user_id: str, token: str, device_id: str = "", password: str = ""
    ) -> None:
        self.connection = connection
        self.user_id = user_id
        self.token = token
        self.device_id = device_id
        self.password = password

    def call(self, method: str, path: str, json: object = None, **options: Unpack[Options]) -> Json:
        """Send a request as this user, as :meth:`Connection.request` does."""
        body = {} if json is None else json
        return self.connection.request(method, path, body, token=self.token, **options)

    def create_room(self, **options: object) -> str:
        """Create a room with the options of ``POST /createRoom``; return its ID."""
        return str(self.call("POST", f"{V3}/createRoom", options)["room_id"])

    def send(self, room: str, event_type: str, content: Json, **options: Unpack[Options]) -> str:
        """Send a message event; return its event ID."""
        transaction = next(self.connection.transactions)
        path = f"{V3}/rooms/{q(room)}/send/{q(event_type)}/t{transaction}"
        return str(self.call("PUT", path, content, **options)["event_id"])

    def say(self, room: str, body: str, **options: Unpack[Options]) -> str:
        """Send a text message; return its event ID."""
        return self.send(room, "m.room.message", {"msgtype": "m.text", "body": body}, **options)

    def set_state(
        self, room: str, event_type: str, content: Json, state_key: str = "", **options: Unpack[Options]
    ) -> str:
        """Send a state event; return its event ID."""
        path = f"{V3}/rooms/{q(room)}/state/{q(event_type)}/{q(state_key)}"
        return str(self.call("PUT", path, content, **options)["event_id"])

    def state(self, room: str, event_type: str, state_key: str = "") -> Json:
        """Return the content of a current state event."""
        return self.call("GET", f"{V3}/rooms/{q(room)}/state/{q(event_type)}/{q(state_key)}")

    def redact(self, room: str, event_id: str, reason: str = "") -> str:
        """Redact an event; return the redaction's event ID."""
        path = f"{V3}/rooms/{q(room)}/redact/{q(event_id)}/t{next(self.connection.transactions)}"
        return str(self.call("PUT", path, {"reason": reason} if reason else {})["event_id"])

    def join(self, room: str, **options: Unpack[Options]) -> None:
        """Join a room."""
        self.call("POST", f"{V3}/join/{q(room)}", {}, **options)

    def knock(self, room: str, reason: str) -> None:
        """Knock on a room."""
        self.call("POST", f"{V3}/knock/{q(room)}", {"reason": reason})

    def leave(self, room: str, **content: str) -> None:
        """Leave a room, decline an invitation or retract a knock."""
        self.call("POST", f"{V3}/rooms/{q(room)}/leave", content)

    def forget(self, room: str) -> None:
        """Forget a room that this user left."""
        self.call("POST", f"{V3}/rooms/{q(room)}/forget")

    def invite(self, room: str, *users: "Client") -> None:
        """Invite users."""
        for user in users:
            self.call("POST", f"{V3}/rooms/{q(room)}/invite", {"user_id": user.user_id})

    def moderate(self, action: str, room: str, user: "Client", reason: str = "") -> None:
        """Apply ``kick``, ``ban`` or ``unban`` to a user. ``kick`` also revokes an invitation."""
        self.call("POST", f"{V3}/rooms/{q(room)}/{action}", {"user_id": user.user_id, "reason": reason})

    def set_account_data(self, data_type: str, content: Json, room: str | None = None) -> None:
        """Set account data of this user, for all rooms or for ``room``."""
        prefix = f"/rooms/{q(room)}" if room else ""
        self.call("PUT", f"{V3}/user/{q(self.user_id)}{prefix}/account_data/{q(data_type)}", content)

    def receipt(self, room: str, event_id: str, kind: str = "m.read", thread: str | None = None) -> None:
        """Send a receipt (``m.read`` or ``m.read.private``), for the room or for ``thread``."""
        body = {"thread_id": thread} if thread else {}
        self.call("POST", f"{V3}/rooms/{q(room)}/receipt/{kind}/{q(event_id)}", body)

    def set_display_name(self, name: str) -> None:
        """Change the display name. Synapse then sends a member event to each joined room."""
        self.call("PUT", f"{V3}/profile/{q(self.user_id)}/displayname", {"displayname": name})


def q(part: str) -> str:
    """Return ``part``, quoted as a segment of a URL path."""
    return quote(part, safe="")
