"""Served rows equal those of Synapse's own update functions, and its store drops the invalidated entries."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from sample.environment import synapse_python
from synapse_lakehouse.catalogue import DayProjection, ListForTypeProjection
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS
from tests.conftest import copied_source
from tests.replication import every_stream
from tests.replication.database import CATALOGUE, Database

pytestmark = pytest.mark.heavy

PROGRAM: Final = Path(__file__).with_name("synapse_streams.py")
INSTANCES: Final = ("master", "worker1", "persister1", "persister2")
SENT_ONCE: Final = {"to_device", "device_lists"}
"""Streams that send one row for several rows which differ only in withheld fields."""

ROOM: Final = "!room:synapse.example"
ALICE: Final = "@alice:synapse.example"
INVALIDATIONS: Final = [
    (["get_user_by_id", [ALICE], 5], [["get_user_by_id", [ALICE]]]),
    (["get_user_by_id", None, 5], [["get_user_by_id", [ALICE]], ["get_user_by_id", ["@bob:synapse.example"]]]),
    (["get_user_by_access_token", [None], 5], []),
    (["get_user_by_external_id", [None, None], 5], []),
    (["get_user_by_access_token", None, 5], [["get_user_by_access_token", ["syt_secret"]]]),
    (["cs_cache_fake", [ROOM, ALICE], 5], [["get_users_in_room", [ROOM]], ["get_rooms_for_user", [ALICE]]]),
    (["get_device", [ALICE, "A"], 5], [["get_device", [ALICE, "A"]]]),
    (["get_device", [ALICE], 5], [["get_device", [ALICE, "A"]], ["get_device", [ALICE, "B"]]]),
    (["get_device", [None, None], 5], []),
    (["ph_cache_fake", [ROOM], 5], "have_seen_event"),
    (["dr_cache_fake", [ROOM], 5], "get_aliases_for_room"),
    (["get_monthly_active_count", [], 5], [["get_monthly_active_count", []]]),
    (["a_module.cache", [None], 5], []),
    (["cs_cache_fake", [None], 5], []),
    (["_get_e2e_cross_signing_signatures_for_device", [None], 5], []),
    (["_get_server_keys_json", [None], 5], []),
]
"""Served rows, and the probes that Synapse's store drops: an exact list, or a cache that is among the affected ones.

The server sends the last rows where its role may not read keys.
"""


@pytest.fixture(scope="module")
def filled_database(server: EmbeddedServer, settings: Settings) -> Iterator[Database]:
    """Yield a copy of the sample in which every table behind a stream has rows, and some tokens have several."""
    with copied_source(server) as dsn, Database(settings.model_copy(update={"synapse_dsn": dsn})) as database:
        every_stream.fill(database)
        yield database


@pytest.fixture(scope="module")
def last_tokens(filled_database: Database) -> dict[str, int]:
    """Return the last token of each stream."""
    return {
        stream.name: filled_database.execute(f"select last_value from {stream.sequence}")[0][0]
        for stream in CATALOGUE.streams
    }


@pytest.fixture(scope="module")
def synapse_output(
    filled_database: Database, last_tokens: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return the rows of Synapse's own code."""
    folder = tmp_path_factory.mktemp("synapse")
    request_file, output_file = folder / "request.json", folder / "output.json"
    request_file.write_text(
        json.dumps({"streams": last_tokens, "instances": INSTANCES, "caches": [row for row, _ in INVALIDATIONS]})
    )
    subprocess.run(
        [synapse_python(), PROGRAM, str(filled_database.settings.synapse_dsn), folder, request_file, output_file],
        check=True, env=os.environ | {"PYTHONPATH": str(PROJECT_FOLDER)}, cwd=folder,
    )  # fmt: skip
    return json.loads(output_file.read_text())


@pytest.mark.parametrize("stream", ROW_SCHEMAS)
def test_rows_equal_those_of_synapse_s_update_functions(
    stream: str, filled_database: Database, last_tokens: dict[str, int], synapse_output: Any
) -> None:
    by_instance = synapse_output["rows"][stream]
    is_same_for_all = all(rows == by_instance[0] for rows in by_instance)
    synapse_rows = [
        (token, _mask(stream, row))
        for rows in (by_instance[:1] if is_same_for_all else by_instance)
        for token, row in rows
    ]
    reader, served_rows, after = filled_database.open_reader(), [], 0
    while after < last_tokens[stream]:
        updates, after = reader.read_page((stream, None), after, last_tokens[stream])
        served_rows += [(update.token, row) for update in updates for row in update.rows]
    served_counts, expected = (
        Counter((token, json.dumps(row)) for token, row in rows) for rows in (served_rows, synapse_rows)
    )
    if stream in SENT_ONCE:
        expected = Counter(expected.keys())
    assert served_counts == expected
    assert len(served_counts) > 2


def _mask(stream: str, row: Any) -> Any:
    """Return the row without the fields that docs/reference/replication.md lists."""
    match stream, row:
        case "presence", [user, state, *times, _, is_active]:
            return [user, state, *(time - time % DayProjection.MILLISECONDS for time in times), None, is_active]
        case "receipts", [*fields, dict(data)]:
            return [*fields, {"ts": data["ts"]} if "ts" in data else {}]
        case "pushers", [user, app, _, is_deleted]:
            return [user, app, None, is_deleted]
        case "device_lists", [_, is_signature, is_outbound] if is_signature or is_outbound:
            return [None, is_signature, is_outbound]
        case "to_device", [_]:
            return [None]
        case "profile_updates", [user, action, _]:
            return [user, action, None]
        case "caches", [cache, list(keys), at]:
            projection = CATALOGUE.table("cache_invalidation_stream_by_instance").column("keys").projection
            assert isinstance(projection, ListForTypeProjection)
            return [cache, keys if cache in projection.types else [None] * len(keys), at]
    return row


@pytest.mark.parametrize("number", range(len(INVALIDATIONS)), ids=lambda number: f"{INVALIDATIONS[number][0]}")
def test_synapse_s_store_drops_the_invalidated_entries(number: int, synapse_output: Any) -> None:
    dropped_probes, expected = synapse_output["caches"][number], INVALIDATIONS[number][1]
    if isinstance(expected, str):
        assert expected in {name for name, _ in dropped_probes}
        assert "get_user_by_access_token" not in {name for name, _ in dropped_probes}
    else:
        assert dropped_probes == expected
