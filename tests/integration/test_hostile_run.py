"""All output of a whole run on a database that contains only hostile text is harmless."""

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.output import OutputFormat
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.postgres.access.grants import build_grants_sql
from tests.conftest import environment, lakehouse
from tests.support import hostile_source, hostile_text
from tests.support.alert_receivers import Receivers, receivers
from tests.support.hostile_commands import ELSEWHERE, QUOTING, TRIED, commands
from tests.support.tap import run_replicate

READER = "hostile_reader"
FORGED = re.compile(r"^(error|progress): forged", re.MULTILINE)
"""A line that starts after a line break inside a text."""
HOSTILE_LINE = hostile_text.ALL.replace("\n", " ")


def test_every_command_is_listed() -> None:
    assert commands().keys() == {*TRIED, *ELSEWHERE}
    assert {*TRIED}.isdisjoint(ELSEWHERE)
    assert set(TRIED) >= QUOTING


@dataclass
class HostileLake:
    """A lake after a published run and a refused run. ``owner`` may write to the database."""

    settings: Settings
    owner: str
    outputs: list[subprocess.CompletedProcess[str]] = field(default_factory=list)
    alerts: Receivers = field(default_factory=Receivers)


@pytest.fixture(scope="module")
def lake(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLake]:
    own_home = tmp_path_factory.mktemp("hostile")
    (own_home / "spark").symlink_to((home / "spark").resolve())
    with embedded_postgres.run_server(tmp_path_factory.mktemp("hostile_source")) as server, receivers() as alerts:
        owner = sample.restore_sample(server)
        with psycopg.connect(owner) as connection:
            connection.execute(build_grants_sql(catalogue.load_catalogue(), Settings(_env_file=None), READER).encode())
            connection.execute(f"alter role {READER} password 'p'".encode())
            hostile_source.plant(connection)
        settings = Settings(
            _env_file=None,
            lakehouse_home=own_home,
            synapse_dsn=make_conninfo(owner, user=READER, password="p"),
            synapse_server_name=sample.read_server_name(),
            synapse_config=sample.SAMPLE_CONFIG,
            lakehouse_alert_urls=" ".join(alerts.urls),
        )
        hostile_lake = HostileLake(settings, owner, [lakehouse(settings, "run")], alerts)
        with psycopg.connect(owner) as connection:
            hostile_source.plant_refusal(connection)
        hostile_lake.outputs.append(lakehouse(settings, "run"))
        with psycopg.connect(owner) as connection:
            hostile_source.remove_refusal(connection)
        yield hostile_lake


@pytest.mark.heavy
def test_a_run_is_published_and_a_refused_one_is_explained(lake: HostileLake) -> None:
    published, refused = lake.outputs
    assert (published.returncode, refused.returncode) == (0, 1), published.stdout + refused.stdout
    for output in lake.outputs:
        _require_harmless(output.stdout + output.stderr)
        assert "forged" in output.stdout + output.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("command", TRIED)
