"""Pipelines of processes: their outputs, the order of their stages, their memory, and their failures."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

from autoauto.graph.cut import onnx_source
from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import OutOfMemory, WorkerLost
from autoauto.records.layers import LayerGraph, LayerRange, SubModel
from autoauto.records.units import MIB
from autoauto.targets.host.measure.examples import example
from autoauto.targets.host.remote.machines import LocalMachine, ProcessHost
from autoauto.targets.host.run.pipelines import N_SLOTS, Pipelines, _by_own_clock, _Channels
from autoauto.targets.host.run.stage import StageResources, StageSpans
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.drawn import daily
from tests.graph.conftest import make
from tests.running import n_descriptors

Models = Callable[[int, int], Any]
ENOUGH = 512 * MIB
"""A budget that every stage fits."""


def resources(*budgets: int) -> list[StageResources]:
    cores = sorted(os.sched_getaffinity(0))
    return [
        StageResources((cores[i % len(cores)],), SessionOptions(1, OnnxRuntimeSession()), budget)
        for i, budget in enumerate(budgets)
    ]


def ranges(*cuts: int) -> list[LayerRange]:
    return [LayerRange(*pair) for pair in itertools.pairwise(cuts)]


def batches(n: int, batch_size: int, width: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((batch_size, width), np.float32)} for _ in range(n)]


def run(pipelines: Pipelines, sent: Sequence[Mapping[str, Any]]) -> tuple[list[Any], Any]:
    """Outputs in the order of the inputs, and the times of the stages."""
    results: dict[int, Any] = {}

    def take(_pipeline: int, number: int, outputs: Mapping[str, Any]) -> None:
        results[number] = {name: array.copy() for name, array in outputs.items()}

    spans = pipelines.stream(iter(sent), take)
    return [results[number] for number in range(len(sent))], spans


@pytest.mark.parametrize("cuts", daily([(0, 3, 7), (0, 7), (0, 1, 2, 6, 7)]))
def test_outputs_equal_those_of_the_whole_model(residual_model: Models, cuts: tuple[int, ...]) -> None:
    model, sent = residual_model(3, 16), batches(10, 2, 16)
    with Pipelines(model.graph, model.source, ranges(*cuts), 2, [resources(*[ENOUGH] * (len(cuts) - 1))]) as pipelines:
        received, spans = run(pipelines, sent)
    for inputs, outputs in zip(sent, received, strict=True):
        np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 2)[0], rtol=1e-5, atol=1e-6)
    assert [len(stage.times) for stage in spans[0]] == [10] * (len(cuts) - 1)


@pytest.mark.parametrize("n_replicas", daily([(1, 2), (1, 1), (2, 1)]))
def test_loaded_pipelines_compute_one_stream_after_the_other(
    residual_model: Models, n_replicas: tuple[int, int]
) -> None:
    model, all_sent = residual_model(3, 16), batches(9, 2, 16)
    devices = [resources(*[ENOUGH] * sum(n_replicas))]
    with Pipelines(model.graph, model.source, ranges(0, 3, 7), 2, devices, n_replicas) as pipelines:
        pids = pipelines.pids
        for sent in (all_sent[:5], all_sent[5:6], all_sent[6:]):
            received, spans = run(pipelines, sent)
            for inputs, outputs in zip(sent, received, strict=True):
                np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 2)[0], rtol=1e-5, atol=1e-6)
            assert sum(len(process.times) for process in spans[0][: n_replicas[0]]) == len(sent)
        assert pipelines.pids == pids


def test_a_stage_waits_for_the_previous_stage_and_for_a_free_slot(residual_model: Models) -> None:
    model = residual_model(3, 16)
    with Pipelines(model.graph, model.source, ranges(0, 2, 5, 7), 1, [resources(ENOUGH, ENOUGH, ENOUGH)]) as pipelines:
        _, spans = run(pipelines, batches(20, 1, 16))
    first, second, third = (stage.times for stage in spans[0])
    for before, after in ((first, second), (second, third)):
        assert (after[:, 0] >= before[:, 2]).all()
        assert (before[N_SLOTS:, 0] >= after[:-N_SLOTS, 2]).all()
    for times in (first, second, third):
        assert (np.diff(times.ravel()) >= 0).all()


def test_pipelines_side_by_side_share_the_micro_batches(residual_model: Models) -> None:
    model, sent = residual_model(2, 8), batches(30, 1, 8)
    with Pipelines(model.graph, model.source, ranges(0, 5), 1, [resources(ENOUGH), resources(ENOUGH)]) as pipelines:
        received, spans = run(pipelines, sent)
    assert sum(len(stages[0].times) for stages in spans) == 30
    for inputs, outputs in zip(sent, received, strict=True):
        np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 1)[0], rtol=1e-5, atol=1e-6)


def test_a_stage_reports_its_memory_by_category(residual_model: Models) -> None:
    model = residual_model(2, 1024)
    with Pipelines(model.graph, model.source, ranges(0, 2, 5), 8, [resources(ENOUGH, ENOUGH)]) as pipelines:
        first, second = (ready.memory_bytes for ready in pipelines.ready[0])
    assert set(first) == {"runtime", "parameter", "temporary"}
    assert 0 < first["runtime"] < 16 * MIB
    for memory in (first, second):
        assert 4 * MIB - 4096 <= memory["parameter"] < 6 * MIB  # one product of 1024 x 1024 weights each


def test_rings_are_used_in_the_order_of_micro_batches() -> None:
    """Two processes send to three: the drawing in the module's docstring."""
    with LocalMachine() as here:
        rings = _Channels([here] * 2, [here] * 3, 1)
        number = {id(ring): t for t, (ring, _) in enumerate(rings._channels.values())}  # its first micro-batch
        assert [[number[id(ring)] for ring in rings.sent_by(i)] for i in range(2)] == [[0, 2, 4], [1, 3, 5]]
        assert [[number[id(ring)] for ring in rings.received_by(j)] for j in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_times_of_another_machine_are_by_the_clock_of_this_one() -> None:
    later = cast(ProcessHost, SimpleNamespace(clock_offset_ns=5))
    spans = StageSpans(np.array([[10, 11, 12, 13]]), 1, 1.0)
    assert _by_own_clock(spans, later).times.tolist() == [[5, 6, 7, 8]]
    assert _by_own_clock(None, later) is None


def check_stage_replicas(model: Any, cuts: Sequence[int], n_replicas: Sequence[int], n_batches: int) -> None:
    """Outputs are in order and right, and the processes of every stage took the micro-batches in turn."""
    sent = batches(n_batches, 2, 16)
    processes = [resources(*[ENOUGH] * sum(n_replicas))]
    with Pipelines(model.graph, model.source, ranges(*cuts), 2, processes, n_replicas) as pipelines:
        received, [spans] = run(pipelines, sent)
    for inputs, outputs in zip(sent, received, strict=True):
        np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 2)[0], rtol=1e-5, atol=1e-6)
    shares = [len(range(first, n_batches, m)) for m in n_replicas for first in range(m)]
    assert [len(process.times) for process in spans] == shares


