"""Settings of several homeservers: shared settings, own settings of a homeserver, and refused values."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from synapse_lakehouse.config.env_file import EnvFileError
from synapse_lakehouse.config.homeservers import (
    OWN_SETTINGS,
    PLACES,
    HomeserverError,
    explain_misnamed_files,
    list_homeservers,
    load_homeserver_settings,
    require_one_homeserver,
    require_own_places,
    select_homeserver,
)
from synapse_lakehouse.config.settings import Settings
from tests.support.homeserver_files import write_homeserver

OWN = {"synapse_dsn": "postgresql://reader@db/one", "synapse_server_name": "one.example"}
CATALOG = {"lakehouse_catalog_uri": "postgresql://lake@db/one"}

SELECT = """
import json, sys
from synapse_lakehouse.config.homeservers import list_homeservers, select_homeserver
from synapse_lakehouse.config.settings import Settings
select_homeserver("one")
print(json.dumps([Settings().to_environment(), list_homeservers()]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder LAKEHOUSE_HOMESERVERS. The working directory has no ``.env``."""
    monkeypatch.chdir(tmp_path)
    servers = tmp_path / "homeservers"
    servers.mkdir()
    monkeypatch.setenv("LAKEHOUSE_HOMESERVERS", str(servers))
    return servers


def test_names_are_in_order(folder: Path) -> None:
    for name in ("two", "one"):
        write_homeserver(folder, name, **OWN)
    (folder / "README.md").touch()
    (folder / ".env").touch()
    assert list_homeservers() == ["one", "two"]
    with pytest.raises(HomeserverError):
        require_one_homeserver()


def test_a_single_homeserver_needs_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEHOUSE_HOMESERVERS")
    assert list_homeservers() == []
    require_one_homeserver()


@pytest.mark.parametrize("name", ["One", ".#one", "-a", "a b", "../a", "é"])
def test_a_misnamed_file_is_no_homeserver_and_stops_no_other(folder: Path, name: str) -> None:
    write_homeserver(folder, "shop.example", **OWN)
    path = (folder / f"{name}.env").resolve()
    path.touch()
    assert list_homeservers() == ["shop.example"]
    is_listed = path.parent == folder and not name.startswith(".")
    assert explain_misnamed_files().keys() == ({path.name} if is_listed else set())
    with pytest.raises(HomeserverError):
        load_homeserver_settings(name)


def test_an_empty_folder_is_refused(folder: Path) -> None:
    with pytest.raises(HomeserverError):
        list_homeservers()
    folder.rmdir()
    with pytest.raises(HomeserverError):
        list_homeservers()


def test_a_file_overrides_shared_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_GAP_BUDGET", "7")
    monkeypatch.setenv("LAKEHOUSE_FEED_LENGTH", "70")
    (folder.parent / ".env").write_text("LAKEHOUSE_RECENT_ROOMS=5\nLAKEHOUSE_RECENT_EVENTS=5\n")
    properties = json.dumps({"s3.region": "eu"})
    write_homeserver(
        folder, "one", **OWN, **CATALOG, lakehouse_feed_length=9, lakehouse_recent_events=9,
        lakehouse_catalog_properties=properties,
    )  # fmt: skip
    settings = load_homeserver_settings("one")
    assert (settings.lakehouse_gap_budget, settings.lakehouse_recent_rooms) == (7, 5)
    assert (settings.lakehouse_feed_length, settings.lakehouse_recent_events) == (9, 9)
    assert settings.lakehouse_catalog_properties == {"s3.region": "eu"}
    assert settings.lake_folder == settings.lakehouse_home / "homeservers" / "one"


def test_own_settings_are_never_shared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_homeserver(folder, "one", **OWN, **CATALOG)
    values = {"lakehouse_source_disk_bytes": "500", "lakehouse_acknowledged_rooms": "!shared:example.org"}
    for name in OWN_SETTINGS:
        if name != "lakehouse_homeservers":
            monkeypatch.setenv(name.upper(), values.get(name, "shared"))
    for name in set(PLACES) - {"lakehouse_warehouse"}:
        monkeypatch.setenv(name.upper(), "/shared")
    settings = load_homeserver_settings("one")
    expected = OWN | CATALOG
    for name in (*OWN_SETTINGS, *PLACES):
        assert getattr(settings, name) == expected.get(name, Settings.model_fields[name].default), name


def test_shared_places_have_a_placeholder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_CATALOG_URI", "postgresql://lake:p%40@db/lake_{homeserver}")
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", "s3://bucket/{homeserver}")
    monkeypatch.setenv("LAKEHOUSE_METRICS_FILE", "/metrics/{homeserver}.prom")
    write_homeserver(folder, "one", **OWN)
    settings = load_homeserver_settings("one")
    assert settings.lakehouse_catalog_uri == "postgresql://lake:p%40@db/lake_one"
    assert settings.lakehouse_warehouse == "s3://bucket/one"
    assert settings.lakehouse_metrics_file == Path("/metrics/one.prom")


def test_each_homeserver_has_its_own_warehouse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        write_homeserver(folder, name, **OWN, lakehouse_catalog_uri=f"postgresql://lake@db/{name}")
    one, two = map(load_homeserver_settings, ("one", "two"))
    assert one.warehouse == (one.lake_folder.absolute() / "warehouse").as_uri() != two.warehouse
    monkeypatch.setenv("LAKEHOUSE_WAREHOUSE", "s3://bucket/lake")
    with pytest.raises(HomeserverError, match="LAKEHOUSE_WAREHOUSE"):
        load_homeserver_settings("one")
    write_homeserver(folder, "one", **OWN, **CATALOG, lakehouse_warehouse="s3://other/lake")
    assert load_homeserver_settings("one").warehouse == "s3://other/lake"


@pytest.mark.parametrize(
    ("uri", "warehouses", "is_refused"),
    [
        ("postgresql://lake@db/one", ("/a", "/b"), True),
        ("postgres://lake@DB:5432/one", ("/a", "/b"), True),
        ("postgresql://other:password@db/one?sslmode=require", ("/a", "/b"), True),
        ("host=db dbname=one", ("/a", "/b"), True),
        ("postgresql:///one", ("/a", "/b"), True),
        ("postgresql://lake@db:5433/one", ("/a", "/b"), False),
        ("postgresql://lake@db/one?options=-csearch_path%3Dtwo", ("/a", "/b"), False),
        ("postgresql://lake@db/two", ("/a", "/b"), False),
        ("postgresql://lake@db/two", ("/a", "file:///a/"), True),
        ("postgresql://lake@db/two", ("s3://a/b", "s3://a/b/"), True),
        ("http://catalog", ("a", "a"), False),
    ],
)
def test_two_homeservers_have_two_catalogs(
    folder: Path, uri: str, warehouses: tuple[str, str], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "db")
    for name, catalog, warehouse in zip(("one", "two"), ("postgresql://lake@db/one", uri), warehouses, strict=True):
        write_homeserver(folder, name, **OWN, lakehouse_catalog_uri=catalog, lakehouse_warehouse=warehouse)
    (folder / "broken.env").write_bytes(b"\xe9")
    with pytest.raises(HomeserverError, match="two") if is_refused else nullcontext():
        require_own_places(load_homeserver_settings("one"))


@pytest.mark.parametrize(("warehouse", "is_refused"), [("a", True), ("b", False)])
def test_a_rest_server_may_have_several_catalogs(folder: Path, warehouse: str, is_refused: bool) -> None:
    for name, location in (("one", "a"), ("two", warehouse)):
        write_homeserver(folder, name, **OWN, lakehouse_catalog_uri="http://catalog", lakehouse_warehouse=location)
    with pytest.raises(HomeserverError, match="LAKEHOUSE_CATALOG_URI") if is_refused else nullcontext():
        require_own_places(load_homeserver_settings("one"))


def test_two_homeservers_have_two_metrics_files(folder: Path) -> None:
    for name in ("one", "two"):
        settings = {
            "lakehouse_catalog_uri": "postgresql://db/{homeserver}",
            "lakehouse_metrics_file": "metrics/../m.prom",
        }
        write_homeserver(folder, name, **OWN, **settings)
    assert load_homeserver_settings("two").lakehouse_catalog_uri == "postgresql://db/two"
    with pytest.raises(HomeserverError, match="LAKEHOUSE_METRICS_FILE"):
        require_own_places(load_homeserver_settings("one"))


@pytest.mark.parametrize("missing", ["synapse_dsn", "synapse_server_name", "lakehouse_catalog_uri"])
def test_each_file_must_have_the_required_settings(folder: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(missing.upper(), "postgresql://shared@db/shared")
    values = OWN | CATALOG
    del values[missing]
    write_homeserver(folder, "one", **values)
    with pytest.raises(HomeserverError, match=missing.upper()):
        load_homeserver_settings("one")


def test_invalid_files_are_refused(folder: Path) -> None:
    write_homeserver(folder, "misspelled", **OWN, **CATALOG, lakehouse_gap_bugdet=3)
    write_homeserver(folder, "invalid", **OWN, **CATALOG, lakehouse_gap_budget="many")
    (folder / "latin.env").write_bytes(b"SYNAPSE_SERVER_NAME=\xe9")
    with pytest.raises(HomeserverError, match="LAKEHOUSE_GAP_BUDGET"):
        load_homeserver_settings("misspelled")
    with pytest.raises(HomeserverError, match=r"invalid\.env .*LAKEHOUSE_GAP_BUDGET: .*integer") as error_info:
        load_homeserver_settings("invalid")
    assert "many" not in str(error_info.value)
    with pytest.raises(EnvFileError):
        load_homeserver_settings("latin")


def test_a_process_selects_a_homeserver(folder: Path) -> None:
    write_homeserver(folder, "one", **OWN, **CATALOG)
    (folder.parent / ".env").write_text("LAKEHOUSE_REDIS_URL=redis://shared\nLAKEHOUSE_GAP_BUDGET=7\n")
    shared_variables = {"SYNAPSE_WRITE_DSN": "postgresql://shared@db/shared", "LAKEHOUSE_HOMESERVER": "one"}
    result = subprocess.run(
        [sys.executable, "-c", SELECT], env=os.environ | shared_variables, text=True, capture_output=True, check=True
    )
    environment, names = json.loads(result.stdout)
    assert environment == load_homeserver_settings("one").to_environment()
    assert environment["LAKEHOUSE_GAP_BUDGET"] == "7"
    assert not {"SYNAPSE_WRITE_DSN", "LAKEHOUSE_REDIS_URL", "LAKEHOUSE_HOMESERVERS"} & environment.keys()
    assert names == []


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfSYNAPSE_DSN=x\nSYNAPSE_SERVER_NAME=one.example\n",
        b"SYNAPSE_DSN=x\r\nSYNAPSE_SERVER_NAME=one.example\r\n",
        b"export SYNAPSE_DSN=x\nexport SYNAPSE_SERVER_NAME=one.example\n",
        b"SYNAPSE_DSN=first\nSYNAPSE_DSN=x\nsynapse_server_name='one.example' # main\n",
        b"HOST=one\nSYNAPSE_DSN=x\nSYNAPSE_SERVER_NAME=${HOST}.example\n",
    ],
    ids=["byte order mark", "CRLF", "export", "duplicate", "interpolation"],
)
def test_a_file_may_have_other_forms(folder: Path, text: bytes) -> None:
    (folder / "one.env").write_bytes(text + b"LAKEHOUSE_CATALOG_URI=http://catalog\n")
    settings = load_homeserver_settings("one")
    assert (settings.synapse_dsn, settings.synapse_server_name) == ("x", "one.example")
    assert settings.lakehouse_catalog_uri == "http://catalog"


@pytest.mark.parametrize(
    "line", ["SYNAPSE_DSN postgresql://db", "SYNAPSE_DSN: x", "SYNAPSE_DSN='x", 'SYNAPSE_DSN="x" y']
)
def test_a_line_that_would_be_ignored_is_refused(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "one.env").write_text(f"# the first\n\n{line}\nSYNAPSE_SERVER_NAME=one.example\n")
    with pytest.raises(EnvFileError, match=r"one\.env, line 3") as error_info:
        load_homeserver_settings("one")
    assert "db" not in str(error_info.value)
    (folder / "one.env").rename(".env")
    with pytest.raises(EnvFileError, match=r"/\.env, line 3"):
        Settings()
    monkeypatch.setenv("LAKEHOUSE_HOMESERVER", "one")
    assert Settings().lakehouse_homeserver == "one"


@pytest.mark.parametrize("variable", ["PGPASSWORD", "AWS_SECRET_ACCESS_KEY"])
def test_variables_that_are_read_from_the_environment_are_refused_in_a_file(folder: Path, variable: str) -> None:
    write_homeserver(folder, "one", **OWN, **CATALOG, **{variable.lower(): "hidden"})
    with pytest.raises(HomeserverError, match=variable) as error_info:
        load_homeserver_settings("one")
    assert "hidden" not in str(error_info.value)


def test_a_variable_of_aws_may_be_part_of_a_setting(folder: Path) -> None:
    properties = '{"s3.secret-access-key": "${AWS_SECRET_ACCESS_KEY}"}'
    own = {"aws_secret_access_key": "secret", "lakehouse_catalog_properties": properties}
    write_homeserver(folder, "one", **OWN, **CATALOG, **own)
    assert load_homeserver_settings("one").lakehouse_catalog_properties == {"s3.secret-access-key": "secret"}


def test_a_folder_is_no_homeserver(folder: Path) -> None:
    write_homeserver(folder, "one", **OWN)
    (folder / "two.env").mkdir()
    assert list_homeservers() == ["one"]
    assert explain_misnamed_files().keys() == {"two.env"}


def test_a_name_without_a_folder_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEHOUSE_HOMESERVERS")
    with pytest.raises(HomeserverError, match="LAKEHOUSE_HOMESERVERS is not set"):
        select_homeserver("one")
