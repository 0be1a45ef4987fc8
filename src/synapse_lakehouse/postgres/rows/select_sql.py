"""Build the SELECT of a catalogued table: its columns, with their declared projections."""

import hashlib
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import (
    POSTGRES_TYPES,
    AbsentProjection,
    Column,
    DayProjection,
    DigestProjection,
    JsonKeysForTypeProjection,
    JsonKeysProjection,
    ListForTypeProjection,
    Table,
)
from synapse_lakehouse.postgres.rows.is_json_sql import JSON_STRING_PATTERN, OLDEST_SERVER_VERSION, build_is_json_sql
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange

UNREADABLE_JSON: Final = '"unreadable"'
"""The value in bronze for a text that should be a JSON object but cannot be parsed.

The text itself may not be copied, because its keys are unknown. The value is a JSON string, so queries do not fail."""

NON_OBJECT_JSON: Final = '"not an object"'
"""The value in bronze for valid JSON that is not an object."""

_EMPTY: Final = r'^(?:null|false|""|\[[ \t\n\r]*\]|-?0(?:\.0+)?(?:[eE][-+]?[0-9]+)?)$'
"""JSON values that are false in Python. Synapse reads them as an empty object in internal metadata."""

_MAX_INTEGER_DIGITS: Final = 4300
"""Maximum digits of an integer that Python parses. Synapse and the lake cannot read JSON with longer integers."""
_INTEGER: Final = r"(?:^|[\[:, \t\n\r])-?([0-9]+)(?![0-9.eE])"

_UNSUPPORTED_ESCAPE: Final = r"\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"


def build_select(
    table: Table,
    pages: PageRange = WHOLE_TABLE,
    since: int | None = None,
    ctids: str | None = None,
    server_version: int = OLDEST_SERVER_VERSION,
) -> sql.Composed:
    """Return the statement that reads ``table``, or a range of its pages, with bronze's columns.

    PostgreSQL reads only the pages of the range (TID range scan, since version 14). Ranges therefore split any table,
    with or without a key, and each row is read once.

    :param since: transaction ID. Only rows that it or a later transaction wrote are read.
    :param ctids: array of ctids in PostgreSQL's format. Only these rows are read; pages and ``since`` are ignored.
    :param server_version: version of the server that runs the statement, as in :func:`build_column_sql`.
    """
    statement = sql.SQL("select {columns} from {table}").format(
        columns=sql.SQL(", ").join(build_column_sql(column, server_version) for column in table.columns),
        table=sql.Identifier(table.name),
    )
    if ctids is not None:
        return statement + sql.SQL(" where ctid = any({}::tid[])").format(sql.Literal(ctids))
    first, last = pages
    conditions = []
    if (first, last) != WHOLE_TABLE:
        conditions.append(sql.SQL("ctid >= {}").format(sql.Literal(f"({first},0)")))
    if last is not None:
        conditions.append(sql.SQL("ctid < {}").format(sql.Literal(f"({last},0)")))
    if since is not None:
        conditions.append(build_changed_since_condition(since))
    return statement + sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else statement


def hash_select(table: Table, layout: str) -> str:
    """Return a SHA-256 of the table's SELECT and layout. If the hash changes, all rows must be read again.

    The hash changes when the catalogue lists other columns. It also changes when the table or one of its columns was
    recreated under the same name, because then values changed without new row versions.
    """
    return hashlib.sha256(build_select(table).as_bytes() + layout.encode()).hexdigest()


def build_changed_since_condition(transaction: int) -> sql.Composed:
    """Return the condition that ``transaction`` (64 bits) or a later one wrote the row version.

    ``age`` compares 32-bit IDs with the next transaction ID, so both IDs must be within 2^31 of the next ID. A row
    version beyond that distance has a negative age. The XOR with -2147483648 inverts the sign bit of both ages. A
    negative age is then greater than all other ages, so the row counts as unchanged, and ``age(xmin)`` is called only
    once for each row. PostgreSQL evaluates the subquery, with the age of ``transaction``, only once.
    """
    return sql.SQL("(age(xmin) # {turn}) <= (select age({since}::xid) # {turn})").format(
        turn=sql.SQL("(-2147483648)"), since=sql.Literal(str(transaction % (1 << 32)))
    )


