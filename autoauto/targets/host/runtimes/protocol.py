"""What a runtime of the host is: `Runtime`, the models that it opens, and what is in force there (`InForce`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from autoauto.records.arrays import Array
from autoauto.records.layers import Port
from autoauto.records.profile import HostPrecision, SessionOptions


class InForce(NamedTuple):
    """Where and how a loaded model computes, read back from the runtime.

    Attributes:
        device: in the runtime's word.
        precision: in the runtime's word, of its products.
        n_threads: that compute at the same time.
    """

    device: str
    precision: str
    n_threads: int


class LoadedModel(Protocol):
    """A sub-model that a runtime has loaded in this process."""

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        """Compute `outputs` from `inputs` in place, without copies.

        Args:
            inputs, outputs: arrays by the names of ports; others among them are not used.
            tidy: afterwards the memory that the runtime keeps for the next run goes back to the system.

        Raises:
            Exception: of the runtime, which may have no special class for a lack of memory.
        """

    def cpu_time_ns(self) -> int:
        """CPU time so far of the thread that computes most; the runtime's other threads compute at the same time."""

    def in_force(self) -> InForce:
        """Read back what the runtime does.

        Raises:
            BadInput: parts of the model are computed elsewhere or in another format than the runtime says.
        """


class Runtime(Protocol):
    """A runtime that is installed; it is imported when it is made.

    Attributes:
        title: its name for people.
    """

    title: str

    def precisions(self) -> tuple[HostPrecision, ...]:
        """The formats in which this machine's processor computes."""

    def expected(self, options: SessionOptions) -> InForce:
        """What must be in force."""

    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, *, keeps_memory: bool
    ) -> LoadedModel:
        """Load the sub-model in a file; afterwards the process holds its weights and code, and nothing for runs.

        Args:
            path: of the file.
            inputs, outputs: of the sub-model.
            options: how it computes.
            keeps_memory: whether freed memory may stay for the next run, which saves fresh pages.

        Raises:
            Exception: of the runtime, which does not run the sub-model.
        """

    def is_memory_error(self, error: Exception) -> bool:
        """Whether an exception of the runtime says that an allocation failed."""
        return isinstance(error, MemoryError) or "alloc" in str(error)  # also std::bad_alloc of the C++ library
