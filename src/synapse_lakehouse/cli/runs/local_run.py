"""A run by `airflow dags test`: the real DAG with its real operators, without a scheduler."""

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
from synapse_lakehouse.local.airflow import environment

_TAIL = 10
# Airflow itself does not end at a request while it runs a task of Python; Spark and its workers do, within a second.
_GRACE_SECONDS = 3.0


@dataclass
class LocalRun:
    """The DAG for the interval that Airflow infers from ``logical_date``; its log is kept in ``log``."""

    prepared: environment.PreparedAirflow
    logical_date: datetime
    start: datetime
    end: datetime
    log: Path
    farewell: str = "Stopped: no release was published. Run it again at any time."
    _child: subprocess.Popen[bytes] | None = None
    _progress: TaskLogParser = field(default_factory=TaskLogParser)

    @property
    def where(self) -> str:
        """Where to read on."""
        return str(self.log)

    def steps(self) -> Iterator[RunStep]:
        """What happens in the run until it ends."""
        self.log.parent.mkdir(exist_ok=True)
        date = self.logical_date.replace(tzinfo=None).isoformat()
        with self.log.open("wb") as kept, ExitStack() as beginning:
            # Airflow writes its DAGs down first, which fails where another run does for the first time, too.
            beginning.enter_context(file_lock.exclusive_lock(self.prepared.home / "dags.lock"))
            self._child = child_processes.start_process(
                [str(environment.BIN / "airflow"), "dags", "test", environment.MAIN_DAG, date],
                self.prepared.environment | {"AIRFLOW__LOGGING__JSON_LOGS": "True"},
                subprocess.PIPE,
                if_orphaned=signal.SIGKILL,
            )
            assert self._child.stdout
            for line in self._child.stdout:
                kept.write(line)
                kept.flush()
                step = self._progress.read(line.decode(errors="replace").rstrip("\n"))
                if step or self._progress.run_id:
                    beginning.close()
                if step:
                    yield step
        if self._child.wait() == -signal.SIGKILL:
            yield RunStep("failed", self._progress.task or "airflow dags test", f"Airflow {KILLED_TEXT}.")
        elif self._child.returncode and not self._progress.task:
            yield RunStep("failed", "airflow dags test", self._last_words())

    def failed(self) -> bool:
        """Whether the run ended red."""
        return self._child is None or self._child.returncode != 0

    def close(self) -> None:
        """Stop whatever still runs of it, and give back at once the lease that it would hold until that expires.

        The run is over for Airflow as well.
        """
        if self._child is None:
            return
        child_processes.stop_sessions([self._child], grace_seconds=_GRACE_SECONDS)
        if self.failed() and self._progress.run_id:
            environment.end_test_runs(self.prepared, self._progress.run_id)
            self._release_lease(Run(self._progress.run_id, self.start, self.end))

    def _release_lease(self, run: Run) -> None:
        from synapse_lakehouse.audit import store
        from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
        from synapse_lakehouse.iceberg.lease.lease import Lease

        settings = self.prepared.settings
        with closing(open_catalog(settings)) as catalog:
            lease = Lease(catalog, run.run_id, run.branch, settings.lakehouse_lease_seconds)
            lease.release(is_undone=not store.is_copy_complete(catalog, run))

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(_event(line) for line in lines)


def _event(line: str) -> str:
    try:
        return str(json.loads(line)["event"])
    except (ValueError, TypeError, KeyError):
        return line
