"""Answer the questions of an operator in one sentence each, from the rows of the panels. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.catalogue.postgres_end_of_support import describe_support
from synapse_lakehouse.printable_text import format_bytes
from synapse_lakehouse.report.compare_releases import Comparison
from synapse_lakehouse.report.format_values import format_time, format_value, shorten
from synapse_lakehouse.report.overall_status import Status
from synapse_lakehouse.report.panel import Format, Row
from synapse_lakehouse.report.read_panels import PanelRows
from synapse_lakehouse.report.release_diff import ReleaseDiff

Panels = Mapping[str, PanelRows]

_MIN_EVENTS: Final = 20
"""With fewer events, a 95th percentile is the value of a single event."""
_LATE_MS: Final = 60_000
"""An event that arrives within a minute is not late: Synapse tries again 10 minutes after a failure."""
_WATCHED_MINUTES: Final = 30
"""Maximum age of the last observation of a working DAG stream_watch, which runs every five minutes."""
_STUCK: Final = {IncidentKind.STANDING_STILL, IncidentKind.GAP_BUDGET, IncidentKind.WRITER_VANISHED}


@dataclass(frozen=True)
class Answer:
    """A question, its answer, and the ID of the element of the page with the details."""

    question: str
    text: str
    anchor: str


def build_answers(panels: Panels, status: Status, comparison: Comparison) -> list[Answer]:
    """Return the answers, for ``panels`` by ID. If a panel has no rows, its answer is the panel's reason."""
    changed = _describe_changes(comparison.diff) if comparison.diff else comparison.reason
    saving_panel = "compression" if panels["compression"].rows else "state-rooms"
    return [
        Answer("Which table fills the disk first?", _name_table(panels), "relation-sizes"),
        Answer("Is a stream stuck?", _find_stuck_stream(panels, status), "stream-positions"),
        Answer(f"What changed {comparison.period}?", changed, "changes"),
        Answer("May I upgrade Synapse or PostgreSQL?", _check_upgrade(panels), "background-updates"),
        Answer("Which room grows?", _describe(panels["growing-rooms"], _name_room), "growing-rooms"),
        Answer("Which server is late, or silent?", _name_server(panels), "federation-delay"),
        Answer("What did the last run cost?", _describe(panels["runs"], _state_cost), "runs"),
        Answer("Is anything damaged?", _count_findings(panels), "findings"),
        Answer("What does compression give back?", _state_savings(panels), saving_panel),
        Answer("Who reported what?", _describe(panels["reports"], _describe_report), "reports"),
    ]


def _describe(read: PanelRows, describe: Callable[[Sequence[Row]], str]) -> str:
    return describe(read.rows) if read.rows else read.reason


def _name_table(panels: Panels) -> str:
    tables, disks = panels["relation-sizes"], panels["disks"]
    if not tables.rows:
        return tables.reason
    largest, fastest = tables.rows[0], max(tables.rows, key=lambda row: row["per_day"] or 0)
    if (fastest["per_day"] or 0) > 0:
        text = f"{_short(fastest['name'])} grows fastest, by {format_bytes(fastest['per_day'])} a day."
    elif all(row["per_day"] is None for row in tables.rows):
        text = "Not known yet: another run, at least six hours later, measures the growth."
    else:
        text = "None: no table grows."
    text += f" The largest table is {_short(largest['name'])}, with {format_bytes(largest['bytes'])}."
    filling = [row for row in disks.rows if row["full_in_days"] is not None]
    if filling:
        first = min(filling, key=lambda row: row["full_in_days"])
        soonest = "" if first["full_earliest"] is None else f", at the earliest in {first['full_earliest']:,.0f}"
        text += f" The disk of the {_short(first['name'])} is full in {first['full_in_days']:,.0f} days{soonest}."
    if any(row["kind"] == "database" and row["free_bytes"] is None for row in disks.rows):
        text += " To know when Synapse's disk is full, set `LAKEHOUSE_SOURCE_DISK_BYTES` in `.env`."
    return text


