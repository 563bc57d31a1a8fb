"""Which runtime computes in which format, and what of both a space holds."""

from typing import Any

import pytest

from autoauto.records.costs.options import GraphOptimization, HostPrecision, HostRuntime, RuntimeOptions, runtime_for
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace

ORT, OPENVINO, CUDA = HostRuntime
FP32, BF16, TF32, FP16 = HostPrecision


@pytest.mark.parametrize("runtime", [None, *HostRuntime])
@pytest.mark.parametrize("precision", [None, *HostPrecision])
def test_the_default_runtime_computes_in_the_format_and_a_given_one_stays(
    runtime: HostRuntime | None, precision: HostPrecision | None
) -> None:
    chosen, computed = Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, runtime=runtime, precision=precision).session
    assert chosen is runtime_for(runtime, precision)
    assert chosen is runtime or (runtime is None and computed in chosen.precisions)
    assert computed is (precision or FP32)


def test_a_space_has_only_what_a_runtime_computes() -> None:
    space = SearchSpace((1,), (1.0,), (1, 2), runtime=(ORT, OPENVINO), precision=(FP32, BF16))
    assert [cell[0].session for cell in space.cells] == [(ORT, FP32), (OPENVINO, FP32), (OPENVINO, BF16)]
    assert Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, runtime=OPENVINO, precision=BF16) in space
    assert Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, runtime=ORT, precision=BF16) not in space
    assert space.n_configurations == 6
    on_gpus = SearchSpace((1,), (1.0,), (1,), runtime=(CUDA,), precision=(FP32, BF16, TF32, FP16))
    assert [cell[0].session for cell in on_gpus.cells] == [(CUDA, FP32), (CUDA, TF32), (CUDA, FP16)]


def test_a_space_of_nothing_that_can_be_computed_is_refused() -> None:
    with pytest.raises(BadInput, match="onnxruntime does not compute in bf16; try another --runtime"):
        SearchSpace((1,), (1.0,), (1,), runtime=(ORT,), precision=(BF16,), constraints=(Constraint("n_devices <= 2"),))
    with pytest.raises(BadInput, match="onnxruntime does not compute in tf32; try --device cuda:0"):
        SearchSpace((1,), (1.0,), (1,), runtime=(ORT, OPENVINO), precision=(TF32,))


def test_words_of_no_runtime_are_refused() -> None:
    with pytest.raises(BadInput, match="runtime takes a tuple of the words onnxruntime, openvino"):
        SearchSpace(runtime=("tensorrt",))  # type: ignore[arg-type]


def test_a_knob_that_a_runtime_does_not_have_does_not_multiply_its_configurations() -> None:
    space = SearchSpace(
        (1,),
        (1.0,),
        (1, 2, 3, 4),
        cores_per_device=(1, 2),
        runtime=(ORT, OPENVINO),
        streams=(1, 2),
        spinning=(False, True),
        graph_optimization=(GraphOptimization.BASIC,),
    )
    cells = [(cell[0].session[0], cell[0].cores_per_device, cell[0].runtime_options) for cell in space.cells]
    basic = GraphOptimization.BASIC
    assert cells == [
        (ORT, 1, RuntimeOptions(1, True, basic)),
        (OPENVINO, 1, RuntimeOptions()),
        (ORT, 2, RuntimeOptions(1, False, basic)),
        (ORT, 2, RuntimeOptions(1, True, basic)),
        (OPENVINO, 2, RuntimeOptions()),
        (OPENVINO, 2, RuntimeOptions(2)),
    ]
    assert [knobs.batch_size for knobs in space.cells[-1]] == [2, 4]  # every stream has an equal part
    assert all(knobs in space for cell in space.cells for knobs in cell)
    whole = Knobs(n_ipu=1, memory_proportion=1.0, batch_size=3, cores_per_device=2, runtime=OPENVINO)
    assert whole in space
    assert (
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=3, cores_per_device=2, runtime=OPENVINO, streams=2)
        not in space
    )
    assert Knobs(n_ipu=1, memory_proportion=1.0, batch_size=2, runtime=OPENVINO, graph_optimization=basic) not in space
    assert (
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=2, runtime=ORT) not in space
    )  # graphs are optimized otherwise there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"streams": (2,), "runtime": (ORT,)},
            r"^--streams is for --runtime openvino, got onnxruntime on 1 to 2; leave",
        ),
        (
            {"spinning": (False,), "cores_per_device": (1,)},
            r"^--spinning is for --runtime onnxruntime on several cores",
        ),
        (
            {"graph_optimization": ("off",), "runtime": (OPENVINO,)},
            r"^--graph-optimization is for .*onnxruntime or cuda",
        ),
        (
            {"streams": (3,)},
            r"^streams need a core or more each, .*, got --streams 3 for --cores-per-device 1 to 2 and",
        ),
        ({"streams": (2,), "batch_size": (1, 3)}, r"^streams need .*, and equal parts of a batch, got --streams 2 for"),
    ],
)
def test_options_that_no_configuration_can_have_are_refused(options: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"batch_size": (1, 2), "cores_per_device": (1, 2), "runtime": (ORT, OPENVINO), **options}
    with pytest.raises(BadInput, match=message):
        SearchSpace((1,), (1.0,), **values)
