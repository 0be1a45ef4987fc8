"""Invalid settings and an unreadable ``.env`` are refused before anything else happens."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.doctor import machine
from synapse_lakehouse.config.env_file import EnvFileError
from synapse_lakehouse.config.limits import parse_heap_size
from synapse_lakehouse.config.settings import Settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder without settings, and return it."""
    monkeypatch.chdir(tmp_path)
    for name in {name.upper() for name in Settings.model_fields} & set(os.environ):
        monkeypatch.delenv(name)
    return tmp_path


def output(*arguments: str) -> str:
    """Return the output of a command that ends with exit code 1."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    return result.output


@pytest.mark.parametrize(
    "memory",
    ["2GiB", "2gb", "2048", "2 g", "g", "0g", "-2g", "2.5g", "1e3m", "2g -Dx=y", "511m", "4k", "1025g", "9999999g",
     "2t", "٢g", "2g\n"],
)  # fmt: skip
def test_an_invalid_heap_size_is_refused(memory: str) -> None:
    with pytest.raises(ValidationError, match=r"lakehouse_driver_memory\n.*such as 2g"):
        Settings(lakehouse_driver_memory=memory)


@pytest.mark.parametrize(
    ("memory", "size"), [("512m", 512 << 20), ("2g", 2 << 30), ("3G", 3 << 30), ("1500M", 1500 << 20)]
)
def test_a_heap_has_a_size(memory: str, size: int) -> None:
    assert parse_heap_size(Settings(lakehouse_driver_memory=memory).lakehouse_driver_memory) == size


def test_every_command_names_the_setting(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("LAKEHOUSE_DRIVER_MEMORY", "2GiB")
    for command in (["run"], ["ui"], ["doctor"], ["compress", "plan"], ["positions"]):
        assert "LAKEHOUSE_DRIVER_MEMORY" in output(*command)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("options", ["-Xmx1g", "-XX:+UseParallelGC -XX:MaxHeapSize=1g"])
def test_the_heap_has_one_setting(options: str) -> None:
    with pytest.raises(ValidationError, match="lakehouse_driver_java_options"):
        Settings(lakehouse_driver_java_options=options)


@pytest.mark.parametrize("command", [["doctor"], ["run"], ["query", "select 1"]])
def test_an_env_file_that_is_not_utf_8_is_named(folder: Path, command: list[str]) -> None:
    (folder / ".env").write_bytes(b"LAKEHOUSE_HOME=here\nSYNAPSE_DSN=postgresql://postgr\xe9s@127.0.0.1/synapse\n")

    actual = output(*command)

    assert f"{folder / '.env'} is not UTF-8; the first wrong line is 2" in actual
    assert "postgr" not in actual.replace("postgresql", "")


@pytest.mark.parametrize("content", ["A=b\n".encode("utf-16"), b"\xff", b"A=\xc3\n"])
def test_other_encodings_are_refused(folder: Path, content: bytes) -> None:
    (folder / ".env").write_bytes(content)
    with pytest.raises(EnvFileError, match="not UTF-8"):
        Settings()


def test_a_byte_order_mark_hides_no_setting(folder: Path) -> None:
    (folder / ".env").write_bytes(b"\xef\xbb\xbfSYNAPSE_SERVER_NAME=example.org\nLAKEHOUSE_NO_SUCH=1\n")

    assert Settings().synapse_server_name == "example.org"
    assert [finding.message.split()[0] for finding in machine.check_setting_names()] == ["LAKEHOUSE_NO_SUCH"]


def test_an_unreadable_env_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").touch()

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dotenv.main.open", refuse, raising=False)
    with pytest.raises(EnvFileError, match="cannot be read: Permission denied"):
        Settings()


@pytest.mark.parametrize("name", ["SYNAPSE_DSN", "LAKEHOUSE_HOME", "SYNAPSE_CONFIG", "LAKEHOUSE_STREAM_WRITERS"])
def test_a_value_that_is_not_utf_8_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, os.fsdecode(b"postgr\xe9s"))

    assert f"{name}: Value error, is not UTF-8" in output("doctor")


@pytest.mark.parametrize(
    "warehouse", ["gs://lake", "s3a://lake/x", "hdfs://host/x", "s3:/lake", "s3://", "file://host/x"]
)
def test_a_warehouse_elsewhere_is_refused(warehouse: str) -> None:
    with pytest.raises(ValidationError, match=r"lakehouse_warehouse\n.*s3://bucket/prefix"):
        Settings(lakehouse_warehouse=warehouse)


@pytest.mark.parametrize(
    ("warehouse", "uri"),
    [("s3://lake/x/", "s3://lake/x"), ("file:///srv/x", "file:///srv/x"), ("/srv/c:/x", "file:///srv/c%3A/x")],
)
def test_a_warehouse_is_a_folder_or_a_bucket(warehouse: str, uri: str) -> None:
    assert Settings(lakehouse_warehouse=warehouse).warehouse == uri


@pytest.mark.parametrize("name", ["lakehouse_home", "lakehouse_warehouse"])
def test_a_home_of_an_unknown_user_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name}\n.*home folder of this user is unknown"):
        Settings(**{name: "~nobody-of-this-name/lake"})
