"""Airflow's API server refuses requests for unknown hosts: no web page reaches it by DNS rebinding.

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
    """Refuses a request with 400 unless its only ``Host`` is local or in LAKEHOUSE_UI_HOSTS; the port may be any."""

    def __init__(self, app: ASGIApp) -> None:
        # Wrong settings end the server here. A plugin that fails while it is loaded would only be left out.
        hosts = [*LOCAL, *Settings().lakehouse_ui_hosts.split()]
        self._checked = TrustedHostMiddleware(app, allowed_hosts=hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in {"http", "websocket"} and len(Headers(scope=scope).getlist("host")) != 1:
            await PlainTextResponse("Invalid host header", status_code=400)(scope, receive, send)
        else:
            await self._checked(scope, receive, send)


class TrustedHostsPlugin(AirflowPlugin):
    """Adds :class:`TrustedHostsMiddleware` before every route: pages, REST API, execution API and login."""

    name = "synapse_lakehouse_trusted_hosts"
    fastapi_root_middlewares = [{"name": "trusted hosts", "middleware": TrustedHostsMiddleware}]  # noqa: RUF012
