"""One worker that measures sub-models for this process, one at a time: `Meter`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from autoauto.records.errors import BadInput, WorkerLost
from autoauto.records.layers import LayerRange, SubModel
from autoauto.targets.host.measure.session import Content, idle_model
from autoauto.targets.host.measure.worker import Part, Reading, Refused, serve
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Workers


class Meter(AbstractContextManager["Meter"]):
    """Measures on some cores; the worker starts with the first measurement and is there for all that follow.

    Sub-models go to it through memory without a name, so nothing is left behind however either process ends.
    """

    def __init__(self, cores: tuple[int, ...], n_threads: int) -> None:
        self._cores, self._n_threads = cores, n_threads
        self._workers: Workers | None = None
        self._content = Content()

    def measure(self, part: SubModel, layers: LayerRange) -> Reading:
        """What `part` takes and holds; a worker that is killed meanwhile is replaced once.

        Raises:
            BadInput: ONNX Runtime does not run it.
            WorkerLost: it ends every process that runs it.
        """
        try:
            return self._measure(part, layers)
        except WorkerLost:
            pass
        try:
            return self._measure(part, layers)
        except WorkerLost as error:
            raise WorkerLost(f"layers {layers} end the process that runs them: {error}") from error

    def _measure(self, part: SubModel, layers: LayerRange) -> Reading:
        try:
            workers = self._workers or self._start()
            self._content.write(part.content)
            workers.send(0, Part(part.inputs, part.outputs))
            answer: Reading | Refused = workers.receive(0)
        except BaseException:
            self.close()  # its answer may still come, and would be taken for that of the next request
            raise
        if isinstance(answer, Refused):
            raise BadInput(f"ONNX Runtime does not run layers {layers}: {answer.reason}")
        return answer

    def _start(self) -> Workers:
        self._workers = Workers(ENVIRONMENT)
        self._workers.start("the meter", serve, self._content, self._cores, self._n_threads, idle_model())
        self._workers.receive(0)
        return self._workers

    def close(self) -> None:
        """End the worker; the next measurement starts another."""
        if self._workers is not None:
            self._workers.__exit__()
            self._workers = None

    def __exit__(self, *_: object) -> None:
        self.close()
        self._content.close()
