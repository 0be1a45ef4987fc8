"""An S3 server (moto) that stores all objects in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from sample.environment import PROJECT, python_with
from sample.processes import free_ports, start_process, wait_until

SECRET: Final = "not-to-be-shown"
_AWS: Final = (
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
    "@sha256:dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
)


@contextmanager
def s3_warehouse(folder: Path) -> Iterator[dict[str, Any]]:
    """Run a server; yield the settings of a warehouse in its bucket ``lake``."""
    python = python_with("moto", "5.2.5", PROJECT / ".lakehouse" / "moto-venv", extras="[server]")
    (port,) = free_ports(1)
    log, url = folder / "s3.log", f"http://127.0.0.1:{port}"
    command: list[str | Path] = [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with start_process("moto_server", command, log, folder) as server:
        wait_until(lambda: put_object(f"{url}/lake"), server, "moto_server", log, seconds=60)
        yield {
            "lakehouse_warehouse": "s3://lake/warehouse",
            "lakehouse_spark_packages": _AWS,
            "lakehouse_catalog_properties": {
                "s3.endpoint": url, "s3.path-style-access": "true", "client.region": "us-east-1",
                "s3.access-key-id": "key", "s3.secret-access-key": SECRET,
            },
        }  # fmt: skip


def put_object(url: str, content: bytes = b"") -> bool:
    """Create a bucket or an object; return False if the server does not respond."""
    headers = {"Content-Type": "application/octet-stream"}
    try:
        with urlopen(Request(url, method="PUT", data=content, headers=headers), timeout=60) as response:
            return bool(response.status == 200)
    except OSError:
        return False
