"""The routes of the page and of the Data Docs in Airflow, for users that may read the DAG ``lakehouse``."""

from pathlib import Path
from typing import Final

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, Response

from synapse_lakehouse.config.settings import Settings
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
    """Return the app with all routes; the dependency of the app guards each of them."""
    app = FastAPI(
        title="Lakehouse",
        openapi_url=None,
        dependencies=[Depends(requires_access_dag("GET", None, "lakehouse"))],
    )

    @app.get("/report/")
    def page() -> Response:
        path = get_page_path(Settings().lakehouse_home)
        return _send(path) if path.is_file() else HTMLResponse(_NO_PAGE, headers=_HEADERS)

    @app.get("/data_docs/{name:path}")
    def data_docs(name: str) -> Response:
        folder = (Settings().lakehouse_home / "data_docs").resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        return _send(path)

    return app


def _send(path: Path) -> FileResponse:
    return FileResponse(path, headers=_HEADERS)
