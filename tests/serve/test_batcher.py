"""Micro-batches out of requests: nothing is lost, doubled or mixed up, and nothing waits without need or end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autoauto.records.errors import BadInput
from autoauto.records.target import Origin
from autoauto.records.units import Array
from autoauto.serve.artifact import ServedModel
from autoauto.serve.batcher import Batcher, Job, MicroBatch, NotServing, Piece, QueueFull
from autoauto.serve.protocol import ServedTensor
from tests.drawn import n_examples
from tests.serve.conftest import port

DELAY_S, QUEUE = 1.0, 12


def model_of(
    batch_size: int, n_processes: int = 1, outputs: Sequence[ServedTensor] = (), n_pipelines: int = 1
) -> ServedModel:
    """y = 2 x: x has two numbers a sample along axis 1, y one number along axis 0."""
    x = port("x", 3, 2 * batch_size, batch_size=batch_size, axis=1)
    y = port("y", batch_size, batch_size=batch_size)
    return ServedModel("m", batch_size, (x,), (y, *outputs), n_pipelines, n_processes, 0.1, 10.0, Origin.MEASURED)


def inputs_of(values: Sequence[float]) -> dict[str, Array]:
    """Sample i is `values[i]` in both its columns and all its rows."""
    return {"x": np.repeat(np.array([values], np.float32), 2, axis=1).repeat(3, axis=0)}


def job_of(*values: float) -> tuple[Job, list[Job]]:
    """A job, and the list of the calls that it is done."""
    calls: list[Job] = []
    return Job(inputs_of(values), len(values), calls.append), calls


def values_of(batch: MicroBatch, model: ServedModel) -> list[float]:
    """The samples of a micro-batch as they are computed, what fills it up included."""
    arrays = {p.name: np.full(p.shape, np.nan, p.dtype) for p in model.inputs}
    batch.fill(arrays, model.inputs)
    assert (arrays["x"] == arrays["x"][0]).all()
    assert (arrays["x"][0, ::2] == arrays["x"][0, 1::2]).all()
    return [float(value) for value in arrays["x"][0, ::2]]


def compute(batch: MicroBatch, model: ServedModel) -> None:
    outputs = {"y": 2 * np.array(values_of(batch, model), np.float32)}
    batch.take(outputs, model.outputs)


def test_requests_share_micro_batches_and_one_is_split() -> None:
    """The drawing in the module's docstring, with one process more so that the partial one may go."""
    model = model_of(4, n_processes=2)
    batcher, jobs = Batcher(model, QUEUE, DELAY_S), [job_of(1, 2), job_of(3), job_of(4, 5, 6, 7)]
    for job, _ in jobs:
        batcher.add(job, 0.0)
    first = batcher.next(0.0)
    assert first is not None
    assert values_of(first, model) == [1, 2, 3, 4]
    assert (batcher.next(0.5), batcher.wake_s, batcher.n_queued) == (None, 1.0, 3)
    second = batcher.next(1.0)
    assert second is not None
    assert values_of(second, model) == [5, 6, 7, 7]
    for batch in (second, first):
        compute(batch, model)
        batcher.finish(batch, 2.0)
    for (job, calls), values in zip(jobs, [[2, 4], [6], [8, 10, 12, 14]], strict=True):
        assert calls == [job]
        assert job.outputs["y"].tolist() == values
    assert batcher.is_empty


def test_what_is_left_of_a_split_request_goes_before_later_ones() -> None:
    model = model_of(2)
    batcher = Batcher(model, QUEUE, DELAY_S)
    for values in ((1, 2, 3), (4,)):
        batcher.add(job_of(*values)[0], 0.0)
    batches = [batcher.next(0.0), batcher.next(0.0)]
    assert [values_of(batch, model) for batch in batches if batch] == [[1, 2], [3, 4]]


def test_a_partial_micro_batch_waits_from_the_time_at_which_there_is_room() -> None:
    """Full ones go although one is computed; a partial one waits for its end, and then for company."""
    batcher = Batcher(model_of(2), QUEUE, DELAY_S)
    for number in range(3):
        batcher.add(job_of(number)[0], 0.0)
    full = batcher.next(0.0)
    assert full is not None
    assert (batcher.next(9.0), batcher.wake_s) == (None, None)
    batcher.add(job_of(3)[0], 9.0)
    other = batcher.next(9.0)
    assert other is not None
    batcher.add(job_of(4)[0], 9.0)
    batcher.finish(full, 10.0)
    assert batcher.wake_s is None
    batcher.finish(other, 20.0)
    assert batcher.wake_s == 21.0
    assert batcher.next(20.9) is None
    assert batcher.next(21.0) is not None


def test_only_so_many_micro_batches_are_in_flight() -> None:
    batcher = Batcher(model_of(1, n_processes=2, n_pipelines=2), QUEUE, DELAY_S)
    for number in range(10):
        batcher.add(job_of(number)[0], 0.0)
    assert sum(batcher.next(0.0) is not None for _ in range(10)) == batcher.capacity == 8


def test_a_full_queue_refuses_and_a_request_that_never_fits_is_bad_input() -> None:
    batcher = Batcher(model_of(4), 5, DELAY_S)
    batcher.add(job_of(1, 2, 3)[0], 0.0)
    with pytest.raises(QueueFull, match="at most 5 samples may wait, 3 do"):
        batcher.add(job_of(1, 2, 3)[0], 0.0)
    with pytest.raises(BadInput, match="may hold 5 samples, got 6"):
        batcher.add(job_of(1, 2, 3, 4, 5, 6)[0], 0.0)
    assert batcher.n_queued == 3


