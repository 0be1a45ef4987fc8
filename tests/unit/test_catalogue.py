"""The catalogue's file has no duplicate, no unknown key and no secret column."""

from copy import deepcopy
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import LoadMode

STREAM = {
    "description": "What users have read.",
    "stream_positions": "receipts",
    "sequence": "receipts_sequence",
    "writers": "receipts",
    "contiguity": "upsert",
    "why": "Newer receipts replace older ones.",
}
RECEIPTS: dict[str, Any] = {
    "name": "receipts_linearized",
    "description": "Latest receipts.",
    "config": {
        "meta": {
            "primary_key": ["user_id", "thread_id"],
            "nullable_key": ["thread_id"],
            "load": "merge",
            "streams": {"receipts": "stream_id"},
            "writer_column": "instance_name",
        }
    },
    "columns": [
        {"name": "stream_id", "data_type": "bigint", "description": "Position."},
        {"name": "user_id", "data_type": "string", "description": "Reader."},
        {"name": "thread_id", "data_type": "string", "description": "Thread."},
        {"name": "instance_name", "data_type": "string", "description": "Writer."},
        {
            "name": "data",
            "data_type": "string",
            "description": "Time of the\n  receipt.",
            "config": {"meta": {"projection": {"kind": "json_keys", "source": "data", "keys": ["ts"]}}},
        },
        {
            "name": "day",
            "data_type": "bigint",
            "description": "Day of the receipt.",
            "config": {"meta": {"projection": {"kind": "day", "source": "received_ts"}, "source_type": "integer"}},
        },
    ],
}

REFERENCE = {
    "column": "user_id",
    "to": "receipts_linearized.user_id",
    "check": "reader_missing",
    "severity": "warn",
    "missing": "Nobody read it.",
}

# Names of columns that hold credentials, keys, addresses or private text in some table of Synapse.
NEVER_LEAVE = {
    "password_hash", "token", "access_token", "refresh_token", "token_id", "renewal_token", "pushkey", "message_json",
    "messages_json", "key_json", "keydata", "session_data", "signature", "verify_key", "key", "secret", "nonce",
    "ip", "user_agent", "display_name", "displayname", "avatar_url", "device_display_name", "app_display_name",
    "profile_tag", "status_msg", "lang", "reason_text", "upload_name", "url_cache", "threepid", "address", "medium",
    "rule_id", "conditions", "actions", "affected_fields", "params", "result", "error", "txn_id", "delay_id",
    "opentracing_context", "user_ids", "consent_version", "unrecognized_keys",
}  # fmt: skip
# Columns that are private only in some tables: table, column.
NEVER_LEAVE_FROM = {
    ("events", "content"), ("event_reports", "content"), ("event_reports", "reason"), ("pushers", "data"),
    ("room_account_data", "content"), ("room_tags_revisions", "content"), ("pushers", "device_id"),
    ("room_reports", "reason"), ("user_reports", "reason"),
}  # fmt: skip
PROJECTED_ONLY = {
    ("event_json", "internal_metadata"), ("account_data", "content"), ("receipts_linearized", "data"),
    ("devices", "last_seen"), ("presence_stream", "last_active_ts"), ("presence_stream", "last_user_sync_ts"),
    ("cache_invalidation_stream_by_instance", "keys"),
}  # fmt: skip
# Caches whose keys are access tokens, identities at other providers, or times of activity of a user or device.
SECRET_KEYS = {
    "get_user_by_access_token", "get_user_by_external_id", "user_last_seen_monthly_active", "count_e2e_one_time_keys",
    "get_e2e_unused_fallback_key_types", "get_user_ip_and_agents", "get_last_client_ip_by_device",
}  # fmt: skip
NEVER_LISTED = {
    "access_tokens", "refresh_tokens", "login_tokens", "user_external_ids", "ui_auth_sessions", "registration_tokens",
    "ui_auth_sessions_credentials", "ui_auth_sessions_ips", "open_id_tokens", "threepid_validation_session",
    "threepid_validation_token", "threepid_guest_access_tokens", "user_threepids", "user_threepid_id_server",
    "server_signature_keys", "server_keys_json", "dehydrated_devices", "e2e_device_keys_json", "e2e_room_keys",
    "e2e_room_keys_versions", "e2e_one_time_keys_json", "e2e_fallback_keys_json", "e2e_cross_signing_keys",
    "e2e_cross_signing_signatures", "device_federation_inbox", "application_services_txns", "account_validity",
    "user_ips", "user_daily_visits", "push_rules", "push_rules_enable", "event_search", "user_directory",
    "user_directory_search", "users_in_public_rooms", "users_who_share_private_rooms", "delayed_events",
    "event_txn_id_device_id", "event_push_actions", "profiles", "local_media_repository", "room_tags",
}  # fmt: skip


