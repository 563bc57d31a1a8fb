"""A sub-model in a runtime (`OpenModel`), and its memory checked against a budget (`check_memory`).

The limit is RLIMIT_DATA of the worker: all its private writable memory. It is the budget plus the memory of the runtime
itself. It is set after the sub-model has been loaded, because loading holds the weights twice for a moment. Inputs and
outputs lie in the shared memory of links and do not count. On a GPU the limit is that of the runtime's arena, and
inputs and outputs lie there as well.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import PARAMETER, TEMPORARY
from autoauto.records.errors import AutoautoError, BadInput, OutOfMemory, Unsupported
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.units import Array, format_bytes
from autoauto.targets.host.measure.examples import examples
from autoauto.targets.host.memory_budget import data_bytes, machine_bytes, shared_array
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.runtimes.runtime import EffectiveOptions, LoadSettings, Runtime, reason_of
from autoauto.targets.host.transport.shared_memory import SubModelFile

RUNTIME = "runtime"
"""Category of the memory that the first session of a process takes, whatever it computes."""

BOOKKEEPING_BYTES = 1 << 20
"""Memory of the interpreter on top of the budget, which a worker needs to report its results."""

NONE_GIVEN: Mapping[str, Array] = {}


class Unread(Exception):
    """A runtime does not load a sub-model; the message is its reason."""


class OpenModel:
    """A sub-model that runs in this process.

    With `arena` the runtime keeps freed memory for the next run; a `tidy` run returns it to the system.

    Args:
        given: inputs by name that examples have, where they are not to be made up.

    Attributes:
        parameter_bytes: private memory after loading: weights in the runtime's layout, and code.

    Raises:
        Unread: the runtime does not read the sub-model.
        BadInput: it computes elsewhere, in another format or with other threads than it was asked to.
        Exception: of the runtime, where an allocation failed (`is_memory_error`).
    """

    def __init__(
        self,
        content: SubModelFile,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        options: SessionOptions,
        arena: bool = False,
        limit_bytes: int | None = None,
        given: Mapping[str, Array] = NONE_GIVEN,
        times_nodes: bool = False,
    ) -> None:
        self.runtime, self._given = runtime_named(options.runtime), given
        self._content, self._options = content, options
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        before = self.runtime.held_bytes()
        wanted = LoadSettings(arena, limit_bytes, times_nodes)
        try:
            self.model = self.runtime.load(content.path, inputs, outputs, options, wanted)
            if (got := self.model.effective_options()) != (asked := self.runtime.expected(options)):
                raise BadInput(f"{self.runtime.title} was asked for {_words(asked)}, it has {_words(got)}")
        except Exception as error:
            if isinstance(error, AutoautoError) or self.runtime.is_memory_error(error):
                raise
            raise Unread(reason_of(error)) from error
        self._at_rest_bytes = self.runtime.held_bytes()
        self.parameter_bytes = max(self._at_rest_bytes - before, 0)

    def example_run(self) -> Callable[[], None]:
        """A run with the inputs of `example_arrays`, which lie where the sub-model computes, and so do its outputs."""
        return self.model.resident(*self.example_arrays())

    def example_arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Inputs, given or made up, and arrays for the outputs."""
        # Lengths of other inputs are made up to fit them, so all that are made up are made together.
        inputs = examples([port for port in self._inputs if port.name not in self._given])
        for port in self._inputs:
            if port.name in self._given:
                inputs[port.name] = shared_array(port)
                inputs[port.name][...] = self._given[port.name]
        return inputs, {port.name: shared_array(port) for port in self._outputs}

    def peak_lower_bound(self) -> int:
        """The peak of a run of a new session without an arena; the machine's free memory where that does not suffice.

        Memory that a failed run has left in the arena would count twice.
        """
        session = OpenModel(self._content, self._inputs, self._outputs, self._options, given=self._given)
        try:
            return session.peak_bytes()
        except Exception as error:
            if not self.runtime.is_memory_error(error):
                raise
            return machine_bytes()

    def peak_bytes(self) -> int:
        """Peak memory of a run with the inputs of `example_arrays`, without parameters, inputs and outputs.

        The first run is tidy: in it the runtime determines which tensors can share memory, and from then on it takes
        one block for all of them. The memory of the first run would stay allocated beside that block.
        """
        inputs, outputs = self.example_arrays()
        self.model.run(inputs, outputs, tidy=True)
        remaining = max(self.runtime.held_bytes() - self._at_rest_bytes, 0)
        return remaining + self.runtime.rise_bytes(partial(self.model.run, inputs, outputs))


def load_in_budget(
    content: SubModelFile,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    options: SessionOptions,
    budget_bytes: int,
    runtime_bytes: int,
    layers: LayerRange,
    given: Mapping[str, Array] = NONE_GIVEN,
) -> OpenModel:
    """A session whose runtime keeps the memory of a run, where it can, within the budget less `runtime_bytes`.

    Raises:
        OutOfMemory: not even the weights fit; the missing bytes are a lower bound, by the size of the file.
    """
    runtime = runtime_named(options.runtime)
    try:
        limit_bytes = budget_bytes - runtime_bytes
        return OpenModel(content, inputs, outputs, options, arena=True, limit_bytes=limit_bytes, given=given)
    except Exception as error:
        if not runtime.is_memory_error(error):
            raise
        memory_bytes = {RUNTIME: runtime_bytes, PARAMETER: os.stat(content.path).st_size}
        raise _out_of_memory(layers, memory_bytes, budget_bytes) from error


