"""The page in Airflow: the API server serves each route to authorized users only."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.airflow import prepare_airflow
from tests.support.homeserver_files import write_homeserver

ROUTES = (
    "/lakehouse/report/",
    "/lakehouse/data_docs/index.html",
    "/lakehouse/metrics",
    "/lakehouse/data_docs/missing.html",
    "/lakehouse/data_docs/..%2Fsecret",
    "/lakehouse/data_docs/%2Fetc%2Fpasswd",
    "/lakehouse/docs",
    "/lakehouse/openapi.json",
)
SEVERAL_ROUTES = (
    "/lakehouse/report/",
    "/lakehouse/homeservers/one/report/",
    "/lakehouse/homeservers/two/report/",
    "/lakehouse/homeservers/three/report/",
    "/lakehouse/homeservers/wrong/report/",
    "/lakehouse/homeservers/..%2Fone/report/",
    "/lakehouse/homeservers/one/data_docs/..%2F..%2Fone.env",
    "/lakehouse/data_docs/index.html",
    *(
        f"/lakehouse/homeservers/{name}/{page}"
        for page in ("data_docs/index.html", "metrics")
        for name in ("one", "two", "three", "wrong")
    ),
)

REQUEST_SCRIPT = """
import json, sys
from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.plugins_manager import get_plugin_info
from fastapi.testclient import TestClient

client = TestClient(create_app(apps="core"), base_url="http://localhost", follow_redirects=False)
manager = get_auth_manager()
users = {
    name: manager.generate_jwt(SimpleAuthManagerUser(username=name, role=role))
    for name, role in json.loads(sys.argv[1]).items()
}
answers = {}
for name, token in {"anonymous": None, "forged": "a.b.c", **users}.items():
    for route in json.loads(sys.argv[2]):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = client.get(route, headers=headers)
        answers[f"{name} {route}"] = [answer.status_code, answer.text, dict(answer.headers)]
        if token and name in users:
            by_cookie = client.get(route, headers={"Cookie": f"_token={token}"})
            assert by_cookie.status_code == answer.status_code
        client.cookies.clear()
for token in ("", "wrong", "right", "own"):
    for route in (route for route in json.loads(sys.argv[2]) if route.endswith("/metrics")):
        answer = client.get(route, headers={"Authorization": f"Bearer {token}"} if token else {})
        answers[f"token {token} {route}"] = [answer.status_code, answer.text, {}]
