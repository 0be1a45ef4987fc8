"""Each alert reaches a real webhook and a mail server once, even after a failure of the receiver."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from synapse_lakehouse.alerts import deliver_incidents, incident_log
from synapse_lakehouse.alerts.deliver_incidents import update_incidents
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind, compute_incident_events
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from tests.support.alert_receivers import mail_handler

SECRET = "sesame-open"
LATE = AlertFinding(IncidentKind.LATE_IDS, "stream events", "2 ids came late")
REPORT = AlertFinding(IncidentKind.NEW_REPORT, "event report 7", "a report", details="@a:b reported the event $e")
OVERDUE = AlertFinding(IncidentKind.RELEASE_OVERDUE, "the lake", "30 hours old")


@dataclass
class Webhook:
    """An HTTP server that records the posted alerts while it is open."""

    port: int = field(default_factory=find_free_port)
    titles: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    before_first_response: Callable[[], None] = lambda: None
    """Called before the response to the first alert."""

    @property
    def address(self) -> str:
        return f"json://user:{SECRET}@127.0.0.1:{self.port}/alerts"

    def open(self) -> ThreadingHTTPServer:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.titles.append(posted["title"])
                hook.bodies.append(posted["message"])
                if len(hook.titles) == 1:
                    hook.before_first_response()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


@pytest.fixture
def hook() -> Webhook:
    return Webhook()


@pytest.fixture
def lake(new_lake: Callable[..., Settings]) -> Settings:
    return new_lake(synapse_server_name="example.org")


@pytest.fixture
def catalog(lake: Settings) -> Iterator[Catalog]:
    """Yield the catalog of the lake."""
    with closing(open_catalog(lake)) as catalog:
        tables.ensure_audit_tables(catalog)
        yield catalog


@pytest.fixture
def report(lake: Settings, catalog: Catalog, hook: Webhook) -> Callable[..., None]:
    """Return a function that reports findings to the lake and sends alerts to the webhook or to other addresses."""

    def report(scope: str, *findings: AlertFinding, to: str = hook.address) -> None:
        update_incidents(lake.model_copy(update={"lakehouse_alert_urls": to}), catalog, scope, findings)

    return report


def test_each_incident_sends_one_alert_and_one_resolve(hook: Webhook, report: Callable[..., None]) -> None:
    server = hook.open()
    for findings in ([LATE], [LATE], [], []):
        report("bronze", *findings)
    server.shutdown()
    assert hook.titles == ["example.org: late ids: stream events", "example.org: late ids: stream events — ended"]


def test_the_end_of_a_report_sends_nothing(hook: Webhook, report: Callable[..., None]) -> None:
    server = hook.open()
    for findings in ([REPORT], [REPORT], [], []):
        report("reports", *findings)
    server.shutdown()
    assert hook.titles == ["example.org: new report: event report 7"]


def test_the_message_alone_has_the_ids_of_a_report(
    hook: Webhook, report: Callable[..., None], catalog: Catalog
) -> None:
    report("reports", REPORT)
    server = hook.open()
    report("reports", REPORT)
    server.shutdown()
    (body,) = hook.bodies
    assert "a:b reported the event $e" in body
    rows = catalog.load_table("audit.incidents").scan().to_arrow().to_pylist()
    assert {row["description"] for row in rows if row["kind"]} == {"a report"}
    assert "$e" not in str(rows)


def test_a_shared_incident_lasts_until_its_last_reporter(hook: Webhook, report: Callable[..., None]) -> None:
    server = hook.open()
    for scope, *findings in (["bronze", LATE], ["streams", LATE], ["bronze"], ["bronze"]):
        report(scope, *findings)
    assert hook.titles == ["example.org: late ids: stream events"]
    report("streams")
    assert hook.titles[1:] == ["example.org: late ids: stream events — ended"]
    report("streams", LATE)
    server.shutdown()
    assert hook.titles[2:] == ["example.org: late ids: stream events"]


def test_a_dead_sink_delays_nothing_and_gets_alerts_later(
    hook: Webhook, report: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    other = Webhook()
    other_server = other.open()
    both = f"{hook.address} {other.address}"
    report("bronze", LATE, to=both)
    report("bronze", LATE, to=both)
    assert [record for record in caplog.records if record.name.endswith("alerts.sinks")]
    assert SECRET not in caplog.text
    assert len(other.titles) == 1, "this sink got the alert already"

    server = hook.open()
    report("bronze", LATE, to=both)
    report("streams", OVERDUE, to=both)
    for item in (server, other_server):
        item.shutdown()
    assert sorted(hook.titles) == sorted(other.titles) == [
        "example.org: late ids: stream events", "example.org: release overdue: the lake",
    ]  # fmt: skip


def test_a_sink_with_an_endless_answer_delays_nothing(
    report: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver_incidents, "MAX_SECONDS", 1.0)
    stopped = threading.Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Answer: ")
                while not stopped.wait(0.2):
                    self.wfile.write(b"x")

    other = Webhook()
    other_server = other.open()
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endless = f"json://user:{SECRET}@127.0.0.1:{server.server_address[1]}"
        threading.Timer(20, stopped.set).start()
        report("bronze", LATE, OVERDUE, to=f"{endless} {other.address}")
        assert not stopped.is_set()
        stopped.set()
        server.shutdown()
    other_server.shutdown()
    assert len(other.titles) == 2
    assert caplog.text.count("did not confirm") == 1
    assert SECRET not in caplog.text


def test_a_log_of_an_earlier_version_is_continued(hook: Webhook, catalog: Catalog, report: Callable[..., None]) -> None:
    with catalog.load_table(incident_log.INCIDENTS_TABLE).update_schema() as update:
        update.delete_column("consequence")
    names = [name for name in store.AUDIT_SCHEMAS[incident_log.INCIDENTS_TABLE].names if name != "consequence"]
    (incident,) = compute_incident_events([], [OVERDUE], "streams", "", datetime.now(UTC) - timedelta(hours=1))
    row = {name: getattr(incident, name, None) for name in names} | {"kind": str(incident.kind)}
    rows = pa.Table.from_pylist(
        [row], schema=pa.schema([store.AUDIT_SCHEMAS[incident_log.INCIDENTS_TABLE].field(name) for name in names])
    )
    catalog.load_table(incident_log.INCIDENTS_TABLE).append(rows)
    assert incident_log.read_incident_log(catalog).events == (incident,)
    tables.ensure_audit_tables(catalog)
    assert incident_log.read_incident_log(catalog).events == (incident,)

    report("bronze", replace(LATE, consequence="nothing is published"))
    server = hook.open()
    report("bronze", replace(LATE, consequence="nothing is published"))
    report("bronze")
    server.shutdown()
    bodies = [body for title, body in zip(hook.titles, hook.bodies, strict=True) if "late ids" in title]
    assert ["nothing is published" in body for body in bodies] == [True, False]


def test_pending_alerts_of_other_runs_wait_for_minutes(
    hook: Webhook, catalog: Catalog, report: Callable[..., None]
) -> None:
    now = datetime.now(UTC)
    for minutes, subject in ((0, "new"), (10, "left untold")):
        findings = [AlertFinding(IncidentKind.LATE_IDS, subject, "late")]
        incident_log.append_events(
            catalog, compute_incident_events([], findings, "bronze", "", now - timedelta(minutes=minutes))
        )
    server = hook.open()
    report("streams", OVERDUE)
    assert sorted(hook.titles) == ["example.org: late ids: left untold", "example.org: release overdue: the lake"]
    report(
        "bronze",
        AlertFinding(IncidentKind.LATE_IDS, "new", "late"),
        AlertFinding(IncidentKind.LATE_IDS, "left untold", "late"),
    )
    server.shutdown()
    assert hook.titles[2:] == ["example.org: late ids: new"]


@pytest.mark.parametrize("scope", ["bronze", "streams"])
def test_concurrent_reports_send_a_missed_alert_once(
    hook: Webhook, lake: Settings, catalog: Catalog, report: Callable[..., None], scope: str
) -> None:
    incident_log.append_events(
        catalog, compute_incident_events([], [LATE], "bronze", "", datetime.now(UTC) - timedelta(minutes=10))
    )

    def report_concurrently() -> None:
        with closing(open_catalog(lake)) as catalog:
            settings = lake.model_copy(update={"lakehouse_alert_urls": hook.address})
            update_incidents(settings, catalog, "bronze", [LATE])
            update_incidents(settings, catalog, "lake", [OVERDUE])

    hook.before_first_response = report_concurrently
    server = hook.open()
    report(scope, LATE)
    server.shutdown()
    assert hook.titles == ["example.org: late ids: stream events", "example.org: release overdue: the lake"]


def test_incidents_from_before_a_sink_are_not_sent(hook: Webhook, report: Callable[..., None]) -> None:
    report("bronze", LATE, to="")
    server = hook.open()
    report("bronze", LATE)
    assert hook.titles == []
    report("bronze")
    server.shutdown()
    assert hook.titles == ["example.org: late ids: stream events — ended"]


@pytest.mark.parametrize("address", [SECRET, f"matrixx://{SECRET}@example.org"])
def test_an_invalid_address_is_logged(
    report: Callable[..., None], caplog: pytest.LogCaptureFixture, address: str
) -> None:
    report("bronze", LATE, to=address)
    assert "correct LAKEHOUSE_ALERT_URLS" in caplog.text
    assert SECRET not in caplog.text


def test_a_mail_has_the_fault_its_place_and_the_remedy(report: Callable[..., None]) -> None:
    inbox: list[EmailMessage] = []

    with ThreadingTCPServer(("127.0.0.1", 0), mail_handler(inbox)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        report("bronze", LATE, to=f"mailto://127.0.0.1:{port}?from=lakehouse@example.org&to=operator@example.org")
        server.shutdown()
    (mail,) = inbox
    assert "operator@example.org" in mail["To"]
    assert mail["Subject"] == "example.org: late ids: stream events"
    text = mail.get_body(("plain", "html"))
    assert text
    assert "2 ids came late" in text.get_content()
    assert "late-ids.md" in text.get_content()