@pytest.mark.parametrize(
    ("cuts", "n_replicas", "n_batches"),
    daily(
        [((0, 3, 7), (1, 2), 25), ((0, 7), (3,), 2), ((0, 3, 7), (3, 2), 25), ((0, 2, 4, 7), (1, 2, 1), 0)],
        2,
        several=True,
    ),
)
def test_outputs_of_stage_replicas_are_in_order_and_equal_those_of_the_whole_model(
    residual_model: Models, cuts: Sequence[int], n_replicas: Sequence[int], n_batches: int
) -> None:
    check_stage_replicas(residual_model(3, 16), cuts, n_replicas, n_batches)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_any_stages_with_any_replicas_are_right(residual_model: Models, seed: int) -> None:
    random = Random(seed)
    n_stages = random.randint(1, 4)
    cuts = (0, *sorted(random.sample(range(1, 7), n_stages - 1)), 7)
    n_replicas = [random.randint(1, 4) for _ in range(n_stages)]
    check_stage_replicas(residual_model(3, 16), cuts, n_replicas, random.choice((1, 3, 50, 200)))


def test_pipelines_with_stage_replicas_run_side_by_side(residual_model: Models) -> None:
    model, sent, pair = residual_model(2, 8), batches(30, 1, 8), resources(ENOUGH, ENOUGH)
    with Pipelines(model.graph, model.source, ranges(0, 5), 1, [pair, pair], [2]) as pipelines:
        received, spans = run(pipelines, sent)
    for processes in spans:
        first, second = (len(process.times) for process in processes)
        assert first - second in (0, 1)
    assert sum(len(process.times) for processes in spans for process in processes) == 30
    for inputs, outputs in zip(sent, received, strict=True):
        np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 1)[0], rtol=1e-5, atol=1e-6)


