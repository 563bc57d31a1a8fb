"""The interface of runtimes of the host: a `Runtime` gives a `LoadedModel`, which says its `EffectiveOptions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import NodeTime
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.memory_budget import data_bytes, status_bytes

MAX_REASON = 300
"""Characters of a runtime's reason: some say which nodes they were to convert, all of them."""


class EffectiveOptions(NamedTuple):
    """The options with which a loaded model computes, read back from the runtime.

    Attributes:
        device: in the runtime's word.
        precision: in the runtime's word, of its products.
    """

    device: str
    precision: str
    n_threads: int
    options: str


class LoadSettings(NamedTuple):
    """The memory that a loaded model may hold and keep, and whether it records times.

    Attributes:
        keeps_freed: whether freed memory may stay for the next run, which saves fresh pages.
        limit_bytes: of weights, tensors and workspaces together; not used where the process has a limit.
        times_nodes: whether every run takes the times of its nodes, where the runtime can.
    """

    keeps_freed: bool = False
    limit_bytes: int | None = None
    times_nodes: bool = False


class LoadedModel(Protocol):
    """A sub-model that a runtime has loaded in this process."""

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        """Compute `outputs` from `inputs` in place, without copies.

        Args:
            inputs, outputs: arrays by the names of ports; others among them are not used. An output whose lengths
                depend on data is written with them into bytes (`autoauto/targets/host/transport/bounded.py`).
            tidy: afterwards the memory that the runtime keeps for the next run goes back to the system.

        Raises:
            Exception: of the runtime, which may have no special class for a lack of memory.
        """

    def resident(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """A run whose inputs and outputs lie where the model computes, as those of a layer between others do."""
        return partial(self.run, inputs, outputs)

    def cpu_time_ns(self) -> int:
        """CPU time so far of the thread that computes most; the runtime's other threads compute at the same time.

        Where a GPU computes it is the time of that.
        """

    def moved_ns(self) -> int:
        """Time so far in which runs moved inputs and outputs to where the model computes, and back."""
        return 0

    def node_times(self) -> tuple[NodeTime, ...]:
        """The time of every node in the runs so far, in their order; none if the runtime cannot say.

        It is asked once, of a model that was loaded for it (`LoadSettings.times_nodes`).
        """
        return ()

    def effective_options(self) -> EffectiveOptions:
        """Read back what the runtime does.

        Raises:
            BadInput: parts of the model are computed elsewhere or in another format than the runtime says.
        """


class Runtime(Protocol):
    """A runtime that is installed; it is imported when it is made.

    Where it computes on the CPU, memory is that of this process.

    Attributes:
        title: its name for people.
        limits_process: whether a limit of the process bounds the memory of its models; otherwise `load` gets one.
    """

    title: str
    limits_process: bool = True

    def precisions(self) -> tuple[Precision, ...]:
        """The formats in which this machine's CPU computes."""

    def expected(self, options: SessionOptions) -> EffectiveOptions:
        """The options that must be in effect."""

    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, wanted: LoadSettings
    ) -> LoadedModel:
        """Load the sub-model in a file; afterwards the process holds its weights and code, and nothing for runs.

        Raises any Exception of the runtime, if it does not run the sub-model.
        """

    def is_memory_error(self, error: Exception) -> bool:
        """True if an exception of the runtime means that an allocation failed."""
        return isinstance(error, MemoryError) or "alloc" in str(error)  # also std::bad_alloc of the C++ library

    def exclusively(self, options: SessionOptions) -> AbstractContextManager[object]:
        """Within it no other process of ours changes what `held_bytes` is."""
        return nullcontext()

    def held_bytes(self) -> int:
        """Memory that this process holds where its models compute."""
        return data_bytes()

    def rise_bytes(self, run: Callable[[], None]) -> int:
        """The peak of memory while `run` runs, above the memory that is held now."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM (man 5 proc)
        before = status_bytes("VmRSS")
        run()
        return max(status_bytes("VmHWM") - before, 0)

    def pin(self, memories: Iterable[memoryview]) -> None:
        """Let tensors move fast between the model and buffers, which the system must not move then."""


def reason_of(error: Exception) -> str:
    """The message of a runtime's exception in one line, without headings, addresses and lines of its sources.

    >>> reason_of(RuntimeError("Exception from src/core.cpp:105:\\nSummary:\\n-- No rule for Det-17\\nsee https://a.b"))
    'No rule for Det-17'
    """
    lines = [" ".join(line.split()).removeprefix("-- ") for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.endswith(":") and "://" not in line]
    text = " ".join(said or filter(None, lines)) or type(error).__name__
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."
