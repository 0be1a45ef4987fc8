"""The catalogue, compared with the recorded facts about each release of Synapse."""

import re
from datetime import date
from itertools import groupby

import pytest

from sample.releases import COMPARED_ON, REPRESENTATIVES, Release, load_releases, load_results, load_rules
from synapse_lakehouse.catalogue import Catalogue, SchemaChange, load_catalogue

RELEASES = load_releases()
MEMORY_ONLY = {"typing", "presence_federation", "federation"}


def restrict_catalogue(release: Release) -> Catalogue:
    declared = load_catalogue()
    return declared.restrict_to_source([*declared.find_absent(release.columns, release.deltas)])


@pytest.fixture(params=RELEASES, ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    release_: Release = request.param
    return release_


def test_every_release_of_two_years_is_recorded() -> None:
    minors = [minor for minor, _ in groupby(release.minor for release in RELEASES)]
    assert minors == [(1, minor) for minor in range(120, minors[-1][1] + 1)]
    assert date.fromisoformat(RELEASES[0].released) <= COMPARED_ON.replace(year=COMPARED_ON.year - 2)
    assert load_catalogue().oldest_release == f"{minors[0][0]}.{minors[0][1]}"


def test_the_schema_version_is_supported(release: Release) -> None:
    declared = load_catalogue()
    assert declared.oldest_schema_version <= release.schema_version <= declared.newest_schema_version
    assert release.compat_version <= declared.oldest_schema_version
    assert release.list_facts("unfinished") == []


def test_every_column_exists_with_its_type(release: Release) -> None:
    columns = release.columns
    for table in restrict_catalogue(release).tables:
        for column in table.columns:
            for name in column.source_columns[:1]:
                assert columns[table.name].get(name) == column.source_type, f"{table.name}.{name}"


def test_every_key_is_unique(release: Release) -> None:
    facts = set(release.list_facts("unique"))
    for table in restrict_catalogue(release).tables:
        if table.key_enforced and not table.nullable_key:
            keys = {frozenset(re.findall(r"\w+", fact.partition("(")[2])) for fact in facts if " where " not in fact
                    and fact.startswith(f"{table.name} (")}  # fmt: skip
            assert any(key <= set(table.primary_key) for key in keys), table.name


def test_streams_and_sequences_equal_those_of_the_release(release: Release) -> None:
    source = restrict_catalogue(release)
    assert {stream.name for stream in source.streams} == set(release.list_facts("stream")) - MEMORY_ONLY
    assert set(source.sequence_names()) <= set(release.list_facts("sequence"))


def test_each_change_is_in_the_declared_release() -> None:
    declared = load_catalogue()
    first_release: dict[str, str] = {}
    for release in RELEASES:
        for delta in release.list_facts("delta"):
            first_release.setdefault(delta, ".".join(map(str, release.minor)))
    evolving = [table for table in declared.tables if table.is_evolving]
    changes = [
        change
        for table in declared.tables
        for declaration in (table, *table.columns)
        for change in (declaration.since, declaration.until)
        if change
    ]
    changes += [SchemaChange.model_validate(rule) for rule in load_rules().values()]
    assert {change.delta: change.release for change in changes} == {
        change.delta: first_release[change.delta] for change in changes
    }
    oldest, newest = ({*declared.find_absent(release.columns, release.deltas)} for release in
                      (RELEASES[0], RELEASES[-1]))  # fmt: skip
    assert {table.name for table in evolving} <= oldest
    assert len(oldest) == len(evolving) + sum(
        column.is_evolving for table in declared.tables if table not in evolving for column in table.columns
    )
    assert newest == set()


def test_the_schema_shows_the_releases_of_synapse(release: Release) -> None:
    declared = load_catalogue()
    absent = [*declared.find_absent(release.columns, release.deltas)]
    description = declared.describe_release(absent)
    oldest_versions = re.findall(r"^([0-9.]+) or later", description)
    end_versions = re.findall(r"before ([0-9.]+)$", description)
    assert oldest_versions or end_versions
    assert all(tuple(map(int, version.split("."))) <= release.minor for version in oldest_versions)
    assert all(release.minor < tuple(map(int, version.split("."))) for version in end_versions)
    assert bool(end_versions) == bool(absent)


def test_removed_columns_are_absent_after_their_removal() -> None:
    declared, removal = load_catalogue(), SchemaChange(release="1.170", delta="96/01_removed.sql")
    threads, events = declared.table("threads"), declared.table("events")
    columns = tuple(
        column.model_copy(update={"until": removal}) if column.name == "received_ts" else column
        for column in events.columns
    )
    later = declared.model_copy(
        update={
            "tables": (threads.model_copy(update={"until": removal}), events.model_copy(update={"columns": columns}))
        }
    )
    present = {"events": {name for column in columns for name in column.source_columns} - {"received_ts"}}
    assert later.list_deltas() == [removal.delta]
    assert [*later.find_absent(present, {removal.delta})] == ["threads", "events.received_ts"]
    assert [*later.find_absent(present, set())] == [], "a column that is missing before its removal is schema drift"
    assert later.describe_release(["threads", "events.received_ts"]) == "1.170 or later"
    assert later.describe_release([]).endswith("before 1.170")


def test_results_of_releases_have_enough_rows() -> None:
    assert load_results().keys() == set(REPRESENTATIVES)
    for counts in load_results().values():
        assert counts["visibility_answers"] >= 20_000
        assert counts["replication_rows"] > 0 < counts["saved_state_rows"]


def test_each_set_of_releases_has_one_representative() -> None:
    declared = load_catalogue()
    differences = {
        release.version: (*declared.find_absent(release.columns, release.deltas), *sorted(release.rules))
        for release in RELEASES
    }
    representatives = [differences[version] for version in REPRESENTATIVES]
    assert len(set(representatives)) == len(representatives)
    assert set(representatives) == set(differences.values())
    assert REPRESENTATIVES[0].rpartition(".")[0] == declared.oldest_release
