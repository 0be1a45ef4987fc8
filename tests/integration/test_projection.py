"""Projected columns: what PostgreSQL makes of any JSON that a user or another server may have sent."""

import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.source.projection import expression

COLUMN = catalogue.load().table("receipts_linearized").column("data")
STATEMENT = sql.SQL("select {} from (select %s::text as data) as given").format(expression(COLUMN))

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def session(server: Server) -> Iterator[Session]:
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        yield connection


def projected(session: Session, text: str | None) -> object:
    row = session.execute(STATEMENT, [text]).fetchone()
    assert row is not None
    return json.loads(str(row[0])) if row[0] is not None else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("{}", {}),
        ('{"ts": 1, "thread_id": "secret"}', {"ts": 1}),
        (r'{"ts": 1, "x": "\u0000"}', {"ts": 1}),
        (r'{"ts": 1, "x": "\ud800"}', {"ts": 1}),
        (r'{"ts": 1, "x": "\udc00\ud800"}', {"ts": 1}),
        (r'{"ts": 1, "x": "\\\u0000\\u0000"}', {"ts": 1}),
        (r'{"ts": 1, "\u0000": "\ud83d\ude00"}', {"ts": 1}),
        (r'{"\u0074s": 1}', {"ts": 1}),
        (r'["ts", "\u0000"]', {}),
        ('"ts"', {}),
        ('["ts"]', {}),
        ("null", {}),
        ('{"ts": {"ts": [1, 2.50]}}', {"ts": {"ts": [1, 2.5]}}),
    ],
)
def test_only_listed_keys_leave_and_no_text_breaks_it(session: Session, text: str | None, expected: object) -> None:
    assert projected(session, text) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(max_codepoint=0x1FFFF)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(document=st.dictionaries(st.sampled_from(["ts", "ts ", "x\\", "\0", "\ud800", "y"]), VALUES) | VALUES)
def test_it_is_what_python_would_leave_of_the_document(session: Session, document: object) -> None:
    text = json.dumps(document)
    found = projected(session, text)
    assert isinstance(found, dict)
    listed = {"ts": document["ts"]} if isinstance(document, dict) and "ts" in document else {}
    assert found.keys() == listed.keys()
    if not re.search(r"\\u(0000|d)", text):
        assert found == listed
