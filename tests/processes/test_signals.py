"""Signals while C code computes that does not return to Python, in processes of their own."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoauto.processes import signals
from tests.running import wait_until

COMPUTES = """
import collections, itertools, sys
from autoauto import __main__ as entry
from autoauto.cli.commands import models
from autoauto.processes import signals
from autoauto.study.interrupts import Interrupts

signals.END_S = float(sys.argv.pop())

def run(args):
    with Interrupts():
        print("computes", flush=True)
        collections.deque(itertools.repeat(0), maxlen=0)  # no instruction of Python until it ends, which it never does

models.run = run
sys.argv[1:] = ["models"]
raise SystemExit(entry.main())
"""
NEVER_S, SOON_S = 1e6, 0.2
Start = Callable[[float], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that computes in C; where Python does not handle a signal, it is sent again after a time."""
    started = []

    def run(end_s: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COMPUTES, str(end_s)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "computes\n"
        before = processor_ticks(process.pid)
        wait_until(lambda: processor_ticks(process.pid) > before + 5, "it computes")
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def processor_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def is_caught(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_computes_in_c(number: signal.Signals, start: Start) -> None:
    process = start(NEVER_S)
    process.send_signal(number)
    wait_until(lambda: not is_caught(process.pid, number), "the first signal arrives")
    process.send_signal(number)
    assert process.wait() == -number  # a shell's exit code is then 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_what_computes_in_c_after_a_moment(number: signal.Signals, start: Start) -> None:
    process = start(SOON_S)
    process.send_signal(number)
    assert process.wait() == -number


def test_the_watching_process_ends_with_a_killed_one(start: Start) -> None:
    process = start(NEVER_S)
    [watching] = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    process.kill()
    process.communicate()  # the watching process holds no stream open, or this waits for it
    wait_until(lambda: not Path(f"/proc/{watching}").exists(), "the watching process ends")


def test_a_handler_of_python_runs_for_every_signal_that_it_sees() -> None:
    seen: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)
    try:
        signals.catch(signal.SIGUSR1, lambda number, _: seen.append(number))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] * 3
        assert is_caught(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


OPENVINO = """
import ctypes, faulthandler

import openvino
from onnx import TensorProto, helper
from autoauto.processes.signals import SignalStack, same_signal_stack

faulthandler.enable()  # its handlers have a stack of their own
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
core, stacks = openvino.Core(), [SignalStack() for _ in range(2)]
for stack in stacks:
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    with same_signal_stack():
        core.compile_model(core.read_model(model.SerializeToString()), "CPU")
print(len({stack.pointer for stack in stacks}))
"""


def test_a_library_that_sets_a_stack_for_signals_leaves_that_of_the_thread() -> None:
    libc, before, after = ctypes.CDLL(None), signals.SignalStack(), signals.SignalStack()
    libc.sigaltstack(None, ctypes.byref(before))
    memory = ctypes.create_string_buffer(1 << 16)
    own = signals.SignalStack()
    own.pointer, own.size = ctypes.addressof(memory), len(memory)
    with signals.same_signal_stack():
        assert libc.sigaltstack(ctypes.byref(own), None) == 0
    libc.sigaltstack(None, ctypes.byref(after))
    assert (after.pointer, after.size, after.flags) == (before.pointer, before.size, before.flags)


def test_openvino_leaves_the_stack_for_signals() -> None:
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", OPENVINO], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"
