"""Ranges of an index's keys, in the order of the index: ascending, text by its bytes, NULL last."""

import re
from dataclasses import dataclass
from typing import Any, Final

from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex
from synapse_lakehouse.postgres.indexes.index_scan_sql import Key

_PLAIN_CONDITION: Final = re.compile(r"(?:[a-z_][a-z0-9_]*|'[A-Za-z0-9._-]*'|[0-9]+|[()=]|<>|\s|IS|NOT|NULL|AND|OR)*")
"""Conditions that PostgreSQL and Spark evaluate alike: comparisons of columns with plain constants."""


@dataclass(frozen=True)
class KeyRange:
    """The keys from ``first`` on and before ``end``; None: the start or the end of the index. Neither has a NULL."""

    first: Key | None
    end: Key | None

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        return (self.first is None or _follows(key, self.first)) and (self.end is None or not _follows(key, self.end))


def build_spark_condition(index: BtreeIndex, part: KeyRange) -> str:
    """Return Spark's SQL of the condition that a row's key is in ``part``."""
    bounds = []
    if part.first is not None:
        bounds.append(_follows_spark_sql(index.columns, part.first))
    if part.end is not None:
        bounds.append(f"not {_follows_spark_sql(index.columns, part.end)}")
    return " and ".join(bounds) or "true"


def to_spark_predicate(index: BtreeIndex) -> str | None:
    """Return Spark's SQL of a partial index's condition; None if Spark may evaluate the condition differently."""
    condition = (index.predicate or "true").replace("::text", "")
    return condition if _PLAIN_CONDITION.fullmatch(condition) else None


def _follows(key: tuple[Any, ...], bound: Key) -> bool:
    """Whether ``key`` is ``bound`` or comes after it."""
    for value, limit in zip(key, bound, strict=True):
        if value is None or value > limit:
            return True
        if value < limit:
            return False
    return True


def _follows_spark_sql(keys: tuple[str, ...], bound: Key) -> str:
    key, value = f"`{keys[0]}`", _spark_literal(bound[0])
    rest = _follows_spark_sql(keys[1:], bound[1:]) if len(keys) > 1 else "true"
    return f"({key} is null or {key} > {value} or ({key} = {value} and {rest}))"


def _spark_literal(value: object) -> str:
    if isinstance(value, str):
        # The text is in hexadecimal digits, because Spark's string literals have escapes.
        return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"
    return str(value).lower()
