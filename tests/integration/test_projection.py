"""A projected column has a defined value for any JSON that a user or another server may send."""

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
"""A version for each way to check JSON; the server of the tests supports both ways."""

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def session(server: EmbeddedServer) -> Iterator[Session]:
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        yield connection


def project(session: Session, text: str | None) -> object:
    results = set()
    for version in VERSIONS:
        statement = sql.SQL("select {} from (select %s::text as data) as given").format(
            build_column_sql(COLUMN, version)
        )
        (value,) = session.execute(statement, [text]).fetchone() or ("nothing",)
        results.add(value)
    (value,) = results
    return json.loads(str(value)) if value is not None else None


NO_OBJECT, UNREADABLE = json.loads(NON_OBJECT_JSON), json.loads(UNREADABLE_JSON)


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
        ('" "', NO_OBJECT),
        ("0.01", NO_OBJECT),
        ("[[]]", NO_OBJECT),
        ('{"ts": 1, "x": [1,-' + "7" * 4300 + "]}", {"ts": 1}),
        ('{"ts": 1, "x": [1,-' + "7" * 4301 + "]}", UNREADABLE),
        ('{"ts": 1, "x": ' + "7" * 4301 + ".5}", {"ts": 1}),
        ('{"ts": 1, "x": 1.' + "7" * 4301 + "}", {"ts": 1}),
        (r'{"ts": 1, "x": "\"[' + "7" * 4301 + ']"}', {"ts": 1}),
        (r'["ts", "\u0000"]', NO_OBJECT),
        ('"ts"', NO_OBJECT),
        ("1", NO_OBJECT),
        (r"\x7b227473223a317d", UNREADABLE),
        ('{"ts": 1', UNREADABLE),
        ('{"secret": tru', UNREADABLE),
        ("secret", UNREADABLE),
        ("", UNREADABLE),
        ('{"ts": NaN}', UNREADABLE),
        ('{"ts": 01}', UNREADABLE),
        ('{"ts": 1}}', UNREADABLE),
        ('{"ts": 1,}', UNREADABLE),
        ('{"ts": "\t"}', UNREADABLE),
        ('{"ts": \x02}', UNREADABLE),
        ("{\x01:\x02}", UNREADABLE),
        ('{"ts": 1, "x": ' + "[" * 900 + "]" * 900 + "}", {"ts": 1}),
        # Brackets that are no nesting levels: in text, such as a client's transaction ID, and side by side.
        ('{"ts": 1, "x": "' + "[" * 90_000 + '"}', {"ts": 1}),
        ('{"ts": 1, "x": [' + ",".join(["[]"] * 9000) + "]}", {"ts": 1}),
        ('{"ts": 1, "x": [' + ",".join(['{"[": 0}'] * 9000) + "}}", UNREADABLE),
        ('{"ts": 1, "x": ' + "[" * 90_000 + "]" * 90_000 + "}", UNREADABLE),
        ('{"ts": 1, "x": ' + "[" * 90_000, UNREADABLE),
        ('{"ts": 1e999999}', {"ts": float("inf")}),
    ],
)
def test_only_listed_keys_are_projected_from_any_text(session: Session, text: str | None, expected: object) -> None:
    assert project(session, text) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_valid_json_parses_with_the_smallest_stack(session: Session, version: int) -> None:
    # The planner would compute a constant on a fuller stack.
    statement = sql.SQL("select {} from (select %s::text as data offset 0) as given").format(
        build_column_sql(COLUMN, version)
    )
    with session.transaction(force_rollback=True):
        session.execute("set local max_stack_depth = '100kB'")
        for levels in (150, 190, 210, 800, 5000):
            session.execute(statement, ['{"ts": ' + "[" * levels + "]" * levels + "}"])


@pytest.mark.parametrize("item", ["1", '"s"', "[1]", '{"k": 1}'])
def test_nested_text_is_not_read_again_at_each_level(session: Session, item: str) -> None:
    items = ",".join([item] * 50_000)
    with session.transaction(force_rollback=True):
        session.execute("set local statement_timeout = '8s'")
        for levels in (100, 900):
            text = f'{{"ts": 1, "x": [{items}, {"[" * levels + "]" * levels}, {items}]}}'
            assert project(session, text) == ({"ts": 1} if levels == 100 or item in ("1", '"s"') else UNREADABLE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(max_codepoint=0x1FFFF)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(document=st.dictionaries(st.sampled_from(["ts", "ts ", "x\\", "\0", "\ud800", "y"]), VALUES))
def test_the_value_equals_python_s_projection(session: Session, document: dict[str, object]) -> None:
    text = json.dumps(document)
    actual = project(session, text)
    assert isinstance(actual, dict)
    expected = {"ts": document["ts"]} if "ts" in document else {}
    assert actual.keys() == expected.keys()
    if not re.search(r"\\u(0000|d)", text):
        assert actual == expected


INSERTED_CHARACTERS = '[]{}:,"\\u1e-.0truefalsn \x01\x02é'
"""Characters that the test inserts into JSON, most of which make it invalid."""


@settings(deadline=None, max_examples=200)
@given(
    document=VALUES,
    space=st.sampled_from([None, 1]),
    edits=st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 3), st.text(INSERTED_CHARACTERS, max_size=2)), max_size=3
    ),
)
def test_text_is_json_exactly_if_python_parses_it(
    session: Session, document: object, space: int | None, edits: list[tuple[int, int, str]]
) -> None:
    text = json.dumps(document, indent=space, ensure_ascii=False).encode(errors="replace").decode()
    for offset, length, insertion in edits:
        start = offset % (len(text) + 1)
        text = text[:start] + insertion + text[start + length :]
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
