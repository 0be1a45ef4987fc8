"""The routes of the page, of the Data Docs and of the metrics in Airflow.

A user that may read the DAG ``lakehouse`` of a homeserver sees its page and its Data Docs. Prometheus is not a user. It
reads the metrics with the token in LAKEHOUSE_METRICS_TOKEN.
"""

from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError

from synapse_lakehouse.config import homeservers
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
from synapse_lakehouse.metrics.render import render_metrics
from synapse_lakehouse.report import overview
from synapse_lakehouse.report.page_location import get_page_path

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_NO_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Lakehouse</title>"
    "<p>There is no page yet. Each run that publishes a release writes the page: trigger the DAG {dag_id}.</p></html>"
)


def create_app() -> FastAPI:
    """Return the app. If the installation has several homeservers, each has its own routes."""
    app = FastAPI(title="Lakehouse", openapi_url=None)
    path = ""
    if homeservers.list_homeservers():
        path = "/homeservers/{homeserver}"
        app.get("/report/")(send_overview)
    app.get(f"{path}/report/")(send_page)
    app.get(f"{path}/data_docs/{{name:path}}")(send_data_docs)
    app.get(f"{path}/metrics")(send_metrics)
    return app


def _load_settings(request: Request) -> Settings:
    name = request.path_params.get("homeserver", "")
    if not name:
        return Settings()
    try:
        return homeservers.load_homeserver_settings(name)
    except homeservers.UnknownHomeserverError:
        raise HTTPException(404) from None
    except (LakehouseError, ValidationError):
        raise HTTPException(
            503, "The settings of this homeserver are wrong: `lakehouse homeservers` shows the reason."
        ) from None


def _load_readable_settings(request: Request, user: GetUserDep) -> Settings:
    name = request.path_params.get("homeserver") or Settings().lakehouse_homeserver
    dag_id = homeservers.get_dag_id("lakehouse", name)
    requires_access_dag("GET", None, dag_id)(request, user)
    return _load_settings(request)


def _load_scraped_settings(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> Settings:
    """Return the settings for Prometheus. Without the token, the answer does not show whether a homeserver exists."""
    try:
        settings, failure = _load_settings(request), None
    except HTTPException as error:
        settings, failure = Settings(), error
    token, received = settings.lakehouse_metrics_token, credentials.credentials if credentials else ""
    if not token or not compare_digest(token.encode(), received.encode()):
        raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})
    if failure:
        raise failure
    return settings


def send_page(settings: Annotated[Settings, Depends(_load_readable_settings)]) -> Response:
    """Send the page of a homeserver."""
    path = get_page_path(settings.lake_folder)
    missing = _NO_PAGE.format(dag_id=homeservers.get_dag_id("lakehouse", settings.lakehouse_homeserver))
    return _send(path) if path.is_file() else HTMLResponse(missing, headers=_HEADERS)


def send_data_docs(name: str, settings: Annotated[Settings, Depends(_load_readable_settings)]) -> Response:
    """Send a file of the Data Docs."""
    folder = (settings.lake_folder / "data_docs").resolve()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise HTTPException(404)
    return _send(path)


def send_metrics(settings: Annotated[Settings, Depends(_load_scraped_settings)]) -> Response:
    """Send the metrics."""
    try:
        with open_duckdb(settings) as connection:
            return PlainTextResponse(render_metrics(connection, settings), headers=_HEADERS)
    except LakehouseError:
        doctor = homeservers.format_command("doctor", settings.lakehouse_homeserver)
        raise HTTPException(503, f"The lake cannot be read: {doctor} shows the reason.") from None


def send_overview(user: GetUserDep) -> Response:
    """Send the overview of all homeservers whose DAG the user may read."""
    names = [
        name
        for name in homeservers.list_homeservers()
        if get_auth_manager().is_authorized_dag(
            method="GET", details=DagDetails(id=homeservers.get_dag_id("lakehouse", name)), user=user
        )
    ]
    return HTMLResponse(overview.render_overview(overview.read_overview(names)), headers=_HEADERS)


def _send(path: Path) -> FileResponse:
    return FileResponse(path, headers=_HEADERS)