def test_no_micro_batches_give_no_outputs_and_no_times(residual_model: Models) -> None:
    model = residual_model(1, 8)
    with Pipelines(model.graph, model.source, ranges(0, 3), 1, [resources(ENOUGH)]) as pipelines:
        received, spans = run(pipelines, [])
    assert received == []
    assert spans[0][0].times.shape == (0, 4)


def test_a_stage_over_its_budget_is_out_of_memory_with_the_bytes_it_needs(residual_model: Models) -> None:
    model = residual_model(2, 1024)  # 4 MiB of weights a layer
    pipelines = Pipelines(model.graph, model.source, ranges(0, 2, 5), 8, [resources(ENOUGH, MIB)])
    with pytest.raises(OutOfMemory, match=r"layers \[2, 5\) do not fit .* 1.0 MiB: they need .* or more") as failure:
        pipelines.__enter__()
    needs = sum(failure.value.memory_bytes.values())
    assert failure.value.layers == LayerRange(2, 5)
    assert 4 * MIB < needs < 12 * MIB
    assert failure.value.excess_bytes == needs - MIB


def test_a_stage_replica_over_its_budget_is_out_of_memory(residual_model: Models) -> None:
    model = residual_model(2, 1024)
    processes = [resources(ENOUGH, ENOUGH, MIB)]
    with pytest.raises(OutOfMemory, match=r"layers \[2, 5\) do not fit .* 1.0 MiB") as failure:
        Pipelines(model.graph, model.source, ranges(0, 2, 5), 8, processes, [1, 2]).__enter__()
    assert failure.value.layers == LayerRange(2, 5)


@pytest.mark.slow
def test_a_stage_that_was_out_of_memory_fits_with_the_bytes_it_needed(residual_model: Models) -> None:
    """Temporary tensors take 32 MiB and more: the parameters fit, a run does not."""
    model, batch_size = residual_model(2, 256), 32_768

    def start(budget_bytes: int) -> None:
        with Pipelines(model.graph, model.source, ranges(0, 5), batch_size, [resources(budget_bytes)]):
            pass

    with pytest.raises(OutOfMemory) as failure:
        start(16 * MIB)
    assert failure.value.memory_bytes["temporary"] >= 32 * MIB
    needs = 16 * MIB + failure.value.excess_bytes
    start(needs + 8 * MIB)
    with pytest.raises(OutOfMemory):
        start(needs - 4 * MIB)


