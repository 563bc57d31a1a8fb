"""The processes below a process."""

import os
import subprocess
import sys

import pytest

from autoauto.processes import start
from autoauto.processes.start import descendants

STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


@pytest.mark.slow
def test_children_of_children_are_found_with_and_without_the_files_of_the_kernel() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        [grandchild] = descendants(child.pid)
        assert grandchild in descendants(os.getpid())
        every = start._all_children()
        assert every[child.pid] == [grandchild]
        assert child.pid in every[os.getpid()]
        child.stdin.write(b"\n")
