"""Writers of streams, read from settings and homeserver.yaml."""

from pathlib import Path

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.positions.configured_writers import (
    StreamWritersError,
    default_writer,
    read_configured_writers,
)

CATALOGUE = catalogue.load_catalogue()


def test_the_setting_overrides_the_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text("stream_writers:\n  events: [ep1, ep2]\n  receipts: worker1\n")
    actual = read_configured_writers(CATALOGUE, "events:ep3", config)
    assert actual["events"] == actual["backfill"] == {"ep3"}
    assert actual["receipts"] == {"worker1"}


def test_streams_without_a_setting_have_unknown_writers() -> None:
    actual = read_configured_writers(CATALOGUE, "", None)
    assert "events" not in actual
    assert actual["pushers"] == {"master"}


def test_streams_missing_in_the_file_belong_to_the_main_process(tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text("server_name: here\nstream_writers:\n  events: [ep1]\n")
    actual = read_configured_writers(CATALOGUE, "receipts:worker1", config)
    writers = [set(actual[stream]) for stream in ("events", "receipts", "quarantined_media")]
    assert writers == [{"ep1"}, {"worker1"}, {"master"}]
    assert set(actual) == {stream.name for stream in CATALOGUE.streams if stream.stream_positions}


@pytest.mark.parametrize("setting", ["events", "events:", ":ep1", "events:ep1 receipts"])
def test_a_syntax_error_names_the_expected_form(setting: str) -> None:
    with pytest.raises(StreamWritersError, match="stream:writer1,writer2"):
        read_configured_writers(CATALOGUE, setting, None)


def test_a_stream_that_is_named_twice_is_refused() -> None:
    with pytest.raises(StreamWritersError, match="events:ep1,ep2"):
        read_configured_writers(CATALOGUE, "events:ep1 receipts:worker1 events:ep2", None)


def test_an_unknown_stream_is_named() -> None:
    with pytest.raises(StreamWritersError, match="evnets"):
        read_configured_writers(CATALOGUE, "evnets:ep1", None)


def test_streams_of_a_later_release_in_the_file_are_ignored(tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text("stream_writers:\n  events: ep1\n  reactions_of_2027: worker1\n")
    assert read_configured_writers(CATALOGUE, "", config)["events"] == {"ep1"}


def test_a_missing_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StreamWritersError, match=r"nowhere\.yaml"):
        read_configured_writers(CATALOGUE, "", tmp_path / "nowhere.yaml")


def test_an_invalid_section_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text("stream_writers: worker1\n")
    with pytest.raises(StreamWritersError, match=r"^stream_writers in SYNAPSE_CONFIG"):
        read_configured_writers(CATALOGUE, "", config)


@pytest.mark.parametrize("writers", ["", "5", "{ep1: 1}", "[ep1, 2]", "[[ep1]]"])
def test_invalid_writer_names_are_refused(writers: str, tmp_path: Path) -> None:
    config = tmp_path / "homeserver.yaml"
    config.write_text(f"stream_writers:\n  events: {writers}\n")
    with pytest.raises(StreamWritersError, match=r"stream_writers\.events in SYNAPSE_CONFIG"):
        read_configured_writers(CATALOGUE, "", config)


def test_rows_without_a_writer_belong_to_the_only_writer() -> None:
    assert default_writer({"worker1"}) == "worker1"
    assert default_writer({"worker1": 7}) == "worker1"
    assert default_writer({"worker1", "worker2"}) == default_writer(()) == "master"
