"""Hostile text at every output: it controls no terminal, is no markup, and forges no line."""

import ast
import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from apprise import NotifyFormat
from apprise.conversion import convert_between
from rich.text import Text
from typer.testing import CliRunner

from expectations.alert_findings import build_findings
from expectations.data_docs_renderers import _TEMPLATES
from expectations.validation_result import CheckResult, ValidationFailedError, ValidationResult
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind, compute_incident_events
from synapse_lakehouse.alerts.message import MAX_SINGLE_MESSAGES, build_messages
from synapse_lakehouse.cli import app, output
from synapse_lakehouse.cli.errors import ErrorReportingGroup
from synapse_lakehouse.cli.runs import run_output
from synapse_lakehouse.cli.runs.task_log import RunStep
from synapse_lakehouse.compressor.approval_text import describe_plan
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import to_printable
from tests.support import hostile_text
from tests.unit.test_approval_text import ROW

SOURCES = [*(PROJECT_FOLDER / "src").rglob("*.py"), *(PROJECT_FOLDER / "spark_apps").rglob("*.py"),
           *(PROJECT_FOLDER / "dags").rglob("*.py"),
           *(PROJECT_FOLDER / "expectations").rglob("*.py")]  # fmt: skip
OUTPUT_FUNCTIONS = {
    "print",
    "typer.echo",
    "typer.secho",
    "click.echo",
    "Console",
    "RichTable",
    "logging.getLogger",
    "track",
}
ALLOWED_OUTPUT = {
    ("cli/output.py", "typer.echo"): "the sink of the commands",
    ("printable_text.py", "logging.getLogger"): "returns loggers",
    ("spark_app.py", "print"): "a printable line of progress",
    ("cli/events/prove_erased.py", "track"): "a bar on a printable console, with a text of its own",
}


def test_all_output_is_written_through_the_sinks() -> None:
    results = set()
    for path in SOURCES:
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            # The package only sets the level of a logger with a constant name.
            if name in OUTPUT_FUNCTIONS and not (
                name == "logging.getLogger" and isinstance(call.args[0], ast.Constant)
            ):
                results.add((str(path).partition("synapse_lakehouse/")[2] or path.name, name))
    assert results == set(ALLOWED_OUTPUT)


