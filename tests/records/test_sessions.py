"""Which runtime computes in which format, and what of both a space holds."""

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.space import SearchSpace
from autoauto.records.profile import HostPrecision, HostRuntime, runtime_for

ORT, OPENVINO, CUDA = HostRuntime
FP32, BF16, TF32 = HostPrecision


@pytest.mark.parametrize("runtime", [None, *HostRuntime])
@pytest.mark.parametrize("precision", [None, *HostPrecision])
def test_the_default_runtime_computes_in_the_format_and_a_given_one_stays(
    runtime: HostRuntime | None, precision: HostPrecision | None
) -> None:
    chosen, computed = Knobs(1, 1.0, 1, runtime=runtime, precision=precision).session
    assert chosen is runtime_for(runtime, precision)
    assert chosen is runtime or (runtime is None and computed in chosen.precisions)
    assert computed is (precision or FP32)


def test_a_space_has_only_what_a_runtime_computes() -> None:
    space = SearchSpace((1,), (1.0,), (1, 2), runtime=(ORT, OPENVINO), precision=(FP32, BF16))
    assert [cell[0].session for cell in space.cells] == [(ORT, FP32), (OPENVINO, FP32), (OPENVINO, BF16)]
    assert Knobs(1, 1.0, 1, runtime=OPENVINO, precision=BF16) in space
    assert Knobs(1, 1.0, 1, runtime=ORT, precision=BF16) not in space
    assert space.n_configurations == 6
    on_gpus = SearchSpace((1,), (1.0,), (1,), runtime=(CUDA,), precision=(FP32, BF16, TF32))
    assert [cell[0].session for cell in on_gpus.cells] == [(CUDA, FP32), (CUDA, TF32)]


def test_a_space_of_nothing_that_can_be_computed_is_refused() -> None:
    with pytest.raises(BadInput, match="onnxruntime does not compute in bf16; try another --runtime"):
        SearchSpace((1,), (1.0,), (1,), runtime=(ORT,), precision=(BF16,))


def test_words_of_no_runtime_are_refused() -> None:
    with pytest.raises(BadInput, match="runtime takes a tuple of the words onnxruntime, openvino"):
        SearchSpace(runtime=("tensorrt",))  # type: ignore[arg-type]
