"""SQL that checks whether PostgreSQL can parse a text as JSON. The SQL never fails."""

from typing import Final

from psycopg import sql

OLDEST_SERVER_VERSION: Final = 140_000
"""The oldest supported ``server_version_num``. SQL for this version runs on all supported servers."""

_WITH_INPUT_CHECK: Final = 160_000

_BYTES_PER_LEVEL: Final = 512
"""Assumed bytes of stack per level of nesting. PostgreSQL uses 128, and fails beyond ``max_stack_depth``."""
_SHALLOW_BYTES: Final = 200
"""A text of at most this length is parsed even with the minimum ``max_stack_depth`` (100 kB)."""
_MAX_LEVELS: Final = 128
"""Maximum depth of a text with many brackets. Brackets in strings, and brackets side by side, add no depth."""

JSON_STRING_PATTERN: Final = r'"(?:[^"\\\u0001-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
"""Regular expression of a JSON string."""
_SCALAR: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null"
_SPACE: Final = r"[ \t\n\r]"

# Most texts are an object of scalars and of lists of scalars. One match costs a tenth of the general check.
_W: Final = f"{_SPACE}*"
_VALUE: Final = f"(?:{JSON_STRING_PATTERN}|{_SCALAR})"
_LIST: Final = rf"\[{_W}(?:{_VALUE}{_W}(?:,{_W}{_VALUE}{_W})*)?\]"
_PAIR: Final = f"{JSON_STRING_PATTERN}{_W}:{_W}(?:{_VALUE}|{_LIST}){_W}"
_FLAT: Final = rf"^{_W}\{{{_W}(?:{_PAIR}(?:,{_W}{_PAIR})*)?\}}{_W}$"

# The general check reduces JSON from the inside. U+0001 replaces strings, U+0002 other values; JSON contains neither.
_CONTROL: Final = r"[\u0001-\u0008\u000b\u000c\u000e-\u001f]"
_ANY: Final = r"[\u0001\u0002]"
_OTHER: Final = r"[^\u0001\u0002,:\[\]{}]"
# Adjacent scalars are reduced to one, so that the next level does not read all of them again.
_ITEMS: Final = rf"(?:,{_ANY}){{2,}}(?=[,\]])"
_PAIRS: Final = rf"(?:,\u0001:{_ANY}){{2,}}"
_INNERMOST: Final = rf"\[(?:{_ANY}(?:,{_ANY})*)?\]|\{{(?:\u0001:{_ANY}(?:,\u0001:{_ANY})*)?\}}"

_MANY_BRACKETS: Final = (
    "octet_length({text}) > {shallow} and length({text}) - length(translate({text}, '[{{', ''))"
    " > pg_size_bytes(current_setting('max_stack_depth')) / {a_level}"
)
_BY_INPUT_CHECK: Final = "pg_input_is_valid({text}, 'json')"
_BY_PATTERNS: Final = (
    "case when {text} ~ {flat} then true when {text} ~ {control} then false else ("
    "with recursive step(rest, levels) as (select regexp_replace(regexp_replace(regexp_replace("
    "{text}, {string}, {a_string}, 'g'), {scalar}, {a_value}, 'g'), {space}, '', 'g'),"
    " case when {many_brackets} then {most_levels} end"
    " union all select regexp_replace(regexp_replace(regexp_replace("
    "rest, {items}, {an_item}, 'g'), {pairs}, {a_pair}, 'g'), {innermost}, {a_value}, 'g'), levels - 1 from step"
    " where rest ~ {innermost} and rest !~ {other} and coalesce(levels > 0, true))"
    " select bool_or(rest in ({a_string}, {a_value})) from step) end"
)


def build_is_json_sql(text: sql.Composable, server_version: int = OLDEST_SERVER_VERSION) -> sql.Composed:
    """Return the SQL condition that ``text`` (of the type text) can be cast to json. It is NULL for NULL.

    PostgreSQL 16 and later check a value without an error (``pg_input_is_valid``). For older versions regular
    expressions replace each object or list of scalars by a scalar until one scalar remains. Both methods return the
    same result.

    A text with too many brackets may overflow the parser's stack. Such a text counts as invalid if it is nested deeper
    than :data:`_MAX_LEVELS`.
    """
    check = _BY_PATTERNS
    if server_version >= _WITH_INPUT_CHECK:
        check = f"case when {{many_brackets}} then {_BY_PATTERNS} else {_BY_INPUT_CHECK} end"
    many_brackets = sql.SQL(_MANY_BRACKETS).format(
        text=text, shallow=sql.Literal(_SHALLOW_BYTES), a_level=sql.Literal(_BYTES_PER_LEVEL)
    )
    return sql.SQL(check).format(
        text=text,
        many_brackets=many_brackets,
        most_levels=sql.Literal(_MAX_LEVELS),
        flat=sql.Literal(_FLAT),
        control=sql.Literal(_CONTROL),
        string=sql.Literal(JSON_STRING_PATTERN),
        scalar=sql.Literal(_SCALAR),
        space=sql.Literal(f"{_SPACE}+"),
        innermost=sql.Literal(_INNERMOST),
        other=sql.Literal(_OTHER),
        items=sql.Literal(_ITEMS),
        pairs=sql.Literal(_PAIRS),
        an_item=sql.Literal(",\x02"),
        a_pair=sql.Literal(",\x01:\x02"),
        a_string=sql.Literal("\x01"),
        a_value=sql.Literal("\x02"),
    )
