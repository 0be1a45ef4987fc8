"""The routes of the page, of the Data Docs and of the metrics in Airflow.

A user that may read the DAG ``lakehouse`` sees the page and the Data Docs. Prometheus has no user: the token in
LAKEHOUSE_METRICS_TOKEN reads the metrics.
"""

from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Final

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
from synapse_lakehouse.metrics.render import render_metrics
from synapse_lakehouse.report.page_location import get_page_path

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_NO_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Lakehouse</title>"
    "<p>There is no page yet. Each release writes it: trigger the DAG lakehouse, or run make run.</p></html>"
)


def create_app() -> FastAPI:
    """Return the app with all routes."""
    may_read = [Depends(requires_access_dag("GET", None, "lakehouse"))]
    app = FastAPI(title="Lakehouse", openapi_url=None)

    @app.get("/report/", dependencies=may_read)
    def page() -> Response:
        path = get_page_path(Settings().lakehouse_home)
        return _send(path) if path.is_file() else HTMLResponse(_NO_PAGE, headers=_HEADERS)

    @app.get("/data_docs/{name:path}", dependencies=may_read)
    def data_docs(name: str) -> Response:
        folder = (Settings().lakehouse_home / "data_docs").resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        return _send(path)

    @app.get("/metrics")
    def metrics(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> Response:
        settings = Settings()
        token, received = settings.lakehouse_metrics_token, credentials.credentials if credentials else ""
        if not token or not compare_digest(token.encode(), received.encode()):
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})
        with open_duckdb(settings) as connection:
            return PlainTextResponse(render_metrics(connection, settings), headers=_HEADERS)

    return app


def _send(path: Path) -> FileResponse:
    return FileResponse(path, headers=_HEADERS)