def test_rows_are_printable_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    row = [*hostile_text.TEXTS, {"nested": hostile_text.ALL}, [hostile_text.ALL], None]
    names = [*hostile_text.TEXTS, "nested", "list", "null"]
    output.write_rows(names, [row], output.OutputFormat.JSON)
    out = capsys.readouterr().out
    assert not hostile_text.list_unprintable(out)
    assert list(json.loads(out)[0].values()) == row
    output.write_rows(names, [row], output.OutputFormat.CSV)
    out = capsys.readouterr().out
    assert not hostile_text.list_unprintable(out)
    head, cells = csv.reader(io.StringIO(out))
    assert len(head) == len(cells) == len(row)
    assert not [cell for cell in (*head, *cells) if cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d"))]
    for text in hostile_text.TEXTS:
        output.write_rows([text], [[text]], output.OutputFormat.TABLE)
        out = capsys.readouterr().out
        assert not hostile_text.list_unprintable(out)
        assert to_printable(text).replace(" ", "") in "".join(out.split())


def test_lines_tables_and_steps_of_a_terminal_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    console = output.PrintableConsole(width=2000, force_terminal=True, no_color=True)
    console.print(hostile_text.ALL)
    table = output.create_table("name")
    table.add_row(hostile_text.ALL)
    table.add_row(Text(hostile_text.ALL, "red"))
    console.print(table)
    out = capsys.readouterr().out
    # Styles that Rich adds to numbers.
    unstyled = out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert not hostile_text.list_unprintable(unstyled)
    assert r"\x1b[2J" in unstyled
    assert "[bold red]markup[/]" in unstyled
    steps = [
        RunStep("started", hostile_text.ALL),
        RunStep("progress", "a", hostile_text.ALL),
        RunStep("logged", "a", hostile_text.ALL),
    ]
    steps += [RunStep("failed", "a", hostile_text.ALL)]
    run_output.print_stage(hostile_text.ALL)
    run_output.print_failures(run_output.show_steps(steps), hostile_text.ALL)
    out = "".join(capsys.readouterr())
    assert not [line for line in out.splitlines() if line.startswith("error: forged")]
    output.echo(hostile_text.ALL, err=True)
    out += "".join(capsys.readouterr())
    assert not hostile_text.list_unprintable(out)
    assert "[bold red]markup[/]" in out


def test_errors_and_refused_arguments_are_printable() -> None:
    failing = typer.Typer(cls=ErrorReportingGroup)

    @failing.callback()
    def _options() -> None:
        """Options of all commands."""

    @failing.command()
    def fail(number: int) -> None:
        """Fail."""
        raise LakeReadError(hostile_text.ALL)

    for arguments in (["fail", "1"], ["fail", hostile_text.ALL], [hostile_text.ALL], ["fail", f"--{hostile_text.ALL}"]):
        result = CliRunner().invoke(failing, arguments)
        assert result.exit_code in {1, 2}
        assert not hostile_text.list_unprintable(result.output), arguments
        assert not [line for line in result.output.splitlines() if line.startswith("error: forged")], arguments
    result = CliRunner().invoke(app, ["prove-erased", f"@{hostile_text.TEXTS[0]}"])
    assert result.exit_code == 2
    assert not hostile_text.list_unprintable(result.output)


@pytest.mark.parametrize("count", [1, MAX_SINGLE_MESSAGES + 1])
def test_alerts_have_no_markup_and_no_foreign_links(count: int) -> None:
    now = datetime(2026, 11, 17, tzinfo=UTC)
    findings = [
        AlertFinding(IncidentKind.INTEGRITY, f"{number} {hostile_text.ALL}", hostile_text.ALL, hostile_text.ALL)
        for number in range(count)
    ]
    begin_events = compute_incident_events([], findings, "gold", "https://lake/1.html", now)
    for message in build_messages(
        [*begin_events, *compute_incident_events(begin_events, [], "gold", "", now + timedelta(hours=1))],
        "x",
        "https://docs",
    ):
        assert "\n" not in message.title
        for text in (message.title, message.body):
            assert not hostile_text.list_unprintable(text)
            assert "@" not in text
            assert "](" not in text
            for form in (NotifyFormat.HTML, NotifyFormat.MARKDOWN):
                converted = convert_between(NotifyFormat.TEXT, form, content=text)  # type: ignore[no-untyped-call]
                assert "<script" not in converted.lower()
                assert "<img" not in converted.lower()
                assert "<a " not in converted.lower()
        links = [word for word in message.body.split() if "://" in word]
        assert all("https://docs" in link or "https://lake" in link for link in links)


def test_sentences_of_a_validation_are_one_line_each() -> None:
    check = CheckResult("s", "t", hostile_text.ALL, hostile_text.ALL, "fail", success=False, observed=hostile_text.ALL)
    result = ValidationResult("gold", [check, check], "https://docs")
    assert len(result.summary().splitlines()) == 3
    assert not hostile_text.list_unprintable(result.summary())
    with pytest.raises(ValidationFailedError) as error_info:
        result.raise_if_failed()
    assert len(str(error_info.value).splitlines()) == 4
    (finding,) = build_findings(result, is_first=True, fails_on_warnings=False)
    assert len(finding.description.splitlines()) == 2


def test_pages_of_data_docs_escape_hostile_text() -> None:
    row = {
        "state": "failed",
        "subject": hostile_text.ALL,
        "expectation": hostile_text.ALL,
        "observed": hostile_text.ALL,
    }
    values = dict.fromkeys(("stage", "run", "validated"), hostile_text.ALL) | {
        "state": "failed",
        "checks": [row],
        "counts": {"failed": 1},
        "by_subject": {hostile_text.ALL: [row]},
    }
    page = _TEMPLATES.get_template("validation.html").render(values)
    assert hostile_text.TEXTS[7] not in page
    assert not hostile_text.list_unprintable(page)


def test_the_approval_text_escapes_hostile_text() -> None:
    rows, skipped = [ROW | {"room_id": hostile_text.ALL}], [{"room_id": hostile_text.ALL, "skipped": hostile_text.ALL}]
    text = describe_plan(rows, skipped, may_write=True)
    assert not hostile_text.list_unprintable(text)
    *_, line, blank, skipped_room = text.splitlines()
    assert not blank
    assert line.count("|") == 11, "a row of ten cells"
    assert skipped_room.count("`") == 2
    assert "<script" not in skipped_room.rpartition("`")[2]


def test_the_progress_of_an_app_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from synapse_lakehouse.config.run import Run
    from synapse_lakehouse.config.settings import Settings
    from synapse_lakehouse.spark_app import SparkApp

    day = datetime(2026, 11, 17, tzinfo=UTC)
    run = Run("r", day, day + timedelta(days=1))
    SparkApp("a", run, Settings(_env_file=None, lakehouse_home=tmp_path)).report_progress(hostile_text.ALL)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert not hostile_text.list_unprintable(out)
