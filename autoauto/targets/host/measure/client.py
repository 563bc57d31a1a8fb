"""A worker process that measures sub-models for this process, one at a time: `Meter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from weakref import finalize

from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import NodeTime
from autoauto.records.errors import DoesNotFit, OutOfMemory, Unsupported, WorkerLost
from autoauto.records.layers import LayerRange, SubModel
from autoauto.records.units import Array, format_bytes
from autoauto.targets.host.measure.session import NONE_GIVEN, Refusal, idle_model
from autoauto.targets.host.measure.worker import Measurement, SubModelPorts, serve
from autoauto.targets.host.remote.machines import LocalMachine, ProcessHost
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.transport.shared_memory import message_of


class Meter(AbstractContextManager["Meter"]):
    """Measures sub-models on some cores; the worker starts with the first measurement and serves all that follow.

    Sub-models reach the worker in a file without a name, so nothing is left behind however either process ends. The
    worker ends with the context, or else when the meter is garbage.

    Args:
        limit_bytes: of the memory of a measurement, inputs and outputs with it; None without a limit.
    """

    def __init__(
        self,
        cores: tuple[int, ...],
        options: SessionOptions,
        open_machine: Callable[[], AbstractContextManager[ProcessHost]] = LocalMachine,
        limit_bytes: int | None = None,
    ) -> None:
        self._cores, self._options, self._open_machine = cores, options, open_machine
        self._limit_bytes = limit_bytes
        self._machine: ProcessHost | None = None
        self._stack = ExitStack()
        self._end = finalize(self, self._stack.close)
        self._end.atexit = False  # the worker dies with this process

    def measure(
        self, sub_model: SubModel, layers: LayerRange, given: Mapping[str, Array] = NONE_GIVEN, what: str = ""
    ) -> Measurement:
        """Measure time and memory of `sub_model`; a worker that is killed meanwhile is replaced once.

        Its inputs are those in `given`; others are made up. Errors call it `what`, by default by its layers.

        Raises:
            Unsupported: the runtime does not read or run the sub-model.
            OutOfMemory: the machine, or its GPU, has not enough memory for it, or it needs more than the limit.
            WorkerLost: the sub-model crashes every process that runs it.
        """
        one_session = layers.stop - layers.start > 1
        measurement: Measurement = self._answer(sub_model, layers, given, what, one_session=one_session)
        return measurement

    def node_times(
        self, sub_model: SubModel, layers: LayerRange, given: Mapping[str, Array] = NONE_GIVEN, what: str = ""
    ) -> tuple[NodeTime, ...]:
        """The time of every node of `sub_model` by the runtime; arguments and errors as in `measure`."""
        times: tuple[NodeTime, ...] = self._answer(sub_model, layers, given, what, times_nodes=True)
        return times

    def _answer(
        self,
        sub_model: SubModel,
        layers: LayerRange,
        given: Mapping[str, Array],
        what: str,
        *,
        one_session: bool = False,
        times_nodes: bool = False,
    ) -> Any:
        ports = tuple(port for port in sub_model.inputs if port.name in given)
        request = SubModelPorts(sub_model.inputs, sub_model.outputs, one_session, ports, times_nodes, self._limit_bytes)
        what = what or f"layers {layers}"
        try:
            answer = self._answer_to(request, sub_model, given)
        except WorkerLost:
            try:
                answer = self._answer_to(request, sub_model, given)
            except WorkerLost as error:
                raise WorkerLost(f"{what} ends the process that runs it: {error}") from error
        if isinstance(answer, Refusal):
            raise self._failure(answer, layers, what, is_made_up=bool(sub_model.inputs) and not given)
        return answer

    def _failure(self, refusal: Refusal, layers: LayerRange, what: str, *, is_made_up: bool) -> DoesNotFit:
        message = f"{runtime_named(self._options.runtime).title} does not {refusal.words(what)}"
        if refusal.is_memory_error and self._limit_bytes is not None and not self._options.gpu:
            message = (
                f"{what} cannot be measured alone in the {format_bytes(self._limit_bytes)} of all devices; "
                "try a smaller batch size or more memory"
            )
        if refusal.is_memory_error:
            return OutOfMemory(message, 1, layers)
        hint = "; if it does not take made-up inputs, try --inputs" if is_made_up and refusal.verb == "run" else ""
        return Unsupported(message + hint, layers)

    def _answer_to(self, request: SubModelPorts, sub_model: SubModel, given: Mapping[str, Array]) -> Any:
        try:
            workers = (self._machine or self._start()).workers
            self._file.write(sub_model.content)
            self._given.write(message_of(given, request.given))
            workers.send(0, request)
            return workers.receive(0)
        except BaseException:
            self.close()  # a late answer would be taken for the answer to the next request
            raise

    def _start(self) -> ProcessHost:
        machine = self._stack.enter_context(self._open_machine())
        self._file, self._given = machine.file(b""), machine.file(b"")
        self._stack.callback(self._file.close)
        self._stack.callback(self._given.close)
        machine.workers.start("the meter", serve, self._file, self._given, self._cores, self._options, idle_model())
        machine.workers.receive(0)
        self._machine = machine
        return machine

    def close(self) -> None:
        """End the worker; the next measurement starts a new one."""
        self._stack.close()
        self._machine = None

    def __exit__(self, *_: object) -> None:
        self._end()