def sources_yaml(*tables: dict[str, Any], **streams: dict[str, Any]) -> str:
    """Return a sources file with ``tables`` and ``streams``; without ``streams``, with the stream of receipts."""
    return yaml.safe_dump(
        {
            "sources": [
                {
                    "name": "synapse",
                    "config": {
                        "meta": {
                            "schema_version": {"oldest": 93, "oldest_release": "1.143", "newest": 94},
                            "streams": streams or {"receipts": STREAM},
                        }
                    },
                    "tables": list(tables),
                }
            ]
        }
    )


def with_meta(table: dict[str, Any] = RECEIPTS, **meta: Any) -> dict[str, Any]:
    """Return a copy of ``table`` with ``meta`` merged into its own."""
    copy = deepcopy(table)
    copy["config"]["meta"] |= meta
    return copy


def with_column(**column: Any) -> dict[str, Any]:
    """Return the table of receipts with an additional column."""
    copy = deepcopy(RECEIPTS)
    copy["columns"].append({"name": "extra", "data_type": "string", "description": "More."} | column)
    return copy


def test_a_table_is_read_as_declared() -> None:
    parsed = catalogue.parse_catalogue(sources_yaml(RECEIPTS))
    assert (parsed.oldest_schema_version, parsed.newest_schema_version) == (93, 94)
    table = parsed.table("receipts_linearized")
    assert (table.primary_key, table.nullable_key, table.key_enforced) == (
        ("user_id", "thread_id"),
        ("thread_id",),
        True,
    )
    assert (table.load, table.writer_column, table.repeats_ids, table.follows) == (
        LoadMode.MERGE,
        "instance_name",
        False,
        None,
    )
    assert [column.name for column in table.columns][:2] == ["stream_id", "user_id"]
    assert table.column("data").description == "Time of the receipt."
    assert (table.column("data").source_columns, table.column("data").source_type) == (("data",), "text")
    assert (table.column("day").source_columns, table.column("day").source_type) == (("received_ts",), "integer")
    assert parsed.backing_tables("receipts") == ((table, "stream_id"),)
    assert (parsed.copied_tables(), parsed.measured_tables()) == ((table,), ())


def test_omitted_keys_have_defaults() -> None:
    table = deepcopy(RECEIPTS)
    del table["config"]["meta"]["load"]
    parsed = catalogue.parse_catalogue(sources_yaml(table))
    assert parsed.table("receipts_linearized").load is LoadMode.REPLACE
    stream = parsed.stream("receipts")
    assert (stream.sign, stream.unique_ids, stream.immutable_below_bound) == ("positive", True, True)


def test_a_stream_without_positions_may_change_below_its_bound() -> None:
    parsed = catalogue.parse_catalogue(sources_yaml(RECEIPTS, receipts=STREAM | {"stream_positions": None}))
    assert not parsed.stream("receipts").immutable_below_bound


