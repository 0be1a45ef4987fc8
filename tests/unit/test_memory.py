"""The memory limit of this machine, and the explanation after the kernel killed a process at that limit."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse_lakehouse.cli.doctor import machine
from synapse_lakehouse.cli.doctor.finding import FindingLevel
from synapse_lakehouse.cli.runs.local_run import LocalRun
from synapse_lakehouse.cli.runs.out_of_memory import explain_failure, required_bytes
from synapse_lakehouse.cli.runs.task_log import KILLED_TEXT
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local import memory
from synapse_lakehouse.local.airflow import prepare_airflow
from synapse_lakehouse.local.memory import Memory

GIB = 1 << 30
UNLIMITED_1 = "9223372036854771712"


class Machine:
    """The kernel's files of a machine with 8 GiB of memory, of which 6 GiB are free."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.write(self.proc / "meminfo", f"MemTotal: {8 << 20} kB\nMemAvailable: {6 << 20} kB")

    def write(self, file: Path, text: str | int) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def group(self, path: str, **files: str | int) -> Path:
        for name, text in files.items():
            self.write(self.cgroups / path / name.replace("__", "."), text)
        return self.cgroups / path

    def memory(self) -> Memory:
        return memory.read_memory(self.proc, self.cgroups)

    def kills(self) -> int:
        return memory.count_memory_kills(self.proc, self.cgroups)


@pytest.fixture
def kernel(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_control_groups_the_machine_is_the_limit(kernel: Machine) -> None:
    kernel.write(kernel.proc / "vmstat", "oom_kill 3")

    assert kernel.memory() == Memory(8 * GIB, 6 * GIB, "the machine's memory")
    assert kernel.kills() == 3


def test_in_version_2_the_lowest_limit_of_all_groups_counts(kernel: Machine) -> None:
    kernel.write(kernel.proc / "self" / "cgroup", "0::/system/run")
    kernel.group("system/run", memory__max="max", memory__current=GIB, memory__events="low 0\noom_kill 2")
    limiting_group = kernel.group(
        "system", memory__max=2 * GIB, memory__current=GIB, memory__stat=f"inactive_file {GIB >> 1}"
    )

    assert kernel.memory() == Memory(2 * GIB, 3 * (GIB >> 1), str(limiting_group / "memory.max"))
    assert kernel.kills() == 2


def test_version_1_is_read_beside_other_controllers(kernel: Machine) -> None:
    kernel.write(kernel.proc / "self" / "cgroup", "5:cpu,cpuacct:/x\n4:memory:/run\n0::/")
    limiting_group = kernel.group(
        "memory/run", memory__limit_in_bytes=900 << 20, memory__usage_in_bytes=800 << 20,
        memory__oom_control="oom_kill_disable 0\noom_kill 1",
    )  # fmt: skip
    kernel.group("memory", memory__limit_in_bytes=UNLIMITED_1, memory__usage_in_bytes=GIB)

    assert kernel.memory() == Memory(900 << 20, 100 << 20, str(limiting_group / "memory.limit_in_bytes"))
    assert kernel.kills() == 1


def test_in_a_container_its_group_is_read_at_the_root(kernel: Machine) -> None:
    kernel.write(kernel.proc / "self" / "cgroup", "4:memory:/docker/0123")
    root = kernel.group("memory", memory__limit_in_bytes=GIB, memory__usage_in_bytes=0)

    assert kernel.memory() == Memory(GIB, GIB, str(root / "memory.limit_in_bytes"))


def test_this_machine_has_memory() -> None:
    actual = memory.read_memory()
    assert 0 < actual.free <= actual.limit
    assert memory.count_memory_kills() >= 0


@pytest.mark.parametrize(("command", "is_killed"), [("kill -9 $$", True), ("exit 1", False), ("kill -15 $$", False)])
def test_a_killed_airflow_is_reported(
    command: str, is_killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "airflow").write_text(f"#!/bin/sh\n{command}\n")
    (tmp_path / "bin" / "airflow").chmod(0o700)
    monkeypatch.setattr(prepare_airflow, "BIN", tmp_path / "bin")
    airflow = prepare_airflow.PreparedAirflow(Settings(_env_file=None, lakehouse_home=tmp_path), dict(os.environ))
    now = datetime.now(UTC)
    run = LocalRun(airflow, now, now, now, tmp_path / "logs" / "run.log")

    (step,) = run.steps()

    assert (step.kind, KILLED_TEXT in step.text) == ("failed", is_killed)
    assert run.failed()


def test_a_failure_for_another_reason_is_not_explained_by_memory() -> None:
    settings = Settings(_env_file=None)
    assert explain_failure({"a": "the disk is full"}, 0, Memory(GIB, GIB, "x"), settings) is None


@pytest.mark.parametrize(("error", "kills"), [(f"Airflow {KILLED_TEXT}.", 0), ("EOFError", 1)])
def test_a_kill_is_explained_with_the_limit_and_setting(error: str, kills: int) -> None:
    settings = Settings(_env_file=None, lakehouse_driver_memory="1g")
    output = explain_failure({"a": error}, kills, Memory(900 << 20, 0, "/sys/fs/cgroup/x"), settings)
    assert output
    for part in ("signal 9", "0.9 GiB", "/sys/fs/cgroup/x", "LAKEHOUSE_DRIVER_MEMORY=1g"):
        assert part in output


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "heap of Spark's driver is full"),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded", "heap of Spark's driver is full"),
        ("java.lang.OutOfMemoryError: unable to create native thread", "could not get more memory"),
        ("MemoryError", "could not get more memory"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed", "could not get more memory"),
        ("_duckdb.OutOfMemoryException: Out of Memory Error: failed to allocate data", "could not get more memory"),
        ("There is insufficient memory for the Java Runtime Environment to continue.", "could not get more memory"),
    ],
)
def test_a_process_without_memory_is_explained(error: str, part: str) -> None:
    output = explain_failure({"a": error}, 0, Memory(GIB, 0, "/sys/fs/cgroup/x"), Settings(_env_file=None))
    assert output
    for expected in (part, "1.0 GiB", "/sys/fs/cgroup/x", "LAKEHOUSE_DRIVER_MEMORY"):
        assert expected in output


@pytest.mark.parametrize(
    ("limit", "free", "level"),
    [(GIB, GIB, FindingLevel.FAIL), (16 * GIB, GIB, FindingLevel.WARN), (16 * GIB, 9 * GIB, FindingLevel.OK)],
)
def test_the_doctor_compares_the_limit_with_a_run_s_memory(
    limit: int, free: int, level: FindingLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "read_memory", lambda: Memory(limit, free, "x"))
    (finding,) = machine.check_memory(Settings(_env_file=None))
    assert finding.level is level
    assert (
        required_bytes(Settings(_env_file=None, lakehouse_driver_memory="3g"))
        - required_bytes(Settings(_env_file=None))
        == GIB
    )
