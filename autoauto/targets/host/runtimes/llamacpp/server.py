"""A server of llama.cpp as a process of ours, which ends with the search: `RunningServer`.

    search ── ChildProcess ──▶ `serve_until_closed`: xllamacpp.Server on a free port
       ◀──── address, or why it does not come up ────

`cpu_s` is the CPU time of all its threads with the resolution of the scheduler; /proc/PID/stat has steps of 10 ms.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

from autoauto.engines.llama_cpp import MEMORY_WORDS, read_command, why
from autoauto.processes.channel import Channel
from autoauto.processes.start import UNGUARDED, UNGUARDED_HINT, ChildProcess
from autoauto.records.errors import DoesNotFit, OutOfMemory, Unsupported

START_S = 600.0
"""A server whose file is read from a slow disk may take minutes."""
_END_S = 5.0
"""The time from when connections of a process that is killed end to the end of the process, at most."""
_MAX_LOG_LINES, _MAX_LOG_BYTES = 20, 100_000


def serve_until_closed(channel: Channel, words: Sequence[str], cores: Sequence[int]) -> None:
    """The program of the process: start the server of a command, say where it listens, and wait."""
    if cores:
        os.sched_setaffinity(0, cores)  # before the engine makes its threads, which inherit it
    import xllamacpp

    options = read_command(words)
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_parallel, params.n_ctx = options.n_slots, options.n_ctx
    params.n_batch, params.n_ubatch = options.n_batch, options.n_ubatch
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = options.n_threads, options.n_prompt_threads
    params.cpuparams.poll = params.cpuparams_batch.poll = options.poll
    flash = {"on": "ENABLED", "off": "DISABLED"}.get(options.flash_attention, "AUTO")
    params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    cache_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{options.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = cache_type
    params.fit_params = False  # it would change what is measured
    params.endpoint_metrics = True
    params.port = 0  # of 127.0.0.1, the default; the system chooses a free port, so that no other process can
    server = xllamacpp.Server(params)
    channel.send(server.listening_address)
    with suppress(EOFError):
        channel.recv()
    os._exit(0)


class RunningServer(AbstractContextManager["RunningServer"]):
    """A server that is up; a context in which it runs.

    Args:
        cores: the hardware threads on which it runs; by default those of this process.

    Raises OutOfMemory or Unsupported, by its log, if it does not come up.
    """

    def __init__(self, words: Sequence[str], cores: Sequence[int] = ()) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self._process = ChildProcess(serve_until_closed, (tuple(words), tuple(cores)), self._log)
        self.pid = self._process.pid
        try:
            self.address: str = self._process.channel.recv()
        except (EOFError, OSError):
            failure = self._why_lost()
            self.close()
            raise failure from None
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._process.close()
        self._log.close()

    @property
    def cpu_s(self) -> float:
        """Seconds that all its threads have computed; the clock of a process by its number (Linux)."""
        try:
            return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e9
        except OSError:  # it has ended
            raise self._why_lost() from None

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.ending() is None

    def log(self) -> tuple[str, ...]:
        """The last lines that it wrote."""
        self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - _MAX_LOG_BYTES))
        return tuple(self._log.read().decode(errors="replace").splitlines()[-_MAX_LOG_LINES:])

    def failure(self) -> DoesNotFit | None:
        """Why it has ended, by its log and its exit code; None if it still runs after a moment."""
        ending = self._process.ending(_END_S)
        if ending is None:
            return None
        log, code = self.log(), ending.exit_code
        text = "\n".join(log).lower()
        if code == -9 or any(word in text for word in MEMORY_WORDS):
            return OutOfMemory(f"the server ran out of memory: {why(log)}", 0)
        if code == UNGUARDED:
            return Unsupported(UNGUARDED_HINT)
        return Unsupported(f"the server ended with exit code {code}: {why(log)}")

    def _why_lost(self) -> DoesNotFit:
        return self.failure() or Unsupported(f"the server does not answer and does not end: {why(self.log())}")
