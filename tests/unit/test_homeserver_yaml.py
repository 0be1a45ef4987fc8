"""An error about homeserver.yaml quotes nothing of the file, because the file contains secrets."""

import traceback
from contextlib import nullcontext
from pathlib import Path

import pytest

from synapse_lakehouse.config.homeserver_yaml import read_section, require_one_database
from synapse_lakehouse.errors import LakehouseError

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"server_name: here\n password: {SECRET}: more\n", "line 2, column 10: mapping values are not allowed here"),
        (f"macaroon_secret_key: '{SECRET}\n", "line 2, column 1: found unexpected end of stream"),
        (f"macaroon_secret_key: *{SECRET}\n", "line 1, column 22: found undefined alias …"),
        (f"macaroon_secret_key: !{SECRET} x\n", "could not determine a constructor for the tag …"),
        (f"password: \x01{SECRET}\n", "a character that YAML does not allow"),
        (f"password: !!int {SECRET}\n", "number or date"),
        (f"retention: {SECRET}\n", "retention in SYNAPSE_CONFIG"),
        (f"retention: [{SECRET}]\n", "retention in SYNAPSE_CONFIG"),
        (b"password: s3cret\xff\n", "not UTF-8"),
        (f"- {SECRET}\n", "has no settings"),
        (f"{SECRET}\n", "has no settings"),
        ("", "has no settings"),
        (f"{SECRET}: {'[' * 2_000}", "nested too deeply"),
    ],
    ids=range(13),
)
def test_no_word_of_an_unreadable_file_is_repeated(content: str | bytes, reason: str, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LakehouseError, match="SYNAPSE_CONFIG") as caught:
        read_section(config, "retention", LakehouseError)
    assert reason in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakehouseError, match=r"nowhere\.yaml"):
        read_section(tmp_path / "nowhere.yaml", "retention", LakehouseError)


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(LakehouseError, match="folder"):
        read_section(tmp_path, "retention", LakehouseError)


@pytest.mark.parametrize(
    ("databases", "is_refused"),
    [
        ("{main: {data_stores: [main]}, other: {data_stores: [state]}}", True),
        ("{one: {data_stores: [main, state]}}", False),
        ("{one: {name: psycopg2}}", False),
    ],
)
def test_a_separate_state_database_is_refused(databases: str, is_refused: bool, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text(f"databases: {databases}")
    with pytest.raises(LakehouseError, match="databases") if is_refused else nullcontext():
        require_one_database(config, LakehouseError)
