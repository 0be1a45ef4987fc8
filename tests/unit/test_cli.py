"""Output and errors of the ``lakehouse`` command, without a lake."""

import json
import os
import re
import traceback
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
import typer
import yaml
from pydantic import ValidationError
from rich.console import Console
from typer.testing import CliRunner

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import app, output
from synapse_lakehouse.cli.errors import ErrorReportingGroup, error_message
from synapse_lakehouse.cli.lake import query, releases
from synapse_lakehouse.cli.runs import release_summary
from synapse_lakehouse.cli.streams.positions import StreamPosition
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import find_table_names, quote_literal, quote_table_name
from tests.support.homeserver_files import write_homeserver

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_csv_has_a_header_and_leaves_null_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(["a", "b"], [(1, None), ('say "hi",', {"k": [1]})], output.OutputFormat.CSV)
    assert capsys.readouterr().out == 'a,b\n1,\n"say ""hi"",","{""k"": [1]}"\n'


def test_json_is_an_array_of_objects_that_loses_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(1, NOON.astimezone(timezone(timedelta(hours=2))), Decimal(3), b"\x01\xff")]
    output.write_rows(["id", "id", "sum", "key"], rows, output.OutputFormat.JSON)
    parsed_rows = json.loads(capsys.readouterr().out)
    assert parsed_rows == [{"id": 1, "id_2": "2026-11-18T12:00:00+00:00", "sum": 3, "key": "01ff"}]


