"""A worker process that measures sub-models for this process, one at a time: `Meter`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from weakref import finalize

from autoauto.records.errors import BadInput, OutOfMemory, WorkerLost
from autoauto.records.layers import LayerRange, SubModel
from autoauto.records.profile import SessionOptions
from autoauto.targets.host.measure.session import SubModelFile, idle_model
from autoauto.targets.host.measure.worker import FailedMeasurement, Measurement, SubModelPorts, serve
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.runtimes.registry import runtime_named


class Meter(AbstractContextManager["Meter"]):
    """Measures sub-models on some cores; the worker starts with the first measurement and serves all that follow.

    Sub-models reach the worker in a file without a name, so nothing is left behind however either process ends. The
    worker ends with the context, or else when the meter is garbage.
    """

    def __init__(self, cores: tuple[int, ...], options: SessionOptions) -> None:
        self._cores, self._options = cores, options
        self._workers = Workers(ENVIRONMENT)
        self._file = SubModelFile()
        self._end = finalize(self, _end, self._workers, self._file)
        self._end.atexit = False  # the worker dies with this process

    def measure(self, sub_model: SubModel, layers: LayerRange) -> Measurement:
        """Measure time and memory of `sub_model`; a worker that is killed meanwhile is replaced once.

        Raises:
            BadInput: the runtime cannot run the sub-model.
            OutOfMemory: the machine, or its GPU, has not enough memory for it.
            WorkerLost: the sub-model crashes every process that runs it.
        """
        try:
            return self._measure(sub_model, layers)
        except WorkerLost:
            pass
        try:
            return self._measure(sub_model, layers)
        except WorkerLost as error:
            raise WorkerLost(f"layers {layers} end the process that runs them: {error}") from error

    def _measure(self, sub_model: SubModel, layers: LayerRange) -> Measurement:
        try:
            if not self._workers.pids:
                self._start()
            self._file.write(sub_model.content)
            self._workers.send(0, SubModelPorts(sub_model.inputs, sub_model.outputs))
            answer: Measurement | FailedMeasurement = self._workers.receive(0)
        except BaseException:
            self.close()  # a late answer would be taken for the answer to the next request
            raise
        if isinstance(answer, FailedMeasurement):
            message = f"{runtime_named(self._options.runtime).title} does not run layers {layers}: {answer.reason}"
            raise OutOfMemory(message, 1, layers) if answer.is_memory_error else BadInput(message)
        return answer

    def _start(self) -> None:
        self._workers.start("the meter", serve, self._file, self._cores, self._options, idle_model())
        self._workers.receive(0)

    def close(self) -> None:
        """End the worker; the next measurement starts a new one."""
        self._workers.__exit__()

    def __exit__(self, *_: object) -> None:
        self._end()


def _end(workers: Workers, file: SubModelFile) -> None:
    workers.__exit__()
    file.close()
