from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import Family, OperatorContext
from autoauto.targets.ipu.operators import rows
from autoauto.targets.ipu.operators.elementwise import elementwise
from autoauto.targets.ipu.operators.registry import forward_cost

MakeContext = Callable[..., OperatorContext]


def layer_norm(context_of: MakeContext, node: Any, n_rows: int, width: int = 1152) -> int:
    return rows.layer_norm(context_of(node("LayerNormalization", [f"x:1x{n_rows}x{width}"], (1, n_rows, width)))).cycles


def test_as_many_rows_as_tiles_take_one_row_each(context_of: MakeContext, node: Any) -> None:
    assert (
        rows.layer_norm(context_of(node("LayerNormalization", ["x:1x1472x144"], (1, 1472, 144)))).compute_cycles == 2196
    )


def test_few_rows_are_cut_over_tiles(context_of: MakeContext, node: Any) -> None:
    assert layer_norm(context_of, node, 8) < kernels.layernorm(1, 1152, Precision.FP16)
    assert layer_norm(context_of, node, 8) <= layer_norm(context_of, node, 800) <= layer_norm(context_of, node, 8000)


def test_groups_and_instances_are_rows(context_of: MakeContext, node: Any) -> None:
    group = rows.group_norm(context_of(node("GroupNormalization", ["x:1x32x28x28"], (1, 32, 28, 28), num_groups=4)))
    instance = rows.group_norm(context_of(node("InstanceNormalization", ["x:1x32x28x28"], (1, 32, 28, 28))))
    assert group.family is instance.family is Family.NORM
    assert min(group.cycles, instance.cycles) > 0


def test_batches_are_normalised_by_their_statistics_in_training_only(context_of: MakeContext, node: Any) -> None:
    layer = node("BatchNormalization", ["x:1x64x28x28", *[(64,)] * 4], (1, 64, 28, 28))
    inference, training = context_of(layer), context_of(layer)
    training = training._replace(options=replace(training.options, training=True))
    assert rows.batch_norm(inference) == elementwise(inference)
    statistics = rows.batch_norm(training)
    assert statistics.family is Family.NORM
    assert statistics.cycles > rows.batch_norm(inference).cycles
    assert statistics == rows.group_norm(context_of(node("InstanceNormalization", ["x:1x64x28x28"], (1, 64, 28, 28))))


def test_an_axis_or_a_channel_is_normalised(context_of: MakeContext, node: Any) -> None:
    along = rows.field_norm(context_of(node("LpNormalization", ["x:1x64x128"], (1, 64, 128), axis=1)))
    whole = rows.field_norm(context_of(node("MeanVarianceNormalization", ["x:1x3x64x64"], (1, 3, 64, 64))))
    assert min(along.cycles, whole.cycles) > 0


def test_softmax_of_a_tile_is_the_kernel(context_of: MakeContext, node: Any) -> None:
    cost = rows.softmax(context_of(node("Softmax", ["x:1x11776x64"], (1, 11776, 64), axis=-1)))
    assert cost.compute_cycles == 2664
    assert cost.follows >= 0


def test_softmax_cuts_long_rows_when_tiles_are_free(context_of: MakeContext, node: Any) -> None:
    cost = rows.softmax(context_of(node("Softmax", ["x:1x30522"], (1, 30522), axis=-1)))
    assert cost.exchange_cycles > 0
    assert cost.compute_cycles < kernels.softmax(1, 30522, Precision.FP16) / 8


def test_reductions_grow_with_what_they_read(context_of: MakeContext, node: Any) -> None:
    def cycles(channels: int, side: int) -> int:
        return rows.reduction(
            context_of(node("GlobalAveragePool", [f"x:1x{channels}x{side}x{side}"], (1, channels, 1, 1)))
        ).cycles

    assert 0 < cycles(2048, 7) < cycles(2048, 28) < cycles(2048, 112)


def test_one_output_of_many_inputs_goes_in_stages(context_of: MakeContext, node: Any) -> None:
    cost = rows.reduction(context_of(node("ReduceSum", ["x:1x1000000"], (1, 1))))
    assert cost.exchange_cycles > kernels.SYNC_CYCLES
    assert cost.cycles < kernels.reduce(1, 1_000_000, Precision.FP16) / 10


def test_maxima_need_other_code(context_of: MakeContext, node: Any) -> None:
    biggest = rows.reduction(context_of(node("ReduceMax", ["x:1x64x64"], (1, 64))))
    total = rows.reduction(context_of(node("ReduceSum", ["x:1x64x64"], (1, 64))))
    assert biggest.codelets != total.codelets
    assert biggest.cycles == total.cycles


def test_a_reduction_of_more_samples_never_takes_less(context_of: MakeContext, node: Any) -> None:
    """With more outputs each is cut into fewer pieces: 3 at one sample, 1 from two on."""
    mean = node("ReduceMean", ["x:1x384x768"], (1, 384, 1))
    costs = [forward_cost(context_of(mean, n)) for n in (1, 2, 3, 4, 8)]
    assert [cost.n_sources for cost in costs] == [3] * 5
    assert [cost.working_bytes for cost in costs] == [4 * 3 * 384, *[4 * 1472] * 2, 4 * 4 * 384, 4 * 8 * 384]
