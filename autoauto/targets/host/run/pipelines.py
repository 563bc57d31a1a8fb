"""One or more pipelines whose stages are processes of this machine: `Pipelines`.

                  ring            ring            ring
    this process ──────▶ stage 0 ──────▶ stage 1 ──────▶ this process

Each stage computes from a slot of one ring into a slot of the next. Tensors that only later stages need are copied from
slot to slot, stage by stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from autoauto.records.arrays import Array
from autoauto.records.layers import LayerGraph, LayerRange, Source, SubModel
from autoauto.targets.host.measure.session import SubModelFile, idle_model
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.run.stage import (
    StageReady,
    StageResources,
    StageSpans,
    StageTask,
    arrays,
    message_bytes,
    serve,
)
from autoauto.targets.host.transport.ring import Ring

N_SLOTS = 3
"""Slots of a ring: one is read, one is written, and one evens out the variation of the stages' times."""

Batch = Mapping[str, Array]
"""Tensors of one micro-batch by name."""


class Pipelines(AbstractContextManager["Pipelines"]):
    """Equal pipelines side by side, loaded and warm within the context.

    Args:
        graph, source: the model.
        stages: the layers of every stage, from the first layer to the last.
        batch_size: samples of a micro-batch.
        resources: what every stage of every pipeline may use, by pipeline and stage.

    Attributes:
        ready: the memory of every loaded stage, by pipeline and stage.

    Raises:
        OutOfMemory: a stage exceeds its budget.
        Exception: any other exception of a stage, with the worker's traceback as the cause.
    """

    def __init__(
        self,
        graph: LayerGraph,
        source: Source,
        stages: Sequence[LayerRange],
        batch_size: int,
        resources: Sequence[Sequence[StageResources]],
    ) -> None:
        self._sub_models = [source.cut(graph, layers, batch_size) for layers in stages]
        cuts = [layers.start for layers in stages] + [stages[-1].stop]
        self._messages = [source.carried(graph, cut, batch_size) for cut in cuts]
        self._stages, self._resources = tuple(stages), resources
        self._rings: list[list[Ring]] = []
        self.ready: tuple[tuple[StageReady, ...], ...] = ()

    def __enter__(self) -> Pipelines:
        with ExitStack() as stack, ExitStack() as loading:
            self._workers = stack.enter_context(Workers(ENVIRONMENT))
            idle, *files = [_file(sub_model, loading) for sub_model in (idle_model(), *self._sub_models)]
            # The workers need the memory: the content is in the files now.
            self._sub_models = [replace(sub_model, content=b"") for sub_model in self._sub_models]
            for pipeline, pipeline_resources in enumerate(self._resources):
                rings = [_ring(message_bytes(ports), stack) for ports in self._messages]
                self._rings.append(rings)
                for stage, resources in enumerate(pipeline_resources):
                    name = f"stage {stage} of pipeline {pipeline}"
                    self._workers.start(name, serve, self._task(stage, idle, files[stage], rings, resources))
            self.ready = self._receive_from_all()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stream(self, batches: Iterator[Batch], take: Callable[[int, int, Batch], None]) -> list[list[StageSpans]]:
        """Send micro-batches, each through the first pipeline that has room, until `batches` ends.

        `take(pipeline, number, outputs)` is called with the outputs of micro-batch `number` of `batches`; the arrays
        are valid until it returns. A context has one stream only.

        Returns:
            The times of every stage, by pipeline and stage.
        """
        feeding, draining = set(range(len(self._rings))), set(range(len(self._rings)))
        in_flight: list[deque[int]] = [deque() for _ in self._rings]
        numbered = enumerate(batches)
        ready = self._waiter(feeding, draining)
        while draining:
            descriptors, n_open = ready(), len(feeding) + len(draining)
            for pipeline, rings in enumerate(self._rings):
                if rings[-1].filled_fd in descriptors and not self._drain(pipeline, in_flight[pipeline], take):
                    draining.remove(pipeline)
                if rings[0].free_fd in descriptors and not self._feed(pipeline, in_flight[pipeline], numbered):
                    feeding.remove(pipeline)
            if len(feeding) + len(draining) < n_open:
                ready = self._waiter(feeding, draining)
        return [list(spans) for spans in self._receive_from_all()]

    def _waiter(self, feeding: set[int], draining: set[int]) -> Callable[[], list[int]]:
        """Make a function that waits for room in the pipelines in `feeding`, or outputs of those in `draining`."""
        room = [self._rings[pipeline][0].free_fd for pipeline in feeding]
        return self._workers.waiter(room + [self._rings[pipeline][-1].filled_fd for pipeline in draining])

    def _feed(self, pipeline: int, in_flight: deque[int], batches: Iterator[tuple[int, Batch]]) -> bool:
        """Send the next micro-batch, or the end of the stream, into a pipeline; False at the end."""
        ring, ports = self._rings[pipeline][0], self._messages[0]
        for number, batch in batches:
            slot = arrays(ring.reserve(), ports)
            for name, array in slot.items():
                array[...] = batch[name]
            in_flight.append(number)
            ring.commit(message_bytes(ports))
            return True
        ring.finish()
        return False

    def _drain(self, pipeline: int, in_flight: deque[int], take: Callable[[int, int, Batch], None]) -> bool:
        """Take the next outputs of a pipeline; False at the end of the stream."""
        ring, ports = self._rings[pipeline][-1], self._messages[-1]
        message = ring.peek()
        if message is None:
            return False
        take(pipeline, in_flight.popleft(), arrays(message, ports))
        ring.release()
        return True

    def _task(
        self, stage: int, idle: SubModelFile, file: SubModelFile, rings: Sequence[Ring], resources: StageResources
    ) -> StageTask:
        sub_model = self._sub_models[stage]
        return StageTask(
            layers=self._stages[stage],
            idle=idle,
            file=file,
            inputs=sub_model.inputs,
            outputs=sub_model.outputs,
            received=self._messages[stage],
            sent=self._messages[stage + 1],
            receive=rings[stage],
            send=rings[stage + 1],
            resources=resources,
        )

    def _receive_from_all(self) -> tuple[tuple[Any, ...], ...]:
        """The next message of every worker, by pipeline and stage."""
        messages = iter([self._workers.receive(worker) for worker in range(len(self._workers.pids))])
        return tuple(tuple(next(messages) for _ in stages) for stages in self._resources)


def _file(sub_model: SubModel, stack: ExitStack) -> SubModelFile:
    file = SubModelFile(sub_model.content)
    stack.callback(file.close)
    return file


def _ring(slot_bytes: int, stack: ExitStack) -> Ring:
    ring = Ring.create(N_SLOTS, slot_bytes)
    stack.callback(ring.close)
    return ring
