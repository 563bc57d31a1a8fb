"""What every installed runtime keeps: outputs, types, memory, threads, failures, and what it says is in force."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.processes.channel import Channel
from autoauto.profile.in_model import layer_seconds
from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import BadInput, MissingExtra, OutOfMemory, WorkerLost
from autoauto.records.knob import Knob
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.units import MIB, Precision
from autoauto.space.sessions import session_of
from autoauto.targets.host.gpu.gpus import gpus
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.measure.examples import example
from autoauto.targets.host.measure.session import OpenModel, idle_model
from autoauto.targets.host.memory_budget import ENVIRONMENT, data_bytes, shared_array
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.remote.machines import LocalMachine
from autoauto.targets.host.run.pipelines import Pipelines, cut_in_parts
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import SESSIONS, check_installed, installed_versions, runtime_named
from autoauto.targets.host.runtimes.runtime import EffectiveOptions
from autoauto.targets.host.runtimes.session import CORES_PER_DEVICE, PRECISION
from autoauto.targets.host.transport.shared_memory import SubModelFile
from tests.running import is_running, n_descriptors, wait_until

Models = Callable[[int, int], Any]
TOLERANCE = {Precision.FP32: 1e-5, Precision.BF16: 2e-2, Precision.TF32: 2e-3, Precision.FP16: 2e-3}
"""Relative to the largest output: bf16 has 8 bits, tf32 and fp16 have 11, and a product of 256 rounds each factor."""
ROUNDED = 2.0**-15
"""A sixteenth of what rounding to 11 bits changes at most, relative to a number; fp32 is far below."""
SHORT = (Precision.BF16, Precision.FP16)
"""Formats in which weights take half of the bytes."""
GPU_SLACK_BYTES = 256 * MIB
"""Of a GPU: libraries load their kernels, and make their workspaces, when they are first used."""
CONTEXT_BYTES = 2048 * MIB
"""More than a process with an idle session takes of a GPU: 599 MiB of an H200."""
EVERY_ONE = [(runtime, precision) for runtime, kind in SESSIONS.items() for precision in kind.precisions]


@pytest.fixture(params=EVERY_ONE, ids=["-".join(pair) for pair in EVERY_ONE])
def options(request: pytest.FixtureRequest) -> SessionOptions:
    """A session of every runtime in every format that it has here."""
    runtime, precision = request.param
    if runtime not in registry.installed():
        pytest.skip(f"{runtime} is not installed")
    here = gpus() if runtime == "cuda" else ()
    if runtime == "cuda" and not here:
        pytest.skip("this machine has no GPU of NVIDIA")
    if precision not in runtime_named(runtime).precisions():
        pytest.skip(f"this processor, or GPU, has no instructions for {precision}")
    session = session_of({"runtime": runtime, "precision": precision})
    return SessionOptions(1, session, here[0].uuid if here else "")


@pytest.fixture
def meter(options: SessionOptions) -> Iterator[Meter]:
    with Meter(cores_of(0, 1), options) as meter:
        yield meter


def in_worker(function: Callable[..., None], sub_model: SubModel, *args: object) -> Any:
    """What `function` reports of a sub-model, in a process with the environment of stages."""
    file = SubModelFile(sub_model.content)
    with Workers(ENVIRONMENT) as workers:
        workers.start("the session", function, file, replace(sub_model, content=b""), *args)
        result = workers.receive(0)
    file.close()
    return result


def outputs_of(sub_model: SubModel, options: SessionOptions, inputs: dict[str, Any]) -> dict[str, NDArray[Any]]:
    file = SubModelFile(sub_model.content)
    session = OpenModel(file, sub_model.inputs, sub_model.outputs, options)
    file.close()
    outputs = {port.name: shared_array(port) for port in sub_model.outputs}
    session.model.run(inputs, outputs)
    return outputs


def relative_error(array: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.abs(array - expected).max() / np.abs(expected).max())


def test_outputs_are_those_of_the_reference_and_rounded_where_the_format_is_short(options: SessionOptions) -> None:
    rng = np.random.default_rng(3)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 256), (256, 64)))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", x.shape), ("y", (8, 64)))
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "product", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sub_model = SubModel(model.SerializeToString(), (Port("x", x.shape, "float32"),), (Port("y", (8, 64), "float32"),))
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    error = relative_error(outputs_of(sub_model, options, {"x": x})["y"], expected[0])
    assert error <= TOLERANCE[options.precision]
    assert (error > ROUNDED) == (options.precision is not Precision.FP32)


def test_all_types_and_scalars_are_read_and_written_in_place(options: SessionOptions) -> None:
    shapes: dict[str, tuple[int, tuple[int, ...]]] = {
        "mask": (TensorProto.BOOL, (3,)), "a": (TensorProto.FLOAT, (3,)), "b": (TensorProto.FLOAT, (3,)),
        "index": (TensorProto.INT64, ()), "half": (TensorProto.FLOAT16, (3,)), "word": (TensorProto.INT32, (2, 2)),
        "unmask": (TensorProto.BOOL, (3,)), "chosen": (TensorProto.FLOAT, (3,)), "number": (TensorProto.FLOAT, ()),
        "twice": (TensorProto.FLOAT16, (3,)), "sum": (TensorProto.INT32, (2, 2)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Not", ["mask"], ["unmask"]),
        helper.make_node("Where", ["mask", "a", "b"], ["chosen"]),
        helper.make_node("Cast", ["index"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["half", "half"], ["twice"]),
        helper.make_node("Add", ["word", "word"], ["sum"]),
    ]
    infos = [helper.make_tensor_value_info(name, *of) for name, of in shapes.items()]
    graph = helper.make_graph(nodes, "types", infos[:6], infos[6:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ports = [Port(name, shape, str(helper.tensor_dtype_to_np_dtype(kind))) for name, (kind, shape) in shapes.items()]
    sub_model = SubModel(model.SerializeToString(), tuple(ports[:6]), tuple(ports[6:]))
    inputs = {
        "mask": np.array([True, False, True]), "a": np.ones(3, np.float32), "b": np.zeros(3, np.float32),
        "index": np.array(7), "half": np.ones(3, np.float16), "word": np.full((2, 2), -4, np.int32),
    }  # fmt: skip
    outputs = outputs_of(sub_model, options, inputs)
    values = {name: array.tolist() for name, array in outputs.items()}
    sums = [[-8, -8], [-8, -8]]
    assert values == {"unmask": [False, True, False], "chosen": [1, 0, 1], "number": 7, "twice": [2, 2, 2], "sum": sums}


def test_a_node_that_a_runtime_drops_still_copies_its_input(options: SessionOptions) -> None:
    idle = idle_model()
    inputs = {port.name: np.full(port.shape, 3, port.dtype) for port in idle.inputs}
    (copied,) = outputs_of(idle, options, inputs).values()
    assert copied.tolist() == [3]


def load_and_measure(connection: Channel, file: SubModelFile, sub_model: SubModel, options: SessionOptions) -> None:
    idle = idle_model()
    first = OpenModel(SubModelFile(idle.content), idle.inputs, idle.outputs, options, arena=True)
    session = OpenModel(file, sub_model.inputs, sub_model.outputs, options, arena=True)
    connection.send((first.parameter_bytes, session.parameter_bytes, session.peak_bytes()))
    connection.recv()


@pytest.mark.slow
def test_memory_is_that_of_the_weights_and_of_the_tensors_between_layers(
    options: SessionOptions, residual_model: Models
) -> None:
    model = residual_model(4, 1024)  # 4 x 4 MiB
    sub_model = model.source.cut(model.graph, LayerRange(0, 9), 2048)  # tensors of 8 MiB
    idle_bytes, parameter_bytes, peak_bytes = in_worker(load_and_measure, sub_model, options)
    on_gpu = options.runtime == "cuda"
    assert idle_bytes < (CONTEXT_BYTES if on_gpu else 16 * MIB)
    n_copies = 2 if options.runtime == "openvino" else 1  # as in the file, and as its products read them
    short = 2 if options.precision in SHORT else 1
    slack_bytes = 2 * 8 * MIB + GPU_SLACK_BYTES if on_gpu else 0  # also the inputs and outputs
    assert 16 * MIB / short <= parameter_bytes <= n_copies * 16 * MIB + 6 * MIB + slack_bytes
    assert 8 * MIB / short <= peak_bytes <= 2 * 8 * MIB + 2 * MIB + slack_bytes


def run_with_too_little(connection: Channel, file: SubModelFile, sub_model: SubModel, options: SessionOptions) -> None:
    session = OpenModel(file, sub_model.inputs, sub_model.outputs, options, arena=True)
    inputs, outputs = session.example_arrays()
    unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    failures = []
    for spare_bytes in (1 * MIB, 12 * MIB):  # less than a tensor, and less than two
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + spare_bytes, unlimited[1]))
        try:
            session.model.run(inputs, outputs)
        except Exception as error:  # noqa: BLE001 (runtimes have no common class)
            failures.append(session.runtime.is_memory_error(error))
        resource.setrlimit(resource.RLIMIT_DATA, unlimited)
    session.model.run(inputs, outputs)
    connection.send((failures, float(np.abs(outputs["y"]).sum())))
    connection.recv()


def run_with_a_small_arena(
    connection: Channel, file: SubModelFile, sub_model: SubModel, options: SessionOptions
) -> None:
    failures = []
    most_bytes = (6 if options.precision in SHORT else 12) * MIB  # less than weights and a tensor
    for limit_bytes in (1 * MIB, most_bytes, None):  # the first is less than a weight
        try:
            session = OpenModel(file, sub_model.inputs, sub_model.outputs, options, arena=True, limit_bytes=limit_bytes)
            inputs, outputs = session.example_arrays()
            session.model.run(inputs, outputs)
        except Exception as error:  # noqa: BLE001 (runtimes have no common class)
            failures.append(runtime_named(options.runtime).is_memory_error(error))
    connection.send((failures, float(np.abs(outputs["y"]).sum())))
    connection.recv()


@pytest.mark.slow
def test_a_failed_allocation_is_an_exception_that_is_known_and_the_session_lives_on(
    options: SessionOptions, residual_model: Models
) -> None:
    model = residual_model(2, 1024)
    sub_model = model.source.cut(model.graph, LayerRange(0, 5), 2048)
    is_limited = runtime_named(options.runtime).limits_process
    failures, total = in_worker(run_with_too_little if is_limited else run_with_a_small_arena, sub_model, options)
    assert failures[0] is True
    assert all(failures)
    assert is_limited or len(failures) == 2
    assert total > 0


def resources(options: SessionOptions, budget_bytes: int = 1 << 40) -> list[list[StageResources]]:
    return [[StageResources(cores_of(0, 1), options, budget_bytes)]]


@pytest.mark.slow
def test_a_stage_that_exceeds_its_budget_is_out_of_memory(options: SessionOptions, residual_model: Models) -> None:
    model = residual_model(4, 1024)
    stages = [LayerRange(0, 9)]
    with (
        pytest.raises(OutOfMemory) as failure,
        Pipelines(model.graph, model.source, stages, 2048, resources(options, 24 * MIB)),
    ):
        pass
    assert failure.value.layers == stages[0]
    most_bytes = CONTEXT_BYTES if options.runtime == "cuda" else 64 * MIB
    assert MIB < failure.value.excess_bytes < most_bytes


@pytest.mark.slow
def test_a_killed_process_is_lost_and_nothing_is_left(options: SessionOptions, residual_model: Models) -> None:
    model = residual_model(1, 64)
    x = example(Port("x", (2, 64), "float32"))
    with Pipelines(model.graph, model.source, [LayerRange(0, 3)], 2, resources(options)):
        pass  # what is started once for a process stays
    n_before = n_descriptors()

    def batches() -> Iterator[dict[str, Any]]:
        yield {"x": x}
        os.kill(pid, signal.SIGKILL)
        while True:
            yield {"x": x}

    with Pipelines(model.graph, model.source, [LayerRange(0, 3)], 2, resources(options)) as pipelines:
        (pid,) = pipelines.pids
        with pytest.raises(WorkerLost):
            pipelines.stream(batches(), lambda *_: None)
    wait_until(lambda: not is_running(pid), "the process has ended")
    assert n_descriptors() == n_before


def threads_of(connection: Channel, file: SubModelFile, sub_model: SubModel, options: SessionOptions) -> None:
    os.sched_setaffinity(0, cores_of(0, 1))
    session = OpenModel(file, sub_model.inputs, sub_model.outputs, options, arena=True)
    arrays = session.example_arrays()
    start = session.model.cpu_time_ns()
    for _ in range(20):
        session.model.run(*arrays)
    took_ns = session.model.cpu_time_ns() - start
    tasks = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    connection.send((took_ns, [sorted(os.sched_getaffinity(task)) for task in tasks]))
    connection.recv()


@pytest.mark.slow
def test_all_threads_stay_on_the_cores_of_the_process_and_the_cpu_time_is_that_of_the_work(
    options: SessionOptions, residual_model: Models
) -> None:
    model = residual_model(2, 1024)
    small, large = (model.source.cut(model.graph, LayerRange(0, 5), n) for n in (4, 1024))
    (few_ns, affinities), (many_ns, _) = (in_worker(threads_of, part, options) for part in (small, large))
    assert {tuple(cores) for cores in affinities} == {cores_of(0, 1)}
    factor = 0 if options.runtime == "cuda" else 4  # a GPU computes both in the time of a start
    assert many_ns > factor * few_ns >= 0


@pytest.mark.slow
def test_the_meter_measures_a_product_and_one_process_serves_all_requests(
    meter: Meter, options: SessionOptions, residual_model: Models
) -> None:
    model = residual_model(1, 1024)
    idle = meter.measure(idle_model(), LayerRange(0, 1))
    product = meter.measure(model.source.cut(model.graph, LayerRange(0, 1), 256), LayerRange(0, 1))
    assert idle.times.core_ns < product.times.core_ns / 10
    on_gpu = options.runtime == "cuda"
    assert idle.session_bytes < (CONTEXT_BYTES if on_gpu else 16 * MIB)
    assert idle.parameter_bytes < 2 * MIB + on_gpu * GPU_SLACK_BYTES
    if not on_gpu:  # where a session takes what an earlier one has left with the driver
        assert product.parameter_bytes >= 4 * MIB / (2 if options.precision in SHORT else 1) - MIB
    broken = SubModel(b"no model", (), ())
    with pytest.raises(BadInput, match=rf"{runtime_named(options.runtime).title} does not read layers \[4, 7\): "):
        meter.measure(broken, LayerRange(4, 7))
    meter.measure(idle_model(), LayerRange(0, 1))
    assert isinstance(meter._machine, LocalMachine)
    assert len(meter._machine.workers.pids) == 1


@pytest.mark.slow
def test_nodes_are_timed_under_names_that_the_file_knows(options: SessionOptions, meter: Meter) -> None:
    """The nodes of this file have no names, and every runtime joins most of them."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
    graph, batch_size = load_graph(str(path)), 4
    layers = LayerRange(0, len(graph))
    nodes = meter.node_times(onnx_source(str(path)).cut(graph, layers, batch_size), layers)
    if options.runtime == "cuda":
        assert nodes == ()
        return
    assert min(node.seconds for node in nodes) >= 0
    assert sum(node.seconds for node in nodes) > 0
    seconds = layer_seconds(graph, [node._replace(seconds=1.0) for node in nodes])  # what takes how long is chance
    assert seconds is not None
    assert min(layer_s for layer, layer_s in zip(graph.layers, seconds, strict=True) if layer.op == "Conv") >= 1