def build_column_sql(column: Column, server_version: int = OLDEST_SERVER_VERSION) -> sql.Composable:
    """Return the SQL of one column, under its name in bronze. The SQL does not fail for any value.

    :param server_version: version of the server that runs the SQL. SQL for newer versions is faster.
    """
    name = sql.Identifier(column.name)
    if isinstance(column.projection, AbsentProjection):
        data_type = sql.SQL(POSTGRES_TYPES[column.data_type])
        return sql.SQL("{}::{} as {}").format(sql.Literal(column.projection.value), data_type, name)
    source = sql.Identifier(column.source_columns[0])
    match column.projection:
        case None:
            return source
        case JsonKeysProjection(keys=keys):
            value = _json_keys(source, keys, server_version)
        case JsonKeysForTypeProjection(keys=keys, type_column=type_column, type=wanted):
            value = sql.SQL("case when {} = {} then {} end").format(
                sql.Identifier(type_column), sql.Literal(wanted), _json_keys(source, keys, server_version)
            )
        case ListForTypeProjection(type_column=type_column, types=types):
            value = sql.SQL(
                "case when {type} in ({types}) then {source}"
                " when {source} is not null then array_fill(null::text, array[cardinality({source})]) end"
            ).format(type=sql.Identifier(type_column), types=sql.SQL(", ").join(map(sql.Literal, types)), source=source)
        case DayProjection():
            value = sql.SQL("{source} - mod({source}, {day})").format(
                source=source, day=sql.Literal(DayProjection.MILLISECONDS)
            )
        case DigestProjection():
            # convert_to with SQL_ASCII returns the bytes of the text as they are stored.
            value = sql.SQL("encode(sha256(convert_to({source}, 'SQL_ASCII')), 'hex')").format(source=source)
    return sql.SQL("{} as {}").format(value, name)


def build_null_column_sql(column: Column) -> sql.Composable:
    """Return the SQL that replaces a column that the role may not read: NULL, or a list of one NULL."""
    value = sql.SQL("array[null]::text[]" if isinstance(column.projection, ListForTypeProjection) else "null::text")
    return sql.SQL("{} as {}").format(value, sql.Identifier(column.name))


def build_stream_id_counts(table: Table, stream_column: str) -> sql.Composed:
    """Return the statement that counts a table's stream IDs by writer.

    The result's columns are writer (text or NULL), rows, rows without an ID, smallest ID, largest ID. Distinct IDs are
    not counted, because PostgreSQL would have to sort the table, with temporary files if it is large.
    """
    writer: sql.Composable = sql.Identifier(table.writer_column) if table.writer_column else sql.SQL("null::text")
    return sql.SQL(
        "select {writer}, count(*), count(*) filter (where {id} is null), min({id}), max({id}) from {table} group by 1"
    ).format(writer=writer, id=sql.Identifier(stream_column), table=sql.Identifier(table.name))


def _json_keys(source: sql.Identifier, keys: tuple[str, ...], server_version: int) -> sql.Composed:
    # Most rows contain none of the keys. A search for the key names, or for escapes, costs half as much as parsing.
    has_key_name = sql.SQL(" or ").join(
        sql.SQL("strpos({}, {}) > 0").format(source, sql.Literal(name)) for name in (*keys, "\\")
    )
    # The type jsonb would change the notation of numbers.
    return sql.SQL(
        "case when not {is_json} or {has_long_integer} then {unreadable}"
        " when left(ltrim({source}, {space}), 1) <> '{{' then"
        " case when btrim({source}, {space}) ~ {empty} then '{{}}' else {not_an_object} end"
        " when {has_key_name} then (select coalesce(json_object_agg(each.key, each.value)::text, '{{}}')"
        " from json_each({document}::json) as each where each.key in ({keys}))"
        " when {source} is not null then '{{}}' end"
    ).format(
        is_json=build_is_json_sql(source, server_version),
        has_long_integer=_has_long_integer(source),
        unreadable=sql.Literal(UNREADABLE_JSON),
        not_an_object=sql.Literal(NON_OBJECT_JSON),
        space=sql.Literal(" \t\n\r"),
        empty=sql.Literal(_EMPTY),
        has_key_name=has_key_name,
        document=_replace_unsupported_escapes(source),
        source=source,
        keys=sql.SQL(", ").join(map(sql.Literal, keys)),
    )


def _has_long_integer(source: sql.Identifier) -> sql.Composed:
    return sql.SQL(
        "case when octet_length({source}) > {longest} then exists (select from regexp_matches("
        "regexp_replace({source}, {string}, '', 'g'), {integer}, 'g') as found where length(found[1]) > {longest})"
        " else false end"
    ).format(
        source=source,
        string=sql.Literal(JSON_STRING_PATTERN),
        integer=sql.Literal(_INTEGER),
        longest=sql.Literal(_MAX_INTEGER_DIGITS),
    )


def _replace_unsupported_escapes(source: sql.Identifier) -> sql.Composed:
    """Return JSON text that PostgreSQL can parse.

    JSON allows escapes of U+0000 and of unpaired surrogates, and other servers may send them, but PostgreSQL refuses
    them. The escape of U+FFFD replaces each of them.
    """
    return sql.SQL(
        "case when {source} ~ {bad} then regexp_replace({source}, {escaped}, {mended}, 'g') else {source} end"
    ).format(
        source=source,
        bad=sql.Literal(_UNSUPPORTED_ESCAPE),
        escaped=sql.Literal(rf"(?<!\\)((?:\\\\)*){_UNSUPPORTED_ESCAPE}"),
        mended=sql.Literal(r"\1\\ufffd"),
    )