def _find_stuck_stream(panels: Panels, status: Status) -> str:
    stuck = [problem for problem in status.problems if problem.kind in _STUCK]
    if stuck:
        return f"Yes: {stuck[0].subject}: {stuck[0].description}"
    positions, writers = panels["stream-positions"], panels["idle-writers"]
    if not positions.rows:
        return positions.reason
    if not writers.rows:
        text = f"Not known: {writers.reason}"
    else:
        seen = format_time(max(row["watched_at"] for row in writers.rows))
        text = f"No: the DAG stream_watch saw none until {seen}."
        if not is_watched(writers):
            text = f"Not known: the DAG stream_watch looked for the last time at {seen}. Look at its runs in Airflow."
    pending = [f"{row['open_ids']:,} in {_short(row['stream'])}" for row in positions.rows if row["open_ids"]]
    text += f" Open IDs at the release: {_list(pending) or 'none'}."
    waiting = [f"{_short(row['stream'])} ({_name_reason(row)})" for row in positions.rows if row["safe_bound"] is None]
    return text + (f" Not measurable: {_list(waiting)}." if waiting else "")


def is_watched(writers: PanelRows) -> bool:
    """Return whether the DAG stream_watch observed ``writers``, the panel "idle-writers", in the last half hour."""
    return any(row["minutes_ago"] <= _WATCHED_MINUTES for row in writers.rows)


def _name_reason(position: Row) -> str:
    writers = position["missing_writers"]
    return f"{_short(writers)} has no position" if writers else _short(position["rule"])


def _describe_changes(diff: ReleaseDiff) -> str:
    changed = sum(not table.is_unchanged for table in diff.tables)
    new, resolved = (sum(getattr(row, name) for row in diff.findings) for name in ("new", "resolved"))
    if not changed:
        return f"Nothing: all {len(diff.tables)} tables have the rows of release {diff.before.number}."
    return (
        f"{changed} of {len(diff.tables)} tables, with {diff.new_rooms:,} new rooms and {diff.new_users:,} new users; "
        f"{new:,} new and {resolved:,} resolved findings since release {diff.before.number}."
    )


def _check_upgrade(panels: Panels) -> str:
    server = panels["postgresql"]
    return _check_synapse(panels) + (_check_postgresql(server.rows[0]) if server.rows else "")


def _check_synapse(panels: Panels) -> str:
    updates, checks = panels["background-updates"], panels["upgrade-checks"]
    faults = [row["fault"] for row in checks.rows if row["fault"]]
    if faults:
        return f"Synapse: no. {shorten(faults[0], 200)}"
    if not updates.is_known:
        return updates.reason
    state = (
        " The last run found its sequences and collation correct."
        if checks.rows
        else " No run has checked sequences and collation."
    )
    if not updates.rows:
        return f"Synapse: yes, no background update is pending.{state}"
    first, others = updates.rows[0], len(updates.rows) - 1
    seen = f", first seen at {first['first_seen']}" if first["first_seen"] else ""
    more = f"; {others} more wait" if others else ""
    return (
        f"Synapse: not yet, background update {_short(first['update_name'])} is pending{seen}{more}. Keep Synapse "
        f"running until it is complete.{state}"
    )


def _check_postgresql(server: Row) -> str:
    version, end = _short(server["server_version"]), server["supported_until"]
    if end is None:
        return ""
    support, is_due = describe_support(version, end, date.today())  # noqa: DTZ011 - support ends on a date everywhere
    return f" {support}: {'plan an upgrade' if is_due else 'no upgrade is due'}."


def _name_room(rows: Sequence[Row]) -> str:
    first = rows[0]
    name = f", {_short(first['name'])}," if first["name"] else ""
    stopped = f" Its last event is of {first['last_day']}." if first["last_day"] < first["until"] else ""
    return (
        f"{shorten(first['room_id'], 255)}{name} received the most events: {first['events']:,} of "
        f"{first['all_events']:,} in the 7 days until {first['until']}, and {first['events_before']:,} in the 7 days "
        f"before.{stopped}"
    )


def _name_server(panels: Panels) -> str:
    delays, silent = panels["federation-delay"], panels["silent-servers"]
    if not delays.rows:
        return delays.reason
    worst = max(delays.rows, key=lambda row: row["p95_ms"])
    delay, count = format_value(max(worst["p95_ms"], 0), Format.MILLISECONDS), worst["events"]
    share, more = ("the slowest", "") if count < _MIN_EVENTS else ("5%", " or more")
    hour = format_time(worst["hour"])
    slowest = f"in the hour from {hour}, {share} of its {count:,} events arrived {delay}{more} after sending."
    if worst["p95_ms"] < _LATE_MS:
        text = f"None is late. The slowest was {_short(worst['server'])}: {slowest}"
    else:
        text = f"Late: {_short(worst['server'])}: {slowest} Check that the two servers reach each other."
    return text + (f" Silent: {describe_silence(silent.rows)}" if silent.rows else "")