def test_what_is_in_force_is_read_back(options: SessionOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = idle_model()
    file = SubModelFile(idle.content)
    runtime = runtime_named(options.runtime)
    OpenModel(file, idle.inputs, idle.outputs, options)
    asked = runtime.expected(options)
    monkeypatch.setattr(type(runtime), "expected", lambda *_: EffectiveOptions(asked.device, "int4", 3, "7 streams"))
    with pytest.raises(
        BadInput, match=f"{runtime.title} was asked for int4 on {asked.device} with 3 threads, 7 streams, it has"
    ):
        OpenModel(file, idle.inputs, idle.outputs, options)
    file.close()


def others(knob: Knob) -> list[Any]:
    """The values of a knob besides its default, or one of them."""
    if knob.domain.kind is bool:
        return [not knob.default]
    return [knob.domain.read(each) for each in knob.domain.words if each != knob.default] or [knob.default + 1]


def test_options_are_in_force_and_read_back(options: SessionOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, runtime = idle_model(), runtime_named(options.runtime)
    file, values = SubModelFile(idle.content), {**options.session.values, "runtime": options.runtime}
    plain = runtime.expected(options._replace(n_threads=2))
    own = [knob for knob in options.session.knobs if knob not in (CORES_PER_DEVICE, PRECISION)]
    assert own
    for chosen in ({knob.field: value} for knob in own for value in others(knob)):
        wanted = options._replace(n_threads=2, session=session_of({**values, "cores_per_device": 2, **chosen}))
        OpenModel(file, idle.inputs, idle.outputs, wanted)
        assert runtime.expected(wanted) != plain
        with monkeypatch.context() as patched:
            patched.setattr(type(runtime), "expected", lambda *_: plain)
            asked = f"^{runtime.title} was asked for .* threads, {plain.options}, it has .*"
            with pytest.raises(BadInput, match=asked):
                OpenModel(file, idle.inputs, idle.outputs, wanted)
    file.close()


def test_a_micro_batch_in_parts_has_the_outputs_of_one_that_is_whole(
    options: SessionOptions, residual_model: Models
) -> None:
    """Only OpenVINO has streams; the others compute the whole batch."""
    model = residual_model(2, 16)
    whole, two = LayerRange(0, len(model.graph)), options.runtime == "openvino"
    sub_model = cut_in_parts(model.source, model.graph, whole, 6, 2 if two else 1)
    assert sub_model.inputs == model.source.cut(model.graph, whole, 6).inputs
    x = np.random.default_rng(2).standard_normal((6, 16)).astype(np.float32)
    session = OpenVinoSession(2, options.precision, streams=2) if two else options.session
    in_parts = options._replace(n_threads=2, session=session)
    outputs = outputs_of(sub_model, in_parts, {"x": x})
    assert relative_error(outputs["y"], model.outputs({"x": x}, 6)[0]) <= TOLERANCE[options.precision]


def test_onnx_runtime_never_computes_in_bf16() -> None:
    pytest.importorskip("onnxruntime")
    idle = idle_model()
    file = SubModelFile(idle.content)
    with pytest.raises(BadInput, match="ONNX Runtime was asked for bf16"):
        OpenModel(file, idle.inputs, idle.outputs, SessionOptions(1, OnnxRuntimeSession(precision=Precision.BF16)))
    file.close()


def test_a_runtime_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.targets.host.runtimes.session.find_spec", lambda package: None)
    assert registry.installed() == ()
    with pytest.raises(MissingExtra, match=r"--runtime openvino needs the extra openvino; try: .*openvino>="):
        check_installed("openvino")
    with pytest.raises(MissingExtra, match=r"running on the host needs the extra host"):
        installed_versions.__wrapped__()
