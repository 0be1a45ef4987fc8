"""PostgreSQL servers of versions other than the embedded server's. They have ICU and TLS."""

import platform
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.java import jars
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

SERVERS = {
    "amd64-14.23.0": "d041b87dd72016f2baf93bca54e91d3c85c2b8132bbf86ad82056d6b24b353ce",
    "amd64-15.18.0": "6490649298abbe834a969b57df53e66e056f76894054a8f32f7a56f33abe0087",
    "amd64-17.10.0": "a6c44794a7a258621b8cb98c196bf621cdd705d9fa73c3628166b658c419877a",
    "amd64-18.4.0": "401d4e69baba9072d3772607710df0d47b39a7632c6b01b2a5f5d85a9514e212",
    "arm64v8-14.23.0": "a55b93f67051a602be033b298461709f88789dccee925236f2fb5a4eaf9dd526",
    "arm64v8-17.10.0": "47aa73724470a8bdb5e68e3978c1f07c577ab7a5c23b97b84f99d7e165f4876f",
    "arm64v8-18.4.0": "a9ec284923b9a7d2db41509bfb88c3d0eeb9f4aa5e2b29ea0aac5e8dbaf4c335",
}
"""Platform and version → SHA-256 of the jar that contains the build."""


@contextmanager
def server_of_version(version: str) -> Iterator[EmbeddedServer]:
    """Run an empty server of a version, such as 18.4.0."""
    with (
        pytest.MonkeyPatch.context() as patched,
        _programs(version) as programs,
        TemporaryDirectory(ignore_cleanup_errors=True) as home,
    ):
        patched.setattr(embedded_postgres, "BIN", programs)
        # PostgreSQL 14 needs a folder that its account may enter. It may not enter pytest's folders.
        Path(home).chmod(0o711)
        with embedded_postgres.run_server(Path(home) / "data") as running:
            yield running


@contextmanager
def _programs(version: str) -> Iterator[Path]:
    """Yield a folder with the server of this version and the wheel's clients. The server's account can read it."""
    name = f"{'arm64v8' if platform.machine() == 'aarch64' else 'amd64'}-{version}"
    coordinates = f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{name.replace('-', ':')}"
    (jar,) = jars.install_accepted_jars(
        PROJECT_FOLDER / ".lakehouse" / "postgres-versions", [coordinates], {coordinates: SERVERS[name]}
    )
    with TemporaryDirectory() as folder:
        with zipfile.ZipFile(jar) as jar_file:
            (archive,) = (name for name in jar_file.namelist() if name.endswith(".txz"))
            with jar_file.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:xz") as tar:
                # The oldest supported Python has no extraction filter. The SHA-256 covers the whole archive.
                tar.extractall(folder)
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(path.stat().st_mode | 0o055)
        programs = Path(folder) / "bin"
        for client in embedded_postgres.BIN.iterdir():
            if not (programs / client.name).exists():
                (programs / client.name).symlink_to(client)
        yield programs
