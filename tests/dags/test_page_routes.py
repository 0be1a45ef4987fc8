"""The page in Airflow: the real API server's app answers each route to its users only."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.airflow import environment

ROUTES = (
    "/lakehouse/report/",
    "/lakehouse/data_docs/index.html",
    "/lakehouse/data_docs/missing.html",
    "/lakehouse/data_docs/..%2Fsecret",
    "/lakehouse/data_docs/%2Fetc%2Fpasswd",
    "/lakehouse/docs",
    "/lakehouse/openapi.json",
)

ASK = """
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
for token in ("", "wrong", "right", users["operator"]):
    answer = client.get("/lakehouse/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    answers["metrics " + (token if len(token) < 9 else "user")] = [answer.status_code, answer.text, {}]
views = [view for plugin in get_plugin_info() for view in plugin["external_views"]]
print(json.dumps({"answers": answers, "views": views}))
"""
USERS = {"reader": "viewer", "operator": "admin", "stranger": None}


@pytest.fixture(scope="module")
def asked(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each user gets from each route, and the plugins' views."""
    folder = tmp_path_factory.mktemp("page_routes")
    for name, content in {"report/index.html": "the page", "data_docs/index.html": "the docs", "secret": "x"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    arguments = [sys.executable, "-c", ASK, json.dumps(USERS), json.dumps(ROUTES)]
    with environment.prepare_airflow(Settings(_env_file=None, lakehouse_home=home)) as prepared:
        variables = prepared.environment | {"LAKEHOUSE_HOME": str(folder), "LAKEHOUSE_METRICS_TOKEN": "right"}
        result = subprocess.run(arguments, env=variables, text=True, capture_output=True, check=False, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    answers: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("user", ["anonymous", "forged", "stranger"])
def test_others_get_nothing(asked: dict[str, Any], user: str, route: str) -> None:
    status, text, _ = asked["answers"][f"{user} {route}"]
    assert status in ({404} if route in ROUTES[-2:] else {401, 403})
    assert not any(content in text for content in ("the page", "the docs"))


@pytest.mark.parametrize("user", ["reader", "operator"])
def test_readers_of_the_dag_see_the_page(asked: dict[str, Any], user: str) -> None:
    answers = [asked["answers"][f"{user} {route}"] for route in ROUTES]
    assert [answer[0] for answer in answers] == [200, 200, 404, 404, 404, 404, 404]
    assert [answer[1] for answer in answers[:2]] == ["the page", "the docs"]
    for _, _, headers in answers[:2]:
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"] == "frame-ancestors 'self'"
        assert headers["content-type"].startswith("text/html")


def test_the_menu_leads_to_the_page(asked: dict[str, Any]) -> None:
    (view,) = (view for view in asked["views"] if view["name"] == "Lakehouse")
    assert view["href"] == ROUTES[0]
    assert Path(view["url_route"]).name == "lakehouse"


def test_the_token_alone_reads_the_metrics(asked: dict[str, Any]) -> None:
    answers = {token: asked["answers"][f"metrics {token}"] for token in ("", "wrong", "right", "user")}
    assert {token: answer[0] for token, answer in answers.items()} == {"": 401, "wrong": 401, "user": 401, "right": 200}
    assert "# TYPE synapse_lakehouse_" in answers["right"][1]
    assert "# TYPE" not in answers[""][1] + answers["wrong"][1] + answers["user"][1]
