"""Rows are reduced to the fields that the catalogue lists."""

from typing import Any

import pytest

from synapse_lakehouse.replication.tap.redact_fields import WITHHELD_KEY, RowRedactor, hash_json
from tests.replication.database import CATALOGUE


@pytest.mark.parametrize(
    ("stream", "row", "stored"),
    [
        ("events", ["ev", ["$a", "!r", "m.x", None, None, "$b", None, False, False]], ...),
        ("events", ["state", ["!r", "m.x", "", "$a"]], ...),
        ("events", ["state-all", ["!r"]], ...),
        ("events", ["future", ["secret"]], None),
        ("presence", ["@a", "offline", 86400001, 5, 172800000, "at the doctor's", True],
         ["@a", "offline", 86400000, 0, 172800000, None, True]),
        ("receipts", ["!r", "m.read", "@a", "$a", "main", {"ts": 5, "more": "secret"}],
         ["!r", "m.read", "@a", "$a", "main", {"ts": 5}]),
        ("pushers", ["@a", "app", "secret", False], ["@a", "app", None, False]),
        ("device_lists", ["@a", False, True], ...),
        ("account_data", ["@a", "!r", "m.tag"], ...),
        ("to_device", ["@a"], [None]),
        ("typing", ["!r", ["@a"]], None),
        ("push_rules", ["@a", "more than is known"], ["@a"]),
        ("caches", ["get_user_by_id", ["@a"], 5], ["get_user_by_id", hash_json(["@a"]), 5]),
        ("caches", ["get_user_by_id", None, 5], ...),
        ("caches", ["get_monthly_active_count", [], 5], ["get_monthly_active_count", hash_json([]), 5]),
        ("caches", ["get_user_by_access_token", [None], 5], ["get_user_by_access_token", WITHHELD_KEY, 5]),
        ("caches", "odd", None),
        ("unheard_of", ["secret"], None),
    ],
)  # fmt: skip
def test_rows_retain_the_listed_fields(stream: str, row: Any, stored: Any) -> None:
    assert RowRedactor(CATALOGUE).redact(stream, row) == (row if stored is ... else stored)