def test_json_without_rows_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(["a"], [], output.OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_a_table_shows_control_characters_and_markup_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(["name"], [("\x1b[31mred[bold]",)], output.OutputFormat.TABLE)
    out = capsys.readouterr().out
    assert "\\x1b[31mred[bold]" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("command", ["ui", "airflow", "homeservers"])
def test_a_command_of_all_homeservers_refuses_the_option(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_homeserver(tmp_path, "one")
    monkeypatch.setenv("LAKEHOUSE_HOMESERVERS", str(tmp_path))
    result = CliRunner().invoke(app, ["--homeserver", "one", command])
    assert (result.exit_code, "Leave out --homeserver" in result.stderr) == (2, True)


def test_the_env_file_may_select_the_homeserver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_homeserver(tmp_path, name)
    (tmp_path / ".env").write_text(f"LAKEHOUSE_HOMESERVERS={tmp_path}\nLAKEHOUSE_HOMESERVER=two\n")
    result = CliRunner().invoke(app, ["releases"])
    assert (result.exit_code, "two.env does not set SYNAPSE_DSN" in result.stderr) == (1, True)


def test_a_long_table_reports_omitted_rows(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(["n"], ((n,) for n in range(output.MAXIMUM_TABLE_ROWS + 5)), output.OutputFormat.TABLE)
    out = capsys.readouterr().out
    assert f"{output.MAXIMUM_TABLE_ROWS + 5} rows, the first {output.MAXIMUM_TABLE_ROWS} shown" in out
    assert f"{output.MAXIMUM_TABLE_ROWS - 1} \n" in out
    assert f"{output.MAXIMUM_TABLE_ROWS + 1} \n" not in out


def test_errors_of_the_project_are_explained_and_others_are_not() -> None:
    assert error_message(LakeReadError("say so")) == "say so"
    assert error_message(KeyError("a bug")) is None


def test_an_invalid_setting_is_named_without_its_value() -> None:
    with pytest.raises(ValidationError) as error_info:
        Settings(_env_file=None, lakehouse_source_connections="many-secret")
    message = error_message(error_info.value)
    assert message is not None
    assert "LAKEHOUSE_SOURCE_CONNECTIONS" in message
    assert "many-secret" not in message


@pytest.mark.parametrize("value", ["s3.secret-access-key=many-secret", '["many-secret"]', '{"key": ["many-secret"]}'])
def test_invalid_json_settings_are_reported_without_value(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_CATALOG_PROPERTIES", value)
    with pytest.raises(ValidationError) as error_info:
        Settings(_env_file=None)
    message = error_message(error_info.value)
    assert message is not None
    assert "LAKEHOUSE_CATALOG_PROPERTIES" in message
    assert "many-secret" not in message + "".join(traceback.format_exception(error_info.value))


def test_an_explained_error_ends_with_exit_code_1_and_no_trace() -> None:
    failing = typer.Typer(cls=ErrorReportingGroup)

    @failing.callback()
    def group() -> None: ...

    @failing.command()
    def fail() -> None:
        raise LakeReadError("the reason")

    result = CliRunner().invoke(failing, ["fail"])
    assert result.exit_code == 1
    assert result.stderr == "Error: the reason\n"


def test_arguments_that_are_not_utf8_are_refused() -> None:
    result = CliRunner().invoke(app, ["visible", os.fsdecode(b"@\xff:example.org")])
    assert result.exit_code == 2
    assert r"b'@\xff:example.org' is not UTF-8" in result.stderr


@pytest.mark.parametrize("arguments", [["query"], ["query", "select 1", "--format", "xml"], ["connect", "abacus"]])
def test_wrong_usage_ends_with_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from gold.events e where e.room_id = 'x'", {"gold.events", "e.room_id"}),
        ('FROM lake."Gold" . "EVENTS"', {"lake.gold", "gold.events"}),
        ("select * from `gold`.`events`", {"gold.events"}),
        ("select 1", set()),
    ],
)
def test_names_in_sql(sql: str, expected: set[str]) -> None:
    assert find_table_names(sql) == expected


def test_literals_and_identifiers_cannot_be_broken_out_of() -> None:
    assert quote_literal("a'; drop") == "'a''; drop'"
    assert quote_table_name('gold.a"b') == '"gold"."a""b"'


def test_the_summary_fits_80_columns_and_condenses_empty_tables() -> None:
    run_id = "scheduled__2026-11-18T00:00:00+00:00"
    release = Release(7, run_id, NOON, NOON, "run_x", "interval_x", "example.org", {}, {}, {}, 512, 1, NOON, [], NOON)
    summary = release_summary.ReleaseSummary(
        release,
        [
            release_summary.CopiedTable(
                "device_lists_changes_in_room", "append", 12_345_678, 12_345_678, 12_345_678, 2**31, 99.9
            ),
            *(release_summary.CopiedTable(f"empty_table_{n}", "replace", 0, 0, 0, 0, 0.0) for n in range(30)),
        ],
        [
            StreamPosition(
                "un_partial_stated_event", None, None, "missing_writer", None, "s", 1, {}, ["persister1", "main"]
            )
        ],
        [release_summary.CheckWarning("events.stream_ordering", "stream ids are unique", "1 duplicate")],
        [release_summary.TapSummary("redis", 12, 1_234_567, 89, 3)],
        Path("/srv/lakehouse"),
    )
    console = Console(width=80, highlight=False)
    with console.capture() as output_capture:
        console.print(release_summary.render_summary(summary))
    text = output_capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "12,345,678" in text
    assert "2.0 GiB" in text
    assert "30 without rows: empty_table_0" in text
    assert "512 passed, 1 warned, 0 failed" in text
    assert "redis: 1,234,567 tokens of 12 writers" in text
    assert "3 missing" in " ".join(text.split())
    assert "stream ids are unique (1 duplicate)" in text.replace("\n  ", " ")


def test_releases_fit_80_columns_and_break_no_heading() -> None:
    run_id = "manual__2026-11-18T12:34:56.123456+00:00"
    rows = [
        Release(n, run_id, NOON, NOON, "", "", "it", {}, {}, {}, 1512, 12, NOON, ["rooms"], NOON) for n in (12345, 9)
    ]
    console = Console(width=80, highlight=False)
    with console.capture() as output_capture:
        console.print(releases.render_releases(rows))
    lines = output_capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    heading = next(line for line in lines if line.strip())
    assert heading.split() == ["Release", "From", "To", "Published", "Tables", "Passed", "Warned", "Run"]
    assert any(line.split()[1:4] == ["2026-11-18"] * 3 for line in lines if line.strip())


def test_an_invalid_user_id_is_not_searched() -> None:
    result = CliRunner().invoke(app, ["prove-erased", "erin"])
    assert result.exit_code == 2
    assert "erin is not a Matrix user ID" in result.stderr


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("drop table gold.events", "DROP"),
        ("insert into gold.events select 1", "INSERT"),
        ("copy (select 1) to 'x.csv'", "COPY"),
        ("select 1; delete from gold.events", "SELECT and DELETE"),
        ("", "no statement"),
    ],
)
def test_a_writing_query_is_refused(sql: str, kind: str) -> None:
    with duckdb.connect() as connection, pytest.raises(LakeReadError) as error_info:
        query.run_query(connection, Settings(_env_file=None), sql)
    assert "one SELECT (or FROM, DESCRIBE, SUMMARIZE, SHOW)" in str(error_info.value)
    assert f"this is {kind}." in str(error_info.value)


@pytest.mark.parametrize("command", [["run"], ["ui", "--port", "18080"], ["airflow", "version"]])
def test_local_airflow_refuses_the_compose_environment(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = yaml.safe_load((PROJECT_FOLDER / "docker-compose.yaml").read_text())["services"]
    for name, value in services["airflow-scheduler"]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{[^}]*\}", "", value or ""))
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in result.stderr
    assert not (tmp_path / "home").exists()


HELP = (["query", "--help"], ["compress", "plan", "-h"], ["compress"])


@pytest.mark.parametrize("arguments", HELP)
def test_help_needs_no_valid_setting(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_GAP_BUDGET", "many")
    assert "Usage:" in CliRunner().invoke(app, arguments).stdout


@pytest.mark.parametrize("arguments", HELP)
def test_help_needs_no_homeserver(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_homeserver(tmp_path, name)
    monkeypatch.setenv("LAKEHOUSE_HOMESERVERS", str(tmp_path))
    for option in ([], ["--homeserver", "three"]):
        assert "Usage:" in CliRunner().invoke(app, [*option, *arguments]).stdout
        assert CliRunner().invoke(app, [*option, "query", "select 1"]).exit_code == 1