def test_unknown_names_are_key_errors() -> None:
    parsed = catalogue.parse_catalogue(sources_yaml(RECEIPTS))
    with pytest.raises(KeyError, match="password_hash is not in the catalogue"):
        parsed.table("receipts_linearized").column("password_hash")
    with pytest.raises(KeyError, match="access_tokens is not in the catalogue"):
        parsed.table("access_tokens")
    with pytest.raises(KeyError, match="stream typing is not in the catalogue"):
        parsed.stream("typing")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (with_meta(streams={"reciepts": "stream_id"}), "unknown streams: reciepts"),
        (with_meta(primary_key=["user_id", "room_id"], nullable_key=[]), "not among its columns: room_id"),
        (with_meta(streams={"receipts": "id"}), "not among its columns: id"),
        (with_meta(writer_column="writer"), "not among its columns: writer"),
        (with_meta(nullable_key=["stream_id"]), "nullable_key is not in its primary_key: stream_id"),
        (with_meta(primary_key=[], nullable_key=[]), "a copied table needs a primary_key"),
        (with_meta(load="measure"), "measured table"),
        (with_column(config={"meta": {"only_served": True}}), "only_served"),
        (with_meta(load="upsert"), "load"),
        (with_meta(load="append", follows="events"), "streams or follows"),
        (with_meta(load="merge", streams={}), "needs a stream"),
        (with_meta(repeats_keys=True), "repeats_keys and key_enforced"),
        (with_meta(primary_keys=["user_id"]), "primary_keys"),
        (with_meta(contiguity="pruned"), "contiguity_why"),
        (with_meta(contiguity="shrinking", contiguity_why="It shrinks."), "contiguity"),
        (
            with_meta(contiguity="pruned", contiguity_why="By age.", rises_per=["user_id"]),
            "only upsert tables may declare rises_per",
        ),
        (with_meta(rises_per=["device_id"]), "not among its columns: device_id"),
        (with_meta(primary_key=["stream_id"], nullable_key=[]), "declare rises_per"),
        (with_meta(references=[REFERENCE | {"column": "event_id"}]), "not among its columns: event_id"),
        (with_meta(references=[REFERENCE | {"to": "events.event_id"}]), "not copied: events.event_id"),
        (with_meta(references=[REFERENCE | {"equal": {"user_id": "user_id"}}]), "must point to a primary key"),
        (with_meta(references=[REFERENCE | {"legal": [{"why": "Always."}]}]), "either found_in or event"),
        (with_meta(references=[REFERENCE | {"legal": [{"event": "redacted", "why": "Censored."}]}]), "event"),
        (with_column(name="user_id"), "a column is listed twice"),
        (with_column(name="User"), "name"),
        (with_column(name="data; drop table users"), "name"),
        (with_column(description=""), "description"),
        (with_column(data_type="jsonb"), "data_type"),
        (with_column(config={"meta": {"projektion": {"kind": "day", "source": "ts"}}}), "projektion"),
        (with_column(config={"meta": {"projection": {"kind": "hash", "source": "ip"}}}), "projection"),
        (with_column(config={"meta": {"projection": {"kind": "json_keys", "source": "data"}}}), "keys"),
    ],
)
def test_an_invalid_declaration_is_refused(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        catalogue.parse_catalogue(sources_yaml(table))


def test_names_are_declared_once() -> None:
    with pytest.raises(ValidationError, match="declared twice: receipts_linearized"):
        catalogue.parse_catalogue(sources_yaml(RECEIPTS, RECEIPTS))


def test_a_stream_without_a_table_is_refused() -> None:
    with pytest.raises(ValidationError, match="streams without a table: presence"):
        catalogue.parse_catalogue(sources_yaml(RECEIPTS, receipts=STREAM, presence=STREAM))


def test_a_misspelt_stream_is_refused() -> None:
    with pytest.raises(ValidationError, match="signs"):
        catalogue.parse_catalogue(sources_yaml(RECEIPTS, receipts=STREAM | {"signs": "positive"}))


def test_a_stream_without_a_bound_cannot_be_append_only() -> None:
    with pytest.raises(ValidationError, match="append_only"):
        catalogue.parse_catalogue(
            sources_yaml(RECEIPTS, receipts=STREAM | {"contiguity": "append_only", "stream_positions": None})
        )


def test_a_followed_table_must_be_appended() -> None:
    follower = with_meta(load="append", streams={}, follows="receipts_linearized", writer_column=None)
    follower["name"] = "receipts_graph"
    with pytest.raises(ValidationError, match="receipts_graph follows receipts_linearized"):
        catalogue.parse_catalogue(sources_yaml(RECEIPTS, follower))


def test_nothing_secret_is_listed() -> None:
    listed_columns = {
        (table.name, column.name) for table in catalogue.load_catalogue().tables for column in table.columns
    }
    source_columns = {
        (table.name, name)
        for table in catalogue.load_catalogue().tables
        for column in table.columns
        for name in column.source_columns
    }
    assert {pair for pair in listed_columns | source_columns if pair[1] in NEVER_LEAVE} == set()
    assert (listed_columns | source_columns) & NEVER_LEAVE_FROM == set()
    assert {table.name for table in catalogue.load_catalogue().tables} & NEVER_LISTED == set()


def test_partly_private_columns_are_projected() -> None:
    loaded = catalogue.load_catalogue()
    for table, column in PROJECTED_ONLY:
        assert loaded.table(table).column(column).projection is not None, f"{table}.{column}"


def test_keys_of_caches_that_are_secrets_are_not_served() -> None:
    declared = catalogue.load_catalogue()
    column = declared.table("cache_invalidation_stream_by_instance").column("keys")
    assert isinstance(column.projection, catalogue.ListForTypeProjection)
    assert SECRET_KEYS & set(column.projection.types) == set()
    assert column.has_secrets
    assert {
        table.name for table in declared.tables if {"keys", "cache_func"} & {item.name for item in table.columns}
    } == {"cache_invalidation_stream_by_instance"}


def test_followers_share_the_event_id() -> None:
    loaded = catalogue.load_catalogue()
    for table in loaded.tables:
        if table.follows:
            assert table.column("event_id").data_type == loaded.table(table.follows).column("event_id").data_type


def test_yaml_parses_unquoted_texts_completely() -> None:
    """In an unquoted text, YAML drops the part after a hash, and can parse the part after a comma as a key."""
    (source,) = yaml.safe_load(catalogue.find_sources_file().read_text(encoding="utf-8"))["sources"]
    for table in source["tables"]:
        assert set(table) == {"name", "description", "config", "columns"}, table["name"]
        for column in table["columns"]:
            assert set(column) <= {"name", "data_type", "description", "config"}, (table["name"], column["name"])
        for text in [table["description"], *(column["description"] for column in table["columns"])]:
            assert text.endswith("."), f"{table['name']}: {text}"