def _state_cost(rows: Sequence[Row]) -> str:
    run = rows[-1]
    seconds, cpu = (format_value(run[name], Format.SECONDS) for name in ("seconds", "cpu_seconds"))
    read, written = (format_value(run[name], Format.NUMBER) for name in ("rows_read", "rows_written"))
    return (
        f"The run of release {run['release']} took {seconds}, with {cpu} of CPU time. It read {read} rows from "
        f"Synapse's database and copied {written}."
    )


def _count_findings(panels: Panels) -> str:
    findings, indexes = panels["findings"], panels["index-checks"]
    counts = Counter[str]()
    for row in findings.rows:
        counts[row["severity"]] += row["findings"]
    if not findings.is_known:
        return findings.reason
    if counts["fail"] or counts["warn"]:
        text = f"{counts['fail']:,} findings of severity fail and {counts['warn']:,} of severity warn."
        first = _short(findings.rows[0]["check_name"])
        return f"{'Yes' if counts['fail'] else 'Perhaps'}: {text} Begin with the check “{first}”."
    normal = f" ({counts['info']:,} of severity info are normal)" if counts["info"] else ""
    text = f"No check has a finding of severity fail or warn{normal}."
    compared, known = (sum(row[name] for row in indexes.rows) for name in ("compared", "indexes"))
    if not compared:
        reason = f"None of {known:,} indexes was compared completely yet." if known else indexes.reason
        return f"Not completely known. {text} {reason}"
    return f"No. {text} {compared:,} of {known:,} indexes were compared with the copy."


def _state_savings(panels: Panels) -> str:
    plan, rooms = panels["compression"], panels["state-rooms"]
    table = [row["bytes"] for row in panels["relation-sizes"].rows if row["name"] == "state_groups_state"]
    size = f" of the {format_bytes(table[0])} of state_groups_state" if table else ""
    if plan.rows:
        first = plan.rows[0]
        saved = "" if first["all_saved_bytes"] is None else f", {format_bytes(first['all_saved_bytes'])}{size}"
        share = _share(first["all_saved"], first["all_before"])
        return f"The latest plan saves {share} of the rooms that it contains{saved}."
    if plan.is_unread or not rooms.rows:
        return plan.reason
    first = rooms.rows[0]
    copied, total = first["all_copied_rows"], first["all_rows"]
    share = f", about {format_bytes(table[0] * copied / total)}{size}," if table and total else ""
    return (
        f"Not known before a plan. {plan.panel.empty} {_share(copied, total)}{share} repeat whole states: compression "
        "saves most of these rows and some other rows."
    )


def _describe_report(rows: Sequence[Row]) -> str:
    newest = rows[0]
    reporters = [_short(name or "a user") for name in dict.fromkeys(row["reporter_id"] for row in rows)]
    reported = next(filter(None, (newest["event_id"], newest["reported_user_id"], newest["room_id"])), "")
    count = "100 or more open reports" if len(rows) >= 100 else f"{len(rows)} open reports"
    kinds = ", ".join(f"{number} of kind {_short(name)}" for name, number in Counter(r["kind"] for r in rows).items())
    return (
        f"{'1 open report' if len(rows) == 1 else count}: {kinds}. Reported by {_list(reporters)}. "
        f"The newest is of {format_time(newest['received_at'])}: {_short(newest['kind'])} {_short(reported)}."
    )


def describe_silence(rows: Sequence[Row]) -> str:
    """Return a sentence about the silence of the first server, and the number of other silent servers."""
    row, others = rows[0], len(rows) - 1
    silence, pause = (format_value(row[name], Format.HOURS) for name in ("silent_hours", "longest_pause_hours"))
    text = (
        f"{_short(row['server'])} sent nothing in the {silence} before the newest event; its longest pause until then "
        f"was {pause}."
    )
    return text + (f" {others:,} other server{'s' * (others > 1)} fell silent too." if others else "")


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} rows ({part / whole:.0%})" if whole else f"{part:,} rows"


def _short(text: str) -> str:
    return shorten(text, 60)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
