"""Write the configuration files of a Synapse with workers: homeserver.yaml, a file for each worker, and others."""

import base64
import hashlib
import secrets
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from psycopg.conninfo import conninfo_to_dict

from sample.certificate import write_certificate

MAIN = "master"
EVENT_PERSISTERS = ("persister1", "persister2")
STREAM_WORKER = "worker1"
WORKERS = (*EVENT_PERSISTERS, STREAM_WORKER)

_STREAM_WRITERS: dict[str, list[str]] = {
    "receipts": [STREAM_WORKER],
    "account_data": [STREAM_WORKER],
    "to_device": [STREAM_WORKER],
    "presence": [STREAM_WORKER],
    "push_rules": [STREAM_WORKER],
    "typing": [STREAM_WORKER],
    "device_lists": [STREAM_WORKER],
    "thread_subscriptions": [STREAM_WORKER],
}
# Rooms have their own policies. With a default policy, all messages of the sample would expire.
RETENTION = {"enabled": True, "purge_jobs": [{"interval": "30d"}]}

_UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}
_RATE_LIMITS: dict[str, Any] = {
    "rc_message": _UNLIMITED,
    "rc_registration": _UNLIMITED,
    "rc_login": {"address": _UNLIMITED, "account": _UNLIMITED, "failed_attempts": _UNLIMITED},
    "rc_admin_redaction": _UNLIMITED,
    "rc_joins": {"local": _UNLIMITED, "remote": _UNLIMITED},
    "rc_joins_per_room": _UNLIMITED,
    "rc_invites": {"per_room": _UNLIMITED, "per_user": _UNLIMITED, "per_issuer": _UNLIMITED},
    "rc_presence": {"per_user": _UNLIMITED},
    "rc_reports": _UNLIMITED,
    "rc_room_creation": _UNLIMITED,
    "rc_delayed_event_mgmt": _UNLIMITED,
    "rc_media_create": _UNLIMITED,
    "rc_key_requests": _UNLIMITED,
}
_EXPERIMENTAL = {
    "msc3391_enabled": True,  # deletion of account data
    "msc3881_enabled": True,  # remote activation of pushers
    "msc4306_enabled": True,  # thread subscriptions
    "msc4354_enabled": True,  # sticky events
}


def homeserver_yaml(
    server_name: str, ports: Mapping[str, int], streams: Container[str] = frozenset(_STREAM_WRITERS)
) -> dict[str, Any]:
    """Return the part of homeserver.yaml without secrets and paths. The lakehouse reads it.

    :param ports: process name → its port. Without workers, the settings contain no stream writers.
    :param streams: streams whose writers can be configured in the release.
    """
    settings: dict[str, Any] = {
        "server_name": server_name,
        "report_stats": False,
        "retention": RETENTION,
        "experimental_features": _EXPERIMENTAL,
    }
    if ports.keys() - {MAIN}:
        writers = {stream: names for stream, names in _STREAM_WRITERS.items() if stream in streams}
        settings["stream_writers"] = {"events": event_persisters(ports)} | writers
        settings["instance_map"] = {
            "main" if name == MAIN else name: {"host": "127.0.0.1", "port": port} for name, port in ports.items()
        }
    return settings


def describe_databases(dsn: str, state_dsn: str | None = None) -> dict[str, Any]:
    """Return the database settings of homeserver.yaml: one database, or a second database for room state."""
    if state_dsn is None:
        return {"database": describe_database(dsn)}
    stores = {"main": dsn, "state": state_dsn}
    return {"databases": {store: describe_database(dsn) | {"data_stores": [store]} for store, dsn in stores.items()}}


def describe_database(dsn: str) -> dict[str, Any]:
    """Return the section ``database`` of homeserver.yaml for PostgreSQL, or for SQLite: ``sqlite:`` and a path."""
    if dsn.startswith("sqlite:"):
        return {"name": "sqlite3", "args": {"database": dsn.removeprefix("sqlite:")}}
    return {"name": "psycopg2", "args": conninfo_to_dict(dsn) | {"cp_min": 2, "cp_max": 8}}


def event_persisters(processes: Iterable[str]) -> list[str]:
    """Return the workers that write events."""
    return [name for name in processes if name not in (MAIN, STREAM_WORKER)]


