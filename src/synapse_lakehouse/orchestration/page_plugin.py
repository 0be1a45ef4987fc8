"""Airflow plugin with the page of the lakehouse: the menu entry "Lakehouse", and the routes that serve the page.

The entry point in pyproject.toml registers the plugin with Airflow. Airflow does not protect the routes of plugins:
each route here requires a user that may read the DAG ``lakehouse``, or the token for metrics.
"""

from airflow.plugins_manager import AirflowPlugin
from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/lakehouse"


class LazyPageApp:
    """The routes. The first request imports them, because every process of Airflow loads plugins, even of a task."""

    _app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        if self._app is None:
            from synapse_lakehouse.orchestration.page_routes import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


class PagePlugin(AirflowPlugin):
    """Adds the page to Airflow's menu."""

    name = "synapse_lakehouse_page"
    fastapi_apps = [{"name": "Lakehouse", "app": LazyPageApp(), "url_prefix": PREFIX}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Lakehouse", "href": f"{PREFIX}/report/", "destination": "nav", "url_route": "lakehouse"}
    ]
