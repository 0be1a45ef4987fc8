"""homeserver.yaml is read as Synapse reads it, and no error quotes the file, because it contains secrets."""

import json
import subprocess
import traceback
from contextlib import nullcontext
from pathlib import Path

import pytest

from sample.environment import synapse_python
from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.homeserver_yaml import read_section, require_one_database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.configuration_problems import find_problems
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.java import runtime

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
        (f"password: !!bool {SECRET}\n", "invalid number or date"),
        (f"password: !!timestamp {SECRET}\n", "invalid number or date"),
        (f'{SECRET}: !!int ""\n', "invalid number or date"),
        (f'{SECRET}: !!float ""\n', "invalid number or date"),
        (f"{SECRET}: 1{':1' * 200}.5\n", "invalid number or date"),
        (f"{SECRET}: 2026-02-31\n", "invalid number or date"),
    ],
    ids=range(19),
)
def test_an_error_quotes_no_word_of_the_file(content: str | bytes, reason: str, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LakehouseError, match="SYNAPSE_CONFIG") as error_info:
        read_section(config, "retention", LakehouseError)
    assert reason in str(error_info.value)
    assert SECRET not in "".join(traceback.format_exception(error_info.value))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakehouseError, match=r"nowhere\.yaml"):
        read_section(tmp_path / "nowhere.yaml", "retention", LakehouseError)


def test_the_last_file_with_a_section_has_precedence(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    main = tmp_path / "homeserver.yaml"
    main.write_text("retention: {enabled: true, default_policy: {max_lifetime: 1d}}\nstream_writers: {typing: a}")
    (folder / "20.yaml").write_text("retention: {enabled: false}")
    (folder / "10.yaml").write_text("retention: {enabled: true}\ndatabases: {one: {}}")
    (folder / "30.yaml").write_text("")
    (folder / "40.yml").write_text("retention: {enabled: true}")
    (folder / "50.yaml").mkdir()
    paths = Path(f"{main}:{folder}")
    assert read_section(folder, "retention", LakehouseError) == {"enabled": False}
    assert read_section(paths, "retention", LakehouseError) == {"enabled": False}
    assert read_section(paths, "stream_writers", LakehouseError) == {"typing": "a"}
    assert read_section(paths, "databases", LakehouseError) == {"one": {}}
    assert read_section(Path(f"{folder}:{main}"), "retention", LakehouseError)["enabled"] is True


def test_a_section_without_a_value_replaces_an_earlier_one(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("retention: {enabled: true}")
    second.write_text("retention:")
    assert read_section(tmp_path, "retention", LakehouseError) == {}


@pytest.mark.parametrize("value", ["[]", "false", "''", "0", "{}", ""])
@pytest.mark.parametrize("name", ["stream_writers", "databases"])
def test_false_values_are_empty_sections_as_in_synapse(name: str, value: str, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text(f"{name}: {value}")
    assert read_section(config, name, LakehouseError) == {}


@pytest.mark.parametrize(
    ("name", "value"), [("stream_writers", "[a]"), ("databases", "true"), ("retention", "[]"), ("retention", "false")]
)
def test_other_values_are_refused(name: str, value: str, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text(f"{name}: {value}")
    with pytest.raises(LakehouseError, match=name):
        read_section(config, name, LakehouseError)


@pytest.mark.parametrize("paths", ["{0}:", ":{0}", "{0}::{0}"])
def test_an_empty_path_is_not_the_current_folder(paths: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = tmp_path / "homeserver.yaml", tmp_path / "elsewhere"
    config.write_text("server_name: here")
    folder.mkdir()
    (folder / "other.yaml").write_text("retention: {enabled: true}")
    monkeypatch.chdir(folder)
    assert read_section(Path(paths.format(config)), "retention", LakehouseError) == {}


def test_merge_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "homeserver.yaml").write_text(
        "base: &base {enabled: true, purge_jobs: []}\nretention: {<<: *base, enabled: false}\n"
        "stream_writers:\n  <<: {events: [a], typing: b}\n  events: c\n"
    )
    assert read_section(tmp_path, "retention", LakehouseError) == {"enabled": False, "purge_jobs": []}
    assert read_section(tmp_path, "stream_writers", LakehouseError) == {"events": "c", "typing": "b"}


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        ("server_name: one.example", False),
        ("retention: {enabled: true}", False),
        ("server_name:", False),
        ("server_name: two.example", True),
        ("server_name: 2", True),
    ],
)
def test_the_configuration_of_another_server_is_refused(
    content: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This check starts Java.
    monkeypatch.setattr(runtime, "check_driver_options", lambda _: None)
    config = tmp_path / "homeserver.yaml"
    config.write_text(content)
    settings = Settings(_env_file=None, synapse_config=config, synapse_server_name="one.example")
    problems = [problem for problem in find_problems(load_catalogue(), settings) if problem.subject == "server name"]
    assert [problem.stops_runs for problem in problems] == [True] * is_refused
    assert all("SYNAPSE_SERVER_NAME is one.example" in problem.message for problem in problems)


def test_a_folder_without_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakehouseError, match="has no settings"):
        read_section(tmp_path, "retention", LakehouseError)


@pytest.mark.heavy
def test_several_files_are_merged_as_in_synapse(tmp_path: Path) -> None:
    files = {"a.yaml": "retention: {a: 1}\nx: {a: 1}", "b.yaml": "retention: {b: 1}", "c.txt": "retention: {c: 1}",
             "B.yaml": "retention: {d: 1}\ny: {d: 1}", "empty.yaml": "", "list.yaml": "[1]"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    extra = tmp_path / "server"
    extra.mkdir()
    (extra / "extra.yaml").write_text("server_name: s\nreport_stats: false\ny: {e: 1}")
    paths = [str(tmp_path), str(extra / "extra.yaml")]
    program = (
        "import json, sys; from synapse.config._base import find_config_files, read_config_files;"
        " sys.stdout, out = sys.stderr, sys.stdout; files = find_config_files(sys.argv[1:]);"
        " print(json.dumps(read_config_files(files)), file=out)"
    )
    output = subprocess.run([synapse_python(), "-c", program, *paths], capture_output=True, check=True).stdout
    expected = json.loads(output)
    config = Path(":".join(paths))
    for name in ("retention", "x", "y"):
        assert read_section(config, name, LakehouseError) == expected[name]


@pytest.mark.parametrize(
    ("databases", "is_refused"),
    [
        ("{main: {data_stores: [main]}, other: {data_stores: [state]}}", True),
        ("{one: {data_stores: [main, state]}}", False),
        ("{one: {name: psycopg2}}", False),
        ("{main: {data_stores: [main], args: {dbname: s}}, other: {data_stores: [state], args: {dbname: t}}}", True),
        # Two pools of connections to one database.
        ("{main: {data_stores: [main], args: {dbname: s}}, other: {data_stores: [state], args: {database: s}}}", False),
    ],
)
def test_a_separate_state_database_is_refused(databases: str, is_refused: bool, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text(f"databases: {databases}")
    with pytest.raises(LakehouseError, match="databases") if is_refused else nullcontext():
        require_one_database(config, LakehouseError)
