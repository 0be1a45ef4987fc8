"""Printable text contains no invisible characters, and no characters that change other text."""

import json
import logging
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from synapse_lakehouse.printable_text import (
    PrintableFormatter,
    get_printable_logger,
    is_visible,
    to_chat_text,
    to_markdown_code,
    to_printable,
    to_printable_json,
    to_printable_lines,
    to_printable_message,
    to_spreadsheet_cell,
)
from tests.support import hostile_text

ANY = st.text(st.characters() | st.sampled_from(hostile_text.ALL))


@given(ANY)
@example(hostile_text.ALL)
@example("\ud800 \x00")
def test_printable_text_is_one_line_and_stays_unchanged(text: str) -> None:
    printable = to_printable(text)
    assert not hostile_text.list_unprintable(printable, lines=False)
    assert to_printable(printable) == printable


@given(
    st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" ")).filter(lambda text: all(map(is_visible, text)))
)
@example("é e\u0301 日本　語 مرحبا नमस्ते עברית 👍🏽 ❤️ 🇩🇪")
def test_visible_text_is_unchanged(text: str) -> None:
    assert to_printable(text) == to_printable_lines(text) == text


@given(ANY)
def test_different_characters_have_different_escapes(text: str) -> None:
    escape_pattern = re.compile(r"\\(n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
    unescaped = escape_pattern.sub(
        lambda match: match[0].encode().decode("unicode_escape"), to_printable(text.replace("\\", ""))
    )
    assert unescaped == text.replace("\\", "")


@given(ANY)
def test_line_breaks_of_the_product_are_unchanged(text: str) -> None:
    assert to_printable_lines(text).split("\n") == [to_printable(line) for line in text.split("\n")]


@given(st.dictionaries(ANY, ANY))
@example({hostile_text.ALL: hostile_text.ALL})
def test_json_has_the_same_value(value: dict[str, str]) -> None:
    document = to_printable_json(json.dumps(value, ensure_ascii=False))
    assert not hostile_text.list_unprintable(document, lines=False)
    assert json.loads(document) == json.loads(json.dumps(value))


@given(ANY)
@example(hostile_text.ALL)
def test_chat_markup_is_escaped(text: str) -> None:
    chat_text = to_chat_text(text)
    assert not hostile_text.list_unprintable(chat_text)
    assert not set(chat_text) & set("@<>[]*`~|")
    assert "://" not in chat_text
    assert to_chat_text(chat_text) == chat_text


@given(ANY)
def test_text_cannot_end_its_code_span_or_cell(text: str) -> None:
    code = to_markdown_code(text)
    assert (code[0], code[-1]) == ("`", "`")
    assert not set(code[1:-1]) & set("`|\n")


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-2+3", "@SUM(1)", "  =1", "\uff1d1", "@a|cmd:x", "-", "@a:b'!A0"])
def test_a_spreadsheet_calculates_nothing(text: str) -> None:
    assert to_spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["!a;=1+1", '!a; "=1+1', "!a;@SUM(1)", "!a;\uff1d1", "!a;;-1"])
def test_no_formula_begins_after_a_semicolon(text: str) -> None:
    assert to_spreadsheet_cell(text) == r"\x3b".join(text.rpartition(";")[::2])


@pytest.mark.parametrize(
    "text", ["@alice:example.org", "@a=b/c+d:[::1]:8448", "-5", "+1.5e3", "!a:x", "a=b", "a; b", ""]
)
def test_user_ids_and_numbers_are_unchanged_in_a_spreadsheet(text: str) -> None:
    assert to_spreadsheet_cell(text) == text


def test_log_records_are_one_line_for_any_handler(caplog: pytest.LogCaptureFixture) -> None:
    log = get_printable_logger("synapse_lakehouse.test_printable_text")
    log.warning("%s of %d:\n  %s", "a\nb\x1b", 3, RuntimeError("\u202e"))
    log.warning("%(name)s", {"name": "a\nb"})
    assert [record.getMessage() for record in caplog.records] == ["a\\nb\\x1b of 3:\n  \\u202e", "a\\nb"]


def test_a_stack_trace_forges_no_record() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 1, "failed \x1b", (), None)
    try:
        raise RuntimeError("one\n2026-11-17 WARNING forged \x9b")
    except RuntimeError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    first, *trace = PrintableFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first == r"WARNING failed \x1b"
    assert all(line.startswith("    ") and not hostile_text.list_unprintable(line) for line in trace)


def test_quoted_lines_of_a_message_are_indented() -> None:
    message = to_printable_message("no room one\nerror: forged\r\n\x1b[2J\nSet another.")
    assert message.splitlines() == ["no room one", r"  error: forged\r", r"  \x1b[2J", "  Set another."]
