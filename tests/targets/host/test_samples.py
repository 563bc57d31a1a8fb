"""Inputs that a user gives: how their file is read, what a micro-batch has of them, and where they are used."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import onnx
import pytest

from autoauto.graph.cut import OnnxSource, onnx_source
from autoauto.records.costs.options import CompileOptions, SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerRange, Port
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import GIB, MIB, Precision
from autoauto.targets.host import samples as samples_module
from autoauto.targets.host.devices import HostDevices
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.run.pipelines import Pipelines
from autoauto.targets.host.run.run import inputs_of, reference_outputs
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.samples import InputSamples, read_model_samples
from autoauto.targets.host.target import HostTarget
from tests.graph.conftest import make

WHOLE = LayerRange(0, 4)
LINK = Link(1e9, 1000)
IDS = np.array([[1, 2, 3], [4, 1, 2], [3, 4, 1]])
MASK = np.array([[True], [False], [True]])


@pytest.fixture
def source(tmp_path: Path) -> OnnxSource:
    """Rows of a table by numbers from 1 to 4 less 5, so that the zeros of a made-up input are out of range."""
    table = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    program = "Sub ids five > i; Gather table i > rows; Tanh rows > t; Neg t > y"
    model = make(program, {"int:ids": ["n", 3]}, "y", {"table": table, "five": np.array(5)})
    path = tmp_path / "rows.onnx"
    onnx.save(model, path)
    return onnx_source(str(path))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    def write(**arrays: Any) -> str:
        np.savez(tmp_path / "inputs.npz", **arrays)
        return str(tmp_path / "inputs.npz")

    return write


def samples_of(ids: Any = IDS) -> InputSamples:
    return InputSamples("inputs.npz", {"ids": ids}, {"ids": 0}, "digest")


def test_a_micro_batch_has_the_first_samples_and_those_again_where_it_has_more(
    source: OnnxSource, save: Callable[..., str]
) -> None:
    samples = read_model_samples(save(ids=IDS), source, source.graph)
    for n in (1, 2, 3, 7):
        batch = samples.batch(source.carried(source.graph, 0, n))["ids"]
        assert batch.tolist() == [IDS[i % 3].tolist() for i in range(n)]
    assert samples.note.startswith("inputs are those of ")


def test_samples_lie_along_the_batch_axis_wherever_that_is() -> None:
    words = np.arange(6).reshape(2, 3)
    samples = InputSamples("x", {"words": words, "scale": np.ones(2)}, {"words": 1, "scale": None}, "")
    batch = samples.batch([Port("words", (2, 4), "int64"), Port("scale", (2,), "float64")])
    assert batch["words"].tolist() == [[0, 1, 2, 0], [3, 4, 5, 3]]
    assert batch["scale"].tolist() == [1, 1]


def test_other_inputs_are_another_target_and_equal_ones_are_not(source: OnnxSource, save: Callable[..., str]) -> None:
    first, again = (read_model_samples(save(ids=IDS), source, source.graph) for _ in range(2))
    other = read_model_samples(save(ids=IDS[::-1]), source, source.graph)
    assert first.digest == again.digest != other.digest
    versions = [HostTarget(source, samples=samples).version for samples in (None, first, other)]
    assert len(set(versions)) == 3
    assert versions[1] == f"{versions[0]}, inputs {first.digest}"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"must have an array for each input of rows \(ids\) and no other, ids is missing; write it with"),
        ({"ids": IDS, "mask": MASK}, r"and no other, mask is too many; write"),
        ({"id": IDS}, r"and no other, ids is missing and id is too many; write"),
        (
            {"ids": IDS.astype(np.int32)},
            r"^input ids in .* must be int64 of shape \[samples, 3\] .*, got int32 of shape",
        ),
        (
            {"ids": IDS[:, :2]},
            r"must be int64 of shape \[samples, 3\] with a sample or more, got int64 of shape \[3, 2\]",
        ),
        ({"ids": IDS[0]}, r"must be int64 of shape \[samples, 3\] .*, got int64 of shape \[3\]; write"),
        ({"ids": IDS[:0]}, r"with a sample or more, got int64 of shape \[0, 3\]; write"),
        ({"ids": np.array(3)}, r"got int64 of shape \[\]; write"),
        ({"ids": np.array([{}])}, r"must be an npz file of numbers, it is not; write it with numpy.savez$"),
    ],
)
def test_wrong_arrays_are_refused_in_one_line(
    arrays: dict[str, Any], message: str, source: OnnxSource, save: Callable[..., str]
) -> None:
    with pytest.raises(BadInput, match=message) as failure:
        read_model_samples(save(**arrays), source, source.graph)
    assert "\n" not in str(failure.value)


def test_inputs_have_as_many_samples_as_each_other(tmp_path: Path, save: Callable[..., str]) -> None:
    path = tmp_path / "two.onnx"
    onnx.save(make("Add a b > y", {"a": ["n", 2], "b": ["n", 2]}, "y"), path)
    two = onnx_source(str(path))
    a, b = np.zeros((3, 2), np.float32), np.zeros((2, 2), np.float32)
    with pytest.raises(BadInput, match=r"must have as many samples, got 3 for a, 2 for b; leave the others out$"):
        read_model_samples(save(a=a, b=b), two, two.graph)


def test_a_file_with_a_fixed_batch_takes_inputs_of_that_shape(tmp_path: Path, save: Callable[..., str]) -> None:
    path = tmp_path / "fixed.onnx"
    onnx.save(make("Tanh x > a; Softmax a > y axis=0", {"x": [2, 4]}, "y"), path)
    fixed = onnx_source(str(path))
    x = np.ones((2, 4), np.float32)
    samples = read_model_samples(save(x=x), fixed, fixed.graph)
    assert samples.batch(fixed.carried(fixed.graph, 0, 1))["x"].shape == (2, 4)
    with pytest.raises(BadInput, match=r"must be float32 of shape \[2, 4\] .*, got float32 of shape \[4, 4\]"):
        read_model_samples(save(x=np.ones((4, 4), np.float32)), fixed, fixed.graph)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off", None])
def test_a_file_that_is_no_npz_is_refused(content: bytes | None, source: OnnxSource, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    if content is not None:
        path.write_bytes(content)
    message = "must be an npz file of numbers" if content is not None else "cannot be read: No such file or directory"
    with pytest.raises(BadInput, match=message):
        read_model_samples(str(path), source, source.graph)
    np.save(tmp_path / "one.npy", IDS)
    with pytest.raises(BadInput, match=r"it holds one array without a name; try numpy\.savez$"):
        read_model_samples(str(tmp_path / "one.npy"), source, source.graph)


def test_another_process_gets_them_with_the_target(source: OnnxSource) -> None:
    again = pickle.loads(pickle.dumps(HostTarget(source, devices=HostDevices(("GPU-a",)), samples=samples_of())))
    assert again.samples.arrays["ids"].tolist() == IDS.tolist()
    assert again._devices == HostDevices(("GPU-a",))


@pytest.fixture
def meter() -> Iterator[Meter]:
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    with Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession())) as meter:
        yield meter


@pytest.mark.slow
def test_the_meter_runs_layers_on_them(source: OnnxSource, meter: Meter) -> None:
    whole, part = (source.cut(source.graph, layers, 2) for layers in (WHOLE, LayerRange(1, 4)))
    given = samples_of().batch(whole.inputs)
    assert meter.measure(whole, WHOLE, given).times.core_ns > 0
    assert meter.measure(part, LayerRange(1, 4), given).times.core_ns > 0  # what other layers write is made up
    with pytest.raises(BadInput, match=r"out of data bounds.*; if it does not take made-up inputs, try --inputs$"):
        meter.measure(whole, WHOLE)


@pytest.mark.slow
def test_stages_warm_up_on_them(source: OnnxSource) -> None:
    inputs, enough = samples_of().batch(source.carried(source.graph, 0, 2)), [[_resources(), _resources()]]
    received: list[Any] = []
    for stages in ([LayerRange(0, 1), LayerRange(1, 4)], [LayerRange(0, 3), LayerRange(3, 4)]):
        with Pipelines(source.graph, source, stages, 2, enough, given=inputs) as pipelines:
            pipelines.stream(iter([inputs]), lambda _pipeline, _number, batch: received.append(batch["y"].copy()))
    np.testing.assert_array_equal(*received)
    with pytest.raises(Exception, match="out of data bounds"):
        Pipelines(source.graph, source, [WHOLE], 2, [[_resources()]]).__enter__()


@pytest.mark.slow
def test_plans_are_measured_and_outputs_compared_on_them(source: OnnxSource) -> None:
    plan = Plan((Stage(WHOLE, 0, 9, 0, 0, 0, {}, 1),))
    cluster = Cluster("host", "host", (Device("core", 1e9, GIB, 1, GIB),), (LINK,), (LINK,))
    samples, options = samples_of(), CompileOptions(4, Precision.FP32, session=OnnxRuntimeSession())
    with HostTarget(source, samples=samples) as target:
        run = target.run(source.graph, plan, cluster, options, 1)
        assert run.plan.stages[0].forward_cycles > 0
        assert target.compile(source.graph, WHOLE, cluster.devices[0], options)
    first, other = (reference_outputs(source, source.graph, plan, 2, of)["y"] for of in (samples, samples_of(IDS[1:])))
    np.testing.assert_array_equal(first[1], other[0])  # the second sample is the first of the other
    assert inputs_of(source, source.graph, 2, samples)["ids"].tolist() == IDS[:2].tolist()


def _resources() -> StageResources:
    return StageResources(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()), 512 * MIB)


def claims(shape: str, kind: str = "<f4", rest: bytes = b"") -> bytes:
    """An array whose header has a shape, with `rest` behind it."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + rest


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (claims("(1099511627776, 2)"), "must have the bytes of its shape, 8.7961e[+]12, got 0; write it again"),
        (claims("(2, 2)", rest=b"\0" * 12), "must have the bytes of its shape, 16, got 12"),
        (claims("(-1, -4)", rest=b"\0" * 16), "must have the bytes of its shape"),
        (claims("(2, 10000000000000000000000000)"), "must have the bytes of its shape, 8e[+]25"),
        (claims("(" * 90), "must be an npz file of numbers"),
        (claims("(2, 'a')"), "must be an npz file of numbers"),
        (b"no array", "must be an npz file of numbers"),
        (b"", "must be an npz file of numbers"),
    ],
)
def test_an_npz_file_that_lies_or_unpacks_to_too_much_is_one_line(
    source: OnnxSource, member: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "lies.npz"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("ids.npy", member)
    with pytest.raises(BadInput, match=message) as refused:
        read_model_samples(str(path), source, source.graph)
    assert "\n" not in str(refused.value)


def test_an_npz_file_is_not_unpacked_beyond_a_limit(
    source: OnnxSource, save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples_module, "MAX_INPUT_BYTES", 100)
    with pytest.raises(BadInput, match="must have at most 100 bytes, got 200; leave samples out"):
        read_model_samples(save(ids=IDS), source, source.graph)