def test_a_failure_in_a_stage_is_raised_with_the_traceback_of_its_worker(residual_model: Models) -> None:
    model = residual_model(2, 8)
    cut = model.source.cut

    def broken(graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        sub_model: SubModel = cut(graph, layers, batch_size)
        return replace(sub_model, content=b"no model")

    model.source.cut = broken
    with pytest.raises(Exception, match="Protobuf parsing failed") as failure:
        Pipelines(model.graph, model.source, ranges(0, 2, 5), 1, [resources(ENOUGH, ENOUGH)]).__enter__()
    assert "in serve" in str(failure.value.__cause__)


def test_a_killed_stage_ends_the_stream(residual_model: Models) -> None:
    model = residual_model(2, 8)
    with Pipelines(model.graph, model.source, ranges(0, 2, 5), 1, [resources(ENOUGH, ENOUGH)]) as pipelines:
        endless = iter(lambda: batches(1, 1, 8)[0], None)

        def take(_pipeline: int, number: int, _outputs: Mapping[str, Any]) -> None:
            if number == 5:
                os.kill(pipelines.pids[1], signal.SIGKILL)

        with pytest.raises(WorkerLost, match="stage 1 of pipeline 0"):
            pipelines.stream(endless, take)


def test_a_killed_stage_replica_ends_the_stream(residual_model: Models) -> None:
    model, three = residual_model(2, 8), [resources(ENOUGH, ENOUGH, ENOUGH)]
    with Pipelines(model.graph, model.source, ranges(0, 2, 5), 1, three, [2, 1]) as pipelines:
        endless = iter(lambda: batches(1, 1, 8)[0], None)

        def take(_pipeline: int, number: int, _outputs: Mapping[str, Any]) -> None:
            if number == 5:
                os.kill(pipelines.pids[1], signal.SIGKILL)

        with pytest.raises(WorkerLost, match="stage 0, replica 1, of pipeline 0"):
            pipelines.stream(endless, take)


def test_pipelines_that_serve_wait_for_micro_batches_and_outlive_one_that_the_model_refuses(tmp_path: Path) -> None:
    """Micro-batches 0 to 5 come one by one; the table has no row 9, which the first of two stages reads."""
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    onnx.save_model(
        make("Gather table ids > e axis=0; Neg e > y", {"int:ids": ["n"]}, "y", {"table": table}), tmp_path / "m"
    )
    source = onnx_source(str(tmp_path / "m"))
    arrivals_fd = os.eventfd(1)
    outputs: dict[int, Any] = {}

    def come() -> Iterator[Mapping[str, Any]]:
        for number, row in enumerate((0, 9, 1, 9, 9, 3)):
            os.eventfd_read(arrivals_fd)
            assert sorted(outputs) == [*range(number)]  # the next one comes when the last one has ended
            yield {"ids": np.array([row])}

    def end(number: int, output: Any) -> None:
        outputs[number] = output
        os.eventfd_write(arrivals_fd, 1)

    def take(_pipeline: int, number: int, arrays: Mapping[str, Any]) -> None:
        end(number, arrays["y"].tolist())

    pair = [resources(ENOUGH, ENOUGH)]
    with Pipelines(source.graph, source, ranges(0, 1, 2), 1, pair, serves=True) as pipelines:
        pipelines.stream(come(), take, end, arrivals_fd)
    os.close(arrivals_fd)
    refused = [number for number, output in outputs.items() if isinstance(output, str)]
    assert refused == [1, 3, 4]
    assert "out of data bounds" in outputs[1]
    assert [outputs[number] for number in (0, 2, 5)] == [[[0, -1]], [[-2, -3]], [[-6, -7]]]


@pytest.mark.slow
@pytest.mark.parametrize("n_replicas", [[1, 1], [1, 2]])
def test_starts_stops_and_kills_leave_nothing(residual_model: Models, n_replicas: list[int]) -> None:
    model, processes = residual_model(1, 8), [resources(*[ENOUGH] * sum(n_replicas))]

    def resources_of_this_process() -> tuple[int, list[str], int, int]:
        shared = [name for name in os.listdir("/dev/shm") if "autoauto" in name]
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        mappings = Path("/proc/self/maps").read_text().count("memfd:autoauto")
        return n_descriptors(), shared, len(children), mappings

    def run_once(victim: int | None = None) -> None:
        with Pipelines(model.graph, model.source, ranges(0, 1, 3), 1, processes, n_replicas) as pipelines:
            if victim is not None:
                os.kill(pipelines.pids[victim], signal.SIGKILL)
            run(pipelines, batches(2, 1, 8))

    run_once()  # the first run starts multiprocessing's resource tracker, which stays
    # What an earlier test of this process left behind may end meanwhile, but a run that leaks would do so 12 times.
    before = resources_of_this_process()
    for _ in range(8):
        run_once()
    for number in range(4):
        with pytest.raises(WorkerLost):
            run_once(victim=number % sum(n_replicas))
    after = resources_of_this_process()
    assert after[1] == []
    assert all(now <= then for now, then in zip((after[0], *after[2:]), (before[0], *before[2:]), strict=True)), after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "batch_size", "n_stages"),
    [("light_squeezenet", 2, 4), ("light_shufflenet", 1, 3), ("bert-base-128", 2, 2)],
)
def test_outputs_of_real_models_equal_those_of_one_session(model: str, batch_size: int, n_stages: int) -> None:
    """Errors are relative to the largest output: a cut prevents fusions, so kernels add in another order."""
    runtime = pytest.importorskip("onnxruntime")
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{model}.onnx"
    source = onnx_source(str(path) if path.exists() else model)
    graph = source.graph
    n = len(graph)
    whole = source.cut(graph, LayerRange(0, n), batch_size)
    inputs = {port.name: example(port) for port in whole.inputs}
    session = runtime.InferenceSession(whole.content, providers=["CPUExecutionProvider"])
    expected = session.run([port.name for port in whole.outputs], inputs)
    cuts = [n * s // n_stages for s in range(n_stages + 1)]
    with Pipelines(graph, source, ranges(*cuts), batch_size, [resources(*[ENOUGH] * n_stages)]) as pipelines:
        received, _ = run(pipelines, [inputs] * 3)
    for outputs in received:
        for port, values in zip(whole.outputs, expected, strict=True):
            assert np.abs(outputs[port.name] - values).max() <= 1e-4 * np.abs(values).max()
