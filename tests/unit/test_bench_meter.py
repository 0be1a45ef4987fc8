import os
import subprocess
import sys

from bench.meter import Meter, Process, cpu_seconds, parse_stat, process_tree, running_processes

LINE = (
    "4242 (a (b) c) S 17 4242 4242 0 -1 4194560 2189 51346 0 11 250 50 300 100 20 0 1 0 110 1 2 18446744073709551615 "
    "1 1 0 0 0 0 0 4096 17475 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
)


def test_program_name_may_contain_blanks_and_brackets() -> None:
    process = parse_stat(LINE)
    assert (process.pid, process.parent, process.name) == (4242, 17, "a (b) c")
    assert process.cpu == 700 / os.sysconf("SC_CLK_TCK")


def test_process_tree_contains_all_descendants() -> None:
    processes = [Process(3, 2, "grandchild", 4.0), Process(1, 0, "root", 1.0), Process(2, 1, "child", 2.0)]
    processes.append(Process(9, 0, "stranger", 100.0))
    assert {process.pid for process in process_tree(processes, 1)} == {1, 2, 3}
    assert cpu_seconds(processes, 1) == 7.0


def test_running_processes_include_this_one() -> None:
    assert os.getpid() in {process.pid for process in running_processes()}


def test_cpu_time_includes_terminated_children() -> None:
    with Meter(os.getpid(), server=os.getppid()) as meter:
        subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert meter.cost.cpu >= 0.02
    assert meter.cost.wall > 0.02
    assert meter.cost.memory > 1_000_000
