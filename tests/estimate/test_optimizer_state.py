"""Profiles with what the optimizer holds."""

from dataclasses import replace

from autoauto.estimate.memory import range_memory, stage_with_optimizer_state, with_optimizer_state
from autoauto.records.costs.memory import StageBytes
from autoauto.records.costs.profile import (
    GRADIENT,
    PARAMETER,
    TEMPORARY,
    LayerProfile,
    ModelProfile,
    Optimizer,
    WeightUpdate,
)
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision

MOMENTUM, ADAM = WeightUpdate(Optimizer.MOMENTUM), WeightUpdate(Optimizer.ADAM)


def profile(*memory: tuple[dict[str, int], dict[str, int]]) -> ModelProfile:
    """Layers by their shared and exclusive bytes."""
    layers = tuple(LayerProfile(1, 2, shared, exclusive, 0, 0, 0, 0, 0) for shared, exclusive in memory)
    names = tuple(f"layer{i}" for i in range(len(layers)))
    return ModelProfile("model", "ipu", None, names, names, (None,) * len(layers), layers)


def test_states_are_categories_of_their_own() -> None:
    made = with_optimizer_state(profile(({}, {PARAMETER: 60, GRADIENT: 50})), ADAM, Precision.FP16)
    assert made.layers[0].exclusive == {PARAMETER: 60, GRADIENT: 50, "firstMoment": 100, "secondMoment": 100}


def test_tied_weights_have_their_states_once() -> None:
    tied = profile(*[({"gradient_7": 40}, {GRADIENT: 10})] * 2)
    memory = range_memory(with_optimizer_state(tied, MOMENTUM, Precision.FP16)).by_category(0, 2, 0)
    assert memory["velocity"] == 40 + 10 + 10


def test_profiles_without_gradients_have_states_of_their_parameters() -> None:
    made = with_optimizer_state(profile(({}, {PARAMETER: 60}), ({}, {})), ADAM, Precision.FP32)
    assert [layer.exclusive.get("firstMoment", 0) for layer in made.layers] == [60, 0]


def test_plain_gradient_descent_changes_nothing() -> None:
    plain = profile(({}, {GRADIENT: 10}))
    assert with_optimizer_state(plain, WeightUpdate(), Precision.FP16) is plain


def test_the_update_of_the_largest_tensor_is_temporary_memory_and_one_tensor_is_updated_after_the_other() -> None:
    streamed = ADAM._replace(streams=True)
    made = with_optimizer_state(profile(({"gradient_7": 40}, {GRADIENT: 10}), ({}, {})), streamed, Precision.FP16)
    assert [layer.temporary_bytes for layer in made.layers] == [40 * 7, 0]
    memory = range_memory(made).by_category(0, 2, 0)
    assert memory[TEMPORARY] == 40 * 7
    assert "firstMoment" not in memory


def test_layers_that_need_more_while_they_run_need_no_more() -> None:
    layer = replace(profile(({}, {GRADIENT: 10})).layers[0], temporary_bytes=25, carried_bytes=40)
    before = replace(profile(({}, {GRADIENT: 10})), layers=(layer,))
    assert with_optimizer_state(before, ADAM, Precision.FP16).layers[0].temporary_bytes == 25


def test_weights_that_other_stages_read_too_are_shared_and_so_are_their_states() -> None:
    """Compiled alone, both layers have 70 bytes of weights and of gradients, 40 of them tied with another stage."""
    tied: tuple[dict[str, int], dict[str, int]] = (
        {"parameter_7": 40, "gradient_7": 40, "vertexCode_a": 9},
        {PARAMETER: 10, GRADIENT: 10},
    )
    layers = profile(({}, {}), tied, ({}, {PARAMETER: 20, GRADIENT: 20}), ({}, {GRADIENT: 9999})).layers
    compiled = StageBytes({PARAMETER: 70, GRADIENT: 70}, {"vertexCode_a": 9}, 5, 3)
    stage = stage_with_optimizer_state(compiled, LayerRange(1, 3), layers, ADAM, Precision.FP16)
    assert stage.exclusive_bytes == {PARAMETER: 30, GRADIENT: 30, "firstMoment": 60, "secondMoment": 60}
    assert stage.shared_bytes == {
        "vertexCode_a": 9,
        **{"parameter_7": 40, "gradient_7": 40, "firstMoment_7": 80, "secondMoment_7": 80},
    }
    # While the tied weights are updated: their gradients in fp32, and the change of the weights.
    assert (stage.temporary_bytes, stage.entry_bytes) == (80 + 40, 3)
    larger = compiled._replace(temporary_bytes=121)
    again = stage_with_optimizer_state(larger, LayerRange(1, 3), layers, ADAM, Precision.FP16)
    assert again.temporary_bytes == 121
