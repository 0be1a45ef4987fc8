"""Receivers of alerts, of the kinds that operators have: a webhook, a mail server, and a homeserver's client API."""

import email
import email.policy
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, TCPServer, ThreadingTCPServer
from typing import Any

_RESPONSE = {
    "access_token": "token", "user_id": "@alerts:example.org", "device_id": "device", "room_id": "!alerts:example.org",
    "event_id": "$alert", "joined_rooms": ["!alerts:example.org"],
}  # fmt: skip
"""Response to each request of a Matrix client that sends a message."""


@dataclass
class Receivers:
    """Received requests and mails.

    ``urls`` are the addresses for Apprise. ``posted`` are the JSON documents that the webhook received. ``matrix`` are
    the contents of the received events.
    """

    urls: list[str] = field(default_factory=list)
    posted: list[dict[str, Any]] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)
    matrix: list[dict[str, Any]] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """Yield every text of the received alerts, decoded."""
        for document in (*self.posted, *self.matrix):
            yield from (value for value in document.values() if isinstance(value, str))
        for mail in self.mails:
            yield str(mail["Subject"])
            yield from (part.get_content() for part in mail.walk() if part.get_content_maintype() == "text")


@contextmanager
def receivers() -> Iterator[Receivers]:
    """Run one receiver of each kind, on free ports of 127.0.0.1."""
    received = Receivers()
    with ExitStack() as stack:
        webhook, mail, matrix = (
            stack.enter_context(_running(server))
            for server in (
                ThreadingHTTPServer(("127.0.0.1", 0), _http(received.posted, {})),
                ThreadingTCPServer(("127.0.0.1", 0), mail_handler(received.mails)),
                ThreadingHTTPServer(("127.0.0.1", 0), _http(received.matrix, _RESPONSE)),
            )
        )
        received.urls += [
            f"json://127.0.0.1:{webhook}/alerts",
            f"mailto://127.0.0.1:{mail}?from=lakehouse@example.org&to=operator@example.org",
            f"matrix://alerts:password@127.0.0.1:{matrix}/!alerts:example.org?discovery=no",
        ]
        yield received


def mail_handler(inbox: list[EmailMessage]) -> type[StreamRequestHandler]:
    """Return the handler of a mail server: RFC 5321 without extensions."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.reply("220 ready")
            for line in self.rfile:
                match line[:4].upper():
                    case b"DATA":
                        self.reply("354 go on")
                        mail = b"".join(iter(self.rfile.readline, b".\r\n"))
                        inbox.append(email.message_from_bytes(mail, policy=email.policy.default))
                        self.reply("250 taken")
                    case b"QUIT":
                        self.reply("221 bye")
                        return
                    case _:
                        self.reply("250 ok")

        def reply(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    return Handler


def _http(received: list[dict[str, Any]], response: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._receive()

        def do_PUT(self) -> None:
            self._receive()

        def do_GET(self) -> None:
            self._respond()

        def _receive(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            # A Matrix client also logs in and joins.
            if not response or "/send/" in self.path:
                received.append(document)
            self._respond()

        def _respond(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(response).encode())

        def log_message(self, *arguments: object) -> None:
            """Write nothing."""

    return Handler


@contextmanager
def _running(server: TCPServer) -> Iterator[int]:
    """Run a server; yield its port."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
