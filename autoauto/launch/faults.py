"""Why an engine cannot be measured, by its own log: `EngineFault`, `fault_of_log`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from autoauto.launch.guard import MISSING

_N_LINES, _MAX_REASON = 20, 240


class FaultKind(StrEnum):
    """Kinds of faults."""

    MEMORY = "out of memory"
    REFUSED = "refused option"
    MISSING = "no such program"
    PORT = "port in use"
    TIME = "not up in time"
    ENDED = "ended"
    WRONG = "wrong answers"


class EngineFault(Exception):
    """An engine that cannot be measured."""

    def __init__(self, kind: FaultKind, reason: str, log: Sequence[str] = (), option: str = "") -> None:
        super().__init__(reason)
        self.kind, self.reason, self.log, self.option = kind, reason, tuple(log)[-_N_LINES:], option


MEMORY = re.compile(
    r"out of memory|outofmemoryerror|no available memory|not enough memory|bad_alloc|unable to allocate"
    r"|errormemoryallocation|larger than the (available kv cache memory|maximum number of tokens)",
    re.IGNORECASE,
)
"""Messages of engines where memory lacks: an error of PyTorch, or one of their own about KV cache."""
REFUSED = re.compile(
    r"(?:unrecognized arguments?|no such option|unexpected argument|unknown (?:option|argument))[:' ]*(--[\w-]+)"
    r"|(?:argument|option|invalid value for) '?(?:-\w/)?(--[\w-]+)[^:]*: (?:invalid|expected|is not|not allowed)",
    re.IGNORECASE,
)
"""Messages of the parsers argparse and click about options."""
_PORT = re.compile(r"address already in use|errno 98|port .* (?:is )?(?:already )?in use", re.IGNORECASE)
_TELLING = re.compile(r"error|exception|failed|fatal|invalid|cannot|not found|unsupported", re.IGNORECASE)
_IN_A_TRACE = re.compile(r'^\s*(?:\S.*\s)?(?:File ".*", line \d+|raise \w|Traceback |During handling|\^+)')


def fault_of_log(log: Sequence[str], exit_code: int) -> EngineFault:
    """Why an engine that has ended did so."""
    if exit_code == MISSING:
        return EngineFault(FaultKind.MISSING, f"it could not be started: {_last(log)}", log)
    for line in log:
        if match := REFUSED.search(line):
            option = match[1] or match[2]
            return EngineFault(FaultKind.REFUSED, f"the engine refuses {option}: {_short(line)}", log, option)
    for kind, pattern, words in (
        (FaultKind.MEMORY, MEMORY, "the engine ran out of memory"),
        (FaultKind.PORT, _PORT, "the port was taken"),
    ):
        for line in log:
            if pattern.search(line):
                return EngineFault(kind, f"{words}: {_short(line)}", log)
    return EngineFault(FaultKind.ENDED, f"the engine ended with exit code {exit_code}: {_last(log)}", log)


def _last(log: Sequence[str]) -> str:
    """The last line that says why, without those of the code that raised."""
    telling = [line for line in log if _TELLING.search(line) and not _IN_A_TRACE.match(line)]
    return _short((telling or log or ["it left no log"])[-1])


def _short(line: str) -> str:
    return " ".join(line.split())[:_MAX_REASON]
