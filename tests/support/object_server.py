"""SeaweedFS on loopback, an S3 server and Iceberg REST catalog. Go builds it once, from pinned modules."""

import fcntl
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from sample.processes import ServiceError, free_ports, run, start_process, wait_until
from synapse_lakehouse.config.settings import PROJECT_FOLDER

AWS_BUNDLE: Final = (
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
    "@sha256:dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
)
_MODULES: Final = Path(__file__).with_name("seaweedfs")
_BINARY: Final = PROJECT_FOLDER / ".lakehouse" / "seaweedfs" / "weed"
_PACKAGE: Final = "github.com/seaweedfs/seaweedfs/weed"
_PORTS: Final = ("master.port", "volume.port", "filer.port", "s3.port", "s3.port.iceberg")
_OFFSET: Final = 10_000
"""SeaweedFS adds this to the port of a server for its gRPC port."""


@dataclass(frozen=True)
class ObjectServer:
    """An S3 server with an Iceberg REST catalog of one bucket, and the key of its only user."""

    s3: str
    catalog: str
    bucket: str
    key: str
    secret: str

    def settings(self) -> dict[str, object]:
        """Return the settings of a lake with this catalog and warehouse."""
        return {
            "lakehouse_catalog_uri": self.catalog,
            "lakehouse_warehouse": f"s3://{self.bucket}",
            "lakehouse_spark_packages": AWS_BUNDLE,
            "lakehouse_catalog_properties": {
                "s3.endpoint": self.s3, "s3.path-style-access": "true", "client.region": "us-east-1",
                "s3.access-key-id": self.key, "s3.secret-access-key": self.secret,
                "credential": f"{self.key}:{self.secret}",
            },
        }  # fmt: skip

    def keys(self) -> dict[str, str]:
        """Return the key as environment variables of AWS."""
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}


@contextmanager
def object_server(folder: Path, bucket: str = "lake") -> Iterator[ObjectServer]:
    """Run a server with its objects and its log in ``folder``. It compacts no tables, as it has no admin server."""
    binary, ports = _build(), _free_ports()
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    s3, catalog = (f"http://127.0.0.1:{ports[name]}" for name in ("s3.port", "s3.port.iceberg"))
    server = ObjectServer(s3, catalog, bucket, key, secret)
    data, log = folder / "objects", folder / "weed.log"
    data.mkdir()
    command: list[str | Path] = [
        binary, "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-volume.max=0",
        "-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-s3.port.lance=0", "-volume.preStopSeconds=1",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with start_process("weed", command, log, folder, server.keys() | {"S3_TABLE_BUCKET": bucket}) as process:
        wait_until(lambda: _responds(s3) and _responds(catalog), process, "weed", log)
        shell: list[str | Path] = [binary, "shell", f"-master=127.0.0.1:{ports['master.port']}"]
        create = f"s3tables.bucket -create -name {bucket} -account admin\nexit\n"
        subprocess.run(shell, input=create, text=True, check=True, capture_output=True, timeout=120)
        yield server


def _build() -> Path:
    """Return the path of the program. Build it if it is absent, which takes ten minutes of CPU time."""
    _BINARY.parent.mkdir(parents=True, exist_ok=True)
    with _BINARY.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _BINARY.exists():
            go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
            if not go:
                raise ServiceError("Go is not installed. Install the version in tests/support/seaweedfs/go.mod.")
            new = _BINARY.with_suffix(".new")
            command: list[str | Path] = [go, "build", "-C", _MODULES, "-mod=readonly", "-o", new, _PACKAGE]
            run(command, "Building SeaweedFS")
            new.rename(_BINARY)
    return _BINARY


def _free_ports() -> dict[str, int]:
    """Return a free port for each server, low enough for its gRPC port."""
    while max(ports := free_ports(len(_PORTS))) + _OFFSET > 65_535:
        os.sched_yield()
    return dict(zip(_PORTS, ports, strict=True))


def _responds(url: str) -> bool:
    try:
        httpx.get(url, timeout=5)
    except httpx.TransportError:
        return False
    return True
