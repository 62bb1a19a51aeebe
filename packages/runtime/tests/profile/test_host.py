"""The program's own processes and CPU time, from /proc."""

import os
import subprocess
import sys

from trimtab_runtime.profile.host import cpu_limit, cpu_seconds, process_tree


def test_a_process_tree_holds_grandchildren_and_no_stranger():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        tree = process_tree(child.pid)
        child.stdin.close()

    assert len(tree) == 2
    assert os.getpid() not in tree


def test_a_process_that_is_gone_has_no_tree():
    assert process_tree(4_194_304) == frozenset()


def test_cpu_time_grows_with_work_and_the_limit_is_above_zero():
    mine = frozenset({os.getpid()})
    before = cpu_seconds(mine)
    while cpu_seconds(mine) <= before:
        sum(range(100_000))

    assert cpu_limit() > 0
