"""Compare the state before events from federation's /state with ``gold.state_at_event``."""

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
"""By event: ids of the events that were the state of its room before it; None where it is said not to be there, as of a
redaction that is not honoured."""

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
UNTOLD = ("bronze.ex_outlier_stream", "bronze.partial_state_events", "bronze.un_partial_stated_event_stream")
"""Events whose replaced event Synapse may not have recorded."""


def read_states(of: Synapse, by: Synapse, rooms: list[str], most: int) -> States:
    """Return answers of ``of`` to ``by`` about ``most`` events of ``rooms`` that ``by`` has not left."""
    states: States = {}
    address, key = f"https://127.0.0.1:{_port(of)}", Path(_config(by)["signing_key_path"]).read_text().split()
    with psycopg.connect(of.dsn) as connection, httpx.Client(verify=False, trust_env=False) as client:
        for room, event in connection.execute(_EVENTS, [rooms, most]).fetchall():
            path = f"/_matrix/federation/v1/state_ids/{q(room)}?event_id={q(event)}"
            headers = {"Host": of.server_name, "Authorization": _authorization(of, by, path, *key)}
            answer = client.get(address + path, headers=headers)
            if answer.status_code == 403:
                continue
            exists = answer.status_code != 404
            states[event] = set(answer.raise_for_status().json()["pdu_ids"]) if exists else None
    return states


def differences(connection: DuckDBPyConnection, answered: States) -> list[str]:
    """Events with another state in the lake.

    It may lack what an event replaced where it says that it does not know that, and says so of :data:`UNTOLD` only.
    """
    connection.register("requested", pa.table({"event_id": list(answered)}))
    rows = {event: (set(state or ()), is_known) for event, state, is_known in connection.execute(_BEFORE).fetchall()}
    withheld = {event for (event,) in connection.execute(_WITHHELD).fetchall()}
    late = " union ".join(f"select event_id from {table}" for table in UNTOLD)
    untold = {event for (event,) in connection.execute(late).fetchall()}
    return [
        event
        for event, state in answered.items()
        if (
            event not in withheld
            if state is None
            else not _agree(state, *rows.get(event, (set(), True)), event in untold)
        )
    ]


def _agree(answer: set[str], state: set[str], is_known: bool, may_be_unknown: bool) -> bool:
    return answer == state if is_known else may_be_unknown and state <= answer and len(answer - state) <= 1


def _authorization(destination: Synapse, origin: Synapse, path: str, algorithm: str, version: str, seed: str) -> str:
    """The header of a GET request (Matrix server-server API, "Request Authentication")."""
    names = {"origin": origin.server_name, "destination": destination.server_name}
    payload = json.dumps({"method": "GET", "uri": path, **names}, sort_keys=True, separators=(",", ":"))
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed + "=" * (-len(seed) % 4)))
    signature = base64.b64encode(key.sign(payload.encode())).decode().rstrip("=")
    fields = names | {"key": f"{algorithm}:{version}", "sig": signature}
    return "X-Matrix " + ",".join(f'{name}="{value}"' for name, value in fields.items())


def _port(of: Synapse) -> int:
    listeners = _config(of)["listeners"]
    return int(next(listener["port"] for listener in listeners if listener["tls"]))


def _config(of: Synapse) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(of.config_path.read_text())
    return config
