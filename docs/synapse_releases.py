"""The page of Synapse's releases: the differences between releases, and the releases that tests use."""

from itertools import groupby
from typing import Final

from sample.releases import REPRESENTATIVES, load_releases, load_results, load_rules
from synapse_lakehouse.catalogue import Catalogue, load_catalogue

COLUMNS: Final = (
    "releases", "schema version", "additions", "schema changes", "schema of", "homeserver of", "visibility answers",
    "replication rows",
)  # fmt: skip
INTRODUCTION: Final = """# Releases of Synapse

Each release of Synapse on PyPI since 1.120.0, patch releases included, created a database once, by its own code.
`sample/releases.json` contains the schemas of these databases. The lakehouse reads the same tables, columns and streams
from all releases of one row, and all have the same rules of visibility.

Three rules came with a release:

- `soft_failed_option` and `policy_server_option`: an administrator may see soft-failed events
  (`return_soft_failed_events`), or only those that a policy server marked as spam
  (`return_policy_server_spammy_events`).
- `hidden_call_invites`: Synapse hides call invites in public rooms from all users.

`gold.event_visibility` applies a rule if the database has the schema changes of its release. After a rollback to an
earlier release, the rules of the later one still apply.

The column "additions" lists what a row has and all earlier rows lack. If a homeserver runs an earlier release, the
lake has an empty table for a missing table, and a constant or NULL for a missing column. For example,
`redactions.recheck` is then true in all rows. The lakehouse checks no stream that the release lacks. In parentheses,
"instead" names the place where earlier releases store the same information. `audit.snapshots.absent_objects` and
`lakehouse doctor` list the missing tables and columns.

Tests use one release of each row:

- "Schema of" names the release whose database a test creates again.
- "Homeserver of" names the release that a test runs as a homeserver with workers. Users act, the lakehouse copies the
  database, users act again, and the lakehouse copies the changes. The copy then equals the database.
- "Visibility answers" counts the answers of `gold.event_visibility` (one event and one user each) that the test
  compared with the release's own filter. All are equal.
- "Replication rows" counts the rows that `lakehouse replicate serve` sent and that the release's own classes parsed.
- The test also compresses the room state. The result equals that of Synapse's own compressor.

[Upgrade Synapse](../how-to/upgrade-synapse.md) describes later schema versions.
"""


def list_rows() -> list[tuple[str, ...]]:
    """Return a row for each set of consecutive releases with the same objects and rules, the oldest first."""
    declared, results, rows = load_catalogue(), load_results(), list[tuple[str, ...]]()
    absent_before, rules_before = set[str](), set[str]()
    deltas_before = {*declared.list_deltas(), *(rule["delta"] for rule in load_rules().values())}
    groups = groupby(
        load_releases(), lambda release: ({*declared.find_absent(release.columns, release.deltas)}, release.rules)
    )
    for (absent, rules), group in groups:
        releases = [*group]
        streams = {stream.name for stream in declared.restrict_to_source(absent).streams}
        before = {stream.name for stream in declared.restrict_to_source(absent_before).streams}
        added = [
            *(f"`{name}`{_name_replacement(declared, name)}" for name in sorted(absent_before - absent)),
            *(f"`stream {name}`" for name in sorted(streams - before)),
            *(f"rule `{name}`" for name in sorted(rules - rules_before)),
        ]
        deltas = sorted(deltas_before & releases[0].deltas)
        rows.append((
            f"{releases[0].version} to {releases[-1].version}" if releases[1:] else releases[0].version,
            ", ".join(str(version) for version in sorted({release.schema_version for release in releases})),
            ", ".join(added) if absent_before else "all tables, columns and streams that no later row adds",
            ", ".join(f"`{delta}`" for delta in deltas) if absent_before else "",
            ", ".join(release.version for release in releases if release.version in REPRESENTATIVES),
            *_result_cells([release.version for release in releases if release.version in results], results),
        ))  # fmt: skip
        absent_before, rules_before, deltas_before = absent, rules, deltas_before - releases[0].deltas
    return rows


def _name_replacement(declared: Catalogue, name: str) -> str:
    """Return, in parentheses, the place where releases without a table or column store the same information."""
    table_name, _, column = name.partition(".")
    table = declared.table(table_name)
    replacement = table.column(column).instead if column else table.instead
    return f" (instead: {replacement})" if replacement else ""


def _result_cells(versions: list[str], results: dict[str, dict[str, int]]) -> tuple[str, ...]:
    """Return the tested releases of a set, and the figures of their tests."""
    figures = ("visibility_answers", "replication_rows")
    return ", ".join(versions), *(", ".join(f"{results[name][figure]:,}" for name in versions) for figure in figures)