def write(
    workdir: Path,
    server_name: str,
    databases: dict[str, Any],
    ports: Mapping[str, int],
    redis_port: int,
    tls_port: int,
    secret: str,
    streams: Container[str],
) -> dict[str, list[Path]]:
    """Write all files that a Synapse with the processes of ``ports`` needs to ``workdir``.

    :param databases: result of :func:`describe_databases`.
    :param ports: process name → its HTTP port on 127.0.0.1, for clients and replication.
    :param tls_port: the main process's port for other homeservers.
    :param secret: the shared secret of registration. The application service's token is derived from it.
    :param streams: streams whose writers can be configured in the release.
    :returns: process name → its configuration files, in the order in which Synapse reads them.
    """
    public = homeserver_yaml(server_name, ports, streams)
    settings = _main_settings(workdir, public | databases, ports, redis_port, tls_port, secret)
    main = _write(workdir / "homeserver.yaml", settings)
    files = {MAIN: [main]}
    for name in ports.keys() - {MAIN}:
        worker = {
            "worker_app": "synapse.app.generic_worker",
            "worker_name": name,
            "worker_listeners": [_listener(ports[name])],
            "worker_log_config": str(_log_config(workdir, name)),
            "worker_pid_file": str(workdir / f"{name}.pid"),
        }
        files[name] = [main, _write(workdir / f"{name}.yaml", worker)]
    return files


def application_service_token(secret: str) -> str:
    """Return the token of the application service. Its users may send events with timestamps in the past."""
    return hashlib.sha256(b"application service" + secret.encode()).hexdigest()


def _listener(port: int, *names: str, tls: bool = False) -> dict[str, Any]:
    resources = [{"names": list(names or ("client", "replication"))}]
    return {"type": "http", "port": port, "bind_addresses": ["127.0.0.1"], "tls": tls, "resources": resources}


def _application_service(workdir: Path, server_name: str, secret: str) -> Path:
    registration = {
        "id": "bridge",
        "url": None,
        "as_token": application_service_token(secret),
        "hs_token": secrets.token_urlsafe(24),
        "sender_localpart": "bridge",
        "rate_limited": False,
        "namespaces": {
            "users": [{"exclusive": True, "regex": f"@bridged_.*:{server_name}"}],
            "aliases": [],
            "rooms": [],
        },
    }
    return _write(workdir / "bridge.yaml", registration)


def _signing_key(workdir: Path) -> Path:
    path = workdir / "signing.key"
    if not path.exists():
        seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        path.touch(mode=0o600)
        path.write_text(f"ed25519 a_{secrets.token_hex(2)} {seed}\n")
    return path


def _log_config(workdir: Path, name: str) -> Path:
    settings = {
        "version": 1,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {
            "file": {
                "class": "logging.FileHandler",
                "formatter": "plain",
                "filename": str(workdir / "logs" / f"{name}.log"),
                "encoding": "utf-8",
            }
        },
        "root": {"level": "INFO", "handlers": ["file"]},
        "disable_existing_loggers": False,
    }
    return _write(workdir / f"{name}.log.yaml", settings)


def _write(path: Path, content: dict[str, Any]) -> Path:
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _main_settings(
    workdir: Path,
    public: dict[str, Any],
    ports: Mapping[str, int],
    redis_port: int,
    tls_port: int,
    secret: str,
) -> dict[str, Any]:
    """Return homeserver.yaml with the parameters of :func:`write`, and write the files that it names.

    :param public: results of :func:`homeserver_yaml` and :func:`describe_databases`.
    """
    server_name = str(public["server_name"])
    certificate, key = write_certificate(workdir, server_name)
    settings = public | _RATE_LIMITS
    return settings | {
        "listeners": [_listener(ports[MAIN]), _listener(tls_port, "federation", tls=True)],
        "redis": {"enabled": len(ports) > 1, "host": "127.0.0.1", "port": redis_port},
        "log_config": str(_log_config(workdir, MAIN)),
        "media_store_path": str(workdir / "media"),
        "pid_file": str(workdir / "homeserver.pid"),
        "signing_key_path": str(_signing_key(workdir)),
        "registration_shared_secret": secret,
        "worker_replication_secret": secrets.token_urlsafe(24),
        "macaroon_secret_key": secrets.token_urlsafe(24),
        "form_secret": secrets.token_urlsafe(24),
        "app_service_config_files": [str(_application_service(workdir, server_name, secret))],
        "tls_certificate_path": str(certificate),
        "tls_private_key_path": str(key),
        "federation_verify_certificates": False,
        "serve_server_wellknown": True,
        "ip_range_blacklist": [],
        "federation_ip_range_blacklist": [],
        "trusted_key_servers": [],
        "bcrypt_rounds": 4,
        "allow_guest_access": True,
        "enable_registration": False,
        "enable_room_list_search": True,
        "room_list_publication_rules": [{"action": "allow"}],
        "max_event_delay_duration": "24h",
        "include_profile_updates_in_sync": True,
        "user_directory": {"enabled": True, "search_all_users": True},
        "limit_remote_rooms": {"enabled": False},
    }
