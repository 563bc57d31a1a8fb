"""Why engines fail, by lines of their logs."""

import pytest

from autoauto.launch.faults import FaultKind, fault_of_log
from autoauto.launch.guard import MISSING


@pytest.mark.parametrize(
    ("line", "kind", "option"),
    [
        ("vllm: error: unrecognized arguments: --no-such 3", FaultKind.REFUSED, "--no-such"),
        ("vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp9'", FaultKind.REFUSED, "--kv-cache-dtype"),
        ("launch_server.py: error: argument --tp-size/--tp: invalid int value: 'x'", FaultKind.REFUSED, "--tp-size"),
        ("Error: No such option: --max_batch (Possible options: --max_batch_size)", FaultKind.REFUSED, "--max_batch"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", FaultKind.MEMORY, ""),
        ("ValueError: No available memory for the cache blocks. Try increasing", FaultKind.MEMORY, ""),
        (
            "ValueError: the model's max seq len (8192) is larger than the available KV cache memory",
            FaultKind.MEMORY,
            "",
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", FaultKind.MEMORY, ""),
        ("OSError: [Errno 98] Address already in use", FaultKind.PORT, ""),
        ("RuntimeError: NCCL error: unhandled system error", FaultKind.ENDED, ""),
    ],
)
def test_a_log_says_why_an_engine_ended(line: str, kind: FaultKind, option: str) -> None:
    fault = fault_of_log(["INFO starting", line, "INFO shutting down"], 1)
    assert (fault.kind, fault.option) == (kind, option)
    assert " ".join(line.split())[:60] in fault.reason


def test_the_last_line_counts_that_is_no_line_of_code() -> None:
    log = [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "    raise ValueError(x)",
        "KeyError: 'q'",
    ]
    assert fault_of_log(log, 1).reason == "the engine ended with exit code 1: KeyError: 'q'"
    assert fault_of_log([], 137).reason == "the engine ended with exit code 137: it left no log"


def test_the_first_line_that_says_a_cause_counts_and_an_option_before_memory_before_a_port() -> None:
    port, memory = "OSError: [Errno 98] Address already in use", "CUDA out of memory. Tried 1"
    refused = "error: unrecognized arguments: --a"
    assert fault_of_log([port, memory, "CUDA out of memory. Tried 2"], 1).reason == (
        "the engine ran out of memory: CUDA out of memory. Tried 1"
    )
    assert fault_of_log([port], 1).reason == f"the port was taken: {port}"
    assert fault_of_log([port, memory, refused], 1).reason == f"the engine refuses --a: {refused}"
    assert fault_of_log([memory], MISSING).kind is FaultKind.MISSING


def test_a_reason_and_a_log_are_cut() -> None:
    fault = fault_of_log([*(f"line {number}" for number in range(30)), "ValueError: " + "x" * 300], 1)
    assert fault.log == (*(f"line {number}" for number in range(11, 30)), "ValueError: " + "x" * 300)
    assert fault.reason == "the engine ended with exit code 1: ValueError: " + "x" * 228
    assert str(fault) == fault.reason