views = [view for plugin in get_plugin_info() for view in plugin["external_views"]]
print(json.dumps({"answers": answers, "views": views}))
"""
USERS = {"reader": "viewer", "operator": "admin", "stranger": None}


@pytest.fixture(scope="module")
def responses(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the response to each user and route, and the views of plugins."""
    folder = tmp_path_factory.mktemp("page_routes")
    for name, content in {"report/index.html": "the page", "data_docs/index.html": "the docs", "secret": "x"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return request_routes(home, folder, ROUTES)


@pytest.fixture(scope="module")
def responses_of_several(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the responses of an installation with two homeservers to each user and route."""
    folder = tmp_path_factory.mktemp("homeservers")
    files = folder / "homeservers"
    for name, settings in (("one", {}), ("two", {"lakehouse_metrics_token": "own"})):
        for page in ("report", "data_docs"):
            (files / name / page).mkdir(parents=True)
            (files / name / page / "index.html").write_text(f"the {page} of {name}")
        write_homeserver(
            files, name, synapse_dsn="postgresql://r@db/one", synapse_server_name=f"{name}.example",
            lakehouse_catalog_uri=f"postgresql://lake@127.0.0.1:1/{name}", **settings,
        )  # fmt: skip
    write_homeserver(files, "wrong", synapse_dsn="postgresql://r@db/one")
    return request_routes(home, folder, SEVERAL_ROUTES, files)


def request_routes(home: Path, folder: Path, routes: Sequence[str], files: Path | None = None) -> dict[str, Any]:
    """Return the responses of ``routes`` with LAKEHOUSE_HOME ``folder``."""
    arguments = [sys.executable, "-c", REQUEST_SCRIPT, json.dumps(USERS), json.dumps(routes)]
    variables = {"LAKEHOUSE_HOME": str(folder), "LAKEHOUSE_METRICS_TOKEN": "right"}
    settings = Settings(_env_file=None, lakehouse_home=home, lakehouse_homeservers=files)
    with prepare_airflow.prepare_airflow(settings) as airflow:
        result = subprocess.run(
            arguments, env=airflow.environment | variables, text=True, capture_output=True, check=False,
            cwd=folder,
        )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    responses: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return responses


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("user", ["anonymous", "forged", "stranger"])
def test_other_users_get_nothing(responses: dict[str, Any], user: str, route: str) -> None:
    status, text, _ = responses["answers"][f"{user} {route}"]
    assert status in ({404} if route in ROUTES[-2:] else {401, 403})
    assert not any(content in text for content in ("the page", "the docs"))


@pytest.mark.parametrize("user", ["reader", "operator"])
def test_readers_of_the_dag_see_the_page(responses: dict[str, Any], user: str) -> None:
    answers = [responses["answers"][f"{user} {route}"] for route in ROUTES]
    assert [answer[0] for answer in answers] == [200, 200, 401, 404, 404, 404, 404, 404]
    assert [answer[1] for answer in answers[:2]] == ["the page", "the docs"]
    for _, _, headers in answers[:2]:
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"] == "frame-ancestors 'self'"
        assert headers["content-type"].startswith("text/html")


def test_the_menu_links_to_the_page(responses: dict[str, Any]) -> None:
    (view,) = (view for view in responses["views"] if view["name"] == "Lakehouse")
    assert view["href"] == ROUTES[0]
    assert Path(view["url_route"]).name == "lakehouse"


def test_the_token_alone_reads_the_metrics(responses: dict[str, Any]) -> None:
    answers = {
        token: responses["answers"][f"token {token} /lakehouse/metrics"] for token in ("", "wrong", "right", "own")
    }
    assert {token: answer[0] for token, answer in answers.items()} == {"": 401, "wrong": 401, "own": 401, "right": 200}
    assert "# TYPE synapse_lakehouse_" in answers["right"][1]
    assert "# TYPE" not in answers[""][1] + answers["wrong"][1] + answers["own"][1]


@pytest.mark.parametrize(
    ("token", "statuses"),
    [("", [401] * 4), ("wrong", [401] * 4), ("right", [503, 401, 404, 503]), ("own", [401, 503, 401, 401])],
)
def test_a_token_reads_metrics_of_its_homeservers(
    responses_of_several: dict[str, Any], token: str, statuses: list[int]
) -> None:
    # No lake of these homeservers can be reached.
    answers = [responses_of_several["answers"][f"token {token} {route}"] for route in SEVERAL_ROUTES[-4:]]
    assert [answer[0] for answer in answers] == statuses
    assert len({answer[1] for answer in answers if answer[0] == 401}) <= 1


@pytest.mark.parametrize("user", ["anonymous", "forged", "stranger"])
@pytest.mark.parametrize("routes", [SEVERAL_ROUTES[1:5], SEVERAL_ROUTES[8:12], SEVERAL_ROUTES[12:]])
def test_responses_to_other_users_name_no_homeserver(
    responses_of_several: dict[str, Any], user: str, routes: Sequence[str]
) -> None:
    answers = [responses_of_several["answers"][f"{user} {route}"] for route in routes]
    assert answers[0][0] in {401, 403}
    assert {(status, text) for status, text, _ in answers} == {tuple(answers[0][:2])}


@pytest.mark.parametrize("user", ["anonymous", "forged", "stranger"])
def test_other_users_see_no_homeserver(responses_of_several: dict[str, Any], user: str) -> None:
    for route in SEVERAL_ROUTES:
        status, text, _ = responses_of_several["answers"][f"{user} {route}"]
        assert status in {401, 403, 404} or (user == "stranger" and route == "/lakehouse/report/")
        assert not any(secret in text for secret in ("the report of", "the data_docs of", "one.example", "postgresql"))


@pytest.mark.parametrize("user", ["reader", "operator"])
def test_each_homeserver_has_its_page(responses_of_several: dict[str, Any], user: str) -> None:
    answers = [responses_of_several["answers"][f"{user} {route}"] for route in SEVERAL_ROUTES]
    assert [answer[0] for answer in answers[:8]] == [200, 200, 200, 404, 503, 404, 404, 404]
    assert [answer[0] for answer in answers[8:]] == [200, 200, 404, 503, 401, 401, 401, 401]
    assert [answer[1] for answer in answers[1:3]] == ["the report of one", "the report of two"]
    assert [answer[1] for answer in answers[8:10]] == ["the data_docs of one", "the data_docs of two"]
    for name in ("one", "two"):
        assert f'href="../homeservers/{name}/report/"' in answers[0][1]
        assert f"{name}.example" in answers[0][1]