def check_memory(
    session: OpenModel, runtime_bytes: int, budget_bytes: int, overhead_bytes: int, layers: LayerRange
) -> dict[str, int]:
    """Set the limit of this process, run the session under it, and return its memory by category.

    Args:
        runtime_bytes: memory of an idle session, loaded before it.
        budget_bytes: budget of both sessions.
        overhead_bytes: memory of the process before both sessions.

    Raises:
        OutOfMemory: the budget does not suffice. The missing bytes, a lower bound, come from a run that may use all of
            the machine's memory.
        Exception: the session fails in that run, too.
    """
    at_rest = {RUNTIME: runtime_bytes, PARAMETER: session.parameter_bytes}
    if not session.runtime.limits_process:
        return _check_arena(session, at_rest, budget_bytes, layers)
    if sum(at_rest.values()) <= budget_bytes:
        set_limit(overhead_bytes + budget_bytes + BOOKKEEPING_BYTES)
        with suppress(Exception):  # the run below, with more memory, succeeds or raises again
            return at_rest | {TEMPORARY: session.peak_bytes()}
    set_limit(data_bytes() + machine_bytes())
    raise _out_of_memory(layers, at_rest | {TEMPORARY: session.peak_lower_bound()}, budget_bytes)


def _check_arena(session: OpenModel, at_rest: dict[str, int], budget_bytes: int, layers: LayerRange) -> dict[str, int]:
    """Run a session whose memory the runtime itself bounds; one that fails needs more than what was left."""
    left_bytes = budget_bytes - sum(at_rest.values())
    if left_bytes < 0:
        raise _out_of_memory(layers, at_rest, budget_bytes)
    try:
        memory_bytes = at_rest | {TEMPORARY: session.peak_bytes()}
    except Exception as error:
        if not session.runtime.is_memory_error(error):
            raise
        raise _out_of_memory(layers, at_rest | {TEMPORARY: left_bytes + 1}, budget_bytes) from error
    if memory_bytes[TEMPORARY] > left_bytes:
        raise _out_of_memory(layers, memory_bytes, budget_bytes)
    return memory_bytes


@contextmanager
def refusals(runtime: Runtime, layers: LayerRange) -> Iterator[None]:
    """Turn what a runtime raises into `Unsupported`, but for a failed allocation."""
    try:
        yield
    except Exception as error:
        if isinstance(error, AutoautoError) or runtime.is_memory_error(error):
            raise
        words = Refusal.of(error, runtime).words(f"layers {layers}")
        raise Unsupported(f"{runtime.title} does not {words}", layers) from error


class Refusal(NamedTuple):
    """Why a runtime does not "read", or does not "run", a sub-model; an allocation may have failed."""

    verb: str
    reason: str
    is_memory_error: bool

    @classmethod
    def of(cls, error: Exception, runtime: Runtime) -> Refusal:
        """The refusal that an exception of a session means."""
        return cls("read" if isinstance(error, Unread) else "run", reason_of(error), runtime.is_memory_error(error))

    def words(self, layers: str) -> str:
        """The refusal of some layers as "read layers [0, 3): no rule for them"."""
        return f"{self.verb} {layers}: {self.reason}"


@contextmanager
def memory_errors(session: OpenModel, layers: LayerRange, memory_bytes: Mapping[str, int]) -> Iterator[None]:
    """Turn a failed allocation into `OutOfMemory` with the memory measured before; lifts the limit to report it."""
    try:
        yield
    except Exception as error:
        if session.runtime.limits_process:
            set_limit(data_bytes() + machine_bytes())
        if not session.runtime.is_memory_error(error):
            raise
        raise _out_of_memory(layers, memory_bytes, sum(memory_bytes.values())) from error


def _out_of_memory(layers: LayerRange, memory_bytes: Mapping[str, int], budget_bytes: int) -> OutOfMemory:
    """The message gives a lower bound: a runtime with an arena may take some more."""
    total = sum(memory_bytes.values())
    return OutOfMemory(
        f"layers {layers} do not fit a device that may use {format_bytes(budget_bytes)}: they need "
        f"{format_bytes(total)} or more; try a smaller batch size or more devices",
        max(total - budget_bytes, 1),
        layers,
        memory_bytes,
    )


def _words(effective: EffectiveOptions) -> str:
    return f"{effective.precision} on {effective.device} with {effective.n_threads} threads, {effective.options}"


def set_limit(limit_bytes: int | None) -> None:
    """Limit the private memory of this process; None lifts the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard if limit_bytes is None else limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def idle_model() -> SubModel:
    """A model that copies one number."""
    from onnx import TensorProto, helper

    ports = [Port(name, (1,), "float32") for name in ("x", "y")]
    x, y = (helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape) for port in ports)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "idle", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return SubModel(model.SerializeToString(), (ports[0],), (ports[1],))
