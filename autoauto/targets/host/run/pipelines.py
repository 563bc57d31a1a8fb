"""Stages of a model in processes of this machine, one after the other in one or more pipelines: `Pipelines`.

                  ring            ring            ring
    this process ──────▶ stage 0 ──────▶ stage 1 ──────▶ this process

Each stage computes from the slot of one ring into the slot of the next. What later stages need of earlier ones is
copied from slot to slot, stage by stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from autoauto.records.layers import LayerGraph, LayerRange, Source, SubModel
from autoauto.targets.host.measure.session import Content, idle_model
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.run.stage import Place, Ready, Spans, Task, arrays, message_bytes, serve
from autoauto.targets.host.transport.array_file import Array
from autoauto.targets.host.transport.ring import Ring

N_SLOTS = 3
"""Of a ring: one is read, one is written, and one evens out what stages take now and then."""

Batch = Mapping[str, Array]
"""Tensors of one micro-batch by name."""


class Pipelines(AbstractContextManager["Pipelines"]):
    """Equal pipelines side by side, loaded and warm from the beginning of the context to its end.

    Args:
        graph, source: the model.
        stages: the range of every stage, from the first layer to the last.
        batch_size: samples of a micro-batch.
        places: for every pipeline the place of every stage.

    Attributes:
        ready: for every pipeline what its stages said when they were.

    Raises:
        OutOfMemory: a stage exceeds its budget.
        Exception: whatever else a stage raises, with its own traceback as the cause.
    """

    def __init__(
        self,
        graph: LayerGraph,
        source: Source,
        stages: Sequence[LayerRange],
        batch_size: int,
        places: Sequence[Sequence[Place]],
    ) -> None:
        self._parts = [source.cut(graph, layers, batch_size) for layers in stages]
        cuts = [layers.start for layers in stages] + [stages[-1].stop]
        self._messages = [source.carried(graph, cut, batch_size) for cut in cuts]
        self._stages, self._places = tuple(stages), places
        self._rings: list[list[Ring]] = []
        self.ready: tuple[tuple[Ready, ...], ...] = ()

    def __enter__(self) -> Pipelines:
        with ExitStack() as stack, ExitStack() as loading:
            self._workers = stack.enter_context(Workers(ENVIRONMENT))
            idle, *contents = [_content(part, loading) for part in (idle_model(), *self._parts)]
            self._parts = [replace(part, content=b"") for part in self._parts]  # the workers' memory is needed now
            for number, places in enumerate(self._places):
                rings = [_ring(message_bytes(ports), stack) for ports in self._messages]
                self._rings.append(rings)
                for stage, place in enumerate(places):
                    name = f"stage {stage} of pipeline {number}"
                    self._workers.start(name, serve, self._task(stage, idle, contents[stage], rings, place))
            self.ready = self._from_all_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stream(self, batches: Iterator[Batch], take: Callable[[int, int, Batch], None]) -> list[list[Spans]]:
        """Send micro-batches through, each through the pipeline that has room first, until there are no more.

        `take(pipeline, number, outputs)` is called for the micro-batch that was `number` of `batches`; its arrays are
        gone when it returns. A context has one stream.

        Returns:
            For every pipeline and stage what it did.
        """
        feeding, pulling = set(range(len(self._rings))), set(range(len(self._rings)))
        under_way: list[deque[int]] = [deque() for _ in self._rings]
        numbered = enumerate(batches)
        ready = self._waiter(feeding, pulling)
        while pulling:
            descriptors, n_open = ready(), len(feeding) + len(pulling)
            for number, rings in enumerate(self._rings):
                if rings[-1].filled_fd in descriptors and not self._pull(number, under_way[number], take):
                    pulling.remove(number)
                if rings[0].free_fd in descriptors and not self._feed(number, under_way[number], numbered):
                    feeding.remove(number)
            if len(feeding) + len(pulling) < n_open:
                ready = self._waiter(feeding, pulling)
        return [list(spans) for spans in self._from_all_workers()]

    def _waiter(self, feeding: set[int], pulling: set[int]) -> Callable[[], list[int]]:
        """Waits for room in the pipelines that are fed, or for something to come out."""
        room = [self._rings[number][0].free_fd for number in feeding]
        return self._workers.waiter(room + [self._rings[number][-1].filled_fd for number in pulling])

    def _feed(self, number: int, under_way: deque[int], batches: Iterator[tuple[int, Batch]]) -> bool:
        """Send the next micro-batch into a pipeline that has room for it, or the end."""
        ring, ports = self._rings[number][0], self._messages[0]
        for index, batch in batches:
            slot = arrays(ring.reserve(), ports)
            for name, array in slot.items():
                array[...] = batch[name]
            under_way.append(index)
            ring.commit(message_bytes(ports))
            return True
        ring.finish()
        return False

    def _pull(self, number: int, under_way: deque[int], take: Callable[[int, int, Batch], None]) -> bool:
        """Take what has come out of a pipeline; whether it was not the end."""
        ring, ports = self._rings[number][-1], self._messages[-1]
        message = ring.peek()
        if message is None:
            return False
        take(number, under_way.popleft(), arrays(message, ports))
        ring.release()
        return True

    def _task(self, stage: int, idle: Content, content: Content, rings: Sequence[Ring], place: Place) -> Task:
        part = self._parts[stage]
        return Task(
            layers=self._stages[stage],
            idle=idle,
            content=content,
            inputs=part.inputs,
            outputs=part.outputs,
            received=self._messages[stage],
            sent=self._messages[stage + 1],
            receive=rings[stage],
            send=rings[stage + 1],
            place=place,
        )

    def _from_all_workers(self) -> tuple[tuple[Any, ...], ...]:
        """The next message of every worker, by pipeline and stage."""
        messages = iter([self._workers.receive(worker) for worker in range(len(self._workers.pids))])
        return tuple(tuple(next(messages) for _ in places) for places in self._places)


def _content(part: SubModel, stack: ExitStack) -> Content:
    content = Content(part.content)
    stack.callback(content.close)
    return content


def _ring(slot_bytes: int, stack: ExitStack) -> Ring:
    ring = Ring.create(N_SLOTS, slot_bytes)
    stack.callback(ring.close)
    return ring
