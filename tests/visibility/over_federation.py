"""Compare the state before events from federation's ``/state_ids`` with ``gold.state_at_event``."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from duckdb import DuckDBPyConnection

from sample.client import q
from sample.homeserver import Synapse

States = dict[str, set[str] | None]
"""Event → event IDs of the room's state before it; None if the homeserver responds that the event does not exist, for
example for a redaction without effect."""

_EVENTS = """
    select events.room_id, events.event_id from events join event_to_state_groups using (event_id)
    where not events.outlier and events.room_id = any(%s) order by md5(events.event_id) limit %s
"""
_WITHHELD = """
    select event_id from requested join silver.event_visibility_inputs using (event_id) where withheld is not null
"""
_BEFORE = """
    select event_id, list(before_event_id) filter (before_event_id is not null), bool_and(before_is_known)
    from gold.state_at_event join requested using (event_id) group by event_id
"""
UNKNOWN_REPLACEMENT_TABLES = (
    "bronze.ex_outlier_stream",
    "bronze.partial_state_events",
    "bronze.un_partial_stated_event_stream",
)
"""Tables with events for which Synapse may not have recorded the replaced event."""


def read_states(server: Synapse, client: Synapse, rooms: list[str], limit: int) -> States:
    """Request the state before ``limit`` events of ``rooms`` from ``server`` as the homeserver ``client``.

    Events that ``client`` may not see are left out.
    """
    states: States = {}
    address, key = f"https://127.0.0.1:{_port(server)}", Path(_config(client)["signing_key_path"]).read_text().split()
    with psycopg.connect(server.dsn) as connection, httpx.Client(verify=False, trust_env=False) as http:
        for room, event in connection.execute(_EVENTS, [rooms, limit]).fetchall():
            path = f"/_matrix/federation/v1/state_ids/{q(room)}?event_id={q(event)}"
            headers = {"Host": server.server_name, "Authorization": _authorization(server, client, path, *key)}
            response = http.get(address + path, headers=headers)
            if response.status_code == 403:
                continue
            exists = response.status_code != 404
            states[event] = set(response.raise_for_status().json()["pdu_ids"]) if exists else None
    return states


def differences(connection: DuckDBPyConnection, states: States) -> list[str]:
    """Return the events whose state in the lake differs.

    For events of ``UNKNOWN_REPLACEMENT_TABLES``, the lake may mark the replaced event as unknown, and lack it.
    """
    connection.register("requested", pa.table({"event_id": list(states)}))
    rows = {event: (set(state or ()), is_known) for event, state, is_known in connection.execute(_BEFORE).fetchall()}
    withheld = {event for (event,) in connection.execute(_WITHHELD).fetchall()}
    query = " union ".join(f"select event_id from {table}" for table in UNKNOWN_REPLACEMENT_TABLES)
    incomplete_events = {event for (event,) in connection.execute(query).fetchall()}
    return [
        event
        for event, state in states.items()
        if (
            event not in withheld
            if state is None
            else not _agree(state, *rows.get(event, (set(), True)), event in incomplete_events)
        )
    ]


def _agree(expected: set[str], state: set[str], is_known: bool, may_be_unknown: bool) -> bool:
    return expected == state if is_known else may_be_unknown and state <= expected and len(expected - state) <= 1


def _authorization(destination: Synapse, origin: Synapse, path: str, algorithm: str, version: str, seed: str) -> str:
    """Return the header of a GET request (Matrix server-server API, "Request Authentication")."""
    names = {"origin": origin.server_name, "destination": destination.server_name}
    payload = json.dumps({"method": "GET", "uri": path, **names}, sort_keys=True, separators=(",", ":"))
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed + "=" * (-len(seed) % 4)))
    signature = base64.b64encode(key.sign(payload.encode())).decode().rstrip("=")
    fields = names | {"key": f"{algorithm}:{version}", "sig": signature}
    return "X-Matrix " + ",".join(f'{name}="{value}"' for name, value in fields.items())


def _port(homeserver: Synapse) -> int:
    listeners = _config(homeserver)["listeners"]
    return int(next(listener["port"] for listener in listeners if listener["tls"]))


def _config(homeserver: Synapse) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(homeserver.config_path.read_text())
    return config
