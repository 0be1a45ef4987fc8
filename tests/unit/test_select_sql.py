"""The SELECT of a catalogued table."""

import re

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.postgres.rows.select_sql import build_select

CATALOGUE = catalogue.load_catalogue()


def test_page_ranges_are_selected_by_ctid() -> None:
    table = CATALOGUE.table("erased_users")
    assert build_select(table).as_string() == 'select "user_id" from "erased_users"'
    assert build_select(table, (8, 16)).as_string().endswith("where ctid >= '(8,0)' and ctid < '(16,0)'")
    assert build_select(table, (16, None)).as_string().endswith("where ctid >= '(16,0)'")


def test_rows_with_known_ctids_are_selected_by_ctid() -> None:
    statement = build_select(CATALOGUE.table("erased_users"), since=7, ctids='{"(0,1)"}').as_string()
    assert statement.endswith("""where ctid = any('{"(0,1)"}'::tid[])""")


@pytest.mark.parametrize("table", CATALOGUE.copied_tables(), ids=lambda table: table.name)
def test_only_columns_of_the_catalogue_are_selected(table: catalogue.Table) -> None:
    statement = re.sub("'(?:[^']|'')*'", "", build_select(table).as_string())
    identifiers = set(statement.split('"')[1::2])
    assert identifiers <= {table.name} | {c.name for c in table.columns} | {
        n for c in table.columns for n in c.source_columns
    }
