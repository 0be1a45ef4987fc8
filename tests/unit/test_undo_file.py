"""A file that is not an undo file is refused with a reason."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

IDS = pa.array([1], pa.int64())
COLUMNS = {"state_group": IDS, "prev_state_group": IDS, "type": ["x"], "state_key": ["x"], "event_id": ["x"]}
POSITION = WalPosition(1, 2, 1, "0/50")
METADATA = {
    "room_id": "!r:example.org", "database": "synapse", "written": "20261128T000000",
    "lineage": json.dumps(asdict(POSITION)),
}  # fmt: skip


def write(path: Path, columns: Mapping[str, object], metadata: Mapping[str, object]) -> Path:
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(dict(metadata)), path)
    return path


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    file = undo_file.read(write(tmp_path / "x.parquet", COLUMNS, METADATA))
    assert (file.room_id, file.wal_position, file.groups.tolist()) == ("!r:example.org", POSITION, [1])


@pytest.mark.parametrize(
    "damage",
    [
        {"room_id": b"\xff"}, {"lineage": "{"}, {"lineage": "[]"}, {"lineage": '{"other": 1}'}, *(
            {name: None} for name in METADATA
        ),
    ],
    ids=str,
)  # fmt: skip
def test_damaged_metadata_is_refused(damage: dict[str, object], tmp_path: Path) -> None:
    metadata = {name: value for name, value in (METADATA | damage).items() if value is not None}
    with pytest.raises(CompressorError, match="not an undo file"):
        undo_file.read(write(tmp_path / "x.parquet", COLUMNS, metadata))


@pytest.mark.parametrize("columns", [{"a": IDS}, COLUMNS | {"state_group": ["1"]}], ids=["names", "types"])
def test_other_columns_are_refused(columns: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(CompressorError, match="not an undo file"):
        undo_file.read(write(tmp_path / "x.parquet", columns, METADATA))
