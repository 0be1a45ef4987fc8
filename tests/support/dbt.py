"""A Spark session in another process, in which tests run dbt commands and SQL."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER

ANSWER = "answer: "


@dataclass(frozen=True)
class DbtSession:
    """A process with a Spark session on a lake. It runs dbt commands and SQL, one after the other."""

    process: subprocess.Popen[str]
    target: Path
    log: Path

    def sql(self, statement: str, branch: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of ``statement`` on ``branch`` (by default on main)."""
        rows: list[dict[str, Any]] = self._execute({"branch": branch, "sql": statement})
        return rows

    def dbt(self, *arguments: str, branch: str, project: Path = PROJECT_FOLDER / "dbt") -> dict[str, Any]:
        """Run ``dbt <arguments>`` on ``branch``; return ``success``, and ``results`` as name → [status, message]."""
        result: dict[str, Any] = self._execute({"branch": branch, "dbt": [*arguments, *self._folders(project)]})
        return result

    def build(self, run: Run) -> None:
        """Build all models on the branch of ``run``, as the Spark app does."""
        self._execute({"branch": run.branch, "build": run.to_arguments()})

    def resolve(self, branch: str, minimum_rows: int) -> bool:
        """Resolve the state on ``branch``; return whether only changed rooms were resolved."""
        is_partial: bool = self._execute({"branch": branch, "resolve": minimum_rows})
        return is_partial

    def register_changes(self, branch: str, project: Path = PROJECT_FOLDER / "dbt") -> bool:
        """Pass the changes on ``branch`` since main to the next dbt commands; return whether they are known."""
        are_known: bool = self._execute({"branch": branch, "changes": [*self._folders(project)]})
        return are_known

    def rows_of_last_commit(self, table: str, branch: str) -> int:
        """Return the number of rows that the last commit to ``table`` on ``branch`` added."""
        return int(self._read_last_commit(table, branch, "summary['added-records']") or 0)

    def operation_of_last_commit(self, table: str, branch: str) -> str | None:
        """Return Iceberg's operation of the last commit to ``table`` on ``branch``, such as ``append``."""
        return self._read_last_commit(table, branch, "operation")

    def _read_last_commit(self, table: str, branch: str, column: str) -> str | None:
        (last,) = self.sql(
            f"select {column} as value from {table}.refs join {table}.snapshots using (snapshot_id)"
            f" where name = '{branch}'"
        )
        value: str | None = last["value"]
        return value

    def _folders(self, project: Path) -> list[str]:
        folders = ["--project-dir", project, "--profiles-dir", project, "--target-path", self.target]
        return [*map(str, folders), "--log-path", str(self.target)]

    def _execute(self, command: dict[str, Any]) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(command), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise AssertionError(f"the session ended:\n{self.log.read_text()}")


@contextmanager
def dbt_session(environment: Mapping[str, str], folder: Path) -> Iterator[DbtSession]:
    """Run a :class:`DbtSession` on the lake of ``environment``, with its files in ``folder``."""
    log = folder / "session.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, PROJECT_FOLDER / "tests" / "dbt" / "dbt_session.py"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        ) as process,
    ):  # fmt: skip
        yield DbtSession(process, folder / "target", log)
        assert process.stdin
        process.stdin.close()


class SingleModelProject:
    """A copy of the dbt project with one model instead of the project's models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("silver", "gold", "integrity", "bronze", "_exposures.yml")
        shutil.copytree(PROJECT_FOLDER / "dbt", folder, ignore=ignored)
        (folder / "models" / "silver").mkdir()

    def model(
        self, sql: str, materialized: str = "replace_on_branch", meta: str = "{}", test: str = "", **columns: str
    ) -> None:
        """Define the model ``thing`` as ``sql``, with a contract of ``columns``; ``meta`` and ``test`` are YAML."""
        lines = [
            f"      - {{name: {name}, data_type: {type}, description: It's {name}}}" for name, type in columns.items()
        ]
        config = f"    config: {{materialized: {materialized}, meta: {meta}}}"
        head = ["models:", "  - name: thing", "    description: A thing", config]
        head += [f"    data_tests: [{test}]", "    columns:"]
        (self.folder / "models" / "silver" / "_thing.yml").write_text("\n".join([*head, *lines]))
        (self.folder / "models" / "silver" / "thing.sql").write_text(sql)
