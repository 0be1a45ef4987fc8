"""Airflow plugin that refuses requests for unknown hosts, to prevent DNS rebinding.

The entry point in pyproject.toml registers the plugin with Airflow.
"""

from airflow.plugins_manager import AirflowPlugin
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from synapse_lakehouse.config.settings import Settings

LOCAL = ("127.0.0.1", "localhost")


class TrustedHostsMiddleware:
    """Answers 400 unless the request has one ``Host`` header with a local name or a name in LAKEHOUSE_UI_HOSTS."""

    def __init__(self, app: ASGIApp) -> None:
        # Invalid settings must stop the server, as an error here does. Airflow ignores a plugin whose module fails to
        # load.
        hosts = [*LOCAL, *Settings().lakehouse_ui_hosts.split()]
        self._checked = TrustedHostMiddleware(app, allowed_hosts=hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in {"http", "websocket"} and len(Headers(scope=scope).getlist("host")) != 1:
            await PlainTextResponse("Invalid host header", status_code=400)(scope, receive, send)
        else:
            await self._checked(scope, receive, send)


class TrustedHostsPlugin(AirflowPlugin):
    """Adds :class:`TrustedHostsMiddleware` to all routes: pages, REST API, execution API and login."""

    name = "synapse_lakehouse_trusted_hosts"
    fastapi_root_middlewares = [{"name": "trusted hosts", "middleware": TrustedHostsMiddleware}]  # noqa: RUF012
