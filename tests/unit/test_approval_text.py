"""The text of the approval request for a compression plan."""

from synapse_lakehouse.compressor.approval_text import describe_plan

ROW = {
    "room_id": "!a:x", "strategy": "best", "release": 7, "groups": 114, "groups_to_rewrite": 55, "rows_before": 1500,
    "rows_after": 790, "bytes_before": 3_000_000, "bytes_after": 1_400_000, "rows_to_delete": 840,
    "rows_to_insert": 130, "bytes_needed": 90_000, "longest_chain_before": 49, "longest_chain_after": 48,
    "skipped": None,
}  # fmt: skip


def test_the_text_has_totals_and_the_numbers_of_each_room() -> None:
    text = describe_plan([ROW, ROW | {"room_id": "!b:x"}], [], may_write=True)
    assert text.startswith("**1,420 of 3,000 rows (47%) and about 3.2 MB**")
    assert "in 2 rooms" in text
    assert "180 kB" in text
    assert "| `!a:x` | 1,500 | 790 | 3.0 MB | 1.4 MB | 55 of 114 | 840 | 130 | 90 kB | 49 → 48 |" in text
    assert "not set" not in text


def test_the_text_lists_skipped_rooms_and_missing_settings() -> None:
    text = describe_plan([ROW] * 60, [{"room_id": "!c:x", "skipped": "a cycle"}], may_write=False)
    assert text.count("| `!a:x` |") == 50
    assert "\n\n10 more rooms" in text
    assert "`!c:x`, a cycle" in text
    assert "SYNAPSE_WRITE_DSN is not set" in text


def test_a_room_id_cannot_inject_markdown() -> None:
    text = describe_plan([ROW | {"room_id": "!`|\n# Approve:x"}], [], may_write=True)
    assert text.splitlines()[-1].startswith(r"| `!\x60\x7c\n# Approve:x` | 1,500")
