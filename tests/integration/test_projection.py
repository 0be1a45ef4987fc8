"""Projected columns: PostgreSQL's result for any JSON that a user or another server may send."""

import hashlib
import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.rows.is_json_sql import OLDEST_SERVER_VERSION, build_is_json_sql
from synapse_lakehouse.postgres.rows.select_sql import NON_OBJECT_JSON, UNREADABLE_JSON, build_column_sql

COLUMN = catalogue.load_catalogue().table("receipts_linearized").column("data")
VERSIONS = [OLDEST_SERVER_VERSION, 160_000]
"""Of each way to check JSON; the server of the tests understands both."""

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def session(server: EmbeddedServer) -> Iterator[Session]:
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        yield connection


def projected(session: Session, text: str | None) -> object:
    results = set()
    for version in VERSIONS:
        statement = sql.SQL("select {} from (select %s::text as data) as given").format(
            build_column_sql(COLUMN, version)
        )
        (value,) = session.execute(statement, [text]).fetchone() or ("nothing",)
        results.add(value)
    (value,) = results
    return json.loads(str(value)) if value is not None else None


OTHER, BROKEN = json.loads(NON_OBJECT_JSON), json.loads(UNREADABLE_JSON)


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
        ('{"ts": {"ts": [1, 2.50]}}', {"ts": {"ts": [1, 2.5]}}),
        ("null", {}),
        (" [] ", {}),
        ("[ \t\n\r]", {}),
        ("-0", {}),
        ("0.0", {}),
        ("-0.00e-5", {}),
        (' "" ', {}),
        ('" "', OTHER),
        ("0.01", OTHER),
        ("[[]]", OTHER),
        ('{"ts": 1, "x": [1,-' + "7" * 4300 + "]}", {"ts": 1}),
        ('{"ts": 1, "x": [1,-' + "7" * 4301 + "]}", BROKEN),
        ('{"ts": 1, "x": ' + "7" * 4301 + ".5}", {"ts": 1}),
        ('{"ts": 1, "x": 1.' + "7" * 4301 + "}", {"ts": 1}),
        (r'{"ts": 1, "x": "\"[' + "7" * 4301 + ']"}', {"ts": 1}),
        (r'["ts", "\u0000"]', OTHER),
        ('"ts"', OTHER),
        ("1", OTHER),
        (r"\x7b227473223a317d", BROKEN),
        ('{"ts": 1', BROKEN),
        ('{"secret": tru', BROKEN),
        ("secret", BROKEN),
        ("", BROKEN),
        ('{"ts": NaN}', BROKEN),
        ('{"ts": 01}', BROKEN),
        ('{"ts": 1}}', BROKEN),
        ('{"ts": 1,}', BROKEN),
        ('{"ts": "\t"}', BROKEN),
        ('{"ts": \x02}', BROKEN),
        ("{\x01:\x02}", BROKEN),
        ('{"ts": 1, "x": ' + "[" * 900 + "]" * 900 + "}", {"ts": 1}),
        # Brackets that are no levels: in text, as in a transaction ID that a client chose, and side by side.
        ('{"ts": 1, "x": "' + "[" * 90_000 + '"}', {"ts": 1}),
        ('{"ts": 1, "x": [' + ",".join(["[]"] * 9000) + "]}", {"ts": 1}),
        ('{"ts": 1, "x": [' + ",".join(['{"[": 0}'] * 9000) + "}}", BROKEN),
        ('{"ts": 1, "x": ' + "[" * 90_000 + "]" * 90_000 + "}", BROKEN),
        ('{"ts": 1, "x": ' + "[" * 90_000, BROKEN),
        ('{"ts": 1e999999}', {"ts": float("inf")}),
    ],
)
def test_only_listed_keys_leave_and_no_text_breaks_it(session: Session, text: str | None, expected: object) -> None:
    assert projected(session, text) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_valid_json_parses_with_the_smallest_stack(session: Session, version: int) -> None:
    # Not a constant, which the planner would compute on a fuller stack.
    statement = sql.SQL("select {} from (select %s::text as data offset 0) as given").format(
        build_column_sql(COLUMN, version)
    )
    with session.transaction(force_rollback=True):
        session.execute("set local max_stack_depth = '100kB'")
        for levels in (150, 190, 210, 800, 5000):
            session.execute(statement, ['{"ts": ' + "[" * levels + "]" * levels + "}"])


@pytest.mark.parametrize("item", ["1", '"s"', "[1]", '{"k": 1}'])
def test_each_level_of_a_text_does_not_read_all_of_it_again(session: Session, item: str) -> None:
    items = ",".join([item] * 50_000)
    with session.transaction(force_rollback=True):
        session.execute("set local statement_timeout = '8s'")
        for levels in (100, 900):
            text = f'{{"ts": 1, "x": [{items}, {"[" * levels + "]" * levels}, {items}]}}'
            assert projected(session, text) == ({"ts": 1} if levels == 100 or item in ("1", '"s"') else BROKEN)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(max_codepoint=0x1FFFF)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(document=st.dictionaries(st.sampled_from(["ts", "ts ", "x\\", "\0", "\ud800", "y"]), VALUES))
def test_it_equals_python_s_projection(session: Session, document: dict[str, object]) -> None:
    text = json.dumps(document)
    actual = projected(session, text)
    assert isinstance(actual, dict)
    listed = {"ts": document["ts"]} if "ts" in document else {}
    assert actual.keys() == listed.keys()
    if not re.search(r"\\u(0000|d)", text):
        assert actual == listed


PUT = '[]{}:,"\\u1e-.0truefalsn \x01\x02é'
"""What is put into JSON, so that it mostly is none any more."""


@settings(deadline=None, max_examples=200)
@given(
    document=VALUES,
    space=st.sampled_from([None, 1]),
    cuts=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.text(PUT, max_size=2)), max_size=3),
)
def test_it_is_json_exactly_if_python_parses_it(
    session: Session, document: object, space: int | None, cuts: list[tuple[int, int, str]]
) -> None:
    text = json.dumps(document, indent=space, ensure_ascii=False).encode(errors="replace").decode()
    for place, length, put in cuts:
        at = place % (len(text) + 1)
        text = text[:at] + put + text[at + length :]
    try:
        json.loads(text, parse_constant=_refuse)
        expected = True
    except ValueError:
        expected = False
    for version in VERSIONS:
        statement = sql.SQL("select {}").format(build_is_json_sql(sql.SQL("%(text)s::text"), version))
        assert session.execute(statement, {"text": text}).fetchone() == (expected,)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@pytest.mark.parametrize("text", [None, "", '{"last_user_id": "@é:x"}', r"\x00 \ \u0000", "😀"])
def test_a_digest_is_that_of_the_text(session: Session, text: str | None) -> None:
    column = catalogue.load_catalogue().table("background_updates").column("progress_digest")
    statement = sql.SQL("select {} from (select %s::text as progress_json) as given").format(build_column_sql(column))
    assert session.execute(statement, [text]).fetchone() == (
        None if text is None else hashlib.sha256(text.encode()).hexdigest(),
    )