def test_a_model_with_a_tensor_without_samples_takes_whole_micro_batches_only() -> None:
    batcher = Batcher(model_of(2, outputs=[port("mean", 3, batch_size=2, axis=None)]), QUEUE, DELAY_S)
    with pytest.raises(BadInput, match=r"must hold 2 samples, because a tensor .* has no axis of them; got 1"):
        batcher.add(job_of(1)[0], 0.0)
    jobs = [job_of(1, 2)[0], job_of(3, 4)[0]]
    for job in jobs:
        batcher.add(job, 0.0)
    batches = [batcher.next(0.0), batcher.next(0.0)]
    assert [batch.pieces for batch in batches if batch] == [(Piece(job, 0, 2),) for job in jobs]


def test_of_a_refused_micro_batch_only_the_request_fails_that_is_refused_alone() -> None:
    model = model_of(4)
    batcher, jobs = Batcher(model, QUEUE, DELAY_S), [job_of(1), job_of(-1, 2), job_of(3)]
    for job, _ in jobs:
        batcher.add(job, 0.0)
    batch = batcher.next(0.0)
    assert batch is not None
    batcher.refuse(batch, "negative", 0.0)
    while (batch := batcher.next(0.0)) is not None:
        values = values_of(batch, model)
        if min(values) < 0:
            batcher.refuse(batch, "negative", 0.0)
        else:
            compute(batch, model)
            batcher.finish(batch, 0.0)
    assert [calls for _, calls in jobs] == [[job] for job, _ in jobs]
    assert [str(job.error) for job, _ in jobs] == ["None", "the model does not take these values: negative", "None"]
    assert [jobs[i][0].outputs["y"].tolist() for i in (0, 2)] == [[2.0], [6.0]]
    assert batcher.is_empty


def test_a_request_that_is_given_up_waits_no_longer() -> None:
    batcher, (gone, calls), (other, _) = Batcher(model_of(2), QUEUE, DELAY_S), job_of(1, 2, 3), job_of(4)
    batcher.add(gone, 0.0)
    batcher.add(other, 0.0)
    batch = batcher.next(0.0)
    assert batch is not None
    batcher.drop(gone, NotServing("gone"))
    assert (calls, batcher.n_queued) == ([gone], 1)
    batcher.finish(batch, 0.0)
    last = batcher.next(5.0)
    assert last is not None
    assert last.pieces == (Piece(other, 0, 1),)
    assert calls == [gone]


class Serving(RuleBasedStateMachine):
    """Any order of requests, outputs, refusals, losses and departures; samples below 0 are refused by the model."""

    @initialize(batch_size=st.integers(1, 4), n_processes=st.integers(1, 2), delay_s=st.sampled_from([0.0, 1.0]))
    def start(self, batch_size: int, n_processes: int, delay_s: float) -> None:
        self.model = model_of(batch_size, n_processes)
        self.batcher = Batcher(self.model, QUEUE, delay_s)
        self.now_s, self.next_value = 0.0, 1
        self.jobs: list[tuple[Job, list[Job], list[int]]] = []
        self.computed: list[MicroBatch] = []

    @rule(n_samples=st.integers(1, QUEUE + 1), is_bad=st.booleans())
    def add(self, n_samples: int, is_bad: bool) -> None:
        values = [*range(self.next_value, self.next_value + n_samples)]
        self.next_value += n_samples
        values[-1] *= -1 if is_bad else 1
        job, calls = job_of(*values)
        try:
            self.batcher.add(job, self.now_s)
        except (QueueFull, BadInput):
            assert self.batcher.n_queued + n_samples > QUEUE
            return
        self.jobs.append((job, calls, values))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        while (batch := self.batcher.next(self.now_s)) is not None:
            assert 0 < batch.n_samples <= self.model.batch_size
            self.computed.append(batch)

    @precondition(lambda self: self.computed)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        batch = self.computed.pop(data.draw(st.integers(0, len(self.computed) - 1)))
        if min(values_of(batch, self.model)) < 0:
            self.batcher.refuse(batch, "negative", self.now_s)
        else:
            compute(batch, self.model)
            self.batcher.finish(batch, self.now_s)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        job, _, _ = self.jobs[data.draw(st.integers(0, len(self.jobs) - 1))]
        self.batcher.drop(job, NotServing("gone"))

    @rule()
    def lose(self) -> None:
        self.computed.clear()
        self.batcher.lose(NotServing("lost"), self.now_s)
        assert all(len(calls) == 1 for _, calls, _ in self.jobs)

    @invariant()
    def queue_and_pipelines_are_bounded(self) -> None:
        assert 0 <= self.batcher.n_queued <= QUEUE
        assert len(self.batcher.in_flight) == len(self.computed) <= self.batcher.capacity

    @invariant()
    def what_is_done_is_right_and_done_once(self) -> None:
        for job, calls, values in self.jobs:
            assert calls in ([], [job])
            if calls and job.error is None:
                assert job.outputs["y"].tolist() == [2 * value for value in values]
            elif calls and isinstance(job.error, BadInput):
                assert min(values) < 0

    def teardown(self) -> None:
        """Whatever has happened, everything ends when time goes on and micro-batches end."""
        if not hasattr(self, "batcher"):
            return
        while not self.batcher.is_empty:
            self.wait(1.0)
            while self.computed:
                batch = self.computed.pop()
                if min(values_of(batch, self.model)) < 0:
                    self.batcher.refuse(batch, "negative", self.now_s)
                else:
                    compute(batch, self.model)
                    self.batcher.finish(batch, self.now_s)
        self.what_is_done_is_right_and_done_once()
        assert all(calls for _, calls, _ in self.jobs)


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=n_examples(40), stateful_step_count=30)
