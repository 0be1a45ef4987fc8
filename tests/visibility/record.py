"""Record which events Synapse shows: in the sample, and in the sample after ``visibility_cases.sql``.

``python -m tests.visibility.record`` takes some minutes and writes ``sample_answers.parquet`` and
``visibility_cases_answers.parquet``.
"""

import hashlib
import json
import tempfile
from datetime import datetime
from pathlib import Path

import psycopg
import yaml

from sample import visibility_answers
from synapse_lakehouse.local.postgres import embedded_postgres, sample

HERE = Path(__file__).resolve().parent
SAMPLE = HERE / "sample_answers.parquet"
CASES = HERE / "visibility_cases_answers.parquet"
CASES_SQL = HERE / "visibility_cases.sql"
MANIFEST = json.loads((sample.SAMPLE_FOLDER / "manifest.json").read_text())

TAKEN_AT = int(datetime.fromisoformat(MANIFEST["taken_at"]).timestamp() * 1000)
SECTIONS = {key: yaml.safe_load(sample.SAMPLE_CONFIG.read_text())[key] for key in ("server_name", "retention")}
# Time before which messages expire in rooms without their own policy. 20 % of all messages are older.
EXPIRED = (
    "select percentile_disc(0.2) within group (order by origin_server_ts) from events where type = 'm.room.message'"
)


def record_sample(dsn: str, path: Path = SAMPLE) -> None:
    """Record answers on ``dsn``, a copy of the sample that Synapse may change."""
    visibility_answers.record(dsn, path, TAKEN_AT, SECTIONS, sample=MANIFEST["sha256"])


def record_cases(dsn: str, path: Path = CASES) -> None:
    """Apply ``visibility_cases.sql`` to ``dsn``, a copy of the sample, and record answers on it."""
    with psycopg.connect(dsn) as source:
        source.execute(CASES_SQL.read_text())
        (oldest,) = source.execute(EXPIRED).fetchone() or (0,)
    retention = {"enabled": True, "default_policy": {"max_lifetime": TAKEN_AT - oldest}}
    cases = hashlib.sha256(CASES_SQL.read_bytes()).hexdigest()
    visibility_answers.record(
        dsn, path, TAKEN_AT, SECTIONS | {"retention": retention}, sample=MANIFEST["sha256"], cases=cases
    )


def main() -> None:
    """Record the answers on both databases."""
    with (
        tempfile.TemporaryDirectory(prefix="visibility-") as folder,
        embedded_postgres.run_server(Path(folder) / "pg") as server,
    ):
        record_sample(sample.restore_sample(server, "plain"))
        record_cases(sample.restore_sample(server, "cases"))


if __name__ == "__main__":
    main()
