"""A Matrix user's client: thin calls of the client-server API, sent to the process that serves them."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import httpx

# Paths that Synapse serves only on the process that writes their stream.
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
    """Query parameters, the process that gets the request (its own by default), and a raw body instead of JSON."""

    params: Mapping[str, str]
    via: str
    raw: bytes


class MatrixError(RuntimeError):
    """The homeserver refused a request.

    :ivar status: HTTP status.
    :ivar errcode: Matrix error code, such as M_FORBIDDEN.
    """

    def __init__(self, method: str, path: str, status: int, answer: Json) -> None:
        self.status = status
        self.errcode = str(answer.get("errcode", ""))
        super().__init__(f"{method} {path} was refused: {status} {self.errcode} {answer.get('error', '')}")


class Connection:
    """HTTP connections to the processes of one homeserver; safe to share between threads.

    :param urls: process name → base URL.
    :param main: the process that serves everything but streams with a writer of their own.
    :param stream_worker: the process that serves those.
    """

    def __init__(self, urls: Mapping[str, str], main: str, stream_worker: str) -> None:
        self.urls = dict(urls)
        self._main = main
        self._stream_worker = stream_worker
        self._http = httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_connections=None))
        self.transactions = itertools.count(1)

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def request(
        self, method: str, path: str, json: object = None, *, token: str | None = None, **options: Unpack[Options]
    ) -> Json:
        """The answer to one request, sent to process ``via`` or to the one that serves ``path``.

        :raises MatrixError: when the answer's status is not 2xx.
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
        answer = response.json() if response.content else {}
        if answer.get("errcode") == "M_UNRECOGNIZED" and name == self._stream_worker != self._main:
            # In releases in which another process cannot write the stream, the main process does.
            return self.request(method, path, json, token=token, **options | {"via": self._main})
        if not response.is_success:
            raise MatrixError(method, path, response.status_code, answer)
        return dict(answer)


class Client:
    """One logged-in user (or application service) of a homeserver.

    :ivar user_id: ``@localpart:server``.
    :ivar device_id: the device this client logged in with, empty for an application service.
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
        """One request as this user; options as in :meth:`Connection.request`."""
        body = {} if json is None else json
        return self.connection.request(method, path, body, token=self.token, **options)

    def create_room(self, **options: object) -> str:
        """Create a room with the options of ``POST /createRoom``; returns its id."""
        return str(self.call("POST", f"{V3}/createRoom", options)["room_id"])

    def send(self, room: str, event_type: str, content: Json, **options: Unpack[Options]) -> str:
        """Send a message event; returns its event id."""
        transaction = next(self.connection.transactions)
        path = f"{V3}/rooms/{q(room)}/send/{q(event_type)}/t{transaction}"
        return str(self.call("PUT", path, content, **options)["event_id"])

    def say(self, room: str, body: str, **options: Unpack[Options]) -> str:
        """Send a text message; returns its event id."""
        return self.send(room, "m.room.message", {"msgtype": "m.text", "body": body}, **options)

    def set_state(
        self, room: str, event_type: str, content: Json, state_key: str = "", **options: Unpack[Options]
    ) -> str:
        """Send a state event; returns its event id."""
        path = f"{V3}/rooms/{q(room)}/state/{q(event_type)}/{q(state_key)}"
        return str(self.call("PUT", path, content, **options)["event_id"])

    def state(self, room: str, event_type: str, state_key: str = "") -> Json:
        """Content of a current state event."""
        return self.call("GET", f"{V3}/rooms/{q(room)}/state/{q(event_type)}/{q(state_key)}")

    def redact(self, room: str, event_id: str, reason: str = "") -> str:
        """Redact an event; returns the redaction's event id."""
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
        """Forget a room this user left."""
        self.call("POST", f"{V3}/rooms/{q(room)}/forget")

    def invite(self, room: str, *others: "Client") -> None:
        """Invite users."""
        for other in others:
            self.call("POST", f"{V3}/rooms/{q(room)}/invite", {"user_id": other.user_id})

    def moderate(self, action: str, room: str, other: "Client", reason: str = "") -> None:
        """``kick``, ``ban`` or ``unban`` a user (kick also revokes an invitation)."""
        self.call("POST", f"{V3}/rooms/{q(room)}/{action}", {"user_id": other.user_id, "reason": reason})

    def set_account_data(self, data_type: str, content: Json, room: str | None = None) -> None:
        """Set account data of this user, of one room if ``room`` is given."""
        prefix = f"/rooms/{q(room)}" if room else ""
        self.call("PUT", f"{V3}/user/{q(self.user_id)}{prefix}/account_data/{q(data_type)}", content)

    def receipt(self, room: str, event_id: str, kind: str = "m.read", thread: str | None = None) -> None:
        """Send a receipt (``m.read`` or ``m.read.private``), of one thread if ``thread`` is given."""
        body = {"thread_id": thread} if thread else {}
        self.call("POST", f"{V3}/rooms/{q(room)}/receipt/{kind}/{q(event_id)}", body)

    def set_display_name(self, name: str) -> None:
        """Change the display name; a member event follows in every joined room."""
        self.call("PUT", f"{V3}/profile/{q(self.user_id)}/displayname", {"displayname": name})


def q(part: str) -> str:
    """``part`` quoted for use as one segment of a path."""
    return quote(part, safe="")