def test_every_command_is_harmless(
    lake: HostileLake, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables = environment(lake.settings) | {"SYNAPSE_WRITE_DSN": lake.owner}
    quotes = False
    forms: list[OutputFormat | None] = [*commands()[command]]
    for arguments in TRIED[command]:
        for form in forms or [None]:
            options = ["--format", form] if form else []
            result = CliRunner().invoke(app, [*command.split(), *arguments, *options], env=variables)
            assert result.exit_code in (0, 1, 2, 3), (arguments, result.output)
            assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
            assert "Traceback" not in result.output
            _require_harmless(result.output)
            _require_parseable(result, form)
            quotes |= result.exit_code in (0, 3) and bool(re.search("forged|x1b|u001b", result.output))
    assert quotes or command not in QUOTING


@pytest.mark.heavy
def test_alerts_are_harmless_for_every_kind_of_sink(lake: HostileLake) -> None:
    alerts = lake.alerts
    assert alerts.posted
    assert len(alerts.posted) == len(alerts.mails) == len(alerts.matrix)
    texts = list(alerts.texts())
    assert any("forged" in text for text in texts)
    for text in texts:
        _require_harmless(text.replace("\r\n", "\n"))
        assert "@" not in text
        assert not re.search(r"<(script|img|b)\b", text)
        assert "](" not in text
        assert not re.search("https?://evil", text)


@pytest.mark.heavy
def test_pages_of_data_docs_run_nothing_and_link_nowhere(lake: HostileLake) -> None:
    pages = list((lake.settings.lakehouse_home / "data_docs").rglob("*.html"))
    assert any("forged" in page.read_text() for page in pages)
    for page in pages:
        text = page.read_text()
        _require_harmless(re.sub(r"[\t\r]", " ", text))
        assert "evil.example" not in _ActiveContent.list_in(text)
        assert "alert(1)" not in _ActiveContent.list_in(text)


@pytest.mark.heavy
def test_logs_of_runs_and_of_tasks_are_lines_of_the_product(lake: HostileLake) -> None:
    home = lake.settings.lakehouse_home
    logs = [*(home / "logs").rglob("*"), *(home / "airflow" / "logs").rglob("*"), *(home / "dbt" / "logs").rglob("*")]
    files = [file for file in logs if file.is_file()]
    assert any("forged" in file.read_text() for file in files)
    for file in files:
        text = file.read_text()
        assert not FORGED.search(text), file
        assert not hostile_text.list_unprintable(re.sub(r"\x1b\[\d+m|\t", "", text)), file


@pytest.mark.heavy
@pytest.mark.parametrize("dialect", ["tokens", "instances"])
def test_logs_of_replication_are_lines_of_the_product(lake: HostileLake, dialect: str) -> None:
    with run_replicate(lake.settings, "serve", "--dialect", dialect, "--port", "0") as (line, serve):
        port = line.partition("127.0.0.1:")[2].partition(",")[0]
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as client:
            client.sendall(f"NAME {HOSTILE_LINE}\nUSER_SYNC {HOSTILE_LINE}\n{HOSTILE_LINE}\nREPLICATE\n".encode())
            client.sendall(b"REPLICATE receipts 0\n" * (dialect == "tokens"))
            # The client gets an error for an unknown command, or the rows.
            assert client.recv(1 << 16)
        with run_replicate(lake.settings, "tap", "--dialect", dialect, "--port", port) as (_, tap):
            _wait_for_commands(lake.settings)
            tap.send_signal(signal.SIGTERM)
            logs = [line, *tap.communicate(timeout=60)]
        serve.send_signal(signal.SIGTERM)
        logs += serve.communicate(timeout=60)
    assert re.search("forged|x1b", "".join(logs))
    for log in logs:
        _require_harmless(log)


def _wait_for_commands(settings: Settings) -> None:
    """Wait until the tap has written a command to the lake."""
    deadline = time.monotonic() + 120
    with connect_services(settings) as resolved, closing(open_catalog(resolved)) as catalog:
        while True:
            table = load_table_or_none(catalog, COMMANDS_TABLE)
            if table and table.scan().to_arrow().num_rows:
                return
            assert time.monotonic() < deadline
            time.sleep(0.5)


def _require_harmless(text: str) -> None:
    assert not hostile_text.list_unprintable(text)
    assert not FORGED.search(text)


def _require_parseable(result: Result, form: OutputFormat | None) -> None:
    """Require that JSON output can be parsed."""
    if form is OutputFormat.JSON and result.exit_code == 0 and result.stdout:
        json.loads(result.stdout)


class _ActiveContent(HTMLParser):
    """A parser that collects the scripts and addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []
        self._is_script = False

    @classmethod
    def list_in(cls, page: str) -> str:
        parser = cls()
        parser.feed(page)
        return "\n".join(parser.active)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        self.active += [str(value) for name, value in attrs if name in ("href", "src") or name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.active.append(data)
