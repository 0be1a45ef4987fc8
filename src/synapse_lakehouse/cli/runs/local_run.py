"""A run without a scheduler, by `airflow dags test`, with the same DAG and operators."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from synapse_lakehouse import file_lock
from synapse_lakehouse.cli.runs.task_log import KILLED_TEXT, RunStep, TaskLogParser
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.local import child_processes
from synapse_lakehouse.local.airflow import prepare_airflow

_TAIL = 10
# Airflow ignores SIGTERM during a Python task; Spark and its workers end within a second.
_GRACE_SECONDS = 3.0


@dataclass
class LocalRun:
    """A run of the DAG for the data interval that Airflow infers from ``logical_date``.

    ``log``: the file for Airflow's output.
    """

    prepared: prepare_airflow.PreparedAirflow
    logical_date: datetime
    start: datetime
    end: datetime
    log: Path
    farewell: str = "Stopped. No release was published. You can run the command again at any time."
    _child: subprocess.Popen[bytes] | None = None
    _progress: TaskLogParser = field(default_factory=TaskLogParser)

    @property
    def where(self) -> str:
        """Path of the log."""
        return str(self.log)

    def steps(self) -> Iterator[RunStep]:
        """Yield the steps of the run until it ends."""
        self.log.parent.mkdir(exist_ok=True)
        date = self.logical_date.replace(tzinfo=None).isoformat()
        with self.log.open("wb") as log, ExitStack() as startup:
            # Airflow first writes its DAGs to the database. This fails if two first runs do it at once.
            startup.enter_context(file_lock.exclusive_lock(self.prepared.home / "dags.lock"))
            self._child = child_processes.start_process(
                [str(prepare_airflow.BIN / "airflow"), "dags", "test", self.prepared.main_dag, date],
                self.prepared.environment | {"AIRFLOW__LOGGING__JSON_LOGS": "True"},
                subprocess.PIPE,
                if_orphaned=signal.SIGKILL,
            )
            assert self._child.stdout
            for line in self._child.stdout:
                log.write(line)
                log.flush()
                step = self._progress.read(line.decode(errors="replace").rstrip("\n"))
                if step or self._progress.run_id:
                    startup.close()
                if step:
                    yield step
        if self._child.wait() == -signal.SIGKILL:
            yield RunStep("failed", self._progress.task or "airflow dags test", f"Airflow {KILLED_TEXT}.")
        elif self._child.returncode and not self._progress.task:
            yield RunStep("failed", "airflow dags test", self._last_lines())

    def failed(self) -> bool:
        """Return whether the run failed."""
        return self._child is None or self._child.returncode != 0

    def close(self) -> None:
        """Stop the remaining processes, mark the run as failed in Airflow, and release its lake lease."""
        if self._child is None:
            return
        child_processes.stop_sessions([self._child], grace_seconds=_GRACE_SECONDS)
        if self.failed() and self._progress.run_id:
            prepare_airflow.end_test_runs(self.prepared, self._progress.run_id)
            self._release_lease(Run(self._progress.run_id, self.start, self.end))

    def _release_lease(self, run: Run) -> None:
        from synapse_lakehouse.audit import store
        from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
        from synapse_lakehouse.iceberg.lease.lease import Lease

        settings = self.prepared.settings
        with closing(open_catalog(settings)) as catalog:
            lease = Lease(catalog, run.run_id, run.branch, settings.lakehouse_lease_seconds)
            lease.release(is_undone=not store.is_copy_complete(catalog, run))

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(_event(line) for line in lines)


def _event(line: str) -> str:
    try:
        return str(json.loads(line)["event"])
    except (ValueError, TypeError, KeyError):
        return line
